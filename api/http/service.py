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
    """What was found by a key that says all that it depends on; what was asked for longest ago goes first.

    Several threads may use it.
    """

    def __init__(self, most: int) -> None:
        """``most``: bytes of all that is kept."""
        self._most = most
        self._size = 0
        self._found: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._own = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        with self._own:
            found = self._found.get(key)
            if found is None:
                return None
            self._found.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, found: T, size: int) -> None:
        """Keep ``found``, of ``size`` bytes with its key, unless it alone is a good part of all that may be kept."""
        if size > self._most // 8:
            return
        with self._own:
            _, before = self._found.pop(key, (None, 0))
            self._size += size - before
            self._found[key] = (found, size)
            while self._size > self._most:
                self._size -= self._found.popitem(last=False)[1][1]

    def clear(self) -> None:
        with self._own:
            self._found.clear()
            self._size = 0


class CommitCache(Generic[T]):
    """What was read from the database by what it was asked, until anybody commits anything.

    ``commits`` tells by its number that somebody has. Without it nothing is kept.
    """

    def __init__(self, commits: Callable[[], int] | None, most: int) -> None:
        """``most``: bytes of all that is kept."""
        self._commits = commits
        self._number = 0
        self._kept: LruCache[T] = LruCache(most)

    def get(self, key: Hashable) -> tuple[T | None, int]:
        """What is kept, and the number of commits to ``put`` under what is read instead."""
        if self._commits is None:
            return None, self._number
        number = self._commits()
        if number != self._number:
            self._kept.clear()
            self._number = number
        return self._kept.get(key), number

    def put(self, key: Hashable, found: T, size: int, number: int) -> None:
        """Keep what was read after ``get`` said ``number``, unless a commit was noticed since: it may be older."""
        if self._commits is not None and number == self._number:
            self._kept.put(key, found, size)


SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
UNROUTED: Final = "none"
"""The route of what leads nowhere: a path of a stranger's choice is no label."""


class ServiceMetrics:
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


SHUTDOWN_ERROR: Final = UnavailableError(
    "the service ended before it was done; whether it was done is unknown", next_step="ask again in a few seconds"
)


class GracefulShutdown:
    """So many seconds from when it begins; the requests that are under way then are cut."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None
        self._under_way: set[asyncio.Task[Any]] = set()
        self.is_over = False
        self.cut = 0
        """Requests that were cut."""

    def begin(self) -> None:
        """The service was told to end."""
        if self._until is None:
            self._until = time.monotonic() + self._seconds
            asyncio.get_running_loop().call_later(self._seconds, self._cut)

    @property
    def left(self) -> float:
        """The seconds that are left: all of them, until it begins."""
        return self._seconds if self._until is None else max(0.0, self._until - time.monotonic())

    @contextmanager
    def over_this(self) -> Iterator[None]:
        """While held, the task that holds it is a request under way: it is cancelled when the grace is over."""
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            yield
        finally:
            self._under_way.discard(task)

    def _cut(self) -> None:
        self.is_over = True
        self.cut = len(self._under_way)
        for one in self._under_way:
            one.cancel()


@dataclass(frozen=True, slots=True)
class Service:
    """One running service. ``ending`` is set when it is told to end: whoever lets clients wait looks at it.

    ``prompt`` is for what somebody's measurement hangs on and is done in no time: that a run goes on, or begins, and
    who it is that says so. ``ends`` is for their ends, whose figures are recomputed, and which may wait for the store;
    ``compare`` for verdicts, comparisons and reads of single runs that recompute figures, too. ``ask`` is for what has
    to be searched for, ``decode`` for long bodies, ``inspect`` for publications that are long or whose files a child
    process reads, ``long`` for what reads all that there is, ``lists`` for pages of what is recorded, ``send`` for the
    pieces of blobs on their way out, which have the memory of ``windows``; other large answers have that of
    ``whole_answers``. Whatever else is asked for is ``work``.
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
    kept: LruCache[bytes]
    grace: GracefulShutdown
    reserve: DiskReserve
    uploads: Uploads
    tally: ServiceMetrics = field(default_factory=ServiceMetrics)
    ending: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def works(self) -> tuple[FairThreadPool, ...]:
        """All threads."""
        return (
            *(self.work, self.prompt, self.ends, self.compare),
            *(self.ask, self.decode, self.inspect, self.long, self.lists, self.send),
        )
