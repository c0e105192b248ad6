"""Opening the database, and the two kinds of transaction that every room uses: one reads, one writes."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError
from sqlalchemy.pool import ConnectionPoolEntry

from artifacts.canonical import canonical
from artifacts.errors import BenchlockError, UnavailableError

BUSY_TIMEOUT_MS = 30_000
_PAUSE_MS = 50


def open_engine(path: Path) -> Engine:
    """The database in the file ``path``, which is made on first use; its folder must exist.

    Readers never wait for a writer (write-ahead log), a commit is on the disk when it returns (synchronous=FULL),
    foreign keys hold, and a writer waits for another one. ``upgrade`` of the migrations makes the schema.
    """
    engine = create_engine(
        URL.create("sqlite", database=str(path)), json_serializer=lambda value: canonical(value).decode()
    )
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One consistent view of the database for as long as the context is held.

    Raises:
        UnavailableError: the database cannot be opened or read.
    """
    with _translated(engine), engine.begin() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """One transaction that writes: the only writer from its start, committed at the end, or nothing of it.

    Raises:
        UnavailableError: the database cannot be opened or written, or another writer did not end in time.
    """
    with _translated(engine), engine.execution_options(immediate=True).begin() as connection:
        yield connection


@contextmanager
def changing(engine: Engine) -> Iterator[Connection]:
    """One transaction that writes where others may write beside it, on a database that lets them.

    It is for rows that come and go, and locks those that it means to change. It adds nothing to what is append-only.

    Raises:
        UnavailableError: as ``writing``.
    """
    with writing(engine) as connection:
        yield connection


@contextmanager
def _translated(engine: Engine) -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise  # a rule of the schema was broken: that is a fault of ours, not something missing outside
    except DBAPIError as error:
        reason, next_step = _explained(error.orig)
        raise UnavailableError(
            f"the database cannot be used: {reason}", where=engine.url.database, next_step=next_step
        ) from error
    except StatementError as error:
        if isinstance(error.orig, BenchlockError):
            raise error.orig from None  # a value that cannot be stored, said by whoever writes it as text
        raise


def _explained(error: BaseException | None) -> tuple[str, str]:
    """What SQLite means, and the next step."""
    name = getattr(error, "sqlite_errorname", "")
    if name in ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"):  # the second: no space for what its users share
        return "the disk is full", "free disk space and do it again: nothing that was stored is lost"
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
        return f"{error}", "its folder must exist, and you must be allowed to write there: readers do so too"
    return f"{error}", "check that its folder exists and can be written, and that the disk is not full"


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
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
