"""What can be set about the service; whoever starts it says what differs from this."""

from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

VERSION: Final = version("benchlock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Bounds of the service: bytes, seconds, threads.

    ``largest_body`` is of a body that is read into memory; ``body_seconds`` how long a client may be silent while it
    sends one; ``threads`` do what takes longer than a look into an index; ``kept_bytes`` are those of answers that are
    kept encoded; ``lease_seconds`` how long a client that runs something may be silent; ``largest_page`` bounds what a
    client may ask for at once.
    """

    largest_body: int = 16 << 20
    body_seconds: float = 30.0
    threads: int = 8
    kept_bytes: int = 64 << 20
    lease_seconds: float = 60.0
    largest_page: int = 1000
    usual_page: int = 100
