"""Quality metrics that are no count of right samples: their values and intervals, of what each sample adds to them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from scipy import special

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.statistics.clusters import mean_iou_interval, share_interval
from benchlock.evaluator.statistics.figures import Interval
from benchlock.evaluator.statistics.intervals import LEVEL, UNBOUNDED
from benchlock.evaluator.statistics.precision import THRESHOLDS, average_precision
from benchlock.evaluator.statistics.tensors import Tensor, series

DRAWS = 1000
SEED = 7

Weights = npt.NDArray[np.int64]
Statistic = Callable[[Weights], float | None]
"""A metric of samples of which each counts so many times [samples]; None where it has no value."""

_TAIL = (1 - LEVEL) / 2
_BOOTSTRAPPED = 1
"""The version of ``miou`` and of ``top1`` and ``top5`` whose intervals are made by the bootstrap."""
_LATEST = 2
_LEAST = 2
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class Judged:
    """A metric's value over ``n`` decisions, and the interval of its mean over samples like these."""

    value: float
    n: int
    ci: Interval


def judged(metric: str, value: float, n: int, measures: Mapping[str, Tensor], version: int = _LATEST) -> Judged:
    """Return ``metric`` with its interval, out of what the harness says that each sample adds to it.

    ``mae`` and ``rmse``: Student's t over the samples' absolute and squared errors, the root taken of the ends; ``map``
    and ``map_50``: balanced half-samples; ``miou`` and decisions of calls: as :mod:`evaluator.statistics.clusters`
    says, by version 1 of their definitions the bootstrap over samples.

    Args:
        metric: The name of the metric.
        value: What the harness says that it is.
        n: The number of decisions.
        measures: What each sample adds to it.
        version: The version of the definition.

    Raises:
        InvalidInputError: the measures are missing or malformed, or another value follows from them.
    """
    try:
        found, ci = _computed(metric, n, measures, version)
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


def bootstrap_mean_iou(rows: Tensor, samples: int) -> Interval:
    """Return the interval of ``miou`` by version 1 of its definition."""
    return bootstrap(_mean_iou(rows, samples), samples)


def bootstrap_share(counts: Tensor) -> Interval:
    """Return the interval of decisions of calls by version 1 of the definitions."""
    return bootstrap(_fraction(counts), len(counts))


def _computed(metric: str, n: int, measures: Mapping[str, Tensor], version: int) -> tuple[float | None, Interval]:
    if metric in ("mae", "rmse"):
        return _error(metric, series(measures[metric], (n,), "f"))
    if metric in THRESHOLDS:
        return average_precision(measures, n, THRESHOLDS[metric])
    if metric == "miou":
        rows = series(measures["miou"], (None, 4), "i")
        value = _mean_iou(rows, n)(np.ones(n, np.int64))
        return value, bootstrap_mean_iou(rows, n) if version == _BOOTSTRAPPED else mean_iou_interval(rows, n)
    counts = series(measures[metric], (None, 2), "i")
    value = _fraction(counts)(np.ones(len(counts), np.int64))
    return value, bootstrap_share(counts) if version == _BOOTSTRAPPED else share_interval(counts)


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
