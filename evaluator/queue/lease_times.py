"""Durations of leases, and the time since the host booted, which measures them."""

import secrets
import time
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Times:
    """Durations in seconds; all are derived from the length of a lease.

    Three heartbeats fit into a lease. An agent without a response ends its container a quarter of a lease before
    another machine may get the job. That quarter covers the time to end it, and clocks of different speeds.
    """

    lease: float = 60.0

    @property
    def beat(self) -> float:
        """The interval between two heartbeats."""
        return self.lease / 3

    @property
    def answer(self) -> float:
        """The timeout of a heartbeat; several may stall, and the next one still fits into the grace period."""
        return self.lease / 12

    @property
    def again(self) -> float:
        """The delay after a heartbeat without a response."""
        return self.lease / 40

    @property
    def grace(self) -> float:
        """The time without an acknowledged heartbeat after which an agent ends its run."""
        return self.lease * 3 / 4

    @property
    def wait(self) -> float:
        """The first delay of a job that is retried."""
        return self.lease / 6

    @property
    def unseen(self) -> float:
        """The time without a request after which a machine counts as gone."""
        return self.lease * 3


@dataclass(frozen=True, slots=True)
class Moment:
    """The current time by the queue's clock and by the calendar, with the queue's durations."""

    now: float
    at: datetime
    times: Times


def since_boot() -> float:
    """Return the seconds since the host booted, including sleep; setting the clock does not change them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@cache
def boot_id() -> str:
    """Return the id of this boot of the host, or of this process if the host has none."""
    return _BOOT.read_text(encoding="ascii").strip() if _BOOT.is_file() else secrets.token_hex(_ID_BYTES)
