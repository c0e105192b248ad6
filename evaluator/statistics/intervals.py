"""Two-sided 95 % confidence intervals. ``None`` for an end that the number of samples cannot bound."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from benchlock.evaluator.statistics.figures import Interval

LEVEL = 0.95
BLOCKS = 20
_TAIL = (1 - LEVEL) / 2


UNBOUNDED = Interval(None, None)


def fraction(successes: int, n: int) -> Interval:
    """The exact interval of a binomial proportion (Clopper and Pearson, Biometrika 26, 1934).

    Its coverage is never below the level, also where every sample or none succeeds.
    """
    if not 0 <= successes <= n or n == 0:
        raise ValueError(f"{successes} of {n} is no fraction")
    low = 0.0 if successes == 0 else float(special.betaincinv(successes, n - successes + 1, _TAIL))
    high = 1.0 if successes == n else float(special.betaincinv(successes + 1, n - successes, 1 - _TAIL))
    return Interval(low, high)


def quantile_ranks(n: int, q: float, level: float = LEVEL) -> tuple[int | None, int | None]:
    """The ranks (from 1) of the order statistics that bound the ``q``-quantile of ``n`` independent samples.

    The number of samples below the quantile is binomial (n, q), whatever the distribution (David and Nagaraja, Order
    Statistics, section 7.1). The low rank is the greatest whose chance of lying above the quantile is at most 2.5 %,
    the high rank the smallest whose chance of lying below it is.
    """
    below = special.bdtr(np.arange(n), n, q)  # [k]: the chance of at most k samples below the quantile
    tail = (1 - level) / 2
    low = int(np.searchsorted(below, tail, side="right"))
    high = int(np.searchsorted(below, 1 - tail, side="left")) + 1
    return (low or None, high if high <= n else None)


def nearest_rank(n: int, q: float) -> int:
    """Return the rank (from 1) of the least of ``n`` samples that at least ``q`` of them do not exceed."""
    return max(1, math.ceil(q * n - 1e-9))  # 0.99 * 100 is 99.00000000000001 in binary


def quantile(ordered: Sequence[float] | npt.NDArray[np.floating], q: float) -> tuple[float, Interval]:
    """The ``q``-quantile by nearest rank (the least sample that at least ``q`` of them do not exceed), and bounds.

    ``ordered`` holds the samples in ascending order. Bounds assume that samples are independent.
    """
    n = len(ordered)
    if n == 0:
        raise ValueError("no samples have no quantile")
    low, high = quantile_ranks(n, q)
    return float(ordered[nearest_rank(n, q) - 1]), Interval(
        None if low is None else float(ordered[low - 1]), None if high is None else float(ordered[high - 1])
    )


def mean_in_blocks(values: npt.NDArray[np.floating]) -> Interval:
    """The interval of the mean of a series in time order, by the method of batch means.

    The series is cut into 20 contiguous blocks, whose means are nearly independent where single values are not (a slow
    spell slows neighbours); Student's t over the block means (Law, Simulation Modeling and Analysis, section 9.5.3).
    Fewer than two values a block bound nothing.
    """
    if len(values) < 2 * BLOCKS:
        return UNBOUNDED
    means = np.array([block.mean() for block in np.array_split(values, BLOCKS)])
    half = float(special.stdtrit(BLOCKS - 1, 1 - _TAIL) * means.std(ddof=1) / math.sqrt(BLOCKS))
    centre = float(values.mean())
    return Interval(centre - half, centre + half)


def rate(durations: npt.NDArray[np.floating], elapsed: float, units: float, mean: Interval) -> Interval:
    """The interval of ``units * n / elapsed``, a rate over ``n`` calls in time order that took ``durations`` seconds.

    The time between calls is shared equally among them, the calls vary as ``mean``, the interval of their mean, says.
    An end where the mean duration would not be positive is unbounded.
    """
    if mean.low is None or mean.high is None:
        return UNBOUNDED
    between = max(0.0, elapsed / len(durations) - float(durations.mean()))
    slow, fast = between + mean.high, between + mean.low
    return Interval(units / slow, units / fast if fast > 0 else None)
