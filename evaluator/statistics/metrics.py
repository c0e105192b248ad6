"""Metrics of a run: value, unit, direction, n and interval, from the counts and samples that the harness left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from artifacts.errors import InvalidInputError
from evaluator.statistics.figures import Interval, Metric
from evaluator.statistics.intervals import fraction, quantile, rate
from evaluator.statistics.quality import Judged
from evaluator.statistics.samples import Samples

QUANTILES: Mapping[str, float] = {"latency_p50": 0.50, "latency_p90": 0.90, "latency_p99": 0.99}


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
class Right:
    """How many of ``n`` samples were decided as labelled."""

    correct: int
    n: int


@dataclass(frozen=True, slots=True)
class Performance:
    """The performance phase: its samples in time order, and the seconds from its first issue to its last answer."""

    samples: Samples
    samples_per_query: int
    duration: float


def summarise(
    definitions: Sequence[Definition], quality: Mapping[str, Right | Judged], performance: Performance | None
) -> tuple[Metric, ...]:
    """One metric for each definition, in their order.

    * a fraction: correct / n, with the exact binomial interval; other quality metrics as they were judged;
    * ``latency_p*``: the nearest rank of the queries' latencies, between order statistics;
    * ``throughput``: samples / duration of the phase, with the interval of batch means.

    Raises:
        InvalidInputError: the harness left nothing to compute a metric from.
    """
    return tuple(_metric(definition, quality, performance) for definition in definitions)


def _metric(definition: Definition, quality: Mapping[str, Right | Judged], performance: Performance | None) -> Metric:
    name = definition.name
    judged = quality.get(name)
    if isinstance(judged, Judged):
        value, n, ci = judged.value, judged.n, judged.ci
    elif judged is not None and judged.n > 0:
        value, n, ci = judged.correct / judged.n, judged.n, fraction(judged.correct, judged.n)
    elif performance is not None and len(performance.samples.latency) > 0 and performance.duration > 0:
        value, n, ci = _timed(name, performance)
    else:
        raise InvalidInputError(f"the harness left nothing to compute {name} from")
    return Metric(name, value, definition.unit, definition.direction, n, ci, definition.version)


def _timed(name: str, performance: Performance) -> tuple[float, int, Interval]:
    latency = performance.samples.latency
    if name in QUANTILES:
        value, ci = quantile(np.sort(latency), QUANTILES[name])
        return value, len(latency), ci
    if name == "throughput":
        n = len(latency) * performance.samples_per_query
        ci = rate(latency, performance.duration, performance.samples_per_query)
        return n / performance.duration, n, ci
    raise InvalidInputError(f"the harness left nothing to compute {name} from")
