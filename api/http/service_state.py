"""Shared state of the running service: registry, thread pools, caches, metrics and shutdown."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.http.request_authorization import Authority, OpenAuthority
from benchlock.api.http.service_settings import Settings
from benchlock.api.http.slow_client_flow_control import SendMemory
from benchlock.api.http.thread_pools import FairThreadPool
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.uploads.disk_quotas import DiskReserve
from benchlock.artifacts.uploads.resumable_uploads import Uploads

Document = tuple[bytes, str]
"""The body of a response, and its ETag."""

_ENTRY_BYTES: Final = 1024
"""The approximate bytes of a cached document in memory, without its body."""


class CommitCache:
    """An LRU cache of documents read from the database, bounded in bytes and emptied by the next commit.

    It is for the thread of the event loop.
    """

    def __init__(self, commits: Callable[[], int] | None, max_bytes: int) -> None:
        """Create an empty cache.

        Args:
            commits: Returns a number that changes with every commit; without it, nothing is cached.
            max_bytes: The bytes of all documents; one document may have an eighth of them.
        """
        self._commits = commits
        self._max_bytes = max_bytes
        self._number = 0
        self._size = 0
        self._documents: OrderedDict[Hashable, Document] = OrderedDict()

    def get(self, key: Hashable) -> tuple[Document | None, int]:
        """Return the cached document or None, and the number of commits to pass to ``put`` with a newly read one."""
        if self._commits is None:
            return None, self._number
        number = self._commits()
        if number != self._number:
            self._number, self._size = number, 0
            self._documents.clear()
        document = self._documents.get(key)
        if document is not None:
            self._documents.move_to_end(key)
        return document, number

    def put(self, key: Hashable, document: Document, number: int) -> None:
        """Store a document, unless there was a commit since it was read: it may be outdated.

        Args:
            key: The key, which has determined the document since the last commit.
            document: The document.
            number: The number of commits that ``get`` returned before the document was read.
        """
        size = _ENTRY_BYTES + len(document[0])
        if self._commits is None or number != self._number or size > self._max_bytes // 8 or key in self._documents:
            return
        self._documents[key] = document
        self._size += size
        while self._size > self._max_bytes:
            self._size -= _ENTRY_BYTES + len(self._documents.popitem(last=False)[1][0])


SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
UNROUTED: Final = "none"
"""The route label of unknown paths, since clients must not choose label values."""


class ServiceMetrics:
    """The Prometheus metrics of one service. Routers add their own to ``registry``."""

    def __init__(self) -> None:
        """Register the metrics of requests and of the process."""
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._requests = Counter(
            "benchlock_requests", "Requests answered.", ("method", "route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "benchlock_request_seconds",
            "Seconds from the request head to the end of the response.",
            ("route",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self._broken = Counter(
            "benchlock_broken_requests",
            "Requests whose client disconnected, sent an incomplete body, or was too slow.",
            ("reason",),
            registry=self.registry,
        )
        self.in_flight = Gauge("benchlock_requests_under_way", "Requests in progress.", registry=self.registry)

    def count_response(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a response and its duration.

        Args:
            method: The HTTP method.
            route: The path template of the route.
            status: The status of the response.
            seconds: From the head of the request to the end of the response.
        """
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_broken(self, reason: str) -> None:
        """Count a request that failed because of its client."""
        self._broken.labels(reason).inc()

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


SHUTDOWN_ERROR: Final = UnavailableError(
    "the service stopped during the request; whether it took effect is unknown", next_step="try again in a few seconds"
)


class GracefulShutdown:
    """A shutdown period of ``seconds``, after which requests in flight are cut."""

    def __init__(self, seconds: float) -> None:
        """Allow ``seconds`` from the start of the shutdown."""
        self._seconds = seconds
        self._until: float | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.is_over = False
        self.cut = 0
        """The number of requests that were cut."""

    def begin(self) -> None:
        """Start the shutdown period."""
        if self._until is None:
            self._until = time.monotonic() + self._seconds
            asyncio.get_running_loop().call_later(self._seconds, self._cut)

    @property
    def left(self) -> float:
        """Return the remaining seconds; all of them before the shutdown begins."""
        return self._seconds if self._until is None else max(0.0, self._until - time.monotonic())

    @contextmanager
    def cut_at_end(self) -> Iterator[None]:
        """Cancel the current task at the end of the shutdown period if it is still in the context."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    def _cut(self) -> None:
        self.is_over = True
        self.cut = len(self._tasks)
        for task in self._tasks:
            task.cancel()


@dataclass(frozen=True, slots=True)
class Service:
    """The shared state of one running service.

    Attributes:
        registry: The registry.
        embedded: Its operations, as commands use them.
        authority: Authenticates callers.
        settings: The limits.
        work: Threads for everything without a pool of its own.
        prompt: Threads for quick steps on which a measurement depends: authentication, starts and heartbeats of runs.
        ends: Threads for ends of runs, whose metrics are recomputed, and which may wait for the store.
        ask: Threads for resolving and explaining.
        decode: Threads for decoding long bodies.
        inspect: Threads for publications that are long or whose files a child process reads.
        long: Threads for operations that read the whole registry.
        lists: Threads for pages of records.
        compare: Threads for verdicts, comparisons and reads of single runs that recompute metrics.
        send: Threads that read blobs for downloads.
        windows: The memory of downloads.
        whole_answers: The memory of other large responses.
        reads: The documents of versions, pages and locks.
        grace: The graceful shutdown.
        reserve: The reserve of the disk.
        uploads: The resumable uploads.
        metrics: The Prometheus metrics.
        ending: Set when the shutdown begins; whatever lets clients wait has to watch it.
    """

    registry: LocalRegistry
    embedded: EmbeddedRegistry
    authority: Authority | OpenAuthority
    settings: Settings
    work: FairThreadPool
    prompt: FairThreadPool
    ends: FairThreadPool
    ask: FairThreadPool
    decode: FairThreadPool
    inspect: FairThreadPool
    long: FairThreadPool
    lists: FairThreadPool
    compare: FairThreadPool
    send: FairThreadPool
    windows: SendMemory
    whole_answers: SendMemory
    reads: CommitCache
    grace: GracefulShutdown
    reserve: DiskReserve
    uploads: Uploads
    metrics: ServiceMetrics = field(default_factory=ServiceMetrics)
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pools(self) -> tuple[FairThreadPool, ...]:
        """Return all thread pools."""
        return (
            *(self.work, self.prompt, self.ends, self.compare),
            *(self.ask, self.decode, self.inspect, self.long, self.lists, self.send),
        )
