"""SQLite: connections, a fair lock for writers, a commit counter, and backups."""

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import get_ident

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from benchlock.artifacts.errors import UnavailableError
from benchlock.registry.database.record_values import as_json


class FairLock:
    """A lock that is handed over: whoever leaves gives it to the thread that has waited longest, and wakes that one.

    With ``threading.Lock`` a thread that leaves and asks again may be faster than the one that is woken.
    """

    def __init__(self) -> None:
        self._own = threading.Lock()
        self._holder: int | None = None
        self._waiting: deque[tuple[int, threading.Lock]] = deque()

    def take(self, seconds: float) -> bool:
        """Wait for the turn; false where it did not come in time."""
        me, woken = get_ident(), threading.Lock()
        with self._own:
            # One who has it and asks again was interrupted between taking it and the block that leaves it.
            if self._holder in (None, me):
                self._holder = me
                return True
            woken.acquire()
            self._waiting.append((me, woken))
        try:
            if woken.acquire(timeout=seconds):
                return True
        except BaseException:  # a signal: nobody may hand it to one who does not wait any more
            if self._withdraws(me, woken):
                self.leave()
            raise
        return self._withdraws(me, woken)

    def _withdraws(self, me: int, woken: threading.Lock) -> bool:
        """Wait no longer; true where the turn came just now."""
        with self._own:
            if self._holder == me:
                return True
            self._waiting.remove((me, woken))
            return False

    def leave(self) -> None:
        """Hand it over."""
        with self._own:
            self._holder = None
            if self._waiting:
                self._holder, woken = self._waiting.popleft()
                woken.release()


BUSY_TIMEOUT_MS = 30_000
_PAUSE_MS = 50
_TURN = "turn"


def open_file(path: Path) -> Engine:
    """The database in the file ``path``, which is made on first use; its folder must exist.

    Readers never wait for a writer (write-ahead log), a commit is on the disk when it returns (synchronous=FULL),
    foreign keys hold, and a writer waits for another one.
    """
    options = {_TURN: FairLock()}
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        json_serializer=as_json,
        execution_options=options,
        pool_use_lifo=True,  # the one that was used last still knows the pages that everybody asks for
    )
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


@contextmanager
def hold_thread_turn(engine: Engine) -> Iterator[None]:
    """Be the one thread that writes by this engine; they have their turns in the order in which they ask.

    SQLite itself sleeps, longer each time, and looks again whether others have ended; of many writers one may so wait
    for seconds while each of the others has its turn over and over. So writers of other processes do.

    Raises:
        UnavailableError: the others did not end in time.
    """
    turn: FairLock = engine.get_execution_options()[_TURN]
    if not turn.take(BUSY_TIMEOUT_MS / 1000):
        raise UnavailableError(
            "the database cannot be used: others write for too long",
            where=str(engine.url.database),
            next_step="do it again",
        )
    try:
        yield
    finally:
        turn.leave()


class CommitCounter:
    """The number that SQLite changes whenever another connection to the same file has committed, of any process."""

    def __init__(self, engine: Engine) -> None:
        # A connection of its own, which writes nothing: what it committed itself would not be counted.
        self._connection = engine.raw_connection()
        self._connection.detach()
        self._cursor = self._connection.cursor()
        self._unknown = 0

    def __call__(self) -> int:
        """A few microseconds, and nobody waits for it. What cannot be told is a number that never comes again."""
        try:
            number: int = self._cursor.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            self._unknown -= 1
            return self._unknown
        return number


def copy_into(engine: Engine, path: Path) -> None:
    """Write the database as it is at this moment to the new file ``path``; others may read and write meanwhile."""
    with closing(sqlite3.connect(str(engine.url.database))) as source, closing(sqlite3.connect(path)) as copy:
        source.backup(copy)


def explained(error: BaseException | None) -> tuple[str, str]:
    """What SQLite means, and the next step."""
    name = getattr(error, "sqlite_errorname", "")
    if name in ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"):  # the second: no space for what its users share
        return "the disk is full", "free disk space and do it again: nothing that was stored is lost"
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
        return f"{error}", "its folder must exist, and you must be allowed to write there: readers do so too"
    return f"{error}", "check that its folder exists and can be written, and that the disk is not full"


def is_damage(error: BaseException | None) -> bool:
    """Return whether SQLite says that a page, or the text in one, is not what was written."""
    return getattr(error, "sqlite_errorname", "").startswith("SQLITE_CORRUPT") or "Could not decode" in str(error)


def _configure(connection: sqlite3.Connection, _record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver starts no transaction by itself: _begin does
    for pragma in (
        f"busy_timeout={BUSY_TIMEOUT_MS}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
    ):
        _insist(connection, f"PRAGMA {pragma}")


def _insist(connection: sqlite3.Connection, statement: str) -> None:
    """Execute it as soon as nobody is in the way.

    SQLite does not wait by itself where a new database changes to the write-ahead log while another process opens it.
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
