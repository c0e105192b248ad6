"""What protects the blobs of a writer from garbage collection on PostgreSQL: the session that holds the store lock.

That session can end while its writer goes on. So the transaction that names blobs checks that the session still stands,
and itself shares the lock until it is committed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import URL, Connection, text

from benchlock.artifacts.errors import UnavailableError

STORE_KEY: Final = 0x626C6F6273746F72
"""Of the advisory lock of the store; the writers of the database have another one."""
# CASE evaluates the lock first: then no collection runs from here to the commit, and the session stood all the time.
_STANDS: Final = text("""
SELECT CASE WHEN pg_try_advisory_xact_lock_shared(:key) THEN EXISTS (
  SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid)
  WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted AND objsubid = 1
  AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((classid::bigint << 32) | objid::bigint) = :key
  AND pid = :pid AND backend_start = :started
) ELSE false END
""")
_IDENTITY: Final = text("SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()")


@dataclass(frozen=True, slots=True)
class Protection:
    """A session that holds the store lock for writers: its database, its process on the server and its start."""

    database: URL
    pid: int
    started: datetime


_required: ContextVar[tuple[Protection, ...]] = ContextVar("_required", default=())


def identify_session(session: Connection) -> Protection:
    """Return the identity of a session, which no later session has."""
    row = session.execute(_IDENTITY).one()
    return Protection(session.engine.url, row.pid, row.backend_start)


@contextmanager
def requiring(protection: Protection) -> Iterator[None]:
    """Require ``protection`` of every transaction that writes in this thread or task while the context is held."""
    before = _required.get()
    token = _required.set(before if protection in before else (*before, protection))
    try:
        yield
    finally:
        _required.reset(token)


def require_protection(connection: Connection) -> None:
    """Require that the caller's blobs are still protected, and keep collections out until the commit.

    Args:
        connection: A connection in a transaction that writes.

    Raises:
        UnavailableError: A session has ended since: blobs that were stored under it may have been collected.
    """
    for protection in _required.get():
        if protection.database != connection.engine.url:
            continue
        values = {"key": STORE_KEY, "pid": protection.pid, "started": protection.started}
        if not connection.execute(_STANDS, values).scalar():
            raise UnavailableError(
                "the lock that protects stored blobs from garbage collection was lost: its database session ended",
                next_step="do it again: nothing was recorded, and blobs that are still stored are not sent again",
            )
