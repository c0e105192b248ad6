"""Intervals of metrics that are ratios of sums over samples, of which each adds several decisions or many pixels.

What one sample adds hangs together, so that samples are what is drawn, and large ones weigh more than small ones. The
variance is that of the linearised ratio. The residual of a sample is divided by one less its weight, as it is without
that sample (HC3: MacKinnon and White, J. Econometrics 29, 1985); as many samples of equal weight as would
weigh alike (Kish, Survey Sampling, section 11.7) give the degrees of freedom of Student's t.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from benchlock.evaluator.statistics.figures import Interval
from benchlock.evaluator.statistics.intervals import LEVEL, UNBOUNDED
from benchlock.evaluator.statistics.tensors import Tensor

Floats = npt.NDArray[np.float64]

FEWEST = 10
"""Samples below which nothing is bounded: too few to show how samples differ."""

_TAIL = (1 - LEVEL) / 2
_ALONE = 1 - 1e-12
"""The weight of a sample beside which no other counts."""


def share_interval(counts: Tensor) -> Interval:
    """Return the interval of a share of decisions, several of each sample.

    After Korn and Graubard (Survey Methodology 24, 1998) it is the exact interval of a binomial proportion (Clopper and
    Pearson) of as many independent decisions as the samples are worth: those that would vary as much, times the square
    of the quotient of Student's t for as many decisions and for the samples, at most all decisions. Few samples seldom
    show what happens seldom, so to the variance comes that of half a sample more, decided against most others.

    Args:
        counts: int64 [samples, 2]: right decisions and all of them.

    Returns:
        The interval; no ends where fewer than 10 samples have a decision.
    """
    counts = counts[counts[:, 1] > 0]
    right, decided = (float(one) for one in counts.sum(axis=0))
    if len(counts) < FEWEST:
        return UNBOUNDED
    share, weights = right / decided, counts[:, 1] / decided
    alike = 1 / float((weights**2).sum())
    worth = alike
    if 0 < share < 1:
        residuals = (counts[:, 0] - share * counts[:, 1]) / decided / (1 - np.minimum(weights, _ALONE))
        variance = float((residuals**2).sum()) * (len(counts) - 1) / len(counts)
        worth = share * (1 - share) / (variance + (max(share, 1 - share) / (2 * alike)) ** 2)
    quotient = _student(max(decided - 1, 1.0)) / _student(max(alike - 1, 1.0))
    worth = min(worth * quotient**2, decided)
    return _exact(share * worth, worth)


def _exact(successes: float, n: float) -> Interval:
    """Return the interval of Clopper and Pearson, of numbers that need not be whole."""
    low = 0.0 if successes <= 0 else float(special.betaincinv(successes, n - successes + 1, _TAIL))
    high = 1.0 if successes >= n else float(special.betaincinv(successes + 1, n - successes, 1 - _TAIL))
    return Interval(low, high)


def mean_iou_interval(rows: Tensor, samples: int) -> Interval:
    """Return the interval of the mean over classes of the sum of intersections over that of unions.

    Each end is the outer one of two: value and spread as they are, and on the logistic scale. Few samples seldom show
    what goes wrong seldom, so to the variance comes, for the low end, that of half a sample more that is all wrong, for
    the high end that of half a sample more that is all right. Of a class that one sample alone shows nothing is known
    but how classes differ.

    Args:
        rows: int64 [rows, 4]: sample, class, pixels of the intersection and of the union.
        samples: The number of samples.

    Returns:
        The interval; no ends of fewer than 10 samples.
    """
    if samples < FEWEST:
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
    reach = _student(_degrees(of_classes, alike, samples))
    half = 1 / (2 * samples)
    low, high = (reach * math.hypot(math.sqrt(variance) / classes, half * beyond) for beyond in (value, 1 - value))
    return Interval(max(0.0, _lower(value, low)), min(1.0, 1 - _lower(1 - value, high)))


def _degrees(variances: Floats, alike: Floats, samples: int) -> float:
    """Return the degrees of freedom of a sum of ``variances`` [classes], each of so many samples of equal weight."""
    total = float(variances.sum())
    if total <= 0:
        return samples - 1.0
    own = np.maximum(alike - 1, 0.5)
    return min(max(total / float((variances / own).sum()), 1.0), samples - 1.0)


def _lower(value: float, reach: float) -> float:
    """Return the lower of two low ends: ``value`` less ``reach``, and the same on the logistic scale."""
    if not 0 < value < 1:
        return value - reach
    return min(value - reach, float(special.expit(special.logit(value) - reach / (value * (1 - value)))))


def _student(degrees: float) -> float:
    return float(special.stdtrit(degrees, 1 - _TAIL))
