"""Quality metrics and their intervals: means, bootstrap and COCO average precision."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.harness.core.job import CLASS_METRICS
from benchlock.evaluator.statistics.class_metrics import estimate_class_metric
from benchlock.evaluator.statistics.confidence_intervals import (
    UNBOUNDED,
    Tensor,
    mean_iou_interval,
    series,
    share_interval,
)
from benchlock.evaluator.statistics.metric_types import LEVEL, Interval

Floats = npt.NDArray[np.float64]

GROUPS = 32
HALVES_SEED = 7
THRESHOLDS: Mapping[str, slice] = {"map": slice(None), "map_50": slice(0, 1)}
"""The part of the IoU thresholds, 0.5 to 0.95 in steps of 0.05, over which a metric is the mean."""

_PRECISION_TAIL = (1 - LEVEL) / 2
_LEAST_RANKED = 2
_RECALLS = np.linspace(0.0, 1.00, 101)  # bit for bit as in COCO's evaluation
_TRUE, _IGNORED = 1, 2
_SLOW, _FAST = 1 / (math.sqrt(2) - 1), 1.0
"""The excess of a metric over its limit for very many samples, relative to the excess of its halves over the metric.

The first applies where the excess falls with the root of the number of samples, as it does for uninformative scores;
the second where it falls with their number.
"""


@dataclass(frozen=True, slots=True)
class RankedDetections:
    """The detections of one label, best first: their samples, and [thresholds, D] whether right and whether wrong.

    ``to_find`` [samples] is the number of boxes of the label.
    """

    samples: Tensor
    right: Tensor
    wrong: Tensor
    to_find: Tensor


def average_precision(measures: Mapping[str, Tensor], samples: int, thresholds: slice) -> tuple[float | None, Interval]:
    """Return the mean over the labels that have boxes, None without one, and its interval by ``half_sample_interval``.

    The interval is unbounded with boxes in fewer than two samples.

    Args:
        measures: The measures of the harness.
        samples: The number of samples.
        thresholds: The part of the IoU thresholds.

    Raises:
        ValueError, KeyError, TypeError: The measures are malformed or missing.
    """
    detections = [entry for entry in ranks(measures, samples, thresholds) if entry.to_find.any()]
    if not detections:
        return None, UNBOUNDED
    sides = balanced_halves(samples)
    group = np.random.RandomState(HALVES_SEED).permutation(samples) % sides.shape[1]  # its numbers never change
    precision = precisions(detections, group, np.vstack([np.ones((1, sides.shape[1])), sides]))
    value = float(precision[0].mean())
    if np.count_nonzero(sum(entry.to_find for entry in detections)) < _LEAST_RANKED:
        return value, UNBOUNDED
    return value, half_sample_interval(precision[0], precision[1:].reshape(-1, 2, len(detections)))


def half_sample_interval(whole: Floats, halves: Floats) -> Interval:
    """Return the interval of the mean of ``whole`` by balanced half-samples.

    The method is that of Wolter, Introduction to Variance Estimation, chapter 3, on the arcsine of the root. Half the
    difference of two complementary halves varies as the metric does: the mean of its squares is the variance, with
    Student's t. Halves exceed the whole as the whole exceeds the true value, so the low end subtracts more of the
    excess than the high end.

    A label that is missing in a half counts there as in the whole. The share of pairs with a missing half measures the
    uncertainty of a label: for half of that share the label counts as zero at the low end, and the same part of the
    variance between labels is added. The interval is cut at 0 and 1 and widened to contain the value.

    Args:
        whole: The values [labels] on all samples.
        halves: The values [pairs, 2, labels] on halves of the samples; NaN for a half without a box of the label.
    """
    value = float(whole.mean())
    missing = np.isnan(halves).any(axis=1).mean(axis=0)
    centre = float(_angles(whole.mean()))
    angles = _angles(np.where(np.isnan(halves), whole, halves).mean(axis=2))
    above = float(angles.mean()) - centre
    variance = float(np.mean(((angles[:, 0] - angles[:, 1]) / 2) ** 2))
    if 0 < value < 1:
        between = float(whole.var(ddof=1)) if len(whole) > 1 else value * (1 - value)
        variance += missing.sum() * between / len(whole) ** 2 / (4 * value * (1 - value))
    half = float(scipy.special.stdtrit(len(halves), 1 - _PRECISION_TAIL)) * math.sqrt(variance)
    least = float(_angles((whole * (1 - missing / 2)).mean()))
    low = _precision_fraction(least - _SLOW * above - half)
    high = _precision_fraction(centre - _FAST * above + half)
    return Interval(min(low, value), max(high, value))


def _angles(fractions: Floats) -> Floats:
    angles: Floats = np.arcsin(np.sqrt(np.clip(fractions, 0.0, 1.0)))
    return angles


def _precision_fraction(angle: float) -> float:
    return math.sin(min(max(angle, 0.0), math.pi / 2)) ** 2


def balanced_halves(samples: int) -> Floats:
    """Return which groups are in each half [halves, groups], with complementary halves in pairs.

    The number of groups is the greatest power of two up to 32 and ``samples``. The halves are the rows of a Hadamard
    matrix, in which any two groups are in the same half as often as not.
    """
    signs = np.ones((1, 1))
    while 2 * len(signs) <= min(samples, GROUPS):
        signs = np.block([[signs, signs], [signs, -signs]])
    halves: Floats = np.stack([signs[1:] > 0, signs[1:] < 0], axis=1).reshape(-1, len(signs)).astype(np.float64)
    return halves


def precisions(detections: Sequence[RankedDetections], group: Tensor, weights: Floats) -> Floats:
    """Return the average precision [draws, labels], NaN where no box of the label exists.

    Args:
        detections: The detections of each label.
        group: The group of each sample [samples].
        weights: How often each sample of a group counts [draws, groups].
    """
    means = np.full((len(weights), len(detections)), np.nan)
    for number, entry in enumerate(detections):
        to_find = weights @ np.bincount(group, weights=entry.to_find, minlength=weights.shape[1])
        present = to_find > 0
        owners = group[entry.samples]
        lines = zip(entry.right, entry.wrong, strict=True)
        parts = [_precision(right, wrong, owners, weights[present], to_find[present]) for right, wrong in lines]
        means[present, number] = np.mean(parts, axis=0)
    return means


def _precision(right: Tensor, wrong: Tensor, owners: Tensor, weights: Floats, to_find: Floats) -> Floats:
    """Return the mean [draws] of the best precision at a recall of at least each of COCO's, at one threshold.

    Precision is best at a right detection, so wrong detections are counted up to each of these, by group.
    """
    groups = weights.shape[1]
    hits = np.flatnonzero(right)
    if not len(hits):
        return np.zeros(len(weights))
    misses = np.flatnonzero(wrong[: hits[-1]])
    cells = np.searchsorted(hits, misses) * groups + owners[misses]
    missed = np.bincount(cells, minlength=len(hits) * groups).reshape(-1, groups)
    hit_cells = np.zeros_like(missed)
    hit_cells[np.arange(len(hits)), owners[hits]] = 1
    true = weights @ np.cumsum(hit_cells, axis=0, dtype=np.float64).T
    false = weights @ np.cumsum(missed, axis=0, dtype=np.float64).T
    precision = true / (false + true + np.spacing(1))
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    reached = np.searchsorted(_RECALLS, true / to_find[:, None], side="right")
    steps = np.diff(reached, axis=1, prepend=0)
    mean: Floats = np.einsum("ij,ij->i", steps, best) / len(_RECALLS)
    return mean


def ranks(measures: Mapping[str, Tensor], samples: int, thresholds: slice) -> Iterator[RankedDetections]:
    """Yield the detections of each label from the harness's measures.

    Raises:
        ValueError, KeyError, TypeError: The measures are malformed or missing.
    """
    scores, rows = measures["map.scores"], series(measures["map.rows"], (len(measures["map.scores"]), 2), "i")
    matches = measures["map.matches"]
    if matches.shape != (len(rows), 10) or matches.dtype != np.uint8 or not np.isfinite(scores).all():
        raise ValueError(f"{matches.dtype} {list(matches.shape)} matches of {len(rows)} detections")
    labelled = series(measures["map.labelled"], (None, 3), "i")
    for label in np.unique(labelled[:, 1]):
        indices = np.flatnonzero(rows[:, 1] == label)
        indices = indices[np.argsort(-scores[indices], kind="stable")]
        matched = matches[indices, thresholds].T
        boxes = labelled[labelled[:, 1] == label]
        to_find = np.bincount(boxes[:, 0], weights=boxes[:, 2], minlength=samples).astype(np.int64)
        if len(to_find) > samples or (len(indices) and rows[indices, 0].max() >= samples):
            raise ValueError(f"sample number out of range: {samples} samples")
        yield RankedDetections(rows[indices, 0], matched == _TRUE, matched == 0, to_find)


DRAWS = 1000
SEED = 7

Weights = npt.NDArray[np.int64]
Statistic = Callable[[Weights], float | None]
"""A metric as a function of how often each sample counts [samples]; None where it has no value."""

_TAIL = (1 - LEVEL) / 2
_BOOTSTRAPPED = 1
"""The version of ``miou``, ``top1`` and ``top5`` whose intervals come from the bootstrap."""
_LATEST = 2
_LEAST = 2
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class QualityEstimate:
    """The value of a metric over ``n`` decisions, and the interval of its mean over similar samples."""

    value: float
    n: int
    ci: Interval


def estimate_quality(
    metric: str, value: float, n: int, measures: Mapping[str, Tensor], version: int = _LATEST
) -> QualityEstimate:
    """Return ``metric`` with its interval, from the contributions of each sample.

    ``mae`` and ``rmse``: Student's t over the absolute and squared errors of samples, with the root of the ends.
    ``map`` and ``map_50``: balanced half-samples. ``miou`` and decisions of calls: clustered samples, as in
    ``confidence_intervals``; by version 1 of their definitions the bootstrap over samples. Metrics of classes and of
    their probabilities: as in ``class_metrics``.

    Args:
        metric: The name of the metric.
        value: The value that the harness reports.
        n: The number of decisions.
        measures: The contributions of each sample.
        version: The version of the definition.

    Raises:
        InvalidInputError: The measures are missing or malformed, or do not give the reported value.
    """
    try:
        computed, ci = _compute(metric, n, measures, version)
    except (KeyError, IndexError, ValueError, TypeError, MemoryError) as error:
        raise InvalidInputError(f"malformed measures of {metric}: {error}") from error
    if computed is None or not abs(computed - value) <= _CLOSE * max(1.0, abs(value)):
        raise InvalidInputError(f"the harness reports {metric} {value}, but its measures give {computed}")
    return QualityEstimate(value, n, ci)


def mean_interval(values: Tensor) -> Interval:
    """Return Student's t interval of the mean of independent values; unbounded for fewer than two.

    Source: Law, Simulation Modeling and Analysis, section 4.5.
    """
    if len(values) < _LEAST:
        return UNBOUNDED
    half = float(scipy.special.stdtrit(len(values) - 1, 1 - _TAIL) * values.std(ddof=1) / np.sqrt(len(values)))
    centre = float(values.mean())
    return Interval(centre - half, centre + half)


def bootstrap(statistic: Statistic, samples: int, draws: int = DRAWS) -> Interval:
    """Return the basic bootstrap interval of a fraction; unbounded for fewer than two samples.

    The method is that of Davison and Hinkley, Bootstrap Methods and their Application, section 5.2.1. Samples are drawn
    with replacement, always the same ones; draws without a value are left out. The interval is between twice the value
    minus the 97.5 and the 2.5 percentile of the draws, which subtracts the excess of the draws over the value, and so
    that of the value over the true value. It is cut at 0 and 1 and widened to contain the value.

    Args:
        statistic: The metric.
        samples: The number of samples.
        draws: The number of draws.
    """
    value = statistic(np.ones(samples, np.int64))
    if samples < _LEAST or value is None:
        return UNBOUNDED
    random = np.random.RandomState(SEED)  # its numbers never change; those of a newer generator may
    draw_counts = (np.bincount(random.randint(0, samples, samples), minlength=samples) for _ in range(draws))
    values = [result for result in map(statistic, draw_counts) if result is not None]
    low, high = 2 * value - np.quantile(values, [1 - _TAIL, _TAIL])
    return Interval(max(0.0, min(float(low), value)), min(1.0, max(float(high), value)))


def bootstrap_mean_iou(rows: Tensor, samples: int) -> Interval:
    """Return the interval of ``miou`` by version 1 of its definition."""
    return bootstrap(mean_iou(rows, samples), samples)


def bootstrap_share(counts: Tensor) -> Interval:
    """Return the interval of decisions of calls by version 1 of the definitions."""
    return bootstrap(_fraction(counts), len(counts))


def _compute(metric: str, n: int, measures: Mapping[str, Tensor], version: int) -> tuple[float | None, Interval]:
    if metric in ("mae", "rmse"):
        return _error(metric, series(measures[metric], (n,), "f"))
    if metric in THRESHOLDS:
        return average_precision(measures, n, THRESHOLDS[metric])
    if metric == "miou":
        rows = series(measures["miou"], (None, 4), "i")
        value = mean_iou(rows, n)(np.ones(n, np.int64))
        return value, bootstrap_mean_iou(rows, n) if version == _BOOTSTRAPPED else mean_iou_interval(rows, n)
    if metric in CLASS_METRICS:
        return estimate_class_metric(metric, measures[metric], n)
    counts = series(measures[metric], (None, 2), "i")
    value = _fraction(counts)(np.ones(len(counts), np.int64))
    return value, bootstrap_share(counts) if version == _BOOTSTRAPPED else share_interval(counts)


def _error(metric: str, errors: Tensor) -> tuple[float, Interval]:
    """Return the mean of the errors or its root, and the interval of the mean, cut at 0, transformed likewise."""
    root: Callable[[float], float] = np.sqrt if metric == "rmse" else float
    interval = mean_interval(errors)
    if interval.low is None or interval.high is None:
        return float(root(float(errors.mean()))), UNBOUNDED
    return float(root(float(errors.mean()))), Interval(float(root(max(0.0, interval.low))), float(root(interval.high)))


def _fraction(counts: Tensor) -> Statistic:
    """Return the share of right decisions as a function of weights; rows are [right, decided]."""

    def statistic(weights: Weights) -> float | None:
        right, decided = weights @ counts
        return float(right / decided) if decided else None

    return statistic


def mean_iou(rows: Tensor, samples: int) -> Statistic:
    """Return the mean over classes of summed intersections over summed unions, as a function of weights.

    The rows are [sample, class, intersection, union].
    """
    classes, numbers = np.unique(rows[:, 1], return_inverse=True)
    pixels = np.zeros((2, samples, len(classes)))
    for part in range(2):
        np.add.at(pixels[part], (rows[:, 0], numbers), rows[:, 2 + part])

    def statistic(weights: Weights) -> float | None:
        intersection, union = weights @ pixels[0], weights @ pixels[1]
        present = union > 0
        return float(np.mean(intersection[present] / union[present])) if present.any() else None

    return statistic
