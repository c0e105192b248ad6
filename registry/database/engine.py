"""Opening of databases, read and write transactions, schema revisions, and errors of damaged data."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DataError, DBAPIError, MultipleResultsFound, NoResultFound, StatementError
from sqlalchemy.exc import IntegrityError as ConstraintError
from sqlalchemy.exc import TimeoutError as NoConnectionError

from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.size_limits import TooLongError
from benchlock.registry.database import postgresql, sqlite
from benchlock.registry.database.postgresql import require_protection
from benchlock.registry.database.triggers import MARK

_EXPECTED: Final = "schema_revision"
_VERSION: Final = "SELECT version_num FROM alembic_version"


class SchemaRevisionError(UnavailableError):
    """The database's schema has another revision than this build needs."""

    code = "schema-revision"


def read_revision(connection: Connection) -> str | None:
    """Read the revision of the database's schema; ``None`` where the database is empty."""
    if not connection.dialect.has_table(connection, "alembic_version"):
        return None
    return _read_version(connection)


def require_revision(found: str | None, needed: str, where: str) -> None:
    """Compare the revision of a database with the one that this build needs.

    Args:
        found: The revision of the database.
        needed: The revision that this build needs.
        where: The place of the database, for the error.

    Raises:
        SchemaRevisionError: The revisions differ; the error names the next step.
    """
    if found == needed:
        return
    if found is not None and found > needed:
        raise SchemaRevisionError(
            f"the database schema is at revision {found}, and this benchlock needs the older revision {needed}",
            where=where,
            next_step=f"use a benchlock that needs revision {found}, or go back: with the newer benchlock, stop every "
            f"service and run `benchlock db downgrade --to {needed}`",
        )
    raise SchemaRevisionError(
        f"the database schema is at revision {found}, and this benchlock needs revision {needed}",
        where=where,
        next_step="stop every service of this registry, then run `benchlock db upgrade`",
    )


def expect_revision(engine: Engine, needed: str) -> None:
    """Make every later write transaction of ``engine`` compare the revision before it writes."""
    engine.update_execution_options(**{_EXPECTED: needed})


def require_expected_revision(connection: Connection) -> None:
    """Compare the revision with the one that the connection's engine expects, if it expects one.

    Raises:
        SchemaRevisionError: The schema changed since the engine was opened.
    """
    needed: str | None = connection.get_execution_options().get(_EXPECTED)
    if needed is not None:
        require_revision(_read_version(connection), needed, database_location(connection.engine))


def _read_version(connection: Connection) -> str | None:
    if connection.dialect.name == "sqlite":  # past SQLAlchemy: every write transaction asks
        cursor = connection.connection.cursor()
        cursor.execute(_VERSION)
        row = cursor.fetchone()
        return row[0] if row else None
    found: str | None = connection.exec_driver_sql(_VERSION).scalar()
    return found


RESTORE: Final = "run `benchlock verify` to list all damage, then restore the registry from a backup"
UNDECODABLE: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MultipleResultsFound,
    NoResultFound,
    TypeError,
    ValueError,
)
"""What code raises that decodes a row whose bytes were changed."""


class DamagedDatabaseError(IntegrityError):
    """The database holds something else than what was written."""

    code = "damaged-database"


RESTORE_NOW: Final = "restore the registry from a backup"
"""The next step of a fault in a report of all damage."""


def damage_error(what: str, where: str | None = None) -> DamagedDatabaseError:
    """Return the error that says ``what`` is damaged."""
    return DamagedDatabaseError(f"the database is damaged: {what}", where=where, next_step=RESTORE)


def open_engine(path: Path) -> Engine:
    """The database in the file ``path``, which is made on first use; its folder must exist.

    ``upgrade`` of the migrations makes the schema.
    """
    return sqlite.open_file(path)


def open_server(address: str) -> Engine:
    """The database at ``postgresql://USER@HOST:PORT/DATABASE``, which must exist; ``upgrade`` makes the schema in it.

    Raises:
        InvalidInputError: it is no such address.
        UnavailableError: the driver is not installed.
    """
    return postgresql.open_address(postgresql.parse_address(address))


def database_location(engine: Engine) -> str:
    """Where the database is, without a password."""
    return postgresql.format_address(engine.url) if engine.dialect.name == "postgresql" else str(engine.url.database)


def find_commit_counter(engine: Engine) -> Callable[[], int] | None:
    """What tells by its number, at next to no cost, whether anyone has committed meanwhile; None where nothing does.

    It is for one thread. Each that is made keeps a connection for as long as the engine lives.

    Raises:
        UnavailableError: as ``reading``.
    """
    if engine.dialect.name != "sqlite":
        return None
    with translate_errors(engine):
        return sqlite.CommitCounter(engine)


@contextmanager
def read_transaction(engine: Engine) -> Iterator[Connection]:
    """One consistent view of the database for as long as the context is held.

    Raises:
        UnavailableError: the database cannot be opened or read.
        DamagedDatabaseError: a page is damaged, or a stored value cannot be decoded.
    """
    options = postgresql.READING if engine.dialect.name == "postgresql" else {}
    with (
        translate_errors(engine),
        report_decode_errors(engine),
        engine.connect() as connection,
        connection.execution_options(**options).begin(),
    ):
        yield connection


@contextmanager
def write_transaction(engine: Engine) -> Iterator[Connection]:
    """One transaction that writes: the only writer from its start, committed at the end, or nothing of it.

    Raises:
        UnavailableError: the database cannot be opened or written, or another writer did not end in time.
    """
    with hold_write_turn(engine), transaction(engine) as connection:
        yield connection


@contextmanager
def row_lock_transaction(engine: Engine) -> Iterator[Connection]:
    """One transaction that writes where others may write beside it, on a database that lets them.

    It is for rows that come and go, and locks those that it means to change. It adds nothing to what is append-only.

    Raises:
        UnavailableError: as ``writing``.
    """
    with hold_write_turn(engine), transaction(engine, alone=engine.dialect.name != "postgresql") as connection:
        yield connection


def hold_write_turn(engine: Engine) -> AbstractContextManager[None]:
    """Held by one thread that writes to the database of ``engine`` at a time, where it has one writer by itself."""
    return nullcontext() if engine.dialect.name == "postgresql" else sqlite.hold_thread_turn(engine)


@contextmanager
def transaction(engine: Engine, *, alone: bool = True) -> Iterator[Connection]:
    """Begin the transaction of a thread that has the turn; ``alone`` makes it the only writer.

    Raises:
        SchemaRevisionError: The schema changed since the engine was opened.
        UnavailableError: Also where the caller holds the lock of a store, and its session has ended.
    """
    options = {"writes": True} if alone else {}
    with translate_errors(engine), engine.connect() as connection, connection.execution_options(**options).begin():
        require_expected_revision(connection)
        if alone:
            require_protection(connection)
        yield connection


@contextmanager
def report_decode_errors(engine: Engine) -> Iterator[None]:
    """Report stored values that cannot be decoded as damage: texts, times, numbers and documents that are none.

    Raises:
        DamagedDatabaseError: the block met such a value.
    """
    try:
        yield
    except UNDECODABLE as error:
        what = f"a stored value cannot be decoded ({type(error).__name__}: {error})"
        raise damage_error(what, database_location(engine)) from error


@contextmanager
def translate_errors(engine: Engine) -> Iterator[None]:
    """Whatever the driver or SQLAlchemy says inside of it is said as an error of ours."""
    try:
        yield
    except (ConstraintError, sqlite3.IntegrityError) as error:
        if MARK in str(error):
            raise _too_long(error) from error
        raise  # a rule of the schema was broken: that is a fault of ours, not something missing outside
    except DataError as error:
        raise InvalidInputError(
            f"the database cannot hold that: {error.orig}", next_step="leave out what is no text, or shorten it"
        ) from error
    except (DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        dialect = postgresql if engine.dialect.name == "postgresql" else sqlite
        if dialect.is_damage(cause):
            raise damage_error(str(cause).strip(), database_location(engine)) from error
        reason, next_step = dialect.explained(cause)
        raise UnavailableError(
            f"the database cannot be used: {reason}", where=database_location(engine), next_step=next_step
        ) from error
    except NoConnectionError as error:
        raise UnavailableError(
            "the database cannot be used: too many ask at once",
            where=database_location(engine),
            next_step="do it again",
        ) from error
    except StatementError as error:
        if isinstance(error.orig, BenchlockError):
            raise error.orig from None  # a value that cannot be stored, said by whoever writes it as text
        raise


def _too_long(error: Exception) -> TooLongError:
    """The error of a text beyond its limit, as the trigger says it."""
    said = next(line for line in str(getattr(error, "orig", error)).splitlines() if MARK in line)
    return TooLongError(f"the database does not store that text: {said}", next_step="shorten it")
