"""Quality metrics and their intervals: means, bootstrap and COCO average precision."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from scipy import special

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.statistics.intervals import LEVEL, UNBOUNDED, Tensor, mean_iou_interval, series, share_interval
from benchlock.evaluator.statistics.metric_model import Interval

Floats = npt.NDArray[np.float64]

GROUPS = 32
HALVES_SEED = 7
THRESHOLDS: Mapping[str, slice] = {"map": slice(None), "map_50": slice(0, 1)}
"""Of the thresholds of IoU, 0.5 to 0.95 in steps of 0.05, those that a metric is the mean over."""

_PRECISION_TAIL = (1 - LEVEL) / 2
_LEAST_RANKED = 2
_RECALLS = np.linspace(0.0, 1.00, 101)  # as COCO's evaluation makes them, to the bit
_TRUE, _IGNORED = 1, 2
_SLOW, _FAST = 1 / (math.sqrt(2) - 1), 1.0
"""What a metric is above that of very many samples, over what its halves are above it.

The first where that falls as the root of the samples, as it does where scores tell nothing, the second where it falls
as their number.
"""


@dataclass(frozen=True, slots=True)
class RankedDetections:
    """The detections of one label, best first: of which sample, and [thresholds, D] whether right, whether wrong.

    ``to_find`` [samples]: how many boxes of the label.
    """

    samples: Tensor
    right: Tensor
    wrong: Tensor
    to_find: Tensor


def average_precision(measures: Mapping[str, Tensor], samples: int, thresholds: slice) -> tuple[float | None, Interval]:
    """The mean over the labels that have a box to find, None without one, and :func:`interval_of` it.

    Boxes in fewer than two samples bound nothing.

    Raises:
        ValueError, KeyError, TypeError: the measures are malformed or missing.
    """
    ranked = [one for one in ranks(measures, samples, thresholds) if one.to_find.any()]
    if not ranked:
        return None, UNBOUNDED
    sides = balanced_halves(samples)
    group = np.random.RandomState(HALVES_SEED).permutation(samples) % sides.shape[1]  # its numbers never change
    found = precisions(ranked, group, np.vstack([np.ones((1, sides.shape[1])), sides]))
    value = float(found[0].mean())
    if np.count_nonzero(sum(one.to_find for one in ranked)) < _LEAST_RANKED:
        return value, UNBOUNDED
    return value, interval_of(found[0], found[1:].reshape(-1, 2, len(ranked)))


def interval_of(whole: Floats, halves: Floats) -> Interval:
    """Of the mean of ``whole`` [labels], by ``halves`` [pairs, 2, labels] of its samples; NaN: a half without a box.

    Balanced half-samples (Wolter, Introduction to Variance Estimation, chapter 3) of the arcsine of the root. Half the
    difference of two halves that complete each other varies as the metric does: the mean of its squares is the
    variance, with Student's t. Halves lie above the whole as the whole does above the truth: the low end takes away
    more of it than the high end. A label that a half does not show counts there as in the whole; the share of the pairs
    in which that is so tells how little is known of it: for half of that share it is nothing at the low end, and so
    much of the variance between labels is added. The interval is cut at 0 and 1 and widened to hold the value itself.
    """
    value = float(whole.mean())
    missing = np.isnan(halves).any(axis=1).mean(axis=0)
    centre = float(_angles(whole.mean()))
    angles = _angles(np.where(np.isnan(halves), whole, halves).mean(axis=2))
    above = float(angles.mean()) - centre
    variance = float(np.mean(((angles[:, 0] - angles[:, 1]) / 2) ** 2))
    if 0 < value < 1:
        between = float(whole.var(ddof=1)) if len(whole) > 1 else value * (1 - value)
        variance += missing.sum() * between / len(whole) ** 2 / (4 * value * (1 - value))
    half = float(special.stdtrit(len(halves), 1 - _PRECISION_TAIL)) * math.sqrt(variance)
    least = float(_angles((whole * (1 - missing / 2)).mean()))
    low = _precision_fraction(least - _SLOW * above - half)
    high = _precision_fraction(centre - _FAST * above + half)
    return Interval(min(low, value), max(high, value))


def _angles(fractions: Floats) -> Floats:
    found: Floats = np.arcsin(np.sqrt(np.clip(fractions, 0.0, 1.0)))
    return found


def _precision_fraction(angle: float) -> float:
    return math.sin(min(max(angle, 0.0), math.pi / 2)) ** 2


def balanced_halves(samples: int) -> Floats:
    """Which groups are in each half [halves, groups], pairs that complete each other after one another.

    There are as many groups as the greatest power of two up to 32 and ``samples``; the halves are the rows of a
    Hadamard matrix, in which any two groups are as often in the same half as not.
    """
    signs = np.ones((1, 1))
    while 2 * len(signs) <= min(samples, GROUPS):
        signs = np.block([[signs, signs], [signs, -signs]])
    halves: Floats = np.stack([signs[1:] > 0, signs[1:] < 0], axis=1).reshape(-1, len(signs)).astype(np.float64)
    return halves


def precisions(ranked: Sequence[RankedDetections], group: Tensor, weights: Floats) -> Floats:
    """Average precision [draws, labels] where each sample counts as often as ``weights`` [draws, groups] say.

    ``group`` [samples] is the group of each. NaN where no box of the label is to be found.
    """
    found = np.full((len(weights), len(ranked)), np.nan)
    for number, one in enumerate(ranked):
        to_find = weights @ np.bincount(group, weights=one.to_find, minlength=weights.shape[1])
        there = to_find > 0
        owners = group[one.samples]
        lines = zip(one.right, one.wrong, strict=True)
        parts = [_precision(right, wrong, owners, weights[there], to_find[there]) for right, wrong in lines]
        found[there, number] = np.mean(parts, axis=0)
    return found


def _precision(right: Tensor, wrong: Tensor, owners: Tensor, weights: Floats, to_find: Floats) -> Floats:
    """[draws]: the mean of the best precision at a recall of at least each of COCO's, at one threshold.

    Precision is best at a right detection: so wrong ones are counted up to each of these, group by group.
    """
    groups = weights.shape[1]
    hits = np.flatnonzero(right)
    if not len(hits):
        return np.zeros(len(weights))
    misses = np.flatnonzero(wrong[: hits[-1]])
    places = np.searchsorted(hits, misses) * groups + owners[misses]
    missed = np.bincount(places, minlength=len(hits) * groups).reshape(-1, groups)
    found = np.zeros_like(missed)
    found[np.arange(len(hits)), owners[hits]] = 1
    true = weights @ np.cumsum(found, axis=0, dtype=np.float64).T
    false = weights @ np.cumsum(missed, axis=0, dtype=np.float64).T
    precision = true / (false + true + np.spacing(1))
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    reached = np.searchsorted(_RECALLS, true / to_find[:, None], side="right")
    steps = np.diff(reached, axis=1, prepend=0)
    mean: Floats = np.einsum("ij,ij->i", steps, best) / len(_RECALLS)
    return mean


def ranks(measures: Mapping[str, Tensor], samples: int, thresholds: slice) -> Iterator[RankedDetections]:
    """Each label's detections, of what the harness keeps.

    Raises:
        ValueError, KeyError, TypeError: it is malformed, or part of it missing.
    """
    scores, rows = measures["map.scores"], series(measures["map.rows"], (len(measures["map.scores"]), 2), "i")
    matches = measures["map.matches"]
    if matches.shape != (len(rows), 10) or matches.dtype != np.uint8 or not np.isfinite(scores).all():
        raise ValueError(f"{matches.dtype} {list(matches.shape)} matches of {len(rows)} detections")
    labelled = series(measures["map.labelled"], (None, 3), "i")
    for label in np.unique(labelled[:, 1]):
        mine = np.flatnonzero(rows[:, 1] == label)
        mine = mine[np.argsort(-scores[mine], kind="stable")]
        found = matches[mine, thresholds].T
        boxes = labelled[labelled[:, 1] == label]
        to_find = np.bincount(boxes[:, 0], weights=boxes[:, 2], minlength=samples).astype(np.int64)
        if len(to_find) > samples or (len(mine) and rows[mine, 0].max() >= samples):
            raise ValueError(f"a sample beyond the {samples}")
        yield RankedDetections(rows[mine, 0], found == _TRUE, found == 0, to_find)


DRAWS = 1000
SEED = 7

Weights = npt.NDArray[np.int64]
Statistic = Callable[[Weights], float | None]
"""A metric of samples of which each counts so many times [samples]; None where it has no value."""

_TAIL = (1 - LEVEL) / 2
_BOOTSTRAPPED = 1
"""The version of ``miou`` and of ``top1`` and ``top5`` whose intervals are made by the bootstrap."""
_LATEST = 2
_LEAST = 2
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class QualityEstimate:
    """A metric's value over ``n`` decisions, and the interval of its mean over samples like these."""

    value: float
    n: int
    ci: Interval


def estimate_quality(
    metric: str, value: float, n: int, measures: Mapping[str, Tensor], version: int = _LATEST
) -> QualityEstimate:
    """Return ``metric`` with its interval, out of what the harness says that each sample adds to it.

    ``mae`` and ``rmse``: Student's t over the samples' absolute and squared errors, the root taken of the ends; ``map``
    and ``map_50``: balanced half-samples; ``miou`` and decisions of calls: as :mod:`evaluator.statistics.clusters`
    says, by version 1 of their definitions the bootstrap over samples.

    Args:
        metric: The name of the metric.
        value: What the harness says that it is.
        n: The number of decisions.
        measures: What each sample adds to it.
        version: The version of the definition.

    Raises:
        InvalidInputError: the measures are missing or malformed, or another value follows from them.
    """
    try:
        found, ci = _computed(metric, n, measures, version)
    except (KeyError, IndexError, ValueError, TypeError, MemoryError) as error:
        raise InvalidInputError(f"the measures of {metric} are none: {error}") from error
    if found is None or not abs(found - value) <= _CLOSE * max(1.0, abs(value)):
        raise InvalidInputError(f"the harness says {metric} is {value}, and its measures say {found}")
    return QualityEstimate(value, n, ci)


def read_measures(path: Path) -> dict[str, Tensor]:
    """Every tensor of the safetensors file.

    Raises:
        InvalidInputError: it is none.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, TypeError) as error:
        raise InvalidInputError(f"the measures of quality cannot be read: {error}", where=str(path)) from error


def mean_of(values: Tensor) -> Interval:
    """Student's t interval of the mean of independent values (Law, Simulation Modeling and Analysis, section 4.5).

    Fewer than two bound nothing.
    """
    if len(values) < _LEAST:
        return UNBOUNDED
    half = float(special.stdtrit(len(values) - 1, 1 - _TAIL) * values.std(ddof=1) / np.sqrt(len(values)))
    centre = float(values.mean())
    return Interval(centre - half, centre + half)


def bootstrap(statistic: Statistic, samples: int, draws: int = DRAWS) -> Interval:
    """The basic interval of a fraction (Davison and Hinkley, Bootstrap Methods and their Application, section 5.2.1).

    ``samples`` samples are drawn with replacement ``draws`` times, always the same ones; draws without a value are left
    out. The interval is between twice the value less the 97.5 and the 2.5 percentile of the draws: it takes away by how
    much the draws lie higher than the value, and so the value than the truth. It is cut at 0 and 1 and widened to hold
    the value itself. Fewer than two samples bound nothing.
    """
    value = statistic(np.ones(samples, np.int64))
    if samples < _LEAST or value is None:
        return UNBOUNDED
    random = np.random.RandomState(SEED)  # its numbers never change; a newer generator's may
    drawn = (np.bincount(random.randint(0, samples, samples), minlength=samples) for _ in range(draws))
    found = [one for one in map(statistic, drawn) if one is not None]
    low, high = 2 * value - np.quantile(found, [1 - _TAIL, _TAIL])
    return Interval(max(0.0, min(float(low), value)), min(1.0, max(float(high), value)))


def bootstrap_mean_iou(rows: Tensor, samples: int) -> Interval:
    """Return the interval of ``miou`` by version 1 of its definition."""
    return bootstrap(_mean_iou(rows, samples), samples)


def bootstrap_share(counts: Tensor) -> Interval:
    """Return the interval of decisions of calls by version 1 of the definitions."""
    return bootstrap(_fraction(counts), len(counts))


def _computed(metric: str, n: int, measures: Mapping[str, Tensor], version: int) -> tuple[float | None, Interval]:
    if metric in ("mae", "rmse"):
        return _error(metric, series(measures[metric], (n,), "f"))
    if metric in THRESHOLDS:
        return average_precision(measures, n, THRESHOLDS[metric])
    if metric == "miou":
        rows = series(measures["miou"], (None, 4), "i")
        value = _mean_iou(rows, n)(np.ones(n, np.int64))
        return value, bootstrap_mean_iou(rows, n) if version == _BOOTSTRAPPED else mean_iou_interval(rows, n)
    counts = series(measures[metric], (None, 2), "i")
    value = _fraction(counts)(np.ones(len(counts), np.int64))
    return value, bootstrap_share(counts) if version == _BOOTSTRAPPED else share_interval(counts)


def _error(metric: str, errors: Tensor) -> tuple[float, Interval]:
    """The mean of the errors, or its root; the interval of the mean, cut at 0, with the same done to its ends."""
    root: Callable[[float], float] = np.sqrt if metric == "rmse" else float
    found = mean_of(errors)
    if found.low is None or found.high is None:
        return float(root(float(errors.mean()))), UNBOUNDED
    return float(root(float(errors.mean()))), Interval(float(root(max(0.0, found.low))), float(root(found.high)))


def _fraction(counts: Tensor) -> Statistic:
    """Of rows [right, decided]: how many of all decisions are right."""

    def statistic(weights: Weights) -> float | None:
        right, decided = weights @ counts
        return float(right / decided) if decided else None

    return statistic


def _mean_iou(rows: Tensor, samples: int) -> Statistic:
    """Of rows [sample, class, intersection, union]: the mean over classes of all intersections over all unions."""
    classes, numbers = np.unique(rows[:, 1], return_inverse=True)
    pixels = np.zeros((2, samples, len(classes)))
    for part in range(2):
        np.add.at(pixels[part], (rows[:, 0], numbers), rows[:, 2 + part])

    def statistic(weights: Weights) -> float | None:
        intersection, union = weights @ pixels[0], weights @ pixels[1]
        there = union > 0
        return float(np.mean(intersection[there] / union[there])) if there.any() else None

    return statistic
