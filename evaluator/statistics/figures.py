"""What a summarised figure is. Apart from the modules that compute one, so that reading records loads none of them."""

from dataclasses import dataclass


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
