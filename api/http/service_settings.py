"""Settings of the service: limits in bytes, seconds, threads and concurrent requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from benchlock.api.build_info import this_build

VERSION: Final = this_build().version


MAX_HEADER_BYTES: Final = 64 << 10
"""Bytes of the request line and the headers of a request."""


@dataclass(frozen=True, slots=True)
class ConcurrencyBound:
    """So many requests of a sort at once, of each who asks and of all ``together``."""

    each: int
    together: int


CONCURRENCY_BOUNDS: Final = MappingProxyType(
    {
        "watch": ConcurrencyBound(32, 96),
        "wait": ConcurrencyBound(96, 128),
        "send": ConcurrencyBound(32, 96),
        "read": ConcurrencyBound(48, 160),
        "ask": ConcurrencyBound(64, 128),
        "body": ConcurrencyBound(8, 16),
        "list": ConcurrencyBound(8, 32),
        "end": ConcurrencyBound(6, 16),
        "compare": ConcurrencyBound(4, 10),
    }
)
"""Who watches a job, waits for work, sends a blob, reads one, has something resolved or explained, sends a large
document, lists runs, jobs, machines or the log, ends a run, or asks for a verdict or a comparison.

The rest of the connections is for what is over soon, beats before all.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Bounds of the service: bytes, seconds, threads.

    ``usual_body`` is of a body that is read into memory, ``largest_body`` of a lock or a run's end,
    ``largest_publication`` of a manifest with its text, of which ``most_values`` are values;
    ``body_seconds`` how long a client may be silent while it sends one, or takes none of an answer, and ``least_rate``
    how many bytes a second come, or are taken, at least; ``at_once`` is of requests that take long; ``rate`` how many
    requests a second a client may make, ``strangers`` how many may come from one address without a valid token.

    ``threads`` do what takes longer than a look into an index, and so many requests may be ``waiting`` for them;
    ``prompt_threads`` and ``end_threads`` hold, begin and end what others run, whatever those do; ``compare_threads``
    compare runs, each with one child process; ``ask_threads`` resolve and explain, for which ``ask_seconds`` are
    waited; ``inspect_threads`` publish versions with files, each with one child process that reads them, and
    ``inspect_waiting`` publications may wait for one; publications and comparisons wait ``ask_seconds`` for each child
    process; ``list_threads`` list runs, jobs, machines and the log;
    ``long_threads`` read all that there is; the others wait ``lock_seconds`` for the store while its garbage is
    collected.

    ``window_bytes`` are shared by blobs on their way out, beyond the least that each has, and ``answer_bytes`` by other
    large answers.

    ``kept_bytes`` are those of answers that are kept encoded, ``current_bytes`` those of each kind of answer that is
    kept until anyone commits, and of versions as they are while nobody yanks them; ``lease_seconds`` how long a
    client that runs something may be silent; ``ready_seconds`` how long what was found about database and store
    holds, and ``schema_seconds`` that about the schema's revision; ``last_seconds`` how long what has begun may go on
    once the service is told to end; ``largest_page`` bounds what a client may ask for at once, and
    ``largest_run_page`` how many runs.
    """

    usual_body: int = 1 << 20
    largest_body: int = 16 << 20
    largest_publication: int = 8 << 20
    most_values: int = 100_000
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
    kept_bytes: int = 64 << 20
    current_bytes: int = 16 << 20
    lease_seconds: float = 60.0
    ready_seconds: float = 2.0
    schema_seconds: float = 1.0
    last_seconds: float = 20.0
    largest_page: int = 1000
    largest_run_page: int = 200
    usual_page: int = 100
