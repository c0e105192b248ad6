"""Durations of leases, and the clock that measures them across restarts."""

import secrets
import time
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, func, select, text, update

from benchlock.evaluator.queue.queue_schema import dispatch, jobs, machines

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_ROW: Final = 1
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


class Clock:
    """The queue's clock, in seconds.

    PostgreSQL's time is that of one machine, which every client asks. A SQLite file is used by the processes of one
    host: their common clock is the seconds since its boot, which setting the clock does not change. After another boot
    the clock continues from the latest time that was written. The time between is not counted, so a lease ends later,
    never earlier, and later by at most its own length.
    """

    def __init__(self, times: Times) -> None:
        """Create the clock of a queue with these durations."""
        self._times = times
        self._base: float | None = None

    def now(self, connection: Connection) -> float:
        """Return the time. On SQLite the first call needs a connection that is writing."""
        if connection.dialect.name == "postgresql":
            return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
        if self._base is None:
            self._base = self._counting(connection)
        return self._base + since_boot()

    @property
    def is_set(self) -> bool:
        """Whether ``now`` needs no write."""
        return self._base is not None

    def note(self, connection: Connection, now: float) -> None:
        """Store the time; call it with every change that depends on the time."""
        if connection.dialect.name != "postgresql":
            connection.execute(update(dispatch).where(dispatch.c.id == _ROW).values(latest=now))

    def _counting(self, connection: Connection) -> float:
        queue_id(connection)
        row = connection.execute(select(dispatch)).one()
        if row.boot == boot_id():
            return float(row.base)
        longest = connection.execute(select(func.max(jobs.c.lease_until)).where(jobs.c.state == "leased")).scalar()
        heard = connection.execute(select(func.max(machines.c.seen))).scalar()
        latest = max(row.latest or 0.0, heard or 0.0, (longest or 0.0) - self._times.lease)
        base = latest - since_boot()
        connection.execute(update(dispatch).where(dispatch.c.id == _ROW).values(boot=boot_id(), base=base))
        return base


def queue_id(connection: Connection) -> str:
    """Return the queue's own id, which is created at its first use."""
    stored_id = connection.execute(select(dispatch.c.queue)).scalar()
    if stored_id is None:
        row = {"id": _ROW, "queue": secrets.token_hex(_ID_BYTES)}
        connection.execute(text("INSERT INTO dispatch (id, queue) VALUES (:id, :queue) ON CONFLICT DO NOTHING"), row)
        stored_id = connection.execute(select(dispatch.c.queue)).scalar_one()
    return str(stored_id)
