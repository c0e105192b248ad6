"""Quality metrics that are no count of right samples: their values and intervals, of what each sample adds to them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from scipy import special

from artifacts.errors import InvalidInputError
from evaluator.statistics.figures import Interval
from evaluator.statistics.intervals import LEVEL, UNBOUNDED

DRAWS = 1000
GROUPS = 10
SEED = 7

Tensor = npt.NDArray[Any]
Weights = npt.NDArray[np.int64]
Statistic = Callable[[Weights], float | None]
"""A metric of samples of which each counts so many times [samples]; None where it has no value."""

_TAIL = (1 - LEVEL) / 2
_LEAST = 2
_CLOSE = 1e-9
_RECALLS = np.linspace(0.0, 1.00, 101)  # as COCO's evaluation makes them, to the bit
_TRUE, _IGNORED = 1, 2


@dataclass(frozen=True, slots=True)
class Judged:
    """A metric's value over ``n`` decisions, and the interval of its mean over samples like these."""

    value: float
    n: int
    ci: Interval


def judged(metric: str, value: float, n: int, measures: Mapping[str, Tensor]) -> Judged:
    """``metric`` with its interval, out of what the harness says that each sample adds to it.

    ``mae`` and ``rmse``: Student's t over the samples' absolute and squared errors, the root taken of the ends; ``map``
    and ``map_50``: the jackknife over groups of samples; all others: the bootstrap over samples.

    Raises:
        InvalidInputError: the measures are missing or malformed, or another value follows from them.
    """
    try:
        found, ci = _computed(metric, n, measures)
    except (KeyError, IndexError, ValueError, TypeError, MemoryError) as error:
        raise InvalidInputError(f"the measures of {metric} are none: {error}") from error
    if found is None or not abs(found - value) <= _CLOSE * max(1.0, abs(value)):
        raise InvalidInputError(f"the harness says {metric} is {value}, and its measures say {found}")
    return Judged(value, n, ci)


def read_measures(path: Path) -> dict[str, Tensor]:
    """Every tensor of the safetensors file.

    Raises:
        InvalidInputError: it is none.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, TypeError) as error:
        raise InvalidInputError(f"the measures of quality cannot be read: {error}", where=str(path)) from error


def mean_of(values: Tensor) -> Interval:
    """Student's t interval of the mean of independent values (Law, Simulation Modeling and Analysis, section 4.5).

    Fewer than two bound nothing.
    """
    if len(values) < _LEAST:
        return UNBOUNDED
    half = float(special.stdtrit(len(values) - 1, 1 - _TAIL) * values.std(ddof=1) / np.sqrt(len(values)))
    centre = float(values.mean())
    return Interval(centre - half, centre + half)


def jackknife(statistic: Statistic, samples: int) -> Interval:
    """The delete-a-group jackknife of a fraction's logit (Wolter, Introduction to Variance Estimation, section 4.2).

    The samples are dealt to ten groups at random, always the same ones, and the metric is computed without each. What
    its logit gains by a group, times their number, is a value of its own: of these it is Student's t, whose centre is
    free of the bias that average precision of few samples has. The logit is of ``(n x + 1/2) / (n + 1)``, which is
    finite for 0 and 1. The interval is widened to hold the value itself. Fewer than two samples bound nothing.
    """
    value = statistic(np.ones(samples, np.int64))
    if samples < _LEAST or value is None:
        return UNBOUNDED
    groups = min(samples, GROUPS)
    group = np.random.RandomState(SEED).permutation(samples) % groups
    without = (statistic((group != number).astype(np.int64)) for number in range(groups))
    found = np.asarray([value if one is None else one for one in without])
    if (found == value).all():
        return Interval(value, value)
    whole, parts = (special.logit((samples * one + 0.5) / (samples + 1)) for one in (np.asarray(value), found))
    ends = mean_of(groups * whole - (groups - 1) * parts)
    low, high = ((special.expit(end) * (samples + 1) - 0.5) / samples for end in (ends.low, ends.high))
    return Interval(max(0.0, min(float(low), value)), min(1.0, max(float(high), value)))


def bootstrap(statistic: Statistic, samples: int, draws: int = DRAWS) -> Interval:
    """The basic interval of a fraction (Davison and Hinkley, Bootstrap Methods and their Application, section 5.2.1).

    ``samples`` samples are drawn with replacement ``draws`` times, always the same ones; draws without a value are left
    out. The interval is between twice the value less the 97.5 and the 2.5 percentile of the draws: it takes away by how
    much the draws lie higher than the value, and so the value than the truth. It is cut at 0 and 1 and widened to hold
    the value itself. Fewer than two samples bound nothing.
    """
    value = statistic(np.ones(samples, np.int64))
    if samples < _LEAST or value is None:
        return UNBOUNDED
    random = np.random.RandomState(SEED)  # its numbers never change; a newer generator's may
    drawn = (np.bincount(random.randint(0, samples, samples), minlength=samples) for _ in range(draws))
    found = [one for one in map(statistic, drawn) if one is not None]
    low, high = 2 * value - np.quantile(found, [1 - _TAIL, _TAIL])
    return Interval(max(0.0, min(float(low), value)), min(1.0, max(float(high), value)))


def _computed(metric: str, n: int, measures: Mapping[str, Tensor]) -> tuple[float | None, Interval]:
    if metric in ("mae", "rmse"):
        return _error(metric, _series(measures[metric], (n,), "f"))
    samples = n
    if metric in _THRESHOLDS:
        statistic = _average_precision(measures, samples, _THRESHOLDS[metric])
        return statistic(np.ones(samples, np.int64)), jackknife(statistic, samples)
    if metric == "miou":
        statistic = _mean_iou(_series(measures["miou"], (None, 4), "i"), samples)
    else:
        counts = _series(measures[metric], (None, 2), "i")
        samples = len(counts)
        statistic = _fraction(counts)
    return statistic(np.ones(samples, np.int64)), bootstrap(statistic, samples)


def _series(values: Tensor, shape: tuple[int | None, ...], kind: str) -> Tensor:
    sizes = zip(values.shape, shape, strict=True)
    if values.dtype.kind != kind or any(want not in (None, size) for size, want in sizes) or values.dtype.itemsize < 8:  # noqa: PLR2004 - 64 bits
        raise ValueError(f"{values.dtype} {list(values.shape)}")
    if (values < 0).any() or not np.isfinite(values).all():
        raise ValueError("a measure that is negative or no number")
    return values


def _error(metric: str, errors: Tensor) -> tuple[float, Interval]:
    """The mean of the errors, or its root; the interval of the mean, cut at 0, with the same done to its ends."""
    root: Callable[[float], float] = np.sqrt if metric == "rmse" else float
    found = mean_of(errors)
    if found.low is None or found.high is None:
        return float(root(float(errors.mean()))), UNBOUNDED
    return float(root(float(errors.mean()))), Interval(float(root(max(0.0, found.low))), float(root(found.high)))


def _fraction(counts: Tensor) -> Statistic:
    """Of rows [right, decided]: how many of all decisions are right."""

    def statistic(weights: Weights) -> float | None:
        right, decided = weights @ counts
        return float(right / decided) if decided else None

    return statistic


def _mean_iou(rows: Tensor, samples: int) -> Statistic:
    """Of rows [sample, class, intersection, union]: the mean over classes of all intersections over all unions."""
    classes, numbers = np.unique(rows[:, 1], return_inverse=True)
    pixels = np.zeros((2, samples, len(classes)))
    for part in range(2):
        np.add.at(pixels[part], (rows[:, 0], numbers), rows[:, 2 + part])

    def statistic(weights: Weights) -> float | None:
        intersection, union = weights @ pixels[0], weights @ pixels[1]
        there = union > 0
        return float(np.mean(intersection[there] / union[there])) if there.any() else None

    return statistic


@dataclass(frozen=True, slots=True)
class _Ranked:
    """The detections of one label, best first: of which sample, and [thresholds, D] whether right, whether wrong."""

    samples: Tensor
    right: Tensor
    wrong: Tensor
    to_find: Tensor


_THRESHOLDS: Mapping[str, slice] = {"map": slice(None), "map_50": slice(0, 1)}
"""Of the thresholds of IoU, 0.5 to 0.95 in steps of 0.05, those that a metric is the mean over."""


def _average_precision(measures: Mapping[str, Tensor], samples: int, thresholds: slice) -> Statistic:
    """COCO's average precision, out of which detection matches a labelled box at which threshold.

    A sample that is drawn twice has all of its detections and boxes twice.
    """
    ranked = tuple(_ranked(measures, samples, thresholds))

    def statistic(weights: Weights) -> float | None:
        found = [precision for one in ranked if (precision := _precision(one, weights)) is not None]
        return float(np.mean(found)) if found else None

    return statistic


def _ranked(measures: Mapping[str, Tensor], samples: int, thresholds: slice) -> Iterator[_Ranked]:
    scores, rows = measures["map.scores"], _series(measures["map.rows"], (len(measures["map.scores"]), 2), "i")
    matches = measures["map.matches"]
    if matches.shape != (len(rows), 10) or matches.dtype != np.uint8 or not np.isfinite(scores).all():
        raise ValueError(f"{matches.dtype} {list(matches.shape)} matches of {len(rows)} detections")
    labelled = _series(measures["map.labelled"], (None, 3), "i")
    for label in np.unique(labelled[:, 1]):
        mine = np.flatnonzero(rows[:, 1] == label)
        mine = mine[np.argsort(-scores[mine], kind="stable")]
        found = matches[mine, thresholds].T
        boxes = labelled[labelled[:, 1] == label]
        to_find = np.bincount(boxes[:, 0], weights=boxes[:, 2], minlength=samples).astype(np.int64)
        if len(to_find) > samples or (len(mine) and rows[mine, 0].max() >= samples):
            raise ValueError(f"a sample beyond the {samples}")
        yield _Ranked(rows[mine, 0], found == _TRUE, found == 0, to_find)


def _precision(ranked: _Ranked, weights: Weights) -> Tensor | None:
    """[thresholds, 101]: the best precision at a recall of at least each of COCO's; None without a box to find."""
    to_find = int(weights @ ranked.to_find)
    if to_find == 0:
        return None
    counted = weights[ranked.samples]
    right = np.cumsum(ranked.right * counted, axis=1, dtype=np.float64)
    wrong = np.cumsum(ranked.wrong * counted, axis=1, dtype=np.float64)
    precision = right / (wrong + right + np.spacing(1))
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    best = np.hstack([best, np.zeros((len(best), 1))])
    places = [np.searchsorted(line, _RECALLS, side="left") for line in right / to_find]
    return np.take_along_axis(best, np.asarray(places), axis=1)
