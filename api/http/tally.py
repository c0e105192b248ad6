"""What Prometheus is told: requests by route, method and status, how long they took, how many are under way."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
UNROUTED: Final = "none"
"""The route of what leads nowhere: a path of a stranger's choice is no label."""


class Tally:
    """The figures of one service. Routers add their own to ``registry``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._requests = Counter(
            "benchlock_requests", "Requests that were answered.", ("method", "route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "benchlock_request_seconds",
            "From the head of a request to the end of its answer.",
            ("route",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self._broken = Counter(
            "benchlock_broken_requests",
            "Requests whose client left, sent half a body, or was too slow.",
            ("reason",),
            registry=self.registry,
        )
        self.under_way = Gauge("benchlock_requests_under_way", "Requests being answered.", registry=self.registry)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def broken(self, reason: str) -> None:
        """Count a request whose client did not do its part."""
        self._broken.labels(reason).inc()

    def text(self) -> bytes:
        """All figures, in Prometheus' text format."""
        return generate_latest(self.registry)
