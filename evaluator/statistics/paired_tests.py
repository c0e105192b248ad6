"""Paired tests of two models' quality, sample by sample.

Both models saw the same samples, so that the difficulty of a sample affects both and cancels in the difference. Where
each sample is right or wrong, McNemar's exact test gives the probability of the split of the samples that only one of
the models decided right. Any other metric is recomputed after the models' answers are exchanged at random, sample by
sample; McNemar's test is the exact form of that.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy
from msgspec import Struct
from msgspec.structs import replace

from benchlock.evaluator.harness.core.job import CLASS_METRICS
from benchlock.evaluator.statistics.class_metrics import read_parts
from benchlock.evaluator.statistics.confidence_intervals import FEWEST_SAMPLES, UNBOUNDED, Tensor, series, student
from benchlock.evaluator.statistics.metric_types import LEVEL, Interval, PairedTest
from benchlock.evaluator.statistics.quality_metrics import THRESHOLDS, precisions, ranks

Floats = npt.NDArray[np.float64]
Measures = Mapping[str, Tensor]
Evaluate = Callable[[Floats], Floats]
"""A function from the weights of both models' answers [draws, 2 * units] to the metric [draws]."""

DRAWS: Final = 1000
PRECISION_DRAWS: Final = 250
"""Draws for average precision, each of which takes as long as hundreds for other metrics."""
_DRAWS_A_COMPARISON: Final = 40
"""With fewer than 20, the least possible ``p``, times the number of comparisons, is never significant."""
SEED: Final = 7
GROUPS: Final = 64
"""The most groups of images for recomputing average precision: each further one costs time and memory."""

AT_ONCE: Final = 2_000_000
"""The number of weights in memory at a time."""
_TIE: Final = 1e-9
"""Relative difference of values that are equal except for the last bits of a sum."""
_ERRORS: Final = ("mae", "rmse")


class PairedTests(Struct, frozen=True):
    """The tests of two models by metric; ``reason`` explains their absence."""

    tests: Mapping[str, PairedTest] = {}
    reason: str | None = None


def compare_measures(metric: str, first: Measures, second: Measures, n: int, comparisons: int = 1) -> PairedTest:
    """Compare the contributions of ``n`` samples to a metric of two models.

    Args:
        metric: The name of the metric.
        first: The measures of the first model, as the harness's tallies return them; for a metric that counts right
            decisions int64 [n, 2], the right decisions and all decisions of each sample.
        second: The measures of the second model.
        n: The number of samples.
        comparisons: The number of locks that are compared with the first one, for which ``adjust`` multiplies ``p``.

    Raises:
        ValueError, KeyError, TypeError: The measures are malformed or missing.
    """
    if metric in CLASS_METRICS:
        return compare_parts(*(read_parts(metric, values[metric], n) for values in (first, second)))
    if metric not in (*_ERRORS, *THRESHOLDS, "miou"):
        counts = [series(values[metric], (n, 2), "i") for values in (first, second)]
        if all((values[:, 1] == 1).all() for values in counts):
            return compare_decisions(counts[0][:, 0] > 0, counts[1][:, 0] > 0)
    units, evaluate = _evaluator(metric, first, second, n)
    draws = max(PRECISION_DRAWS if metric in THRESHOLDS else DRAWS, _DRAWS_A_COMPARISON * comparisons)
    return replace(_resample(units, evaluate, draws), n=n)


def compare_decisions(first: npt.NDArray[np.bool_], second: npt.NDArray[np.bool_]) -> PairedTest:
    """Test by McNemar's exact test (Psychometrika 12, 1947) whether one of two models is right more often.

    Only samples that exactly one model decides right count. If neither model is better, each has half of them: a
    binomial test. The interval excludes 0 wherever ``p`` is at most 5 %.

    Args:
        first: Whether the first model is right, by sample.
        second: Whether the second model is right, by sample.
    """
    n = len(first)
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    discordant = only_first + only_second
    difference = (only_second - only_first) / n
    ci = Interval(-_largest_difference(only_second, only_first, n), _largest_difference(only_first, only_second, n))
    p = min(1.0, 2 * float(scipy.special.bdtr(min(only_first, only_second), discordant, 0.5)))
    return PairedTest("mcnemar", n, difference, ci, p, only_first, only_second, adjusted=p)


def compare_parts(first: Tensor, second: Tensor) -> PairedTest:
    """Test by Student's t of the differences of influences whether the metric of two models differs.

    For the area under the ROC curve it is the test of DeLong, DeLong and Clarke-Pearson (Biometrics 44, 1988). Samples
    that all change alike have no variance: the spread is at least the greatest change of a sample.

    Args:
        first: float64 [samples, 2]: the part of each sample in the first model's value, and its influence.
        second: The same of the second model.
    """
    n, changes = len(first), second - first
    difference = float(changes[:, 0].sum())
    if not np.abs(changes).max() > _TIE / n:
        return PairedTest("linearised", n, 0.0, Interval(0.0, 0.0), 1.0)
    if n < FEWEST_SAMPLES:
        return PairedTest("linearised", n, difference, UNBOUNDED, 1.0)
    largest = float(np.abs(changes[:, 0]).max())
    spread = max(math.sqrt(float(np.square(changes[:, 1]).sum()) * n / (n - 1)), largest)
    half = student(n - 1.0) * spread
    p = 2 * float(scipy.special.stdtr(n - 1, -abs(difference) / spread))
    return PairedTest("linearised", n, difference, Interval(difference - half, difference + half), p, adjusted=p)


def _largest_difference(only_first: int, only_second: int, n: int) -> float:
    """Return the upper end of the interval of the second share minus the first.

    It is Tango's score interval (Statistics in Medicine 17, 1998): the largest difference that its test does not
    reject. Without the continuity correction of half a sample its coverage sometimes falls to 93 %.

    Args:
        only_first: The number of samples that only the first model decides right.
        only_second: The number of samples that only the second model decides right.
        n: The number of samples.
    """
    from scipy.optimize import brentq  # noqa: PLC0415 - slow to import

    lowest = (only_second - only_first + 0.5) / n
    if lowest >= 1:
        return 1.0

    def excess(difference: float) -> float:
        linear = (2 * n - only_second + only_first) * difference - only_second - only_first
        root = math.sqrt(max(0.0, linear**2 + 8 * n * only_first * difference * (1 - difference)))
        variance = (root - linear) / 2 + n * difference * (1 - difference)
        return float(n**2 * (difference - lowest) ** 2 - scipy.special.ndtri((1 + LEVEL) / 2) ** 2 * variance)

    return float(brentq(excess, lowest, 1.0))


def adjust(tests: Sequence[PairedTest]) -> tuple[PairedTest, ...]:
    """Return the tests with ``p`` adjusted for their number (Holm, Scand. J. Statist. 6, 1979).

    The probability of a single false difference among all of them is then at most 5 %.
    """
    adjusted, largest = dict[int, float](), 0.0
    for rank, position in enumerate(sorted(range(len(tests)), key=lambda index: tests[index].p)):
        largest = max(largest, min(1.0, (len(tests) - rank) * tests[position].p))
        adjusted[position] = largest
    return tuple(
        replace(test, comparisons=len(tests), adjusted=adjusted[position]) for position, test in enumerate(tests)
    )


def _resample(units: int, evaluate: Evaluate, draws: int) -> PairedTest:
    """Test by exchange (Noreen, Computer-Intensive Methods for Testing Hypotheses, 1989) and paired bootstrap.

    If neither model is better, their answers to a sample may be exchanged. ``p`` is the share of draws, including the
    real one, whose difference is at least as large. The interval is Student's t with the standard deviation of the
    difference over samples that are drawn with replacement, the same samples for both models.
    """
    real_weights = np.repeat(np.eye(2), units, axis=1)
    first, second = (float(value) for value in evaluate(real_weights))
    difference = second - first
    random = np.random.RandomState(SEED)  # its numbers never change; those of a newer generator may
    exchanged, bootstrapped = list[Floats](), list[Floats]()
    for start in range(0, draws, block := max(1, AT_ONCE // (2 * units))):
        count = min(block, draws - start)
        swaps = random.randint(0, 2, (count, units)).astype(np.float64)
        exchanged.append(evaluate(np.hstack([swaps, 1 - swaps])) - evaluate(np.hstack([1 - swaps, swaps])))
        weights = draw(random, count, units)
        zeros = np.zeros_like(weights)
        bootstrapped.append(evaluate(np.hstack([zeros, weights])) - evaluate(np.hstack([weights, zeros])))
    rounding = _TIE * max(abs(first), abs(second))
    least = abs(difference) * (1 - _TIE) - rounding
    p = (1 + int(np.count_nonzero(~(np.abs(np.concatenate(exchanged)) < least)))) / (1 + draws)
    is_equal = (np.abs(np.concatenate([*exchanged, *bootstrapped])) <= rounding).all()
    ci = Interval(0.0, 0.0) if is_equal else _interval(difference, np.concatenate(bootstrapped), units)
    return PairedTest("resampling", units, difference, ci, p, adjusted=p)


def draw(random: np.random.RandomState, count: int, units: int) -> Floats:
    """Return how often each unit is drawn [count, units], in as many draws with replacement as there are units."""
    indices = random.randint(0, units, (count, units)) + units * np.arange(count)[:, np.newaxis]
    weights: Floats = np.bincount(indices.ravel(), minlength=count * units).reshape(count, units).astype(np.float64)
    return weights


def _interval(difference: float, differences: Floats, units: int) -> Interval:
    differences = differences[np.isfinite(differences)]
    if units < 2 or not len(differences):  # noqa: PLR2004 - one sample has no spread
        return UNBOUNDED
    spread = float(differences.std(ddof=1)) * math.sqrt(units / (units - 1))
    half = float(scipy.special.stdtrit(units - 1, (1 + LEVEL) / 2)) * spread
    return Interval(difference - half, difference + half)


class _Metric(NamedTuple):
    """A metric over ``units``: the samples, or groups of them, that are drawn and exchanged."""

    units: int
    evaluate: Evaluate


def _evaluator(metric: str, first: Measures, second: Measures, n: int) -> _Metric:
    if metric in _ERRORS:
        return _Metric(n, _error(metric, *(series(measures[metric], (n,), "f") for measures in (first, second))))
    if metric == "miou":
        return _Metric(n, _mean_iou(series(first["miou"], (None, 4), "i"), series(second["miou"], (None, 4), "i"), n))
    if metric in THRESHOLDS:
        return average_precision(metric, first, second, n)
    return _Metric(n, _share(*(series(measures[metric], (n, 2), "i") for measures in (first, second))))


def _error(metric: str, first: Tensor, second: Tensor) -> Evaluate:
    errors = np.concatenate([first, second])

    def evaluate(weights: Floats) -> Floats:
        means: Floats = weights @ errors / weights.sum(axis=1)
        return np.sqrt(means) if metric == "rmse" else means

    return evaluate


def _share(first: Tensor, second: Tensor) -> Evaluate:
    counts = np.concatenate([first, second]).astype(np.float64)

    def evaluate(weights: Floats) -> Floats:
        right, decided = (weights @ counts).T
        return _divide(right, decided)

    return evaluate


def _mean_iou(first: Tensor, second: Tensor, n: int) -> Evaluate:
    """Return the mean over classes of summed intersections over summed unions.

    The rows are [sample, class, intersection, union].
    """
    from scipy.sparse import csr_array  # noqa: PLC0415 - only for masks

    rows = np.concatenate([first, second])
    owners = np.concatenate([first[:, 0], second[:, 0] + n])
    if len(rows) and (first[:, 0].max(initial=0) >= n or second[:, 0].max(initial=0) >= n):
        raise ValueError(f"sample number out of range: {n} samples")
    classes, numbers = np.unique(rows[:, 1], return_inverse=True)
    shape = (2 * n, len(classes))
    common, union = (
        csr_array((rows[:, column].astype(np.float64), (owners, numbers)), shape=shape) for column in (2, 3)
    )

    def evaluate(weights: Floats) -> Floats:
        parts = _divide(weights @ common, weights @ union)
        present = np.isfinite(parts)
        return _divide(np.where(present, parts, 0.0).sum(axis=1), present.sum(axis=1))

    return evaluate


def average_precision(metric: str, first: Measures, second: Measures, n: int) -> _Metric:
    """Return average precision over images, or over random groups of images, from the matches of both models."""
    units = min(n, GROUPS)
    merged = {
        name: np.concatenate([first[name], _shift(name, second[name], n)])
        for name in ("map.rows", "map.scores", "map.matches", "map.labelled")
    }
    detections = [entry for entry in ranks(merged, 2 * n, THRESHOLDS[metric]) if entry.to_find.any()]
    assignment = np.random.RandomState(SEED).permutation(n) % units
    group = np.concatenate([assignment, assignment + units])

    def evaluate(weights: Floats) -> Floats:
        precision = precisions(detections, group, weights)
        present = np.isfinite(precision)
        return _divide(np.where(present, precision, 0.0).sum(axis=1), present.sum(axis=1))

    return _Metric(units, evaluate)


def _shift(name: str, values: Tensor, n: int) -> Tensor:
    """Return the rows of the second model with its sample numbers placed after those of the first."""
    if name not in ("map.rows", "map.labelled"):
        return values
    shifted = values.copy()
    shifted[:, 0] += n
    return shifted


def _divide(above: Floats, below: Floats) -> Floats:
    """Return the quotients, NaN where the divisor is 0."""
    quotients: Floats = np.divide(above, below, out=np.full(np.shape(above), np.nan), where=np.asarray(below) > 0)
    return quotients
