"""The values of one metric over several runs: between which values it lies, and how runs of two locks differ.

A run is one draw: where its process, its memory and its moment fell moves all of its calls together, so that no number
of calls in one run says how another run will be. Times vary by factors, so ratios are averaged as logarithms.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from benchlock.evaluator.statistics.figures import Interval
from benchlock.evaluator.statistics.intervals import LEVEL, UNBOUNDED, quantile_ranks
from benchlock.registry.metrics import is_quality

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


def over_runs(values: Sequence[float], *, watched: bool = False) -> Interval:
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
