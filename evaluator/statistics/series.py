"""Intervals of a series in time order whose values depend on their neighbours, as calls of one process do.

A slow spell slows many calls, and a queue hands the wait of one call on to the next, so that n calls say less than n
independent ones. The number of independent values that a series is worth is estimated by batch means (Law, Simulation
Modeling and Analysis, section 9.5.3), and intervals are those of so many independent values.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from benchlock.evaluator.statistics.figures import Interval
from benchlock.evaluator.statistics.intervals import LEVEL, UNBOUNDED, nearest_rank, quantile_ranks

FEWEST = 200
"""Fewer values say nothing of their dependence."""
FEWEST_INDEPENDENT = 10
"""A series worth fewer independent values is too short: it may not have seen its slowest changes at all."""
BATCHES = (8, 16)
"""Numbers of batches; the one that finds more dependence counts."""

_UPPER = (1 + LEVEL) / 2
_NORMAL = float(special.ndtri(_UPPER))

Floats = npt.NDArray[np.floating]


def count_independent(values: Floats) -> float:
    """Return how many independent values know the mean of a series as well as it does.

    The variance of the mean is that of the means of contiguous batches over their number. It is made larger by as much
    as Student's t with so few batches is wider than the normal distribution, so that intervals of independent values
    apply to the number that is returned.

    Args:
        values: The series in time order.

    Returns:
        A number from 0 to ``len(values)``.
    """
    n, variance = len(values), float(values.var())
    if variance <= 0:
        return float(n)
    return min(float(n), *(variance / _variance_of_mean(values, batches) for batches in BATCHES))


def quantile_of_series(values: Floats, q: float) -> tuple[float, Interval]:
    """Return the ``q``-quantile of a series by nearest rank, and its interval.

    The interval lies between the order statistics that bound the quantile of as many independent values as the series
    is worth (Woodruff, JASA 47, 1952). That number is the lesser of two: for the share of values up to the quantile,
    and for the ranks of all values, since few values beyond the quantile show too little of their dependence.

    Args:
        values: The series in time order.
        q: A fraction between 0 and 1.

    Returns:
        The quantile and its interval, both of whose ends are ``None`` where the series is too short to tell.
    """
    n, ordered = len(values), np.sort(values)
    value = float(ordered[nearest_rank(n, q) - 1])
    if n < FEWEST:
        return value, UNBOUNDED
    ranks = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    below = values <= value
    independent = math.floor(min(count_independent(below.astype(float)), count_independent(ranks.astype(float))))
    if independent < FEWEST_INDEPENDENT:
        return value, UNBOUNDED
    low, high = quantile_ranks(independent, q)
    return value, Interval(
        None if low is None else float(ordered[max(1, math.floor(low * n / independent)) - 1]),
        None if high is None else float(ordered[min(n, math.ceil(high * n / independent)) - 1]),
    )


def mean_of_series(values: Floats) -> Interval:
    """Return the interval of the mean of a series in time order; without ends where the series is too short to tell."""
    if len(values) < FEWEST or (independent := count_independent(values)) < FEWEST_INDEPENDENT:
        return UNBOUNDED
    centre, half = float(values.mean()), _NORMAL * float(values.std()) / math.sqrt(independent)
    return Interval(centre - half, centre + half)


def _variance_of_mean(values: Floats, batches: int) -> float:
    """Return the variance of the mean by batch means, widened for Student's t; at least a tiny positive number."""
    means = np.array([batch.mean() for batch in np.array_split(values, batches)])
    wider = float(special.stdtrit(batches - 1, _UPPER)) / _NORMAL
    return max(float(means.var(ddof=1)) / batches * wider**2, np.finfo(float).tiny)
