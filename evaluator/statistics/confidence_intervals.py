"""Confidence intervals (95 %) of quantiles, means, autocorrelated series and clustered samples.

Series: a slow period slows many calls, and a queue passes the wait of one call on to the next, so that n calls are
worth less than n independent ones. The number of independent values that a series is worth is estimated by batch means
(Law, Simulation Modeling and Analysis, section 9.5.3), and intervals are those of that many independent values.

Clusters: the values of one sample are correlated, so that samples are the units drawn, and large samples weigh more.
The variance is that of the linearised ratio. The residual of a sample is divided by one minus its weight, as if
computed without that sample (HC3: MacKinnon and White, J. Econometrics 29, 1985). The effective number of samples of
equal weight (Kish, Survey Sampling, section 11.7) gives the degrees of freedom of Student's t.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # scipy.special is slow to import; SciPy imports it at its first use

from benchlock.evaluator.statistics.metric_types import LEVEL, Interval

Tensor = npt.NDArray[Any]


def series(values: Tensor, shape: tuple[int | None, ...], kind: str) -> Tensor:
    """Return ``values`` after a check: finite, not negative, of 64 bits, of a kind and a shape.

    Args:
        values: The array.
        shape: The expected shape; None accepts any size.
        kind: The expected kind of NumPy's types.

    Raises:
        ValueError: The array does not match.
    """
    sizes = zip(values.shape, shape, strict=True)
    if values.dtype.kind != kind or any(want not in (None, size) for size, want in sizes) or values.dtype.itemsize < 8:  # noqa: PLR2004 - 64 bits
        raise ValueError(f"{values.dtype} {list(values.shape)}")
    if (values < 0).any() or not np.isfinite(values).all():
        raise ValueError("a measure is negative or not a number")
    return values


BLOCKS = 20
_TAIL = (1 - LEVEL) / 2


UNBOUNDED = Interval(None, None)


def fraction(successes: int, n: int) -> Interval:
    """Return the exact interval of a binomial proportion (Clopper and Pearson, Biometrika 26, 1934).

    Its coverage is never below the level, also where every sample or none succeeds.
    """
    if not 0 <= successes <= n or n == 0:
        raise ValueError(f"{successes} of {n} is not a fraction")
    low = 0.0 if successes == 0 else float(scipy.special.betaincinv(successes, n - successes + 1, _TAIL))
    high = 1.0 if successes == n else float(scipy.special.betaincinv(successes + 1, n - successes, 1 - _TAIL))
    return Interval(low, high)


def quantile_ranks(n: int, q: float, level: float = LEVEL) -> tuple[int | None, int | None]:
    """Return the ranks (from 1) of the order statistics that bound the ``q``-quantile of ``n`` independent samples.

    The number of samples below the quantile is binomial (n, q) for any distribution (David and Nagaraja, Order
    Statistics, section 7.1). The low rank is the greatest whose probability of lying above the quantile is at most 2.5
    %; the high rank is the smallest whose probability of lying below it is at most 2.5 %.
    """
    below = scipy.special.bdtr(np.arange(n), n, q)  # [k]: the chance of at most k samples below the quantile
    tail = (1 - level) / 2
    low = int(np.searchsorted(below, tail, side="right"))
    high = int(np.searchsorted(below, 1 - tail, side="left")) + 1
    return (low or None, high if high <= n else None)


def nearest_rank(n: int, q: float) -> int:
    """Return the rank (from 1) of the least of ``n`` samples that at least ``q`` of them do not exceed."""
    return max(1, math.ceil(q * n - 1e-9))  # 0.99 * 100 is 99.00000000000001 in binary


def quantile(ordered: Sequence[float] | npt.NDArray[np.floating], q: float) -> tuple[float, Interval]:
    """Return the ``q``-quantile of samples by nearest rank, and its interval.

    It is the least sample that at least ``q`` of them do not exceed. The samples in ``ordered`` are ascending, and the
    bounds assume that they are independent.
    """
    n = len(ordered)
    if n == 0:
        raise ValueError("no quantile of zero samples")
    low, high = quantile_ranks(n, q)
    return float(ordered[nearest_rank(n, q) - 1]), Interval(
        None if low is None else float(ordered[low - 1]), None if high is None else float(ordered[high - 1])
    )


def mean_in_blocks(values: npt.NDArray[np.floating]) -> Interval:
    """Return the interval of the mean of a series in time order, by the method of batch means.

    The series is cut into 20 contiguous blocks, whose means are nearly independent where single values are not, because
    a slow period slows neighbours. Student's t applies to the block means (Law, Simulation Modeling and Analysis,
    section 9.5.3). The interval is unbounded with fewer than two values per block.
    """
    if len(values) < 2 * BLOCKS:
        return UNBOUNDED
    means = np.array([block.mean() for block in np.array_split(values, BLOCKS)])
    half = float(scipy.special.stdtrit(BLOCKS - 1, 1 - _TAIL) * means.std(ddof=1) / math.sqrt(BLOCKS))
    centre = float(values.mean())
    return Interval(centre - half, centre + half)


def rate(durations: npt.NDArray[np.floating], elapsed: float, units: float, mean: Interval) -> Interval:
    """Return the interval of the rate ``units * n / elapsed`` over n calls.

    The time between calls is shared equally among them. An end where the mean duration would not be positive is
    unbounded.

    Args:
        durations: The seconds of each call, in time order.
        elapsed: The seconds of all calls and the time between them.
        units: The units per call.
        mean: The interval of the mean duration.
    """
    if mean.low is None or mean.high is None:
        return UNBOUNDED
    between = max(0.0, elapsed / len(durations) - float(durations.mean()))
    slow, fast = between + mean.high, between + mean.low
    return Interval(units / slow, units / fast if fast > 0 else None)


FEWEST_CALLS = 200
"""The least number of values that show their dependence."""
FEWEST_INDEPENDENT = 10
"""A series worth fewer independent values is too short: it may not show its slowest changes at all."""
BATCHES = (8, 16)
"""Numbers of batches; the number that shows more dependence counts."""

_UPPER = (1 + LEVEL) / 2
_NORMAL = 1.959963984540054
"""The standard normal quantile of ``_UPPER``; written out, because ``scipy.special.ndtri`` is slow to import."""

FloatSeries = npt.NDArray[np.floating]


def count_independent(values: FloatSeries) -> float:
    """Return the number of independent values whose mean is as precise as that of a series.

    The variance of the mean is that of the means of contiguous batches, divided by their number. It is increased by the
    ratio of Student's t for that few batches to the normal distribution, so that intervals of independent values apply
    to the returned number.

    Args:
        values: The series in time order.

    Returns:
        A number from 0 to ``len(values)``.
    """
    n, variance = len(values), float(values.var())
    if variance <= 0:
        return float(n)
    return min(float(n), *(variance / _variance_of_mean(values, batches) for batches in BATCHES))


def quantile_of_series(values: FloatSeries, q: float) -> tuple[float, Interval]:
    """Return the ``q``-quantile of a series by nearest rank, and its interval.

    The interval lies between the order statistics that bound the quantile of as many independent values as the series
    is worth (Woodruff, JASA 47, 1952). That number is the lesser of two: for the share of values up to the quantile,
    and for the ranks of all values, because few values beyond the quantile show too little of their dependence.

    Args:
        values: The series in time order.
        q: A fraction between 0 and 1.

    Returns:
        The quantile and its interval, which is unbounded for a series that is too short.
    """
    n, ordered = len(values), np.sort(values)
    value = float(ordered[nearest_rank(n, q) - 1])
    if n < FEWEST_CALLS:
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


def mean_of_series(values: FloatSeries) -> Interval:
    """Return the interval of the mean of a series in time order; unbounded for a series that is too short."""
    if len(values) < FEWEST_CALLS or (independent := count_independent(values)) < FEWEST_INDEPENDENT:
        return UNBOUNDED
    centre, half = float(values.mean()), _NORMAL * float(values.std()) / math.sqrt(independent)
    return Interval(centre - half, centre + half)


def _variance_of_mean(values: FloatSeries, batches: int) -> float:
    """Return the variance of the mean by batch means, widened for Student's t; at least a tiny positive number."""
    means = np.array([batch.mean() for batch in np.array_split(values, batches)])
    wider = float(scipy.special.stdtrit(batches - 1, _UPPER)) / _NORMAL
    return max(float(means.var(ddof=1)) / batches * wider**2, np.finfo(float).tiny)


Floats = npt.NDArray[np.float64]

FEWEST_SAMPLES = 10
"""The least number of samples for an interval; fewer do not show how samples differ."""

_CLUSTER_TAIL = (1 - LEVEL) / 2
_ALONE = 1 - 1e-12
"""The weight of a sample beside which no other counts."""


def share_interval(counts: Tensor) -> Interval:
    """Return the interval of a share of decisions, several per sample.

    After Korn and Graubard (Survey Methodology 24, 1998) it is the exact interval of a binomial proportion (Clopper and
    Pearson) of the effective number of independent decisions: the number with the same variance, times the square of
    the quotient of Student's t for all decisions and for the samples, at most all decisions. Few samples rarely show
    rare events, so the variance of half a sample more, decided against most others, is added.

    Args:
        counts: int64 [samples, 2]: correct decisions and all decisions.

    Returns:
        The interval; unbounded where fewer than 10 samples have a decision.
    """
    counts = counts[counts[:, 1] > 0]
    right, decided = (float(count) for count in counts.sum(axis=0))
    if len(counts) < FEWEST_SAMPLES:
        return UNBOUNDED
    share, weights = right / decided, counts[:, 1] / decided
    alike = 1 / float((weights**2).sum())
    worth = alike
    if 0 < share < 1:
        residuals = (counts[:, 0] - share * counts[:, 1]) / decided / (1 - np.minimum(weights, _ALONE))
        variance = float((residuals**2).sum()) * (len(counts) - 1) / len(counts)
        worth = share * (1 - share) / (variance + (max(share, 1 - share) / (2 * alike)) ** 2)
    quotient = student(max(decided - 1, 1.0)) / student(max(alike - 1, 1.0))
    worth = min(worth * quotient**2, decided)
    return exact_share(share * worth, worth)


def exact_share(successes: float, n: float) -> Interval:
    """Return the interval of Clopper and Pearson for numbers that need not be whole."""
    low = 0.0 if successes <= 0 else float(scipy.special.betaincinv(successes, n - successes + 1, _CLUSTER_TAIL))
    high = 1.0 if successes >= n else float(scipy.special.betaincinv(successes + 1, n - successes, 1 - _CLUSTER_TAIL))
    return Interval(low, high)


def mean_iou_interval(rows: Tensor, samples: int) -> Interval:
    """Return the interval of the mean over classes of summed intersections over summed unions.

    Each end is the outer one of two: value and spread as they are, and on the logistic scale. Few samples rarely show
    rare faults, so variance is added: for the low end that of half a sample more that is all wrong, for the high end
    that of half a sample more that is all correct. A class that only one sample shows contributes the variance between
    classes.

    Args:
        rows: int64 [rows, 4]: sample, class, pixels of the intersection and of the union.
        samples: The number of samples.

    Returns:
        The interval; unbounded for fewer than 10 samples.
    """
    if samples < FEWEST_SAMPLES:
        return UNBOUNDED
    _, numbers = np.unique(rows[:, 1], return_inverse=True)
    common, union = (np.bincount(numbers, weights=rows[:, column]) for column in (2, 3))
    parts = common / union
    value, classes = float(parts.mean()), len(parts)
    weights = rows[:, 3] / union[numbers]
    alike = 1 / np.bincount(numbers, weights=weights**2)
    alone = np.bincount(numbers, weights=weights >= _ALONE) > 0
    residuals = (rows[:, 2] - parts[numbers] * rows[:, 3]) / union[numbers] / (1 - np.minimum(weights, _ALONE))
    residuals[alone[numbers]] = 0.0
    between = float(parts.var(ddof=1)) if classes > 1 else value * (1 - value)
    of_samples = np.bincount(rows[:, 0], weights=residuals, minlength=samples)
    variance = float((of_samples**2).sum()) * (samples - 1) / samples + float(alone.sum()) * between
    of_classes = np.bincount(numbers, weights=residuals**2, minlength=classes) + alone * between
    reach = student(_degrees(of_classes, alike, samples))
    half = 1 / (2 * samples)
    low, high = (reach * math.hypot(math.sqrt(variance) / classes, half * beyond) for beyond in (value, 1 - value))
    return Interval(max(0.0, _lower(value, low)), min(1.0, 1 - _lower(1 - value, high)))


def _degrees(variances: Floats, alike: Floats, samples: int) -> float:
    """Return the degrees of freedom of a sum of ``variances`` [classes], each of ``alike`` equal samples."""
    total = float(variances.sum())
    if total <= 0:
        return samples - 1.0
    degrees = np.maximum(alike - 1, 0.5)
    return min(max(total / float((variances / degrees).sum()), 1.0), samples - 1.0)


def _lower(value: float, reach: float) -> float:
    """Return the lower of two low ends: ``value`` minus ``reach``, and the same on the logistic scale."""
    if not 0 < value < 1:
        return value - reach
    return min(value - reach, float(scipy.special.expit(scipy.special.logit(value) - reach / (value * (1 - value)))))


def student(degrees: float) -> float:
    """Return the 97.5 percentile of Student's t."""
    return float(scipy.special.stdtrit(degrees, 1 - _CLUSTER_TAIL))
