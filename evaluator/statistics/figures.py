"""What a summarised figure is. Apart from the modules that compute one, so that reading records loads none of them."""

from dataclasses import dataclass

PREEMPTED_AT_MOST = 0.05
"""The share of pre-empted calls above which a run's times are flagged: others had the CPU too often."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the true value lies at the level, in the unit of the value; ``None`` for an end that n cannot bound."""

    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Metric:
    """``ci`` is two-sided at 95 %, in ``unit`` like ``value``; ``version`` is the definition's.

    ``batch``: samples a call, where one run measured several batches.
    """

    name: str
    value: float
    unit: str
    direction: str
    n: int
    ci: Interval
    version: int
    batch: int | None = None

    @property
    def key(self) -> str:
        """What tells it from the other metrics of its run: ``throughput``, ``throughput@8``."""
        return self.name if self.batch is None else f"{self.name}@{self.batch}"


@dataclass(frozen=True, slots=True)
class Calls:
    """How the calls of a performance phase were disturbed, and what they took apart from that.

    ``preempted`` of the ``n`` calls lost the CPU to others. ``scope`` says whose CPU time and switches were counted:
    those of the calling ``thread``, or of the whole ``process``. ``undisturbed`` are the latencies of the calls that
    were not pre-empted, ``cpu_time`` the CPU seconds of all calls, both as percentiles.
    """

    n: int
    preempted: int
    scope: str
    undisturbed: tuple[Metric, ...] = ()
    cpu_time: tuple[Metric, ...] = ()

    @property
    def share(self) -> float:
        """The fraction of calls that were pre-empted."""
        return self.preempted / self.n if self.n else 0.0

    @property
    def flagged(self) -> bool:
        """Whether so many calls were pre-empted that the times say more of the machine than of the model."""
        return self.share > PREEMPTED_AT_MOST
