"""Metrics of a record against the definitions of their names: unit, direction, version, range, interval, uniqueness."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.statistics.figures import Metric
from benchlock.registry.lockfile import Lock
from benchlock.registry.metrics import DEFINITIONS, MetricDefinition, find_definition

_LEAST: Final = {"fraction": 0.0, "s": 0.0, "label": 0.0, "samples": 1.0}
"""The least value of a unit; a rate is above 0."""
_MOST: Final = {"fraction": 1.0}
_CLOSE: Final = 1e-9
"""Relative: an interval may miss its value by the last bits of a sum."""


def definitions_of(lock: Lock) -> tuple[MetricDefinition, ...]:
    """Return the definitions of the lock's metrics.

    Raises:
        InvalidInputError: The lock has definitions that this version lacks.
    """
    found = []
    for name, version in lock.metrics.items():
        definition = find_definition(name, version)
        if definition is None:
            raise InvalidInputError(
                f"the lock asks for {name} by definition {version}, which this version of benchlock does not have",
                where=f"metrics.{name}",
                next_step="use the version that made the lock, or lock the request again",
            )
        found.append(definition)
    return tuple(found)


def metric_faults(metrics: Iterable[Metric]) -> Iterator[str]:
    """Name each field of ``metrics`` that its definition does not allow: ``metrics.top1.unit (...)``."""
    metrics = tuple(metrics)
    for key, count in Counter(metric.key for metric in metrics).items():
        if count > 1:
            yield f"metrics.{key} (given {count} times)"
    for metric in metrics:
        definition = DEFINITIONS.get(metric.name)
        if definition is None:
            yield f"metrics.{metric.key} (unknown metric)"
            continue
        for name, reason in _faults(metric, find_definition(metric.name, metric.version) or definition):
            yield f"metrics.{metric.key}.{name} ({reason})"


def _faults(metric: Metric, definition: MetricDefinition) -> Iterator[tuple[str, str]]:
    for name in ("unit", "direction", "version"):
        expected, given = getattr(definition, name), getattr(metric, name)
        if given != expected:
            yield name, f"{given!r}, defined as {expected!r}"
    low, high = metric.ci.low, metric.ci.high
    for name, value in (("value", metric.value), ("ci", low), ("ci", high)):
        if value is not None and (fault := _range_fault(value, definition.unit)):
            yield name, fault
    if metric.n < 1:
        yield "n", f"{metric.n}, at least 1"
    if metric.batch is not None and (metric.batch < 1 or "batch_sweep" not in (definition.scenarios or ())):
        yield "batch", f"{metric.batch}, which {metric.name} cannot have"
    if not _is_around(low, high, metric.value):
        yield "ci", f"[{low}, {high}], not around {metric.value}"


def _range_fault(value: float, unit: str) -> str | None:
    """Return why a value in ``unit`` is impossible; None where it is possible."""
    if not math.isfinite(value):
        return f"{value}, not finite"
    least, most = _LEAST.get(unit), _MOST.get(unit)
    if least is None and value <= 0:
        return f"{value}, must be greater than 0"
    if least is not None and value < least:
        return f"{value}, at least {least:g}"
    if most is not None and value > most:
        return f"{value}, at most {most:g}"
    return None


def _is_around(low: float | None, high: float | None, value: float) -> bool:
    slack = _CLOSE * abs(value)
    return (low is None or low <= value + slack) and (high is None or high >= value - slack)
