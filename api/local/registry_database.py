"""The database of a registry, chosen at creation: an SQLite file or a PostgreSQL server.

The decision is stored in the registry's home without a password. The password comes with BENCHLOCK_DATABASE, or from
where PostgreSQL's own programs find it (PGPASSWORD, ~/.pgpass).
"""

import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from benchlock.api.settings import read_setting
from benchlock.artifacts.atomic_files import create_file, lock_file
from benchlock.artifacts.errors import InvalidInputError, RefusedError, UnavailableError, UnknownNameError
from benchlock.migrations import prepare
from benchlock.registry.database import database_checks
from benchlock.registry.database.database_checks import DatabaseReport, claim_database, require_owner
from benchlock.registry.database.database_checks import owner as owner_of
from benchlock.registry.database.engine import (
    database_location,
    open_engine,
    open_server,
    read_revision,
    read_transaction,
)

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from benchlock.registry.database.record_chain import Head


_DECISION_LOCK_FILE = "store.json.lock"
_ID_BYTES = 16


def create_owner_id() -> str:
    """Create a random id by which a registry claims a shared database or repository."""
    return secrets.token_hex(_ID_BYTES)


def write_decision(path: Path, decision: Mapping[str, str]) -> None:
    """Write a decision to the file ``path`` as JSON, durably."""
    with _disk(path), create_file(path, durably=True) as file:
        file.write((json.dumps(decision) + "\n").encode())


@contextmanager
def lock_decisions(home: Path) -> Iterator[None]:
    """Exclude decisions for the registry by other processes while the context is held."""
    with _disk(home / _DECISION_LOCK_FILE):
        descriptor = lock_file(home / _DECISION_LOCK_FILE, alone=True)
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    """Translate an OSError for ``path`` into UnavailableError."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"{path} cannot be written: {error.strerror or error}", where=str(path), next_step="check the disk"
        ) from error


DATABASE_VARIABLE = "BENCHLOCK_DATABASE"
DATABASE_FILE = "registry.sqlite"
DATABASE_DECISION = "database.json"


@dataclass(frozen=True, slots=True)
class DatabaseDecision:
    """A database on a server: its address without a password, and the id by which the registry claims it."""

    address: str
    owner: str


class RegistryNotFoundError(UnknownNameError):
    """A folder without a registry, where none may be created."""


def is_new(home: Path) -> bool:
    """Check whether the folder has no database and no decision yet."""
    return not (home / DATABASE_FILE).exists() and not (home / DATABASE_DECISION).exists()


def require_registry(home: Path) -> None:
    """Require that there is a registry in ``home``.

    Raises:
        RegistryNotFoundError: There is none.
    """
    if is_new(home):
        raise _missing_registry_error(home)


def open_database(home: Path, now: Callable[[], datetime], *, create: bool) -> "tuple[Engine, bool]":
    """Open the database of the registry in ``home``.

    A new registry uses the database of the setting ``database``, else a file in ``home``.

    Args:
        home: The folder of the registry.
        now: Returns the time at which the registry claims a database on a server.
        create: Create the schema of a new registry.

    Returns:
        The database, and whether this call created the registry.

    Raises:
        RegistryNotFoundError: There is no registry in ``home``, and none may be created.
        SchemaRevisionError: The schema has another revision than this build needs.
        InvalidInputError: BENCHLOCK_DATABASE is invalid, or names another database than the registry has.
        RefusedError: The database belongs to another registry.
        UnavailableError: The database cannot be used, or the decision cannot be written.
    """
    setting = read_setting("database") if is_new(home) else None
    address = setting.text if setting else os.environ.get(DATABASE_VARIABLE)
    decision = read_database_decision(home)
    if decision is None and address:
        with lock_decisions(home):
            return _open_first(home, address, now, create=create)
    if decision is None:
        database = open_engine(home / DATABASE_FILE)
        try:
            return database, _prepare(database, home, create=create)
        except BaseException:
            database.dispose()
            raise
    return _open_claimed(home, address, decision, now, create=create)


def open_existing(home: Path) -> "Engine":
    """Open the database of an existing registry, whatever the revision of its schema.

    Raises:
        RegistryNotFoundError: There is no registry in ``home``.
        InvalidInputError: BENCHLOCK_DATABASE is invalid, or names another database than the registry has.
        RefusedError: The database belongs to another registry.
        UnavailableError: The database cannot be used.
    """
    require_registry(home)
    decision = read_database_decision(home)
    if decision is None:
        return open_engine(home / DATABASE_FILE)
    database = _connect(home, os.environ.get(DATABASE_VARIABLE), decision)
    try:
        require_owner(database, decision.owner)
    except BaseException:
        database.dispose()
        raise
    return database


def read_database_decision(home: Path) -> DatabaseDecision | None:
    """Read the decision in a registry's home, None if the database is a file in it.

    Raises:
        InvalidInputError: The file is invalid, for example after a manual change.
    """
    path = home / DATABASE_DECISION
    if not path.exists():
        return None

    try:
        document = msgspec.json.decode(path.read_bytes(), type=dict[Literal["database", "owner"], str])
        return DatabaseDecision(document["database"], document["owner"])
    except (msgspec.MsgspecError, KeyError) as error:
        raise InvalidInputError(
            f"{path} does not state where the database is: {error}",
            where=str(path),
            next_step="restore it from a backup",
        ) from error


def take_over_database(home: Path, owner: str) -> None:
    """Make the database of the setting ``database`` the database of a new registry in ``home``.

    Raises:
        InvalidInputError: It is not set.
        RefusedError: The database is not of the registry with the id ``owner``.
        UnavailableError: The database cannot be used, or the decision cannot be written.
    """
    setting = read_setting("database")
    if setting is None:
        raise InvalidInputError(
            "the database of the registry was on a server; its current address is unknown",
            where=DATABASE_VARIABLE,
            next_step=f"restore its dump into an empty database with pg_restore, and set {DATABASE_VARIABLE}",
        )
    database = open_server(setting.text)
    try:
        if owner_of(database) != owner:
            raise RefusedError(
                "the database does not belong to the registry of the backup",
                where=database_location(database),
                next_step="first restore the dump of the backup into it with pg_restore",
            )
        write_decision(home / DATABASE_DECISION, {"database": database_location(database), "owner": owner})
    finally:
        database.dispose()


def check_database(database: "Engine", noted: "Head | None" = None) -> DatabaseReport:
    """Check the whole database: its schema, its pages, the chain of records and every record.

    Args:
        database: The database of a registry.
        noted: A head of the chain of records that was noted before.

    Raises:
        UnavailableError: The database cannot be used.
    """
    from benchlock.migrations.schema_check import (  # noqa: PLC0415
        METADATA,
        find_changes,
        list_text_limits,
    )

    return database_checks.check_database(database, METADATA, noted, find_changes, list_text_limits())


def describe_database(database: "Engine", home: Path) -> str:
    """Describe the kind and location of the database in words."""
    if database.dialect.name == "sqlite":
        return f"{DATABASE_FILE} in the registry's folder (a new registry can have one on a server: {DATABASE_VARIABLE}=postgresql://…)"
    version = ".".join(map(str, getattr(database.dialect, "server_version_info", ())))
    return f"PostgreSQL {version} at {database_location(database)} (set in {home / DATABASE_DECISION})"


def _open_first(home: Path, address: str, now: Callable[[], datetime], *, create: bool) -> "tuple[Engine, bool]":
    """Decide, unless another process did meanwhile; undo the decision if the database cannot be used."""
    before = read_database_decision(home)
    if before is None and (home / DATABASE_FILE).exists():
        raise _other_database_error(home, "its own folder")
    decision = before or DatabaseDecision(_address(address), create_owner_id())
    if before is None:
        write_decision(home / DATABASE_DECISION, {"database": decision.address, "owner": decision.owner})
    try:
        return _open_claimed(home, address, decision, now, create=create)
    except BaseException:
        if before is None:
            (home / DATABASE_DECISION).unlink()  # the lock hid it from every other process
        raise


def _open_claimed(
    home: Path, address: str | None, decision: DatabaseDecision, now: Callable[[], datetime], *, create: bool
) -> "tuple[Engine, bool]":
    database = _connect(home, address, decision)
    try:
        _prepare(database, home, create=create)
        return database, claim_database(database, decision.owner, now())
    except BaseException:
        database.dispose()
        raise


def _prepare(database: "Engine", home: Path, *, create: bool) -> bool:
    """Require today's schema, or create it in an empty database; return whether this call created it."""
    if not create:
        with read_transaction(database) as connection:
            if read_revision(connection) is None:
                raise _missing_registry_error(home)
    return prepare(database)


def _connect(home: Path, address: str | None, decision: DatabaseDecision) -> "Engine":
    if address and _address(address) != decision.address:
        raise _other_database_error(home, decision.address)
    return open_server(address or decision.address)


def _address(text: str) -> str:
    """Return the address of a database without its password."""
    database = open_server(text)
    try:
        return database_location(database)
    finally:
        database.dispose()


def _missing_registry_error(home: Path) -> RegistryNotFoundError:
    step = "set its folder with --registry or BENCHLOCK_REGISTRY; `benchlock db create` creates a new one"
    if re.fullmatch(r".+:\d+", home.name):
        step = f"for a service write http://{home.name} (https:// on another machine); else {step}"
    return RegistryNotFoundError("no registry found", where=str(home), next_step=step)


def _other_database_error(home: Path, has: str) -> InvalidInputError:
    return InvalidInputError(
        f"{DATABASE_VARIABLE} is another database; the registry in {home} has {has}",
        where=DATABASE_VARIABLE,
        next_step=f"unset {DATABASE_VARIABLE}, or create another registry with --registry",
    )
