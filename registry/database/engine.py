"""Opening of databases, read and write transactions, schema revisions, and errors of damaged data."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DataError, DBAPIError, MultipleResultsFound, NoResultFound, OperationalError, StatementError
from sqlalchemy.exc import IntegrityError as ConstraintError
from sqlalchemy.exc import TimeoutError as NoConnectionError

from benchlock.artifacts.errors import (
    BenchlockError,
    IntegrityError,
    InvalidInputError,
    SchemaRevisionError,
    UnavailableError,
)
from benchlock.artifacts.size_limits import TooLongError
from benchlock.registry.database import postgresql, sqlite
from benchlock.registry.database.postgresql import require_protection
from benchlock.registry.database.triggers import MARK

_EXPECTED: Final = "schema_revision"
_VERSION: Final = "SELECT version_num FROM alembic_version"


def read_revision(connection: Connection) -> str | None:
    """Return the revision of the database's schema, or ``None`` if the database is empty."""
    if not connection.dialect.has_table(connection, "alembic_version"):
        return None
    return connection.exec_driver_sql(_VERSION).scalar()


@contextmanager
def raise_as_sqlalchemy(query: str) -> Iterator[None]:
    """Raise failures of SQLite's driver as SQLAlchemy does: callers tell them from the errors of one record."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OperationalError(query, None, error) from error


def fetch_first(connection: Connection, query: str, values: Mapping[str, str] | None = None) -> Sequence[Any] | None:
    """Return the first row of a short query, whose parameters are texts.

    On SQLite the driver executes it: SQLAlchemy would need ten times as long, while other writers wait.
    """
    if connection.dialect.name == "sqlite":
        with raise_as_sqlalchemy(query):
            row: Sequence[Any] | None = connection.connection.cursor().execute(query, values or {}).fetchone()
        return row
    return connection.execute(text(query), values).first()


def require_revision(current: str | None, needed: str, where: str) -> None:
    """Require that a database has the revision that this build needs.

    Args:
        current: The revision of the database.
        needed: The revision that this build needs.
        where: The location of the database, for the error.

    Raises:
        SchemaRevisionError: The revisions differ. The error contains the next step.
    """
    if current == needed:
        return
    if current is not None and current > needed:
        raise SchemaRevisionError(
            f"the database schema is at revision {current}, but this benchlock needs the older revision {needed}",
            where=where,
            next_step=f"use a benchlock that needs revision {current}, or stop every service and downgrade the "
            f"database to revision {needed} with the newer benchlock",
        )
    raise SchemaRevisionError(
        f"the database schema is at revision {current}, but this benchlock needs revision {needed}",
        where=where,
        next_step="stop every service of this registry, then upgrade the database",
    )


def expect_revision(engine: Engine, needed: str) -> None:
    """Make every later write transaction of ``engine`` check the schema revision first."""
    engine.update_execution_options(**{_EXPECTED: needed})


def require_expected_revision(connection: Connection) -> None:
    """Require the revision that the connection's engine expects, if it expects one.

    Raises:
        SchemaRevisionError: The schema changed after the engine was opened.
    """
    needed: str | None = connection.get_execution_options().get(_EXPECTED)
    if needed is not None:
        row = fetch_first(connection, _VERSION)
        require_revision(None if row is None else row[0], needed, database_location(connection.engine))


RESTORE: Final = "verify the registry to list all damage, then restore it from a backup"
UNDECODABLE: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MultipleResultsFound,
    NoResultFound,
    TypeError,
    ValueError,
)
"""Errors that decoding raises for a row whose bytes were changed."""


class DamagedDatabaseError(IntegrityError):
    """A database whose content differs from what was written."""

    code = "damaged-database"


RESTORE_NOW: Final = "restore the registry from a backup"
"""The next step of each fault in a report of all damage."""


def damage_error(what: str, where: str | None = None) -> DamagedDatabaseError:
    """Return the error for the damage that ``what`` describes."""
    return DamagedDatabaseError(f"the database is damaged: {what}", where=where, next_step=RESTORE)


open_engine: Final = sqlite.open_file
"""Open the SQLite database in a file; the function ``upgrade`` of the migrations creates the schema."""


def open_server(address: str) -> Engine:
    """Open the PostgreSQL database at ``postgresql://USER@HOST:PORT/DATABASE``, which must exist.

    The function ``upgrade`` of the migrations creates the schema.

    Raises:
        InvalidInputError: The address has another form.
        UnavailableError: The driver is not installed.
    """
    return postgresql.open_address(postgresql.parse_address(address))


def database_location(engine: Engine) -> str:
    """Return the location of the database: a path, or an address without its password."""
    return postgresql.format_address(engine.url) if engine.dialect.name == "postgresql" else str(engine.url.database)


def find_commit_counter(engine: Engine) -> Callable[[], int] | None:
    """Return a function whose result changes with every commit, or ``None`` if the database has no cheap one.

    The function is for one thread. Each one keeps a connection open as long as the engine exists.

    Raises:
        UnavailableError: The database cannot be opened or read.
    """
    if engine.dialect.name != "sqlite":
        return None
    with translate_errors(engine):
        return sqlite.CommitCounter(engine)


@contextmanager
def read_transaction(engine: Engine) -> Iterator[Connection]:
    """Open a read transaction: one consistent view of the database while the context is open.

    Raises:
        UnavailableError: The database cannot be opened or read.
        DamagedDatabaseError: A page is damaged, or a stored value cannot be decoded.
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
    """Open a write transaction: the only writer from its start, committed at the end or rolled back on an error.

    Raises:
        UnavailableError: The database cannot be opened or written, or another writer did not end in time.
    """
    with hold_write_turn(engine), transaction(engine) as connection:
        yield connection


@contextmanager
def row_lock_transaction(engine: Engine) -> Iterator[Connection]:
    """Open a write transaction beside other writers, on databases that support it.

    It is for rows that are inserted and deleted often, and locks the rows that it changes. It must not insert into
    append-only tables.

    Raises:
        UnavailableError: The database cannot be opened or written, or another writer did not end in time.
    """
    with hold_write_turn(engine), transaction(engine, alone=engine.dialect.name != "postgresql") as connection:
        yield connection


def hold_write_turn(engine: Engine) -> AbstractContextManager[None]:
    """Admit one writing thread of ``engine`` at a time, unless the server orders writers itself."""
    return nullcontext() if engine.dialect.name == "postgresql" else sqlite.hold_thread_turn(engine)


@contextmanager
def transaction(engine: Engine, *, alone: bool = True) -> Iterator[Connection]:
    """Begin the transaction of a thread that holds the write turn; ``alone`` makes it the only writer.

    Raises:
        SchemaRevisionError: The schema changed after the engine was opened.
        UnavailableError: The database cannot be used, or the session that holds the caller's store lock has ended.
    """
    options = {"writes": True} if alone else {}
    with translate_errors(engine), engine.connect() as connection, connection.execution_options(**options).begin():
        require_expected_revision(connection)
        if alone:
            require_protection(connection)
        yield connection


@contextmanager
def report_decode_errors(engine: Engine) -> Iterator[None]:
    """Report errors of decoding stored values in the context as damage.

    Raises:
        DamagedDatabaseError: A stored text, time, number or document could not be decoded.
    """
    try:
        yield
    except UNDECODABLE as error:
        what = f"a stored value cannot be decoded ({type(error).__name__}: {error})"
        raise damage_error(what, database_location(engine)) from error


@contextmanager
def translate_errors(engine: Engine) -> Iterator[None]:
    """Translate errors of the driver and of SQLAlchemy in the context to errors of benchlock."""
    try:
        yield
    except (ConstraintError, sqlite3.IntegrityError) as error:
        if MARK in str(error):
            raise _too_long(error) from error
        raise  # breaking a rule of the schema is a bug of benchlock, not a problem of the environment
    except (DataError, sqlite3.DataError) as error:
        cause = error.orig if isinstance(error, DataError) else error
        raise InvalidInputError(
            f"the database cannot store a value: {cause}", next_step="remove invalid characters, or shorten it"
        ) from error
    except (DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        dialect = postgresql if engine.dialect.name == "postgresql" else sqlite
        if dialect.is_damage(cause):
            raise damage_error(str(cause).strip(), database_location(engine)) from error
        reason, next_step = dialect.explain_error(cause)
        raise UnavailableError(
            f"the database is unavailable: {reason}", where=database_location(engine), next_step=next_step
        ) from error
    except NoConnectionError as error:
        raise UnavailableError(
            "the database is busy: too many connections in use",
            where=database_location(engine),
            next_step="try again",
        ) from error
    except StatementError as error:
        if isinstance(error.orig, BenchlockError):
            raise error.orig from None  # a column type rejected a value
        raise


def _too_long(error: Exception) -> TooLongError:
    """Return the error for a text beyond its limit, with the message of the trigger."""
    message = next(line for line in str(getattr(error, "orig", error)).splitlines() if MARK in line)
    return TooLongError(f"text too long for the database: {message}", next_step="shorten it")
