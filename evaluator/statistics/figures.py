"""What a summarised figure is. Apart from the modules that compute one, so that reading records loads none of them."""

from dataclasses import dataclass

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
