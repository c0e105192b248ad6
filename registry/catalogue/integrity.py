"""The check of a whole database: by its own means, then every record against the chain of records."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Engine, MetaData

from benchlock.artifacts.errors import IntegrityError, UnavailableError
from benchlock.registry.catalogue import check_postgresql, check_sqlite, text_limits
from benchlock.registry.catalogue.chain import (
    BATCH,
    Head,
    RecordKind,
    find_differences,
    find_missing,
    in_batches,
    read_head,
    read_records,
    record_kinds,
    walk_chain,
)
from benchlock.registry.catalogue.damage import RESTORE, RESTORE_NOW, damage_error
from benchlock.registry.catalogue.database import reading
from benchlock.registry.catalogue.guards import guards, missing
from benchlock.registry.catalogue.text_limits import TextLimits

MOST: Final = 100
"""Errors that are reported of one kind of check: a damaged page may hold a thousand records."""

Find = Callable[[Connection], Iterator[str]]
_Check = Callable[[Connection], Iterator[IntegrityError]]


@dataclass(frozen=True, slots=True)
class DatabaseReport:
    """What a check of the whole database found: how many records are chained, the head, and all damage."""

    head: Head | None
    damaged: tuple[IntegrityError, ...]


def check_database(
    engine: Engine,
    metadata: MetaData,
    noted: Head | None = None,
    find_changes: Find | None = None,
    limits: Iterable[TextLimits] = (),
) -> DatabaseReport:
    """Check the schema with its guards, the database by its own means, the chain of records and every record.

    Args:
        engine: The database.
        metadata: All tables of the schema.
        noted: A head of the chain that was noted before, which must still be in it.
        find_changes: What finds the changes of the schema, for this module knows none of the revisions.
        limits: The limits of texts that the database has to enforce.
    """

    def check_schema(connection: Connection) -> Iterator[IntegrityError]:
        changes = tuple(find_changes(connection)) if find_changes else ()
        yield from map(damage_error, changes)
        for one in (*missing(connection, guards(metadata)), *text_limits.missing(connection, limits)):
            if not any(change.startswith(f"the trigger {one} is ") for change in changes):
                yield damage_error(f"the trigger {one} is missing or changed")

    checks: list[_Check] = [
        check_schema,
        check_storage,
        lambda connection: walk_chain(connection, noted),
        *(_check_kind(kind) for kind in record_kinds(metadata)),
    ]
    faults: list[IntegrityError] = []
    for check in checks:
        try:
            faults += _collect(engine, check)
        except UnavailableError as error:  # of a database that is damaged, too: a table has lost a column, say
            if not faults:
                raise
            faults.append(damage_error(error.what, error.where))
    head = None
    with suppress(IntegrityError), reading(engine) as connection:
        head = read_head(connection)
    return DatabaseReport(head, tuple(_distinct(faults)))


def _distinct(faults: Iterable[IntegrityError]) -> Iterator[IntegrityError]:
    """Yield each fault once, with a next step that fits a report of all damage."""
    for fault in {(one.what, one.where): one for one in faults}.values():
        if fault.next_step == RESTORE:
            fault.next_step = RESTORE_NOW
        yield fault


def check_storage(connection: Connection) -> Iterator[IntegrityError]:
    """Yield what the database itself finds damaged: pages, indexes, foreign keys."""
    own = check_sqlite if connection.dialect.name == "sqlite" else check_postgresql
    return map(damage_error, own.find_damage(connection))


def find_storage_damage(engine: Engine) -> tuple[IntegrityError, ...]:
    """Return what ``check_storage`` finds in the database ``engine``."""
    return tuple(_collect(engine, check_storage))


def describe_checks(engine: Engine) -> tuple[str, ...]:
    """Return what the database itself does about damage, and what it lacks with the next step."""
    return check_postgresql.describe_checks(engine) if engine.dialect.name == "postgresql" else ()


def _check_kind(kind: RecordKind) -> _Check:
    def check(connection: Connection) -> Iterator[IntegrityError]:
        for batch in in_batches(read_records(connection, kind), BATCH):
            digests = {(kind.name, key): digest for key, digest in batch}
            yield from find_differences(connection, (kind.name,), [key for key, _ in batch], digests)
        yield from find_missing(connection, kind)

    return check


def _collect(engine: Engine, check: _Check) -> Iterator[IntegrityError]:
    """Yield what a check finds, ``MOST`` errors at most; that it cannot be finished is an error, too."""
    try:
        with reading(engine) as connection:
            yield from _first(check(connection), MOST)
    except IntegrityError as error:
        yield error


def _first(faults: Iterable[IntegrityError], most: int) -> Iterator[IntegrityError]:
    for count, fault in enumerate(faults):
        if count == most:
            yield damage_error(f"more than {most} errors of this kind")
            return
        yield fault
