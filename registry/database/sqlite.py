"""SQLite: connections, a fair lock for writers, a commit counter, and backups."""

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import get_ident

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from benchlock.artifacts.errors import UnavailableError
from benchlock.registry.database.ids_and_timestamps import as_json


@dataclass(slots=True)
class FairLock:
    """A fair (FIFO) lock: release hands it to the longest waiter.

    With ``threading.Lock``, a thread that releases and acquires again may overtake the waiter that was woken.
    """

    _own: threading.Lock = field(default_factory=threading.Lock)
    _holder: int | None = None
    _waiting: deque[tuple[int, threading.Lock]] = field(default_factory=deque)

    def acquire(self, seconds: float) -> bool:
        """Acquire the lock; return ``False`` if this takes longer than ``seconds``."""
        me, woken = get_ident(), threading.Lock()
        with self._own:
            # A holder that acquires again was interrupted between acquiring and the block that releases.
            if self._holder in (None, me):
                self._holder = me
                return True
            woken.acquire()
            self._waiting.append((me, woken))
        try:
            if woken.acquire(timeout=seconds):
                return True
        except BaseException:  # a signal: the lock must not go to a thread that no longer waits
            if self._stop_waiting(me, woken):
                self.release()
            raise
        return self._stop_waiting(me, woken)

    def _stop_waiting(self, me: int, woken: threading.Lock) -> bool:
        """Stop waiting; return ``True`` if the lock was handed over just now."""
        with self._own:
            if self._holder == me:
                return True
            self._waiting.remove((me, woken))
            return False

    def release(self) -> None:
        """Release the lock to the longest waiter."""
        with self._own:
            self._holder = None
            if self._waiting:
                self._holder, woken = self._waiting.popleft()
                woken.release()


BUSY_TIMEOUT_MS = 30_000
_PAUSE_MS = 50
_TURN = "turn"


def open_file(path: Path) -> Engine:
    """Open the SQLite database in the file ``path``; it is created on first use, and its folder must exist.

    Readers never wait for a writer (write-ahead log), and writers wait for each other. A commit is on the disk when it
    returns (``synchronous=FULL``). Foreign keys are enforced.
    """
    options = {_TURN: FairLock()}
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        json_serializer=as_json,
        execution_options=options,
        pool_use_lifo=True,  # the connection used last has the frequent pages in its cache
    )
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


@contextmanager
def hold_thread_turn(engine: Engine) -> Iterator[None]:
    """Make this thread the only writer of the engine; waiting threads get their turns in order.

    SQLite itself polls with growing pauses, so one of many writers may wait for seconds while the others write
    repeatedly. Writers of other processes still wait in this way.

    Raises:
        UnavailableError: The other writers did not end in time.
    """
    turn: FairLock = engine.get_execution_options()[_TURN]
    if not turn.acquire(BUSY_TIMEOUT_MS / 1000):
        raise UnavailableError(
            "the database is busy: other writers hold the lock for too long",
            where=str(engine.url.database),
            next_step="try again",
        )
    try:
        yield
    finally:
        turn.release()


class CommitCounter:
    """A number that SQLite changes whenever another connection of any process commits to the same file."""

    def __init__(self, engine: Engine) -> None:
        """Open a connection of its own for the counter."""
        # SQLite does not count the commits of the connection itself, so this one never writes.
        self._connection = sqlite3.connect(str(engine.url.database), check_same_thread=False)
        self._unknown = 0

    def __call__(self) -> int:
        """Return the number within microseconds; if it cannot be read, return one that was never returned before."""
        try:
            number: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            self._unknown -= 1
            return self._unknown
        return number

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def copy_into(engine: Engine, path: Path) -> None:
    """Copy the current state of the database to the new file ``path`` while others may read and write."""
    with closing(sqlite3.connect(str(engine.url.database))) as source, closing(sqlite3.connect(path)) as copy:
        source.backup(copy)


def explain_error(error: BaseException | None) -> tuple[str, str]:
    """Return the reason of an SQLite error, and the next step."""
    name = getattr(error, "sqlite_errorname", "")
    if name in ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"):  # the second: no space for the shared memory file
        return "the disk is full", "free disk space and try again: no stored data is lost"
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
        return f"{error}", "check that its folder exists and is writable, also for readers"
    return f"{error}", "check that its folder exists and is writable, and that the disk is not full"


def is_damage(error: BaseException | None) -> bool:
    """Return whether SQLite reports that a page, or a text in one, is damaged."""
    return getattr(error, "sqlite_errorname", "").startswith("SQLITE_CORRUPT") or "Could not decode" in str(error)


def _configure(connection: sqlite3.Connection, _record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # ``_begin`` starts transactions, not the driver
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "temp_store=MEMORY",  # also of savepoints, which otherwise write a temporary file from 64 KiB on
    ):
        _execute_patiently(connection, f"PRAGMA {pragma}")


def _execute_patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Execute a statement, and retry while another process blocks it.

    SQLite does not wait by itself when it switches a new database to the write-ahead log while another process opens
    it.
    """
    for _ in range(BUSY_TIMEOUT_MS // _PAUSE_MS):
        try:
            return connection.execute(statement).close()
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise
        time.sleep(_PAUSE_MS / 1000)
    return connection.execute(statement).close()


def _begin(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("writes", False)
    connection.connection.cursor().execute("BEGIN IMMEDIATE" if immediate else "BEGIN")
