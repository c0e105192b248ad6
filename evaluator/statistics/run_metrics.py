"""All metrics of a run, and statistics of its single calls."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.statistics.intervals import fraction
from benchlock.evaluator.statistics.metric_model import Calls, Metric
from benchlock.evaluator.statistics.quality_metrics import QualityEstimate
from benchlock.evaluator.statistics.time_metrics import (
    ESTIMATORS,
    NANOSECONDS,
    PIPELINE,
    QUANTILES,
    Figure,
    Phases,
    Samples,
    list_time_metrics,
)


class Definition(Protocol):
    """What a metric's name stands for."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def direction(self) -> str: ...
    @property
    def version(self) -> int: ...


@dataclass(frozen=True, slots=True)
class CorrectCount:
    """How many of ``n`` samples were decided as labelled."""

    correct: int
    n: int


def summarise(
    definitions: Sequence[Definition], quality: Mapping[str, CorrectCount | QualityEstimate], phases: Phases
) -> tuple[Metric, ...]:
    """The metrics of each definition, in their order; of a sweep one a batch.

    * a fraction: correct / n, with the exact binomial interval; other quality metrics as they were judged;
    * metrics of time: as :func:`evaluator.statistics.timing.timed` says.

    Raises:
        InvalidInputError: the harness left nothing to compute a metric from.
    """
    return tuple(metric for definition in definitions for metric in _metrics(definition, quality, phases))


def _metrics(
    definition: Definition, quality: Mapping[str, CorrectCount | QualityEstimate], phases: Phases
) -> list[Metric]:
    name = definition.name
    judged = quality.get(name)
    found: list[tuple[int | None, Figure]]
    if isinstance(judged, QualityEstimate):
        found = [(None, (judged.value, judged.n, judged.ci))]
    elif judged is not None and judged.n > 0:
        found = [(None, (judged.correct / judged.n, judged.n, fraction(judged.correct, judged.n)))]
    else:
        found = list(list_time_metrics(name, phases, definition.version))
    if not found:
        raise InvalidInputError(f"the harness left nothing to compute {name} from")
    return [
        Metric(name, value, definition.unit, definition.direction, n, ci, definition.version, batch)
        for batch, (value, n, ci) in found
    ]


PERCENTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
MEDIAN = {"p50": 0.50}

_TICK = 1e-3


def describe_calls(samples: Samples, scope: str, device: str, version: int) -> Calls | None:
    """The calls behind a run's times; None where nobody counted who had the CPU.

    Percentiles are made like those of all calls beside which they stand, by the same ``version`` of the definitions; of
    a sweep the median of each batch. What calls were without the CPU is known where the calling thread does all the
    work, and on a CPU: elsewhere it waits for other threads, or for a device.
    """
    if samples.preempted is None or not len(samples.latency):
        return None
    wall, cpu = None, None
    if samples.cpu is not None and scope == "thread" and device == "cpu":
        served = _served(samples)
        wall, cpu = float(served.sum()), float(_had(samples.cpu, served).sum())
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
        phases: What was timed.
        metrics: The versions of the definitions, by the names of the metrics.
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
    """Return the seconds of each query had it been issued at once where no earlier query was being answered.

    Queries are answered one after the other. One that arrives while an earlier query is being answered waits for the
    model. Any other waits for the host alone: that wait is taken away, and so is its share in the waits of the queries
    behind it (Lindley, The theory of queues with a single server, 1952).
    """
    start, end, delay = (samples.more[f"{name}_ns"] for name in ("start", "end", "issue_delay"))
    free = np.maximum.accumulate(np.concatenate((start[:1], end[:-1])))
    work = end - np.where(start < free, free, start + delay)
    done = np.cumsum(work)
    answered = done + np.maximum.accumulate(start - (done - work))
    return np.asarray((answered - start) * NANOSECONDS)


def _served(samples: Samples) -> npt.NDArray[np.float64]:
    """Seconds in each call: where a latency has the wait of a query in it, what was served."""
    served = samples.more.get("service_ns")
    return samples.latency if served is None else np.asarray(served, np.float64) * NANOSECONDS


def _had(cpu: npt.NDArray[np.float64], served: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Of the seconds in each call those with the CPU: no more than all of them.

    The CPU time is read outside the call's own clock, so that it has a little more in it; over all calls that would
    hide what single ones lost. A CPU clock that ticks in milliseconds tells of all calls together alone.
    """
    coarse = bool((cpu - served).max() > _TICK)
    return cpu if coarse else np.minimum(cpu, served)


def _percentiles(
    name: str, values: npt.NDArray[Any], samples: Samples, version: int, among: npt.NDArray[np.bool_] | None = None
) -> Iterator[Metric]:
    """Of the values ``among`` all, or of all of them."""
    counted = np.ones(len(values), np.bool_) if among is None else among
    batches = samples.more.get("batch")
    if batches is None:
        yield from _estimated(name, values[counted], PERCENTILES, version)
        return
    for batch in np.unique(batches):
        yield from _estimated(name, values[counted & (batches == batch)], MEDIAN, version, int(batch))


def _estimated(
    name: str, values: npt.NDArray[Any], percentiles: Mapping[str, float], version: int, batch: int | None = None
) -> Iterator[Metric]:
    for percentile, q in percentiles.items() if len(values) else ():
        value, ci = ESTIMATORS[version].quantile(values, q)
        yield Metric(f"{name}_{percentile}", value, "s", "lower", len(values), ci, version, batch)
