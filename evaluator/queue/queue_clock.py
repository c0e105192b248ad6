"""The clock of a queue, which measures its leases across restarts, and the queue's own id."""

import secrets
from typing import Final

from sqlalchemy import Connection, func, select, text, update

from benchlock.evaluator.queue.lease_times import Times, boot_id, since_boot
from benchlock.evaluator.queue.queue_schema import dispatch, jobs, machines

_ROW: Final = 1
_ID_BYTES: Final = 16


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
