"""Upgrades and downgrades of the database schema of an existing registry.

Both take a backup first. SQLite's file is copied within the write transaction that changes it, so the copy is exactly
the state before the change. A database on a server is backed up by its owner, who confirms the backup.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchlock.api.local.registry_database import DATABASE_FILE, open_existing
from benchlock.api.local.running_services import exclude_services, require_no_service
from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.errors import InvalidInputError, RefusedError, UnavailableError
from benchlock.migrations import (
    HEAD,
    downgrade_within,
    list_revisions,
    record_statements,
    upgrade_within,
)
from benchlock.registry.database.engine import (
    database_location,
    read_revision,
    read_transaction,
    require_revision,
    write_transaction,
)
from benchlock.registry.database.sqlite import copy_into

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A change of the schema: the revisions before and after, and the backup of SQLite's file, if one was made."""

    before: str | None
    after: str
    backup: Path | None = None

    @property
    def is_needed(self) -> bool:
        """Return whether the revisions differ."""
        return self.before != self.after


def current_revision(home: Path) -> str | None:
    """Read the revision of the registry in ``home``.

    Raises:
        BenchlockError: As ``open_existing``.
    """
    with _open_database(home) as database, read_transaction(database) as connection:
        return read_revision(connection)


def schema_differences(home: Path) -> list[str]:
    """List what differs between the database and the schema that this build needs.

    Raises:
        SchemaRevisionError: The database has another revision than this build needs.
        BenchlockError: As ``open_existing``.
    """
    from benchlock.migrations.schema_check import list_differences  # noqa: PLC0415 - alembic takes half a second to import

    with _open_database(home) as database, read_transaction(database) as connection:
        require_revision(read_revision(connection), HEAD, database_location(database))
        return list_differences(connection)


def upgrade_statements(home: Path) -> list[str]:
    """List the SQL statements of an upgrade, which is executed and rolled back.

    Raises:
        BenchlockError: As ``upgrade_registry``.
    """
    with _open_database(home) as database, _exclude_services(home, database), write_transaction(database) as connection:
        _refuse_newer(read_revision(connection), database)
        with record_statements(connection) as statements:
            upgrade_within(connection)
        connection.rollback()
    return statements


def upgrade_registry(home: Path, now: Callable[[], datetime], *, backup_made: bool) -> SchemaChange:
    """Upgrade the schema of a registry to the revision of this build, in one transaction.

    Args:
        home: The folder of the registry.
        now: The clock, for the name of the backup.
        backup_made: Whether the caller has a backup, so that none is made.

    Raises:
        SchemaRevisionError: The database has a newer revision than this build.
        RefusedError: A service has the registry.
        InvalidInputError: The database is on a server, and the caller did not confirm a backup.
        UnavailableError: The database or the backup's file cannot be used; nothing was changed.
        BenchlockError: As ``open_existing``.
    """
    with _open_database(home) as database, _exclude_services(home, database), write_transaction(database) as connection:
        before = read_revision(connection)
        _refuse_newer(before, database)
        if before == HEAD:
            return SchemaChange(before, HEAD)
        change = SchemaChange(before, HEAD, _back_up(connection, home, now(), backup_made=backup_made or not before))
        upgrade_within(connection)
    return change


def downgrade_registry(home: Path, target: str, now: Callable[[], datetime], *, backup_made: bool) -> SchemaChange:
    """Downgrade the schema of a registry to an older revision, in one transaction.

    Args:
        home: The folder of the registry.
        target: A revision that is older than the database's.
        now: The clock, for the name of the backup.
        backup_made: Whether the caller has a backup, so that none is made.

    Raises:
        InvalidInputError: ``target`` is unknown or newer than the database; or as ``upgrade_registry``.
        BenchlockError: As ``upgrade_registry``.
    """
    revisions = list_revisions()
    with _open_database(home) as database, _exclude_services(home, database), write_transaction(database) as connection:
        before = read_revision(connection)
        _refuse_newer(before, database)
        if target not in revisions or before is None or target > before:
            raise InvalidInputError(
                f"cannot downgrade from revision {before} to {target!r}",
                where="--to",
                next_step=f"choose one of {', '.join(entry for entry in revisions if before and entry <= before)}",
            )
        if before == target:
            return SchemaChange(before, target)
        change = SchemaChange(before, target, _back_up(connection, home, now(), backup_made=backup_made))
        downgrade_within(connection, target)
    return change


@contextmanager
def _open_database(home: Path) -> "Iterator[Engine]":
    database = open_existing(home)
    try:
        yield database
    finally:
        database.dispose()


@contextmanager
def _exclude_services(home: Path, database: "Engine") -> Iterator[None]:
    """Require that no service has the registry; on SQLite, keep services away meanwhile."""
    if database.dialect.name == "sqlite":
        with exclude_services(home):
            yield
        return
    require_no_service(database)
    yield


def _refuse_newer(revision: str | None, database: "Engine") -> None:
    if revision is not None and revision > HEAD:
        require_revision(revision, HEAD, database_location(database))


def _back_up(connection: "Connection", home: Path, at: datetime, *, backup_made: bool) -> Path | None:
    """Copy SQLite's file into the registry's home, unless the caller has a backup."""
    if backup_made:
        return None
    database = connection.engine
    if database.dialect.name != "sqlite":
        place = database_location(database)
        raise InvalidInputError(
            "a backup of the database is not confirmed",
            where=place,
            next_step=f"create one (pg_dump --format=custom --file=FILE {place}), then add --backup-made",
        )
    copy = home / f"registry-{read_revision(connection)}-{at:%Y%m%dT%H%M%SZ}.sqlite"
    if copy.exists():
        raise RefusedError("the backup's file exists already", where=str(copy), next_step="try again in a second")
    try:
        with create_file(copy, durably=True) as file:
            copy_into(database, Path(file.name))
            shutil.copymode(home / DATABASE_FILE, file.name)
    except OSError as error:
        raise UnavailableError(
            f"the backup cannot be written: {error.strerror or error}",
            where=str(copy),
            next_step="free disk space, or create a backup elsewhere and add --backup-made; nothing was changed",
        ) from error
    return copy
