"""Metrics over several runs, and equivalence tests of two locks.

A run is one draw: where its process, its memory and its moment fell moves all of its calls together, so that no number
of calls in one run says how another run will be. Times vary by factors, so ratios are averaged as logarithms.

That no difference was found is no evidence of equality: equivalence wants a margin that was stated before the runs, and
the whole interval within it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import special

from benchlock.evaluator.statistics.intervals import LEVEL, UNBOUNDED, quantile_ranks
from benchlock.evaluator.statistics.metric_model import Interval, Metric, format_change
from benchlock.evaluator.statistics.paired_tests import SIGNIFICANT, PairedTest, PairedTests
from benchlock.registry.manifests.metric_definitions import is_quality

FEWEST = 6
"""Runs of which an interval can be had at all: with fewer, all may lie on one side of the median by chance."""
DRIFT = 7.0
"""By how much the variance of the difference between runs at two times is inflated: a host drifts between them, and so
few runs cannot tell by how much. Chosen by simulation, so that at most 5 % of the decisions are false."""
ROUND_DRIFT = 1.1
"""The same between neighbouring rounds of an interleaved comparison, which a drifting host makes alike."""
MOST = 1000
"""Runs beyond which nobody is told how many would decide."""
_LOOKED_AT = 0.968
"""The level of an interval by which runs are stopped: whoever stops where it is narrow stops at lucky spreads."""


def centre(values: Sequence[float]) -> float:
    """Return the median: of an even number of positive values the geometric mean of the two in the middle."""
    ordered, half = sorted(values), len(values) // 2
    if len(ordered) % 2:
        return ordered[half]
    low, high = ordered[half - 1], ordered[half]
    return math.sqrt(low * high) if low > 0 else (low + high) / 2


def find_interval_over_runs(values: Sequence[float], *, watched: bool = False) -> Interval:
    """Return the 95 % interval of the median over runs: between order statistics, whatever their distribution.

    A mean and Student's t would miss the truth where a host has spikes: few runs show too few of them.

    Args:
        values: One value a run.
        watched: Whether somebody looks at the interval after every run and stops where it is narrow; it is wider then.
    """
    ordered = sorted(values)
    low, high = quantile_ranks(len(ordered), 0.5, _LOOKED_AT if watched else LEVEL)
    return Interval(*(None if rank is None else ordered[rank - 1] for rank in (low, high)))


def is_exact(metric: str, values: Sequence[float]) -> bool:
    """Whether the runs know a metric exactly: one of quality, of the same samples, that each of them gives alike."""
    return is_quality(metric) and len(set(values)) == 1


def width(middle: float, ci: Interval) -> float:
    """How far an interval reaches from ``middle``, as a fraction of it; infinite where an end is not bounded."""
    if ci.low is None or ci.high is None:
        return math.inf
    reach = max(ci.high - middle, middle - ci.low)
    if reach <= 0:
        return 0.0
    return reach / abs(middle) if middle else math.inf


@dataclass(frozen=True, slots=True)
class Ratio:
    """What the second of two groups of runs is of the first: 1.05 is 5 % more.

    ``ci`` is two-sided at 95 %; ``narrow`` at 90 %, whose two ends are the two one-sided tests of equivalence at 5 %.
    ``paired`` where each value was held against its neighbour in time. ``value`` is None where a value is 0.
    """

    value: float | None
    ci: Interval
    narrow: Interval
    n: int
    paired: bool


def ratio(
    a: Sequence[float], b: Sequence[float], *, paired: bool, again: Sequence[float] = (), inflation: float = 1.0
) -> Ratio | None:
    """How ``b`` compares with ``a``, of runs that took turns (``paired``: same place, same round) or did not.

    Pairs: Student's t over the logarithms of the quotients, so that what slows both of a round drops out; where the
    first had a second turn ``again`` in each round, the quotients are over the geometric mean of both, which halves
    its part of the noise. Else Welch's t over the logarithms (Biometrika 34, 1947). The variance of the difference is
    multiplied by ``inflation``. None where a value is not positive: there is no ratio to speak of.
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
    if n < 2:  # noqa: PLR2004 - one run says nothing of another
        return Ratio(math.exp(value), UNBOUNDED, UNBOUNDED, n, paired)
    reached = (_quantile(level, degrees) * error for level in (LEVEL, 2 * LEVEL - 1))
    ci, narrow = (Interval(math.exp(value - half), math.exp(value + half)) for half in reached)
    return Ratio(math.exp(value), ci, narrow, n, paired)


def _error(drawn: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float:
    """The standard error of the mean."""
    return float(drawn.std(ddof=1)) / math.sqrt(len(drawn)) if len(drawn) > 1 else 0.0


def _quantile(level: float, degrees: float) -> float:
    """How many standard errors a two-sided interval of ``level`` reaches, by Student's t."""
    upper = (1 + level) / 2
    return float(special.ndtri(upper) if math.isinf(degrees) else special.stdtrit(degrees, upper))


def runs_to_decide(found: Ratio, margin: float | None) -> int | None:
    """Return how many runs a side would decide whether a ratio is within ``margin``, if it stays what it is.

    Args:
        found: The ratio of so many runs, whose spread says how fast its interval narrows.
        margin: The relative difference that counts as none; None where equality alone does.

    Returns:
        The number; None where one run a side says nothing of the spread, or more than 1000 would be needed.
    """
    if found.ci.high is None or found.value is None:
        return None
    spread = math.log(found.ci.high / found.value) / _quantile(LEVEL, found.n - 1) * math.sqrt(found.n)
    difference, allowed = abs(math.log(found.value)), math.log1p(margin or 0.0)
    level, room = (LEVEL, difference - allowed) if difference > allowed else (2 * LEVEL - 1, allowed - difference)
    enough = (n for n in range(FEWEST, MOST + 1) if _quantile(level, n - 1) * spread / math.sqrt(n) < room)
    return next(enough, None)


Answer = Literal["equal", "equivalent", "different", "undecided"]
"""``equal`` is of quality alone: each sample adds the same to the metric of both."""

_EQUAL = 1e-12
"""Relative: what is equal but for the last bits of a sum."""
_LEAST = 1e-4
"""Relative: the least difference that is shown as a figure."""


@dataclass(frozen=True, slots=True)
class Finding:
    """How one metric of two locks compares; ``reason`` says the answer in words.

    ``control`` is the same comparison of the first lock with itself in the same rounds (A/A), None where it was not
    made; ``margin`` what was stated beforehand, None where nothing was. ``self_reported``: code of a model could have
    made a value, so that the finding is undecided. ``test``: how the two compare sample by sample, of quality alone.
    """

    metric: str
    ratio: Ratio
    control: Ratio | None
    margin: float | None
    answer: Answer
    reason: str
    self_reported: bool = False
    test: PairedTest | None = None

    @property
    def noise_floor(self) -> float | None:
        """How far from itself the first lock may seem to be. A fraction, which is reported and decides nothing."""
        return None if self.control is None else _farthest(self.control.ci)


def judge(metric: str, direction: str, ratio: Ratio, control: Ratio | None, margin: float | None) -> Finding:
    """The finding on a metric, whose better ``direction`` is ``higher``, ``lower`` or neither.

    Equivalent: the 90 % interval of the ratio lies within ``[1 - margin, 1 + margin]``, which is two one-sided tests at
    5 % each (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987), and so does that of the control. Different: the whole
    95 % interval lies beyond the margin, or without a margin beyond equality.
    """
    assert ratio.value is not None
    told = format_change(ratio.value - 1)
    answer, why = _answer(ratio, control, margin)
    if answer == "different" and direction in ("higher", "lower"):
        why = f"{why}, which is {'better' if (ratio.value > 1) == (direction == 'higher') else 'worse'}"
    return Finding(metric, ratio, control, margin, answer, f"{told}, {why}")


def find_no_ratio(metric: str, a: Sequence[float], b: Sequence[float], margin: float | None) -> Finding:
    """Return the undecided finding on runs of which one has the value 0; its reason has the difference."""
    reason = f"{centre(b) - centre(a):+.4g} between the medians, and no ratio since a run has 0"
    none = Ratio(None, UNBOUNDED, UNBOUNDED, min(len(a), len(b)), paired=False)
    return Finding(metric, none, None, margin, "undecided", reason)


def find_no_common_samples(metric: str, a: Sequence[float], b: Sequence[float], margin: float | None) -> Finding:
    """Return the undecided finding on the quality of runs on different datasets, versions or splits."""
    value = centre(b) / centre(a) if centre(a) > 0 else None
    reason = "the runs are of different datasets, versions or splits: no common samples"
    unknown = Ratio(value, UNBOUNDED, UNBOUNDED, min(len(a), len(b)), paired=False)
    return Finding(metric, unknown, None, margin, "undecided", reason)


_NO_TESTS = PairedTests()


def judge_quality(a: Metric, b: Metric, n: int, margin: float | None, tests: PairedTests = _NO_TESTS) -> Finding:
    """The finding on a quality metric that every run of a lock gives alike: on the samples that were seen it is exact.

    So a margin is decided without an interval. Without one, values are called different where the test of the pairs of
    samples says so, which speaks of other samples of the kind; where there is none, where their intervals do not meet.

    Args:
        a: The figure of the first lock.
        b: That of the second one.
        n: The number of runs a side.
        margin: What counts as equivalent; None where nothing was stated.
        tests: How the two compare sample by sample, or why they were not compared.

    Returns:
        The finding; where the first value is 0, its ratio has no value and its reason has the difference.
    """
    judged, test = _judge_exact(a, b, n, margin, tests), tests.tests.get(a.name)
    if test is None:
        return judged
    return replace(judged, test=test, reason=f"{judged.reason}{_describe_interval(test.ci, a.unit)}")


def _judge_exact(a: Metric, b: Metric, n: int, margin: float | None, tests: PairedTests) -> Finding:
    value = b.value / a.value if a.value > 0 else None
    exact = Ratio(value, Interval(value, value), Interval(value, value), n, paired=False)
    told = f"{_moved(a.value, b.value, a.unit)} on these samples"
    if margin is not None:
        inside = a.value == b.value if value is None else _inside(exact.narrow, margin)
        why = f"{'within' if inside else 'beyond'} the margin of {margin:.1%}"
        return Finding(a.name, exact, None, margin, "equivalent" if inside else "different", f"{told}, {why}")
    if (test := tests.tests.get(a.name)) is not None:
        answer: Answer = "equal" if test.is_equal else "different" if test.is_significant else "undecided"
        return Finding(a.name, exact, None, None, answer, f"{told}; {_describe(test, a.direction)}")
    why = "" if tests.reason is None else f"; not compared sample by sample: {tests.reason}"
    if a.value == b.value or _meet(a.ci, b.ci):
        return Finding(a.name, exact, None, None, "undecided", f"{told}, and other samples may say otherwise{why}")
    return Finding(a.name, exact, None, None, "different", f"{told}, more than the choice of samples explains{why}")


def _describe(test: PairedTest, direction: str) -> str:
    """Return what a test of pairs says, in words."""
    if test.is_equal:
        return f"each of {test.n} samples counts alike for both"
    if test.method == "mcnemar":
        split = (
            f"of {test.n} samples {test.only_first} only the first decides right, {test.only_second} only the second"
        )
    else:
        split = f"{test.n} samples compared in pairs"
    p = f"p = {test.adjusted:.2g}"
    if test.comparisons > 1:
        p = f"{p}, which is {test.p:.2g} adjusted for {test.comparisons} comparisons by Holm's method"
    if not test.is_significant:
        if test.adjusted <= SIGNIFICANT:
            p = f"{p}, but the 95 % interval of the difference includes 0"
        return f"{split} ({p}): no difference was found, which is no evidence that there is none"
    rank = ""
    if direction in ("higher", "lower"):
        rank = f", and the second is {'better' if (test.difference > 0) == (direction == 'higher') else 'worse'}"
    return f"{split} ({p}): more than the choice of samples explains{rank}"


def _describe_interval(ci: Interval, unit: str) -> str:
    """Return the interval of a difference in words, of a share in percentage points; nothing where it has no width."""
    if ci.low is None or ci.high is None or ci.low == ci.high:
        return ""
    factor, name = (100, "points") if unit == "fraction" else (1, unit)
    ends = f"[{factor * ci.low:.4g}, {factor * ci.high:.4g}] {name}".rstrip()
    return f"; 95 % interval of the difference for other samples: {ends}"


def _moved(a: float, b: float, unit: str) -> str:
    """How far ``b`` is from ``a``, in words where a figure would round to nothing; of a share in percentage points."""
    if math.isclose(a, b, rel_tol=_EQUAL):
        return "equal"
    if a <= 0:
        return f"{b - a:+.4g} from 0, of which there is no ratio,"
    share = b / a - 1
    if abs(share) < _LEAST:
        return f"less than {_LEAST:.2%} apart"
    if unit != "fraction":
        return format_change(share, 2)
    return f"{100 * abs(b - a):.2f} points {'higher' if b > a else 'lower'} ({format_change(share, 2)} relative)"


def _answer(ratio: Ratio, control: Ratio | None, margin: float | None) -> tuple[Answer, str]:
    low, high = ratio.ci.low, ratio.ci.high
    if low is None or high is None:
        return "undecided", "in one run each, which says nothing of other runs"
    allowed = 0.0 if margin is None else margin
    if low > 1 + allowed or high < 1 - allowed:
        return (
            "different",
            "more than the spread of the runs explains" if margin is None else f"beyond the margin of {margin:.1%}",
        )
    if margin is None:
        none = "no difference was found, which is no evidence that there is none"
        return "undecided", f"and {none}: {describe_runs_to_decide(ratio, None)}"
    if control is not None and not _inside(control.narrow, margin):
        return (
            "undecided",
            f"and the noise alone reaches beyond the margin of {margin:.1%}: more rounds, or a quieter host",
        )
    if _inside(ratio.narrow, margin):
        return "equivalent", f"and its interval lies within the margin of {margin:.1%}"
    return (
        "undecided",
        f"and its interval reaches across the margin of {margin:.1%}: {describe_runs_to_decide(ratio, margin)}",
    )


def describe_runs_to_decide(ratio: Ratio, margin: float | None) -> str:
    """Return how many runs would decide, in words."""
    number = runs_to_decide(ratio, margin)
    if number is None:
        return f"no {MOST} runs a side would decide at this spread"
    return f"about {number} runs a side would decide at this spread"


def _farthest(ci: Interval) -> float | None:
    """How far from 1 an interval of a ratio reaches; None where an end is not bounded."""
    return None if ci.low is None or ci.high is None else max(abs(ci.low - 1), abs(ci.high - 1))


def _inside(ci: Interval, margin: float) -> bool:
    return ci.low is not None and ci.high is not None and 1 - margin <= ci.low and ci.high <= 1 + margin


def _meet(a: Interval, b: Interval) -> bool:
    ends = (a.low, a.high, b.low, b.high)
    if None in ends:
        return True
    return max(a.low or 0.0, b.low or 0.0) <= min(a.high or 0.0, b.high or 0.0)
