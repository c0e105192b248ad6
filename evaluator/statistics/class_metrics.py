"""Intervals of metrics of classes and of class probabilities, from the contributions of each sample."""

import math

import numpy as np
import numpy.typing as npt

from benchlock.evaluator.harness.quality.class_scores import bin_of
from benchlock.evaluator.statistics.confidence_intervals import (
    FEWEST_SAMPLES,
    UNBOUNDED,
    Tensor,
    exact_share,
    series,
    student,
)
from benchlock.evaluator.statistics.metric_types import Interval

Floats = npt.NDArray[np.float64]

_CALIBRATION = "ece_15"
_CLOSE = 1e-9


def read_parts(metric: str, measure: Tensor, n: int) -> Floats:
    """Return float64 [n, 2]: the part of each sample in the value of a metric, and its influence.

    Args:
        metric: One of ``CLASS_METRICS``.
        measure: These columns; of ``ece_15`` the confidence of each sample, and 1 where it is right.
        n: The number of samples.

    Raises:
        ValueError: The measure is malformed.
    """
    if metric == _CALIBRATION:
        confidence, right = series(measure, (n, 2), "f").T
        if (measure > 1).any():
            raise ValueError("a confidence is above 1")
        bins, gaps = bin_of(confidence), confidence - right
        parts = np.sign(np.bincount(bins, weights=gaps))[bins] * gaps / n
        return np.column_stack([parts, parts - parts.mean()])
    if measure.shape != (n, 2) or measure.dtype != np.float64 or not np.isfinite(measure).all():
        raise ValueError(f"{measure.dtype} {list(measure.shape)}")
    if abs(measure[:, 1].sum()) > _CLOSE * max(1.0, float(np.abs(measure[:, 1]).sum())):
        raise ValueError("the influences do not add up to 0")
    return measure


def estimate_class_metric(metric: str, measure: Tensor, n: int) -> tuple[float, Interval]:
    """Return the value of a metric and its interval; arguments and errors as of ``read_parts``."""
    parts = read_parts(metric, measure, n)
    value = float(parts[:, 0].sum())
    if n < FEWEST_SAMPLES:
        return value, UNBOUNDED
    if metric == _CALIBRATION:
        return value, _calibration_interval(value, measure)
    most = 2 if metric == "brier" else 1
    low, high = _share_interval(*(parts / most).T, at_most_alike=metric == "f1_macro")
    return value, Interval(most * low, most * high)


def _share_interval(parts: Floats, influence: Floats, *, at_most_alike: bool) -> tuple[float, float]:
    """Return the exact interval of a binomial proportion of as many decisions as vary as the metric does.

    As for decisions of calls (Korn and Graubard, Survey Methodology 24, 1998), with the variance of the linearised
    metric: the sum of the squared influences (Deville, Survey Methodology 25, 1999). The number of decisions is the
    greater of two. One is at most the number of samples, and has the variance of half a sample more, which disagrees.
    The other has no such variance, and is at most the effective number of samples with a part in the value (Kish).

    Args:
        parts: The parts [samples] that add up to the value.
        influence: The influences [samples].
        at_most_alike: Whether only the other number counts, as for the mean over classes with few samples each.
    """
    n, value = len(parts), float(parts.sum())
    alike = value**2 / float((parts**2).sum()) if value > 0 else float(n)
    variance = float((influence**2).sum()) * n / (n - 1)
    quotient = (student(n - 1.0) / student(max(alike - 1, 1.0))) ** 2
    worth = alike * min(quotient, 1.0)
    if 0 < value < 1 and variance > 0:
        spread = value * (1 - value)
        half = max(value, 1 - value) / (2 * alike)
        worth = min(spread / variance * quotient, alike)
        worth = worth if at_most_alike else max(worth, min(spread / (variance + half**2) * quotient, float(n)))
    ci = exact_share(min(value, 1.0) * worth, worth)
    assert ci.low is not None
    assert ci.high is not None
    return ci.low, ci.high


def _calibration_interval(value: float, rows: Tensor) -> Interval:
    """Return the interval of the expected calibration error.

    A sample of a calibrated model has an error above 0, so the low end subtracts the greatest mean excess, which is
    that of a calibrated model: the sum over bins of the standard deviation times the root of 2 / pi. Both ends are
    further away by Student's t times the standard deviation, which includes one more sample that is all wrong.
    """
    n = len(rows)
    squares = np.bincount(bin_of(rows[:, 0]), weights=(rows[:, 0] - rows[:, 1]) ** 2) / n**2
    excess = math.sqrt(2 / math.pi) * float(np.sqrt(squares).sum())
    reach = student(n - 1.0) * math.sqrt(max(float(squares.sum()) - value**2 / n, 0.0) + 1 / n**2)
    return Interval(max(0.0, value - excess - reach), min(1.0, value + reach))
