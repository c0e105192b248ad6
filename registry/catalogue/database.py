"""Opening the database, and the two kinds of transaction that every room uses: one reads, one writes."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DataError, DBAPIError, StatementError
from sqlalchemy.exc import IntegrityError as ConstraintError
from sqlalchemy.exc import TimeoutError as NoConnectionError

from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError
from benchlock.artifacts.limits import TooLongError
from benchlock.registry.catalogue import postgresql, sqlite
from benchlock.registry.catalogue.damage import UNDECODABLE, damage_error
from benchlock.registry.catalogue.protection import require_protection
from benchlock.registry.catalogue.revisions import require_expected_revision
from benchlock.registry.catalogue.text_limits import MARK


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


def place_of(engine: Engine) -> str:
    """Where the database is, without a password."""
    return postgresql.written(engine.url) if engine.dialect.name == "postgresql" else str(engine.url.database)


def commits_of(engine: Engine) -> Callable[[], int] | None:
    """What tells by its number, at next to no cost, whether anyone has committed meanwhile; None where nothing does.

    It is for one thread. Each that is made keeps a connection for as long as the engine lives.

    Raises:
        UnavailableError: as ``reading``.
    """
    if engine.dialect.name != "sqlite":
        return None
    with translated(engine):
        return sqlite.Commits(engine)


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One consistent view of the database for as long as the context is held.

    Raises:
        UnavailableError: the database cannot be opened or read.
        DamagedDatabaseError: a page is damaged, or a stored value cannot be decoded.
    """
    options = postgresql.READING if engine.dialect.name == "postgresql" else {}
    with (
        translated(engine),
        decoding(engine),
        engine.connect() as connection,
        connection.execution_options(**options).begin(),
    ):
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """One transaction that writes: the only writer from its start, committed at the end, or nothing of it.

    Raises:
        UnavailableError: the database cannot be opened or written, or another writer did not end in time.
    """
    with in_turn(engine), transaction(engine) as connection:
        yield connection


@contextmanager
def changing(engine: Engine) -> Iterator[Connection]:
    """One transaction that writes where others may write beside it, on a database that lets them.

    It is for rows that come and go, and locks those that it means to change. It adds nothing to what is append-only.

    Raises:
        UnavailableError: as ``writing``.
    """
    with in_turn(engine), transaction(engine, alone=engine.dialect.name != "postgresql") as connection:
        yield connection


def in_turn(engine: Engine) -> AbstractContextManager[None]:
    """Held by one thread that writes to the database of ``engine`` at a time, where it has one writer by itself."""
    return nullcontext() if engine.dialect.name == "postgresql" else sqlite.in_turn(engine)


@contextmanager
def transaction(engine: Engine, *, alone: bool = True) -> Iterator[Connection]:
    """What ``writing`` is for who has the turn; the only writer, where it is ``alone``. Raises as ``writing``.

    Raises:
        SchemaRevisionError: The schema changed since the engine was opened.
        UnavailableError: Also where the caller holds the lock of a store, and its session has ended.
    """
    options = {"writes": True} if alone else {}
    with translated(engine), engine.connect() as connection, connection.execution_options(**options).begin():
        require_expected_revision(connection)
        if alone:
            require_protection(connection)
        yield connection


@contextmanager
def decoding(engine: Engine) -> Iterator[None]:
    """Report stored values that cannot be decoded as damage: texts, times, numbers and documents that are none.

    Raises:
        DamagedDatabaseError: the block met such a value.
    """
    try:
        yield
    except UNDECODABLE as error:
        what = f"a stored value cannot be decoded ({type(error).__name__}: {error})"
        raise damage_error(what, place_of(engine)) from error


@contextmanager
def translated(engine: Engine) -> Iterator[None]:
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
            raise damage_error(str(cause).strip(), place_of(engine)) from error
        reason, next_step = dialect.explained(cause)
        raise UnavailableError(
            f"the database cannot be used: {reason}", where=place_of(engine), next_step=next_step
        ) from error
    except NoConnectionError as error:
        raise UnavailableError(
            "the database cannot be used: too many ask at once", where=place_of(engine), next_step="do it again"
        ) from error
    except StatementError as error:
        if isinstance(error.orig, BenchlockError):
            raise error.orig from None  # a value that cannot be stored, said by whoever writes it as text
        raise


def _too_long(error: Exception) -> TooLongError:
    """The error of a text beyond its limit, as the trigger says it."""
    said = next(line for line in str(getattr(error, "orig", error)).splitlines() if MARK in line)
    return TooLongError(f"the database does not store that text: {said}", next_step="shorten it")
