"""Whether two locks are equivalent in a metric, different, or not to be told apart by so many runs.

That no difference was found is no evidence of equality: equivalence wants a margin that was stated before the runs, and
the whole interval within it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from benchlock.evaluator.statistics.figures import Interval, Metric
from benchlock.evaluator.statistics.intervals import UNBOUNDED
from benchlock.evaluator.statistics.pairing import SIGNIFICANT, PairedTest, PairedTests
from benchlock.evaluator.statistics.repeats import MOST, Ratio, centre, runs_to_decide
from benchlock.evaluator.statistics.units import change

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
    told = change(ratio.value - 1)
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
        return change(share, 2)
    return f"{100 * abs(b - a):.2f} points {'higher' if b > a else 'lower'} ({change(share, 2)} relative)"


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
