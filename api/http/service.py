"""Shared state of the running service: registry, thread pools, caches, metrics and shutdown."""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from benchlock.api.http.request_authorization import Authority
from benchlock.api.http.service_settings import Settings
from benchlock.api.http.slow_clients import SendMemory
from benchlock.api.http.thread_pools import FairThreadPool
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.uploads.disk_quotas import DiskReserve
from benchlock.artifacts.uploads.resumable_uploads import Uploads

T = TypeVar("T")


class LruCache(Generic[T]):
    """A thread-safe LRU cache bounded in bytes. Keys must determine the value."""

    def __init__(self, max_bytes: int) -> None:
        """Keep at most ``max_bytes`` bytes."""
        self._max_bytes = max_bytes
        self._size = 0
        self._entries: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._own = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        """Return the value of ``key``, None if there is none."""
        with self._own:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: T, size: int) -> None:
        """Store a value of ``size`` bytes (with its key), unless it exceeds an eighth of the limit."""
        if size > self._max_bytes // 8:
            return
        with self._own:
            _, before = self._entries.pop(key, (None, 0))
            self._size += size - before
            self._entries[key] = (value, size)
            while self._size > self._max_bytes:
                self._size -= self._entries.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Remove all values."""
        with self._own:
            self._entries.clear()
            self._size = 0


class CommitCache(Generic[T]):
    """A cache of results read from the database, emptied by the next commit.

    ``commits`` returns a number that changes with every commit. Without it nothing is cached.
    """

    def __init__(self, commits: Callable[[], int] | None, max_bytes: int) -> None:
        """Keep at most ``max_bytes`` bytes."""
        self._commits = commits
        self._number = 0
        self._cache: LruCache[T] = LruCache(max_bytes)

    def get(self, key: Hashable) -> tuple[T | None, int]:
        """Return the cached value or None, and the number of commits to pass to ``put`` with a newly read value."""
        if self._commits is None:
            return None, self._number
        number = self._commits()
        if number != self._number:
            self._cache.clear()
            self._number = number
        return self._cache.get(key), number

    def put(self, key: Hashable, value: T, size: int, number: int) -> None:
        """Store a value read after ``get`` returned ``number``, unless there was a commit since: it may be outdated.

        Args:
            key: The key.
            value: The value.
            size: The bytes of the value and its key.
            number: The number of commits that ``get`` returned before the value was read.
        """
        if self._commits is not None and number == self._number:
            self._cache.put(key, value, size)


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
        self.in_flight = Gauge("benchlock_requests_under_way", "Requests being answered.", registry=self.registry)

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
    "the service ended before it was done; whether it was done is unknown", next_step="ask again in a few seconds"
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
        response_cache: Encoded responses.
        grace: The graceful shutdown.
        reserve: The reserve of the disk.
        uploads: The resumable uploads.
        metrics: The Prometheus metrics.
        ending: Set when the shutdown begins; whatever lets clients wait has to watch it.
    """

    registry: LocalRegistry
    authority: Authority
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
    response_cache: LruCache[bytes]
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
