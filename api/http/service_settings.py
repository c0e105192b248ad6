"""Settings of the service: limits in bytes, seconds, threads and concurrent requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from benchlock.api.build_info import this_build

VERSION: Final = this_build().version


MAX_HEADER_BYTES: Final = 64 << 10
"""Maximum bytes of the request line and the headers of a request."""


@dataclass(frozen=True, slots=True)
class ConcurrencyBound:
    """The maximum number of concurrent requests of a category, for each client and for all ``together``."""

    each: int
    together: int


CONCURRENCY_BOUNDS: Final = MappingProxyType(
    {
        "watch": ConcurrencyBound(32, 96),
        "page": ConcurrencyBound(128, 160),
        "wait": ConcurrencyBound(48, 64),
        "idle": ConcurrencyBound(64, 75),
        "send": ConcurrencyBound(32, 96),
        "read": ConcurrencyBound(48, 160),
        "ask": ConcurrencyBound(64, 128),
        "body": ConcurrencyBound(8, 16),
        "list": ConcurrencyBound(8, 32),
        "end": ConcurrencyBound(6, 16),
        "compare": ConcurrencyBound(4, 10),
    }
)

"""Categories: watching a job, watching its page, requesting a lease, waiting for a job (beyond
the limit, workers ask each second), uploading a blob, downloading one, resolving or
explaining, sending a large document, listing runs, jobs, machines or the audit log, ending a run, and verdicts or
comparisons.

The remaining connections serve short requests, above all heartbeats.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits of the service.

    Attributes:
        rate: Requests a second of one client.
        strangers: Requests a second from one address without a valid token.
        body_seconds: Seconds of silence while a client sends a body or receives a response.
        least_rate: Minimum bytes a second of a body or response.
        at_once: Concurrent requests by category.
        threads: Threads for everything that takes longer than a lookup in an index.
        prompt_threads: Threads that start and hold runs of clients and workers.
        end_threads: Threads that end such runs.
        ask_threads: Threads that resolve and explain.
        ask_seconds: Seconds of such a request; also of the wait for each child process of a publication or comparison.
        inspect_threads: Threads that publish versions with files, each with one child process that reads them.
        inspect_waiting: Publications that may wait for one of these threads.
        long_threads: Threads for operations that read the whole registry.
        list_threads: Threads that list runs, jobs, machines and the audit log.
        compare_threads: Threads that compare runs, each with one child process.
        send_threads: Threads that read blobs for downloads.
        lock_seconds: Seconds to wait for the store during garbage collection, except in ``long_threads``.
        waiting: Requests that may wait for a thread.
        window_bytes: Memory shared by downloads, beyond the minimum of each.
        answer_bytes: Memory shared by other large responses.
        cache_bytes: Bytes of the cache that the next commit empties.
        lease_seconds: Seconds without a heartbeat after which a client's run counts as abandoned.
        ready_seconds: Seconds for which the readiness of database and store is cached.
        schema_seconds: Seconds for which the check of the schema's revision is cached.
        last_seconds: Seconds that requests in flight may continue after the shutdown begins.
        largest_page: Items of a page.
        direct_downloads: Whether a download of a blob is redirected to the bucket that has it.
        largest_run_page: Runs of a page.
        usual_page: Items of a page without a ``limit``.
    """

    rate: float = 10_000.0
    strangers: float = 100.0
    body_seconds: float = 30.0
    least_rate: float = 4096.0
    at_once: Mapping[str, ConcurrencyBound] = field(default_factory=lambda: CONCURRENCY_BOUNDS)
    threads: int = 8
    prompt_threads: int = 3
    end_threads: int = 2
    ask_threads: int = 3
    ask_seconds: float = 60.0
    inspect_threads: int = 2
    inspect_waiting: int = 64
    long_threads: int = 2
    list_threads: int = 2
    compare_threads: int = 2
    send_threads: int = 4
    lock_seconds: float = 10.0
    waiting: int = 256
    window_bytes: int = 16 << 20
    answer_bytes: int = 64 << 20
    cache_bytes: int = 64 << 20
    lease_seconds: float = 60.0
    ready_seconds: float = 2.0
    schema_seconds: float = 1.0
    last_seconds: float = 20.0
    largest_page: int = 1000
    direct_downloads: bool = False
    largest_run_page: int = 200
    usual_page: int = 100
