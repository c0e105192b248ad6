"""Lease durations, and the clock that measures them across restarts."""

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
    """Seconds; all follow from the lease's.

    Three beats fit into it, and an agent that hears nothing ends its container a quarter of it before others may have
    the job. That quarter is for ending, and for clocks of different speeds.
    """

    lease: float = 60.0

    @property
    def beat(self) -> float:
        return self.lease / 3

    @property
    def answer(self) -> float:
        """So long the answer to a beat is waited for: several may stall, and another still comes within the grace."""
        return self.lease / 12

    @property
    def again(self) -> float:
        """The wait after a beat that had no answer."""
        return self.lease / 40

    @property
    def grace(self) -> float:
        """After so long without a good beat an agent ends what it runs."""
        return self.lease * 3 / 4

    @property
    def wait(self) -> float:
        """The first wait of a job that is tried again."""
        return self.lease / 6

    @property
    def unseen(self) -> float:
        """A machine of which nothing was heard for so long counts as gone."""
        return self.lease * 3


@dataclass(frozen=True, slots=True)
class Moment:
    """Now, by the queue's clock and by the calendar."""

    now: float
    at: datetime
    times: Times


def since_boot() -> float:
    """Seconds that no setting of a clock changes, and in which sleeping counts."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@cache
def boot_id() -> str:
    """Names this boot of the host; of one that does not say, the process."""
    return _BOOT.read_text(encoding="ascii").strip() if _BOOT.is_file() else secrets.token_hex(_ID_BYTES)


class Clock:
    """The queue's time, in seconds.

    PostgreSQL's own time is that of one machine, and all ask it. A SQLite file is used by the processes of one host:
    their common clock is the seconds since its boot, which setting the clock does not change. After another boot they
    go on from the latest time that was written down: what passed between is not counted, so that a lease ends later,
    never earlier, and by its own length at most.
    """

    def __init__(self, times: Times) -> None:
        self._times = times
        self._base: float | None = None

    def now(self, connection: Connection) -> float:
        """The time. On SQLite the connection must be writing, the first time."""
        if connection.dialect.name == "postgresql":
            return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
        if self._base is None:
            self._base = self._counting(connection)
        return self._base + since_boot()

    @property
    def is_set(self) -> bool:
        """Whether the time can be had without writing."""
        return self._base is not None

    def note(self, connection: Connection, now: float) -> None:
        """Write the time down, with what changes at it."""
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
    """The queue's own name, given when it is first used."""
    found = connection.execute(select(dispatch.c.queue)).scalar()
    if found is None:
        row = {"id": _ROW, "queue": secrets.token_hex(_ID_BYTES)}
        connection.execute(text("INSERT INTO dispatch (id, queue) VALUES (:id, :queue) ON CONFLICT DO NOTHING"), row)
        found = connection.execute(select(dispatch.c.queue)).scalar_one()
    return str(found)
