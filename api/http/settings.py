"""What can be set about the service; whoever starts it says what differs from this."""

from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

VERSION: Final = version("benchlock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Bounds of the service: bytes, seconds, threads.

    ``usual_body`` is of a body that is read into memory, ``largest_body`` of a manifest, a lock or a run's end;
    ``body_seconds`` how long a client may be silent while it sends one; ``rate`` how many requests a second it may
    make, ``strangers`` how many may come from one address without a valid token; ``threads`` do what takes longer than
    a look into an index, and so many requests may be ``waiting`` for them; ``prompt_threads`` and ``end_threads`` hold,
    begin and end what others run, whatever those do; ``kept_bytes`` are those of answers that are kept encoded;
    ``lease_seconds`` how long a client that runs something may be silent; ``ready_seconds`` how long what was found
    about database and store holds; ``last_seconds`` how long what has begun may go on once the service is told to end;
    ``largest_page`` bounds what a client may ask for at once.
    """

    usual_body: int = 1 << 20
    largest_body: int = 16 << 20
    rate: float = 10_000.0
    strangers: float = 100.0
    body_seconds: float = 30.0
    threads: int = 8
    prompt_threads: int = 3
    end_threads: int = 2
    waiting: int = 256
    kept_bytes: int = 64 << 20
    lease_seconds: float = 60.0
    ready_seconds: float = 2.0
    last_seconds: float = 20.0
    largest_page: int = 1000
    usual_page: int = 100
