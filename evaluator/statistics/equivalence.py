"""Metrics over several runs, and equivalence tests of two locks.

A run is one draw: the placement of its process, its memory layout and its time affect all of its calls together, so
that no number of calls in one run predicts another run. Times vary by factors, so ratios are averaged as logarithms.

A difference that was not found is no evidence of equality. Equivalence requires a margin that was stated before the
runs, and an interval entirely within it.
"""

import math
from collections.abc import Sequence

import numpy as np
import scipy
from msgspec.structs import replace

from benchlock.evaluator.statistics.confidence_intervals import UNBOUNDED, quantile_ranks
from benchlock.evaluator.statistics.metric_types import (
    LEVEL,
    SIGNIFICANT,
    Answer,
    Finding,
    Interval,
    Metric,
    PairedTest,
    Ratio,
    format_change,
)
from benchlock.evaluator.statistics.paired_tests import PairedTests
from benchlock.registry.manifests.metric_definitions import is_quality

FEWEST = 6
"""The least number of runs for an interval: fewer may all lie on one side of the median by chance."""
DRIFT = 7.0
"""Inflation of the variance of the difference between runs at two times.

A host drifts between them, and so few runs cannot show by how much. The value was chosen by simulation, so that at most
5 % of the decisions are false.
"""
ROUND_DRIFT = 1.1
"""The inflation between neighbouring rounds of an interleaved comparison, which drift affects alike."""
MAX_RUNS = 1000
"""The greatest number of runs that is reported as deciding."""
_LOOKED_AT = 0.968
"""The level of an interval that stops the runs.

A stop at a narrow interval favors runs that happen to have a small spread, hence a level above 95 %.
"""


def centre(values: Sequence[float]) -> float:
    """Return the median; for an even number of positive values the geometric mean of the middle two."""
    ordered, half = sorted(values), len(values) // 2
    if len(ordered) % 2:
        return ordered[half]
    low, high = ordered[half - 1], ordered[half]
    return math.sqrt(low * high) if low > 0 else (low + high) / 2


def find_interval_over_runs(values: Sequence[float], *, watched: bool = False) -> Interval:
    """Return the 95 % interval of the median over runs, between order statistics, for any distribution.

    A mean with Student's t would miss the true value on a host with spikes, because few runs show too few of them.

    Args:
        values: One value per run.
        watched: Whether the interval is checked after every run and a narrow one stops the runs; it is wider then.
    """
    ordered = sorted(values)
    low, high = quantile_ranks(len(ordered), 0.5, _LOOKED_AT if watched else LEVEL)
    return Interval(*(None if rank is None else ordered[rank - 1] for rank in (low, high)))


def is_exact(metric: str, values: Sequence[float]) -> bool:
    """Whether the runs know a metric exactly: a quality metric with equal values in all runs."""
    return is_quality(metric) and len(set(values)) == 1


def width(middle: float, ci: Interval) -> float:
    """Return the reach of an interval from ``middle``, as a fraction of it; infinite for an unbounded end."""
    if ci.low is None or ci.high is None:
        return math.inf
    reach = max(ci.high - middle, middle - ci.low)
    if reach <= 0:
        return 0.0
    return reach / abs(middle) if middle else math.inf


def ratio(
    a: Sequence[float], b: Sequence[float], *, paired: bool, again: Sequence[float] = (), inflation: float = 1.0
) -> Ratio | None:
    """Compare the runs ``b`` with the runs ``a``; None where a value is not positive, so that there is no ratio.

    Paired runs: Student's t over the logarithms of the quotients, so that an effect on both runs of a round cancels.
    With a second turn ``again`` of the first in each round, the quotients are over the geometric mean of both turns,
    which halves its part of the noise. Otherwise: Welch's t over the logarithms (Biometrika 34, 1947).

    Args:
        a: The values of the first, one per run.
        b: The values of the second.
        paired: Whether the runs were interleaved, with the same place in the same round.
        again: The values of the first's second turn, one per round.
        inflation: The factor of the variance of the difference.
    """
    if min(*a, *b, *again) <= 0:
        return None
    if paired:
        first = (np.log(a) + np.log(again)) / 2 if len(again) else np.log(a)
        quotients = np.log(b) - first
        error = math.sqrt(inflation) * _error(quotients)
        return _ratio(float(quotients.mean()), error, len(quotients) - 1, len(quotients), paired=True)
    first, second = np.log(a), np.log(b)
    errors = (_error(first), _error(second))
    squares = [error**2 for error in errors]
    degrees = math.inf
    if sum(squares) > 0 and min(len(a), len(b)) > 1:
        parts = sum(square**2 / (len(group) - 1) for square, group in zip(squares, (a, b), strict=True))
        degrees = sum(squares) ** 2 / parts
    value = float(second.mean() - first.mean())
    return _ratio(value, math.sqrt(inflation * sum(squares)), degrees, min(len(a), len(b)), paired=False)


def _ratio(value: float, error: float, degrees: float, n: int, *, paired: bool) -> Ratio:
    if n < 2:  # noqa: PLR2004 - one run has no spread
        return Ratio(math.exp(value), UNBOUNDED, UNBOUNDED, n, paired)
    reached = (find_quantile(level, degrees) * error for level in (LEVEL, 2 * LEVEL - 1))
    ci, narrow = (Interval(math.exp(value - half), math.exp(value + half)) for half in reached)
    return Ratio(math.exp(value), ci, narrow, n, paired)


def _error(values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float:
    """Return the standard error of the mean."""
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def find_quantile(level: float, degrees: float) -> float:
    """Return how many standard errors a two-sided interval of ``level`` reaches, by Student's t."""
    upper = (1 + level) / 2
    return float(scipy.special.ndtri(upper) if math.isinf(degrees) else scipy.special.stdtrit(degrees, upper))


def runs_to_decide(ratio: Ratio, margin: float | None) -> int | None:
    """Return the number of runs per side that would decide whether a ratio is within ``margin``, if it stays the same.

    Args:
        ratio: The ratio of the runs so far, whose spread determines how fast its interval narrows.
        margin: The relative difference that counts as none; None where only equality does.

    Returns:
        The number; None where there is only one run per side, or more than 1000 would be needed.
    """
    spread = find_spread(ratio)
    if spread is None or ratio.value is None:
        return None
    difference, allowed = abs(math.log(ratio.value)), math.log1p(margin or 0.0)
    if difference > allowed:
        return find_fewest_runs(spread, LEVEL, difference - allowed)
    return find_fewest_runs(spread, 2 * LEVEL - 1, allowed - difference)


def find_spread(ratio: Ratio) -> float | None:
    """Return the standard deviation of the logarithm of one quotient, inflation included; None for a single run."""
    if ratio.ci.high is None or ratio.value is None:
        return None
    return math.log(ratio.ci.high / ratio.value) / find_quantile(LEVEL, ratio.n - 1) * math.sqrt(ratio.n)


def find_fewest_runs(spread: float, level: float, room: float) -> int | None:
    """Return the number of runs per side whose interval has a half-width below ``room``.

    Args:
        spread: As ``find_spread`` returns it.
        level: The level of the two-sided interval.
        room: The half-width, as a difference of logarithms.

    Returns:
        The number; None where more than ``MAX_RUNS`` would be needed.
    """
    enough = (n for n in range(FEWEST, MAX_RUNS + 1) if find_quantile(level, n - 1) * spread / math.sqrt(n) < room)
    return next(enough, None)


_EQUAL = 1e-12
"""Relative difference of values that are equal except for the last bits of a sum."""
_LEAST = 1e-4
"""The least relative difference that is shown as a number."""


def judge(metric: str, direction: str, ratio: Ratio, control: Ratio | None, margin: float | None) -> Finding:
    """Return the finding on a metric.

    Equivalent: the 90 % interval of the ratio lies within ``[1 - margin, 1 + margin]``, which is two one-sided tests at
    5 % each (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987), and so does that of the control. Different: the whole
    95 % interval lies beyond the margin or, without a margin, beyond equality.

    Args:
        metric: The name of the metric.
        direction: ``higher`` or ``lower`` where that is better; another value where neither is.
        ratio: The ratio of the second lock to the first.
        control: The ratio of the first lock to itself; None where it was not measured.
        margin: The margin stated beforehand; None without one.
    """
    assert ratio.value is not None
    change = format_change(ratio.value - 1)
    answer, reason = _answer(ratio, control, margin)
    if answer == "different" and direction in ("higher", "lower"):
        reason = f"{reason}, which is {'better' if (ratio.value > 1) == (direction == 'higher') else 'worse'}"
    return Finding(metric, ratio, control, margin, answer, f"{change}, {reason}")


def judge_few(metric: str, a: Sequence[float], b: Sequence[float], margin: float) -> Finding | None:
    """Return the finding on few earlier runs, by the spread of all runs; None where a value is not positive.

    Student's t with a pooled variance (Biometrika 6, 1908), for runs that have the same spread because they are of one
    lock on one kind of host. For a single earlier run it is the prediction interval. The answer is never ``different``:
    so few runs may all have been disturbed.

    At most ``FEWEST`` new runs narrow the interval: further ones are of the same time, and say nothing of the drift
    since the earlier runs. So at most 6 % of the decisions are false if a host drifts by 1.5 standard deviations of a
    run.

    Args:
        metric: The name of the metric.
        a: The values of the earlier runs, at least one.
        b: The values of the new runs, at least two.
        margin: The margin stated before the new runs.
    """
    if min(*a, *b) <= 0:
        return None
    first, second = np.log(a), np.log(b)
    degrees = len(a) + len(b) - 2
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in (first, second))
    error = math.sqrt(DRIFT * squares / degrees * (1 / len(a) + 1 / min(len(b), FEWEST)))
    estimate = replace(
        _ratio(float(second.mean() - first.mean()), error, degrees, len(b), paired=False), n=min(len(a), len(b))
    )
    assert estimate.value is not None
    change = format_change(estimate.value - 1)
    if _is_inside(estimate.narrow, margin):
        reason = f"{change}, and its interval lies within the margin of {margin:.1%}"
        return Finding(metric, estimate, None, margin, "equivalent", reason)
    is_beyond = not 1 - margin <= estimate.value <= 1 + margin
    place = "beyond" if is_beyond else "within"
    why = "which few earlier runs cannot confirm" if is_beyond else "but its interval is not"
    return Finding(metric, estimate, None, margin, "undecided", f"{change}, {place} the margin of {margin:.1%}, {why}")


def find_no_ratio(metric: str, a: Sequence[float], b: Sequence[float], margin: float | None) -> Finding:
    """Return the undecided finding on runs with a value of 0; its reason has the difference."""
    reason = f"{centre(b) - centre(a):+.4g} between the medians (no ratio, because a run has 0)"
    none = Ratio(None, UNBOUNDED, UNBOUNDED, min(len(a), len(b)), paired=False)
    return Finding(metric, none, None, margin, "undecided", reason)


def find_no_common_samples(metric: str, a: Sequence[float], b: Sequence[float], margin: float | None) -> Finding:
    """Return the undecided finding on the quality of runs on different datasets, versions or splits."""
    value = centre(b) / centre(a) if centre(a) > 0 else None
    reason = "the runs have different datasets, versions or splits: no common samples"
    unknown = Ratio(value, UNBOUNDED, UNBOUNDED, min(len(a), len(b)), paired=False)
    return Finding(metric, unknown, None, margin, "undecided", reason)


_NO_TESTS = PairedTests()


def judge_quality(a: Metric, b: Metric, n: int, margin: float | None, tests: PairedTests = _NO_TESTS) -> Finding:
    """Return the finding on a quality metric with equal values in all runs of a lock.

    The metric is exact on the same samples, so a margin is decided without an interval. Without a margin, values are
    different where the test of pairs of samples says so, which generalizes to other samples; without such a test, where
    their intervals do not overlap.

    Args:
        a: The metric of the first lock.
        b: The metric of the second lock.
        n: The number of runs per side.
        margin: The margin of equivalence; None where nothing was stated.
        tests: The comparison sample by sample, or why there is none.

    Returns:
        The finding; where the first value is 0, its ratio has no value and its reason has the difference.
    """
    finding, test = _judge_exact(a, b, n, margin, tests), tests.tests.get(a.name)
    if test is None:
        return finding
    return replace(finding, test=test, reason=f"{finding.reason}{_describe_interval(test.ci, a.unit)}")


def _judge_exact(a: Metric, b: Metric, n: int, margin: float | None, tests: PairedTests) -> Finding:
    value = b.value / a.value if a.value > 0 else None
    exact = Ratio(value, Interval(value, value), Interval(value, value), n, paired=False)
    change = f"{_describe_change(a.value, b.value, a.unit)} on these samples"
    if margin is not None:
        inside = a.value == b.value if value is None else _is_inside(exact.narrow, margin)
        reason = f"{'within' if inside else 'beyond'} the margin of {margin:.1%}"
        return Finding(a.name, exact, None, margin, "equivalent" if inside else "different", f"{change}, {reason}")
    if (test := tests.tests.get(a.name)) is not None:
        answer: Answer = "equal" if test.is_equal else "different" if test.is_significant else "undecided"
        return Finding(a.name, exact, None, None, answer, f"{change}; {_describe(test, a.direction)}")
    reason = "" if tests.reason is None else f"; not compared sample by sample: {tests.reason}"
    if a.value == b.value or _overlap(a.ci, b.ci):
        return Finding(a.name, exact, None, None, "undecided", f"{change}, which other samples may not confirm{reason}")
    return Finding(a.name, exact, None, None, "different", f"{change}, more than sampling explains{reason}")


def _describe(test: PairedTest, direction: str) -> str:
    """Describe the result of a test of pairs in words."""
    if test.is_equal:
        return f"both give the same result on each of {test.n} samples"
    if test.method == "mcnemar":
        split = (
            f"of {test.n} samples, {test.only_first} only the first predicts correctly, "
            f"{test.only_second} only the second"
        )
    else:
        split = f"{test.n} samples compared in pairs"
    p = f"p = {test.adjusted:.2g}"
    if test.comparisons > 1:
        p = f"{p} after Holm's correction for {test.comparisons} comparisons, {test.p:.2g} before"
    if not test.is_significant:
        if test.adjusted <= SIGNIFICANT:
            p = f"{p}, but the 95 % interval of the difference includes 0"
        return f"{split} ({p}): no difference detected, which does not prove equality"
    rank = ""
    if direction in ("higher", "lower"):
        rank = f", and the second is {'better' if (test.difference > 0) == (direction == 'higher') else 'worse'}"
    return f"{split} ({p}): more than sampling explains{rank}"


def _describe_interval(ci: Interval, unit: str) -> str:
    """Describe the interval of a difference, in percentage points for a share; empty for no width."""
    if ci.low is None or ci.high is None or ci.low == ci.high:
        return ""
    factor, name = (100, "points") if unit == "fraction" else (1, unit)
    ends = f"[{factor * ci.low:.4g}, {factor * ci.high:.4g}] {name}".rstrip()
    return f"; 95 % interval of the difference for other samples: {ends}"


def _describe_change(a: float, b: float, unit: str) -> str:
    """Describe the change from ``a`` to ``b``, in words where a number would round to zero.

    Shares in percentage points.
    """
    if math.isclose(a, b, rel_tol=_EQUAL):
        return "equal"
    if a <= 0:
        return f"{b - a:+.4g} from 0 (no ratio)"
    share = b / a - 1
    if abs(share) < _LEAST:
        return f"less than {_LEAST:.2%} apart"
    if unit != "fraction":
        return format_change(share, 2)
    return f"{100 * abs(b - a):.2f} points {'higher' if b > a else 'lower'} ({format_change(share, 2)} relative)"


def _answer(ratio: Ratio, control: Ratio | None, margin: float | None) -> tuple[Answer, str]:
    low, high = ratio.ci.low, ratio.ci.high
    if low is None or high is None:
        return "undecided", "in one run each, which does not show how runs vary"
    allowed = 0.0 if margin is None else margin
    if low > 1 + allowed or high < 1 - allowed:
        return (
            "different",
            "more than the spread of runs explains" if margin is None else f"beyond the margin of {margin:.1%}",
        )
    if margin is None:
        none = "no difference detected, which does not prove equality"
        return "undecided", f"and {none}: {describe_runs_to_decide(ratio, None)}"
    if control is not None and not _is_inside(control.narrow, margin):
        return (
            "undecided",
            f"and the noise alone exceeds the margin of {margin:.1%}: use more rounds or a quieter host",
        )
    if _is_inside(ratio.narrow, margin):
        return "equivalent", f"and its interval lies within the margin of {margin:.1%}"
    return (
        "undecided",
        f"and its interval crosses the margin of {margin:.1%}: {describe_runs_to_decide(ratio, margin)}",
    )


def describe_runs_to_decide(ratio: Ratio, margin: float | None) -> str:
    """Describe how many runs would decide."""
    number = runs_to_decide(ratio, margin)
    if number is None:
        return f"at this spread, even {MAX_RUNS} runs per side would not decide"
    return f"at this spread, about {number} runs per side would decide"


def _is_inside(ci: Interval, margin: float) -> bool:
    return ci.low is not None and ci.high is not None and 1 - margin <= ci.low and ci.high <= 1 + margin


def _overlap(a: Interval, b: Interval) -> bool:
    ends = (a.low, a.high, b.low, b.high)
    if None in ends:
        return True
    return max(a.low or 0.0, b.low or 0.0) <= min(a.high or 0.0, b.high or 0.0)
