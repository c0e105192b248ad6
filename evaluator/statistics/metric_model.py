"""A metric: value, interval and unit, checked against the definition of its name."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import DEFINITIONS, MetricDefinition, find_definition

DISTURBED_AT_MOST = 0.05
"""The share of pre-empted calls, and of the time in calls without the CPU, above which a run's times are flagged.

Others had the CPU too often, or seldom but too long.
"""
DELAY_SHARE, DELAY_SECONDS = 0.1, 1e-4
"""By how much, both together, the host's delay may raise a latency. LoadGen's clock has the same bounds."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the true value lies at the level, in the unit of the value; ``None`` for an end that n cannot bound."""

    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Metric:
    """``ci`` is two-sided at 95 %, in ``unit`` like ``value``; ``version`` is the definition's.

    ``batch``: samples a call, where one run measured several batches. ``self_reported``: code of the model ran in the
    process that made the figure, which therefore decides nothing.
    """

    name: str
    value: float
    unit: str
    direction: str
    n: int
    ci: Interval
    version: int
    batch: int | None = None
    self_reported: bool = False

    @property
    def key(self) -> str:
        """What tells it from the other metrics of its run: ``throughput``, ``throughput@8``."""
        return self.name if self.batch is None else f"{self.name}@{self.batch}"


@dataclass(frozen=True, slots=True)
class Calls:
    """How the calls of a performance phase were disturbed, and what they took apart from that.

    ``preempted`` of the ``n`` calls lost the CPU to others. ``scope`` says whose CPU time and switches were counted:
    those of the calling ``thread``, or of the whole ``process``. ``undisturbed`` are the latencies of the calls that
    were not pre-empted, ``cpu_time`` the CPU seconds of all calls, both as percentiles. ``wall`` are the seconds in all
    calls together and ``cpu`` those in which they had the CPU, of each call no more than it lasted, where the calling
    thread does all the work on a CPU. ``undelayed`` are the reported latencies of ``server`` without the host's delay;
    none of another scenario, or of a record from before they were computed.
    """

    n: int
    preempted: int
    scope: str
    undisturbed: tuple[Metric, ...] = ()
    cpu_time: tuple[Metric, ...] = ()
    wall: float | None = None
    cpu: float | None = None
    undelayed: tuple[Metric, ...] = ()

    @property
    def share(self) -> float:
        """The fraction of calls that were pre-empted."""
        return self.preempted / self.n if self.n else 0.0

    @property
    def without_cpu(self) -> float | None:
        """The fraction of the time in calls that they were without the CPU; None where nothing tells."""
        if self.wall is None or self.cpu is None or self.wall <= 0:
            return None
        return max(0.0, 1 - self.cpu / self.wall)

    @property
    def flagged(self) -> bool:
        """Whether calls were so often, or so long, without the CPU that the times say more of the machine."""
        return max(self.share, self.without_cpu or 0.0) > DISTURBED_AT_MOST

    @property
    def disturbance(self) -> str:
        """Both shares in words, and what they may be: why a run is flagged."""
        often = f"{self.share:.1%} of its calls were pre-empted"
        if self.without_cpu is None:
            return f"{often}, more than {DISTURBED_AT_MOST:.0%}"
        long = f"{self.without_cpu:.1%} of the time in them was without the CPU"
        return f"{often} and {long}; {DISTURBED_AT_MOST:.0%} of either is the most"


_MILLION = 1e6


def format_value(value: float | None, unit: str) -> str:
    """``231 µs``, ``0.7500``, ``84.6 queries/s``; ``-`` for what is not known."""
    if value is None:
        return "-"
    if unit == "s":
        return format_duration(value)
    if unit == "fraction":
        return f"{value:.4f}"
    return f"{_rounded(value, 4)} {unit}".rstrip()


def format_duration(seconds: float | None) -> str:
    """Seconds in the unit that keeps three digits: ``231 µs``, ``1.69 ms``, ``2.5 s``."""
    if seconds is None:
        return "-"
    for unit, factor in (("µs", 1e6), ("ms", 1e3)):
        text = _rounded(seconds * factor, 3)
        if float(text) < 1000:  # noqa: PLR2004 - the next unit begins there
            return f"{text} {unit}"
    return f"{_rounded(seconds, 3)} s"


def _rounded(value: float, digits: int) -> str:
    """``value`` to so many digits, but whole rather than with an exponent up to a million."""
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text and abs(value) < _MILLION else text


def format_change(share: float, digits: int = 1) -> str:
    """A relative change: ``+1.8%``. One that rounds to nothing has no sign to speak of: ``0.0%``."""
    text = f"{share:+.{digits}%}"
    return text if any(digit in text for digit in "123456789") else text[1:]


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
