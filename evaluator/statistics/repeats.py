"""The values of one metric over several runs: between which values it lies, and how runs of two locks differ.

A run is one draw: where its process, its memory and its moment fell moves all of its calls together, so that no number
of calls in one run says how another run will be. Times vary by factors, so they are averaged as logarithms.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from evaluator.statistics.figures import Interval
from evaluator.statistics.intervals import LEVEL, UNBOUNDED
from registry.metrics import is_quality

FEWEST = 5
"""Runs before the first look: the spread of fewer is too uncertain to stop by."""
_LOOKED_AT = 0.97
"""The level of an interval by which runs are stopped. Whoever looks after every run and stops where it is narrow, stops
at lucky spreads: simulated, 92 % of such 95 % intervals hold the truth, and 95 % of these."""


def centre(values: Sequence[float]) -> float:
    """The geometric mean; the mean where a value is not positive."""
    if min(values) > 0:
        return math.exp(math.fsum(map(math.log, values)) / len(values))
    return math.fsum(values) / len(values)


def over_runs(values: Sequence[float], *, watched: bool = False) -> Interval:
    """The 95 % interval of ``centre``: Student's t over the runs' values, as logarithms where all are positive.

    ``watched``: somebody looks at it after every run and stops where it is narrow (a fixed-width sequential interval,
    Chow and Robbins 1965), so that it is made wider by as much as looking costs.
    """
    if len(values) < 2:  # noqa: PLR2004 - one run says nothing of another
        return UNBOUNDED
    positive = min(values) > 0
    drawn = np.log(values) if positive else np.asarray(values, np.float64)
    half = _half_width(drawn, _LOOKED_AT if watched else LEVEL)
    low, high = float(drawn.mean() - half), float(drawn.mean() + half)
    return Interval(math.exp(low), math.exp(high)) if positive else Interval(low, high)


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
    ``paired`` where each value was held against its neighbour in time.
    """

    value: float
    ci: Interval
    narrow: Interval
    n: int
    paired: bool


def ratio(a: Sequence[float], b: Sequence[float], *, paired: bool) -> Ratio | None:
    """How ``b`` compares with ``a``, of runs that took turns (``paired``: same place, same round) or did not.

    Pairs: Student's t over the logarithms of the quotients, so that what slows both of a round drops out. Else Welch's
    t over the logarithms (Biometrika 34, 1947). None where a value is not positive: there is no ratio to speak of.
    """
    if min(*a, *b) <= 0:
        return None
    if paired:
        quotients = np.log(b) - np.log(a)
        return _ratio(float(quotients.mean()), _error(quotients), len(quotients) - 1, len(quotients), paired=True)
    first, second = np.log(a), np.log(b)
    errors = (_error(first), _error(second))
    squares = [error**2 for error in errors]
    degrees = math.inf
    if sum(squares) > 0 and min(len(a), len(b)) > 1:
        parts = sum(square**2 / (len(group) - 1) for square, group in zip(squares, (a, b), strict=True))
        degrees = sum(squares) ** 2 / parts
    value = float(second.mean() - first.mean())
    return _ratio(value, math.sqrt(sum(squares)), degrees, min(len(a), len(b)), paired=False)


def _ratio(value: float, error: float, degrees: float, n: int, *, paired: bool) -> Ratio:
    if n < 2:  # noqa: PLR2004 - one run says nothing of another
        return Ratio(math.exp(value), UNBOUNDED, UNBOUNDED, n, paired)
    reached = (_quantile(level, degrees) * error for level in (LEVEL, 2 * LEVEL - 1))
    ci, narrow = (Interval(math.exp(value - half), math.exp(value + half)) for half in reached)
    return Ratio(math.exp(value), ci, narrow, n, paired)


def _half_width(drawn: "np.ndarray[tuple[int], np.dtype[np.float64]]", level: float) -> float:
    return _quantile(level, len(drawn) - 1) * _error(drawn)


def _error(drawn: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float:
    """The standard error of the mean."""
    return float(drawn.std(ddof=1)) / math.sqrt(len(drawn)) if len(drawn) > 1 else 0.0


def _quantile(level: float, degrees: float) -> float:
    """How many standard errors a two-sided interval of ``level`` reaches, by Student's t."""
    upper = (1 + level) / 2
    return float(special.ndtri(upper) if math.isinf(degrees) else special.stdtrit(degrees, upper))
