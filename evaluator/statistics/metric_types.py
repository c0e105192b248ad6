"""Metrics with intervals and units, checked by their definitions; findings on metrics of two runs."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field
from msgspec.structs import force_setattr

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.size_limits import Word
from benchlock.artifacts.user_output import format_bytes
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import DEFINITIONS, MetricDefinition, find_definition

Count = Annotated[int, Meta(ge=1, lt=1 << 31)]

LEVEL: Final = 0.95
"""The level of confidence intervals."""
SIGNIFICANT: Final = 1 - LEVEL

DISTURBED_AT_MOST = 0.05
"""The limit for both the share of pre-empted calls and the off-CPU share of call time.

Above it a run's times are flagged.

Other processes used the CPU too often, or rarely but too long.
"""
DELAY_SHARE, DELAY_SECONDS = 0.1, 1e-4
"""Two bounds, a share and seconds, on the host's delay of a latency. LoadGen's clock has the same bounds."""


class Interval(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The interval of the true value, in the unit of the value; None for an end that the samples cannot bound.

    As JSON it is an array of both ends.
    """

    low: float | None
    high: float | None


class Metric(Struct, frozen=True, forbid_unknown_fields=True):
    """A metric of a run.

    ``ci`` is two-sided at 95 %, in ``unit`` like ``value``; ``version`` is that of the definition.

    ``batch`` is the number of samples per call, where one run measured several batch sizes. ``case`` is the case of an
    operator. ``self_reported`` means that code of the model ran in the process that made the value, which is therefore
    informational.
    """

    name: Word
    value: float
    unit: Word
    direction: Word
    n: Count
    ci: Interval
    version: Count
    batch: Count | None = None
    self_reported: bool = False
    case: Word | UnsetType = UNSET

    @property
    def key(self) -> str:
        """The name that identifies the metric within its run: ``throughput``, ``throughput@8``."""
        if self.case is not UNSET:
            return f"{self.name}@{self.case}"
        return self.name if self.batch is None else f"{self.name}@{self.batch}"


class Calls(Struct, frozen=True):
    """The disturbance of the calls of a performance phase, and their times without it.

    ``preempted`` of the ``n`` calls lost the CPU to other processes. ``scope`` is the owner of the counted CPU time and
    switches: the calling ``thread``, or the whole ``process``. ``undisturbed`` are the latencies of calls that were not
    pre-empted, and ``cpu_time`` the CPU seconds of all calls, both as percentiles. ``wall`` are the seconds in all
    calls together, and ``cpu`` those on the CPU, at most the duration of each call, where the calling thread does all
    the work on a CPU. ``undelayed`` are the reported latencies of ``server`` without the host's delay; empty for other
    scenarios and for records without them.
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
        """The share of calls that were pre-empted."""
        return self.preempted / self.n if self.n else 0.0

    @property
    def without_cpu(self) -> float | None:
        """The off-CPU share of the time in calls; None where it was not measured."""
        if self.wall is None or self.cpu is None or self.wall <= 0:
            return None
        return max(0.0, 1 - self.cpu / self.wall)

    @property
    def flagged(self) -> bool:
        """Whether calls were off-CPU so often or so long that the times are unreliable."""
        return max(self.share, self.without_cpu or 0.0) > DISTURBED_AT_MOST

    @property
    def disturbance(self) -> str:
        """Both shares and their limit in words: why a run is flagged."""
        often = f"{self.share:.1%} of calls were pre-empted"
        if self.without_cpu is None:
            return f"{often} (limit {DISTURBED_AT_MOST:.0%})"
        long = f"off-CPU for {self.without_cpu:.1%} of call time"
        return f"{often}, {long} (limit {DISTURBED_AT_MOST:.0%} each)"


_MILLION = 1e6


def format_value(value: float | None, unit: str) -> str:
    """Format a value with its unit: ``231 µs``, ``0.7500``, ``84.6 queries/s``, ``1.3 MiB``; ``-`` for None."""
    if value is None:
        return "-"
    if unit == "s":
        return format_duration(value)
    if unit == "fraction":
        return f"{value:.4f}"
    if unit == "ratio":
        return _round_digits(value, 3)
    if unit == "B" and value >= _MILLION:
        return format_bytes(value)
    return f"{_round_digits(value, 4)} {unit}".rstrip()


def format_duration(seconds: float | None) -> str:
    """Format seconds with three digits in a suitable unit: ``231 µs``, ``1.69 ms``, ``2.5 s``."""
    if seconds is None:
        return "-"
    for unit, factor in (("µs", 1e6), ("ms", 1e3)):
        text = _round_digits(seconds * factor, 3)
        if abs(float(text)) < 1000:  # noqa: PLR2004 - the next unit begins there
            return f"{text} {unit}"
    return f"{_round_digits(seconds, 3)} s"


def _round_digits(value: float, digits: int) -> str:
    """Round ``value`` to ``digits`` digits, as a whole number rather than with an exponent up to a million."""
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text and abs(value) < _MILLION else text


def format_change(share: float, digits: int = 1) -> str:
    """Format a relative change: ``+1.8%``; a change that rounds to zero has no sign: ``0.0%``."""
    text = f"{share:+.{digits}%}"
    return text if any(digit in text for digit in "123456789") else text[1:]


_MIN_VALUE: Final = {
    "ratio": 0.0,
    "fraction": 0.0,
    "squared error": 0.0,
    "s": 0.0,
    "label": 0.0,
    "samples": 1.0,
    "B": 0.0,
}
"""The least value of a unit; a rate is above 0."""
_MAX_VALUE: Final = {"fraction": 1.0, "squared error": 2.0}
_CLOSE: Final = 1e-9
"""Relative tolerance: an interval may miss its value by the last bits of a sum."""


def find_definitions(lock: Lock) -> tuple[MetricDefinition, ...]:
    """Return the definitions of the lock's metrics.

    Raises:
        InvalidInputError: The lock has definitions that this version lacks.
    """
    definitions = []
    for name, version in lock.metrics.items():
        definition = find_definition(name, version)
        if definition is None:
            raise InvalidInputError(
                f"the lock requires definition {version} of {name}, which this version of benchlock does not have",
                where=f"metrics.{name}",
                next_step="use the version of benchlock that created the lock, or lock the request again",
            )
        definitions.append(definition)
    return tuple(definitions)


def metric_faults(metrics: Iterable[Metric]) -> Iterator[str]:
    """Yield each field of ``metrics`` that its definition does not allow: ``metrics.top1.unit (...)``."""
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
        expected, actual = getattr(definition, name), getattr(metric, name)
        if actual != expected:
            yield name, f"{actual!r}, defined as {expected!r}"
    low, high = metric.ci.low, metric.ci.high
    for name, value in (("value", metric.value), ("ci", low), ("ci", high)):
        if value is not None and (fault := _range_fault(value, definition)):
            yield name, fault
    if metric.n < 1:
        yield "n", f"{metric.n}, at least 1"
    if metric.batch is not None and (metric.batch < 1 or "batch_sweep" not in (definition.scenarios or ())):
        yield "batch", f"{metric.batch}, which {metric.name} cannot have"
    if (metric.case is UNSET) == definition.is_per_case:
        yield "case", "absent" if metric.case is UNSET else f"{metric.case}, which {metric.name} cannot have"
    if not _is_around(low, high, metric.value):
        yield "ci", f"[{low}, {high}], not around {metric.value}"


def _range_fault(value: float, definition: MetricDefinition) -> str | None:
    """Return why a value of a metric is impossible; None where it is possible."""
    if not math.isfinite(value):
        return f"{value}, not finite"
    if definition.signed:
        return None
    least = _MIN_VALUE.get(definition.unit)
    # The reference of a speedup may have been slowed down, and parts of a batch may fit a cache.
    most = None if definition.name == "efficiency" else _MAX_VALUE.get(definition.unit)
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


class Ratio(Struct, frozen=True):
    """The ratio of the second of two groups of runs to the first: 1.05 is 5 % more.

    ``ci`` is two-sided at 95 %. ``narrow`` is two-sided at 90 %; its ends are the two one-sided tests of equivalence at
    5 %. ``paired`` means that each value was compared with its neighbour in time. ``value`` is None where a value is 0.
    """

    value: float | None = field(name="ratio")
    ci: Interval
    narrow: Interval = field(name="ci_90")
    n: int
    paired: bool


class PairedTest(Struct, frozen=True):
    """The difference of two models in one metric on the same samples.

    Attributes:
        method: ``mcnemar``: exact, each sample is right or wrong. ``resampling``: ``p`` by exchange of the answers, the
            interval by the bootstrap. ``linearised``: Student's t of the difference of the samples' influences.
        n: The number of samples.
        difference: The second model's value minus the first one's.
        ci: The 95 % interval of the difference, for other samples of the same kind.
        p: The probability of a difference at least as large if neither model is better; two-sided.
        only_first: The number of samples that only the first model decides right; None where samples are not right or
            wrong.
        only_second: The same for the second model.
        comparisons: The number of locks that are compared with the first one.
        adjusted: ``p`` adjusted by Holm's method for that many comparisons.
    """

    method: Literal["mcnemar", "resampling", "linearised"]
    n: int
    difference: float
    ci: Interval
    p: float
    only_first: int | None = None
    only_second: int | None = None
    comparisons: int = 1
    adjusted: float = 1.0

    @property
    def is_significant(self) -> bool:
        """Whether neither chance nor the number of comparisons explains the difference."""
        low, high = self.ci.low, self.ci.high
        is_apart = low is not None and high is not None and not low <= 0 <= high
        return self.adjusted <= SIGNIFICANT and is_apart

    @property
    def is_equal(self) -> bool:
        """Whether each sample contributes the same to both models' metric."""
        return self.ci == Interval(0.0, 0.0) or self.only_first == self.only_second == 0


Answer = Literal["equal", "equivalent", "different", "undecided"]
"""The verdict; ``equal`` is only for quality: each sample contributes the same to the metric of both."""


class Finding(Struct, frozen=True):
    """The comparison of one metric of two locks; ``reason`` states the verdict in words.

    ``control`` is the same comparison of the first lock with itself in the same rounds (A/A), None where it was not
    made; ``noise_floor`` is its greatest difference, as a fraction, and informational. ``margin`` is the margin stated
    beforehand, None without one. ``self_reported`` means that code of a model could have made a value, so that the
    verdict is undecided. ``test`` compares the two sample by sample, only for quality.
    """

    metric: str
    ratio: Ratio
    control: Ratio | None
    margin: float | None
    answer: Answer
    reason: str
    self_reported: bool = False
    test: PairedTest | None = None
    noise_floor: float | None = None

    def __post_init__(self) -> None:
        """Compute the noise floor."""
        force_setattr(self, "noise_floor", None if self.control is None else _farthest(self.control.ci))


def _farthest(ci: Interval) -> float | None:
    """Return how far from 1 the interval of a ratio reaches; None for an unbounded end."""
    return None if ci.low is None or ci.high is None else max(abs(ci.low - 1), abs(ci.high - 1))
