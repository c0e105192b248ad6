"""Time metrics from the raw samples of timed phases."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.statistics.confidence_intervals import (
    mean_in_blocks,
    mean_of_series,
    quantile,
    quantile_of_series,
    rate,
)
from benchlock.evaluator.statistics.metric_types import Interval

NANOSECONDS = 1e-9

Column = npt.NDArray[Any]

_SERIES = ("latency_ns", "cpu_ns", "preempted")


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of a phase, one value per query in the order of issue.

    ``cpu`` and ``preempted`` are None for a harness that did not count them.
    """

    latency: npt.NDArray[np.float64]
    """Seconds from issue to answer."""
    cpu: npt.NDArray[np.float64] | None = None
    """Seconds of CPU."""
    preempted: npt.NDArray[np.bool_] | None = None
    """Whether other processes got the CPU in between."""
    more: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    """Other columns of the same length, by the harness's names; those in ``_ns`` are nanoseconds."""


def read_columns(path: Path) -> dict[str, Column]:
    """Read every column of a safetensors file that the harness wrote.

    Raises:
        InvalidInputError: The file is missing or malformed, ``latency_ns`` is missing, or a series is malformed.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            columns = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, TypeError) as error:
        raise InvalidInputError(f"cannot read the timing samples: {error}", where=str(path)) from error
    if "latency_ns" not in columns:
        raise InvalidInputError("cannot read the timing samples: latency_ns is missing", where=str(path))
    for name in [name for name in _SERIES if name in columns]:
        series = columns[name]
        kind, description = (np.integer, "0 and 1") if name == "preempted" else (np.int64, "int64 durations")
        if series.ndim != 1 or not np.issubdtype(series.dtype, kind) or (series < 0).any():
            raise InvalidInputError(f"{name} is not a series of {description}", where=str(path))
        if len(series) != len(columns["latency_ns"]):
            raise InvalidInputError(f"{name} and latency_ns differ in length", where=str(path))
    return columns


def samples_of(columns: Mapping[str, Column]) -> Samples:
    """Return the samples in the columns of a file, in seconds."""
    rows = len(columns["latency_ns"])
    return Samples(
        columns["latency_ns"] * NANOSECONDS,
        columns["cpu_ns"] * NANOSECONDS if "cpu_ns" in columns else None,
        columns["preempted"] > 0 if "preempted" in columns else None,
        {name: column for name, column in columns.items() if name not in _SERIES and _is_column(column, rows)},
    )


def _is_column(values: npt.NDArray[np.generic], rows: int) -> bool:
    return values.ndim == 1 and values.dtype == np.int64 and len(values) == rows


QUANTILES: Mapping[str, float] = {"latency_p50": 0.50, "latency_p90": 0.90, "latency_p99": 0.99}
PIPELINE = "pipeline_"
COLD_START = "cold_start"
GAIN = 0.05
"""The greatest relative gain at which doubling the batch size is not worthwhile."""

MetricValue = tuple[float, int, Interval]
"""A value, n and the interval."""
Batch = tuple[int, MetricValue]
"""The samples per call, and the throughput."""


@dataclass(frozen=True, slots=True)
class Estimators:
    """The estimators of a definition's version: a quantile, and the interval of a mean, in time order."""

    quantile: Callable[[npt.NDArray[np.floating], float], tuple[float, Interval]]
    mean: Callable[[npt.NDArray[np.floating]], Interval]


ESTIMATORS: Mapping[int, Estimators] = {
    1: Estimators(lambda values, q: quantile(np.sort(values), q), mean_in_blocks),
    2: Estimators(quantile_of_series, mean_of_series),
}
"""Estimators by version: the first assumes independent values, the second allows for their dependence."""


@dataclass(frozen=True, slots=True)
class Performance:
    """A timed phase: its samples in time order, and the seconds from its first issue to its last answer."""

    samples: Samples
    samples_per_query: int
    duration: float


@dataclass(frozen=True, slots=True)
class Peak:
    """Rates in queries a second: the highest sustained and the lowest failed, after ``probes`` probes."""

    answered: float
    failed: float
    probes: int


@dataclass(frozen=True, slots=True)
class Phases:
    """The timed phases: prepared tensors or processes, the whole pipeline, and rates; None if not requested."""

    performance: Performance | None = None
    pipeline: Performance | None = None
    peak: Peak | None = None


def list_time_metrics(name: str, phases: Phases, version: int) -> Iterator[tuple[int | None, MetricValue]]:
    """Yield the value of a metric by a version of its definition; for a sweep one per batch size.

    * ``latency_p*``: the nearest rank of the queries' latencies, between order statistics;
    * ``throughput``: samples / duration, with the interval of the mean time between answers;
    * either with the prefix ``pipeline_``: the same of the pipeline phase;
    * ``optimal_batch``: the smallest batch size whose doubling gains 5 % or less, see ``optimal_batch``;
    * ``cold_start*``: the median over processes, between order statistics;
    * ``peak_qps``: the highest sustained rate; the interval is from it to the lowest failed rate.

    Nothing is yielded where the phase was not timed, or is of another kind.

    Args:
        name: The name of the metric.
        phases: The timed phases.
        version: The version of the definition.

    Yields:
        The batch size, None without a sweep, and the value.
    """
    if name == "peak_qps":
        if phases.peak is not None:
            yield None, (phases.peak.answered, phases.peak.probes, Interval(phases.peak.answered, phases.peak.failed))
        return
    phase = phases.pipeline if name.startswith(PIPELINE) else phases.performance
    if phase is None or not len(phase.samples.latency):
        return
    estimators = ESTIMATORS[version]
    if name == "optimal_batch":
        yield from _optimal(phase, estimators)
    elif name.startswith(COLD_START):
        yield from _median_of(name, phase, estimators)
    else:
        for batch, part in _by_batch(phase):
            if figure := _figure(name.removeprefix(PIPELINE), part, estimators):
                yield batch, figure


def optimal_batch(throughputs: Sequence[Batch]) -> MetricValue:
    """Return the smallest batch size whose doubling gains 5 % or less, from ascending sizes with throughputs.

    Between neighbours that are not doubles, the gain is that of one doubling, assumed equal for all. If every step
    gains more, the result is the greatest size. The interval extends from the least to the greatest result that the
    intervals of the throughputs allow, None where they do not bound it.
    """
    steps = list(pairwise(throughputs))
    greatest = throughputs[-1][0]
    value = next((smaller[0] for smaller, larger in steps if _gain(smaller, larger) <= GAIN), greatest)
    low = next((smaller[0] for smaller, larger in steps if _least_gain(smaller, larger) <= GAIN), greatest)
    high = next((smaller[0] for smaller, larger in steps if _most_gain(smaller, larger) <= GAIN), None)
    return float(value), len(throughputs), Interval(float(low), None if high is None else float(high))


def _gain(smaller: Batch, larger: Batch) -> float:
    return _of_doubling(smaller[0], larger[0], larger[1][0] / smaller[1][0])


def _least_gain(smaller: Batch, larger: Batch) -> float:
    slow, fast = larger[1][2].low, smaller[1][2].high
    return -math.inf if slow is None or fast is None else _of_doubling(smaller[0], larger[0], slow / fast)


def _most_gain(smaller: Batch, larger: Batch) -> float:
    fast, slow = larger[1][2].high, smaller[1][2].low
    return math.inf if slow is None or fast is None else _of_doubling(smaller[0], larger[0], fast / slow)


def _of_doubling(smaller: int, larger: int, ratio: float) -> float:
    return float(ratio ** (1 / math.log2(larger / smaller)) - 1)


def _optimal(phase: Performance, estimators: Estimators) -> Iterator[tuple[None, MetricValue]]:
    throughputs = [(batch, _throughput(part, estimators)) for batch, part in _by_batch(phase) if batch is not None]
    if throughputs:
        yield None, optimal_batch(throughputs)


def _median_of(name: str, phase: Performance, estimators: Estimators) -> Iterator[tuple[None, MetricValue]]:
    part = name.removeprefix(COLD_START).removeprefix("_")
    column = phase.samples.more.get(f"{part}_ns") if part else None
    values = phase.samples.latency if not part else None if column is None else column * NANOSECONDS
    if values is not None:
        value, ci = estimators.quantile(values, QUANTILES["latency_p50"])
        yield None, (value, len(values), ci)


def _figure(name: str, phase: Performance, estimators: Estimators) -> MetricValue | None:
    latency = phase.samples.latency
    if name in QUANTILES:
        value, ci = estimators.quantile(latency, QUANTILES[name])
        return value, len(latency), ci
    return _throughput(phase, estimators) if name == "throughput" and phase.duration > 0 else None


def _throughput(phase: Performance, estimators: Estimators) -> MetricValue:
    latency, more = phase.samples.latency, phase.samples.more
    n = int(more["samples"].sum()) if "samples" in more else len(latency) * phase.samples_per_query
    between = _between(phase)
    return n / phase.duration, n, rate(between, phase.duration, n / len(latency), estimators.mean(between))


def _between(phase: Performance) -> npt.NDArray[np.float64]:
    """Return the seconds from one answer to the next; without times of answers, the durations of the calls."""
    more = phase.samples.more
    if "end_ns" not in more or "start_ns" not in more or "batch" in more:
        return phase.samples.latency
    ends = np.sort(more["end_ns"])
    return np.diff(ends, prepend=more["start_ns"].min()) * NANOSECONDS


def _by_batch(phase: Performance) -> Iterator[tuple[int | None, Performance]]:
    """Yield the phase, or for a sweep each batch size, whose duration is only that of its turns."""
    samples = phase.samples
    if "batch" not in samples.more:
        yield None, phase
        return
    for batch in np.unique(samples.more["batch"]):
        rows = samples.more["batch"] == batch
        latency = samples.latency[rows]
        before = samples.more["before_ns"][rows].sum() * NANOSECONDS if "before_ns" in samples.more else 0.0
        more = {name: column[rows] for name, column in samples.more.items()}
        yield int(batch), Performance(Samples(latency, more=more), 1, float(latency.sum() + before))
