"""All metrics of a run, and statistics of its individual calls."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.statistics.confidence_intervals import fraction
from benchlock.evaluator.statistics.metric_types import Calls, Interval, Metric
from benchlock.evaluator.statistics.quality_metrics import QualityEstimate
from benchlock.evaluator.statistics.time_metrics import (
    ESTIMATORS,
    NANOSECONDS,
    PIPELINE,
    QUANTILES,
    MetricValue,
    Phases,
    Samples,
    list_time_metrics,
)


class Definition(Protocol):
    """The definition of a metric."""

    @property
    def name(self) -> str:
        """The name of the metric."""

    @property
    def unit(self) -> str:
        """The unit of its values."""

    @property
    def direction(self) -> str:
        """``higher`` or ``lower`` where that is better; another value where neither is."""

    @property
    def version(self) -> int:
        """The version of the definition."""


_DERIVED = ("throughput_per_core", "cost_per_million")
_NEWEST_TIMES = 2
_MILLION, _SECONDS_AN_HOUR = 1e6, 3600


@dataclass(frozen=True, slots=True)
class CorrectCount:
    """The number of samples, of ``n``, that were decided as labelled."""

    correct: int
    n: int


@dataclass(frozen=True, slots=True)
class Conditions:
    """The CPUs of a run, and the price of its machine per hour; None without one."""

    cpus: int = 1
    price: float | None = None


def summarise(
    definitions: Sequence[Definition],
    quality: Mapping[str, CorrectCount | QualityEstimate],
    phases: Phases,
    conditions: Conditions = Conditions(),
) -> tuple[Metric, ...]:
    """Return the metrics of each definition, in their order; for a sweep one per batch size.

    * a fraction: correct / n, with the exact binomial interval; other quality metrics as estimated;
    * time metrics: as ``list_time_metrics`` returns them;
    * ``throughput_per_core``: throughput divided by the CPUs; ``cost_per_million``: the price of the hours that a
      million samples take. Their intervals are those of the throughput.

    Raises:
        InvalidInputError: The harness left nothing to compute a metric from.
    """
    return tuple(metric for definition in definitions for metric in _metrics(definition, quality, phases, conditions))


def list_derived(name: str, phases: Phases, conditions: Conditions) -> Iterator[tuple[int | None, MetricValue]]:
    """Yield a metric that follows from the throughput; for a sweep one per batch size, nothing without a price."""
    for batch, (value, n, ci) in list_time_metrics("throughput", phases, _NEWEST_TIMES):
        if name == "throughput_per_core":
            low, high = (None if end is None else end / conditions.cpus for end in (ci.low, ci.high))
            yield batch, (value / conditions.cpus, n, Interval(low, high))
        elif conditions.price is not None:
            cost = _MILLION / _SECONDS_AN_HOUR * conditions.price
            low, high = (None if end is None or end <= 0 else cost / end for end in (ci.high, ci.low))
            yield batch, (cost / value, n, Interval(low, high))


def _metrics(
    definition: Definition,
    quality: Mapping[str, CorrectCount | QualityEstimate],
    phases: Phases,
    conditions: Conditions,
) -> list[Metric]:
    name = definition.name
    estimate = quality.get(name)
    figures: list[tuple[int | None, MetricValue]]
    if isinstance(estimate, QualityEstimate):
        figures = [(None, (estimate.value, estimate.n, estimate.ci))]
    elif estimate is not None and estimate.n > 0:
        figures = [(None, (estimate.correct / estimate.n, estimate.n, fraction(estimate.correct, estimate.n)))]
    elif name in _DERIVED:
        figures = list(list_derived(name, phases, conditions))
    else:
        figures = list(list_time_metrics(name, phases, definition.version))
    if not figures:
        raise InvalidInputError(f"the harness wrote no data to compute {name} from")
    return [
        Metric(name, value, definition.unit, definition.direction, n, ci, definition.version, batch)
        for batch, (value, n, ci) in figures
    ]


PERCENTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
MEDIAN = {"p50": 0.50}

_TICK = 1e-3


def describe_calls(samples: Samples, scope: str, device: str, version: int) -> Calls | None:
    """Return the calls behind a run's times; None where preemption was not counted.

    Percentiles are computed as those of all calls beside them, by the same ``version`` of the definitions; for a sweep
    the median of each batch size. The off-CPU time is known only where the calling thread does all the work on a CPU;
    otherwise it waits for other threads or for a device.

    Args:
        samples: The samples of the phase.
        scope: The owner of the counted CPU time, ``thread`` or ``process``.
        device: The device of the model.
        version: The version of the definitions.
    """
    if samples.preempted is None or not len(samples.latency):
        return None
    wall, cpu = None, None
    if samples.cpu is not None and scope == "thread" and device == "cpu":
        served = _service_seconds(samples)
        wall, cpu = float(served.sum()), float(_cpu_seconds(samples.cpu, served).sum())
    return Calls(
        n=len(samples.latency),
        preempted=int(samples.preempted.sum()),
        scope=scope,
        undisturbed=tuple(_percentiles("latency", samples.latency, samples, version, ~samples.preempted)),
        cpu_time=() if samples.cpu is None else tuple(_percentiles("cpu_time", samples.cpu, samples, version)),
        wall=wall,
        cpu=cpu,
    )


def find_undelayed(phases: Phases, metrics: Mapping[str, int]) -> Iterator[Metric]:
    """Yield each latency of ``server`` among the metrics, as it would be without the host's delay.

    Args:
        phases: The timed phases.
        metrics: The versions of the definitions by metric name.
    """
    for name, version in sorted(metrics.items()):
        phase = phases.pipeline if name.startswith(PIPELINE) else phases.performance
        quantile = QUANTILES.get(name.removeprefix(PIPELINE))
        if phase is None or quantile is None or "issue_delay_ns" not in phase.samples.more:
            continue
        latency = _without_delay(phase.samples)
        value, ci = ESTIMATORS[version].quantile(latency, quantile)
        yield Metric(name, value, "s", "lower", len(latency), ci, version)


def _without_delay(samples: Samples) -> npt.NDArray[np.float64]:
    """Return the seconds of each query as if issued immediately, where no earlier query was being answered.

    Queries are answered one after the other. A query that arrives while an earlier one is being answered waits for the
    model. Any other query waits only for the host: that wait is removed, and so is its share in the waits of the
    queries behind it (Lindley, The theory of queues with a single server, 1952).
    """
    start, end, delay = (samples.more[f"{name}_ns"] for name in ("start", "end", "issue_delay"))
    free = np.maximum.accumulate(np.concatenate((start[:1], end[:-1])))
    work = end - np.where(start < free, free, start + delay)
    done = np.cumsum(work)
    answered = done + np.maximum.accumulate(start - (done - work))
    return np.asarray((answered - start) * NANOSECONDS)


def _service_seconds(samples: Samples) -> npt.NDArray[np.float64]:
    """Return the seconds in each call, without the wait of a query where its latency includes one."""
    served = samples.more.get("service_ns")
    return samples.latency if served is None else np.asarray(served, np.float64) * NANOSECONDS


def _cpu_seconds(cpu: npt.NDArray[np.float64], served: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the seconds on the CPU in each call, at most the duration of the call.

    The CPU time is read outside the call's own clock and includes slightly more, which would hide the losses of single
    calls in the sum. A CPU clock with a resolution of milliseconds is valid only for all calls together.
    """
    coarse = bool((cpu - served).max() > _TICK)
    return cpu if coarse else np.minimum(cpu, served)


def _percentiles(
    name: str, values: npt.NDArray[Any], samples: Samples, version: int, among: npt.NDArray[np.bool_] | None = None
) -> Iterator[Metric]:
    """Yield percentiles of the values ``among`` all, or of all values."""
    counted = np.ones(len(values), np.bool_) if among is None else among
    batches = samples.more.get("batch")
    if batches is None:
        yield from _estimate_percentiles(name, values[counted], PERCENTILES, version)
        return
    for batch in np.unique(batches):
        yield from _estimate_percentiles(name, values[counted & (batches == batch)], MEDIAN, version, int(batch))


def _estimate_percentiles(
    name: str, values: npt.NDArray[Any], percentiles: Mapping[str, float], version: int, batch: int | None = None
) -> Iterator[Metric]:
    for percentile, q in percentiles.items() if len(values) else ():
        value, ci = ESTIMATORS[version].quantile(values, q)
        yield Metric(f"{name}_{percentile}", value, "s", "lower", len(values), ci, version, batch)
