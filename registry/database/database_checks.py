"""Checks of a database: the registry that owns it, storage, triggers, and every record against the chain."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, Engine, MetaData, select, text

from benchlock.artifacts.errors import IntegrityError, RefusedError, UnavailableError
from benchlock.registry.database import triggers
from benchlock.registry.database.engine import (
    RESTORE,
    RESTORE_NOW,
    damage_error,
    database_location,
    read_transaction,
    write_transaction,
)
from benchlock.registry.database.record_chain import (
    BATCH,
    Head,
    RecordKind,
    find_differences,
    find_missing,
    in_batches,
    insert_record,
    read_head,
    read_records,
    record_kinds,
    walk_chain,
)
from benchlock.registry.database.registry_schema import owners
from benchlock.registry.database.triggers import TextLimits, find_missing_triggers, list_guards

_SOUND: Final = "ok"


def find_sqlite_damage(connection: Connection) -> Iterator[str]:
    """Yield the damage that SQLite reports: pages, the order of rows, indexes, constraints and foreign keys."""
    for finding in connection.exec_driver_sql("PRAGMA integrity_check").scalars():
        if finding != _SOUND:
            yield f"SQLite's integrity check: {finding}"
    for table, _, referred, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield f"SQLite's foreign key check: a row of {table} references a missing row of {referred}"


_INDEXES: Final = text("""
SELECT relations.relname AS held, indexes.relname AS searched, indexrelid AS id,
  pg_get_expr(indpred, indrelid) AS condition,
  ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = indrelid AND attnum = ANY(indkey)) AS columns
FROM pg_index
JOIN pg_class AS relations ON relations.oid = indrelid
JOIN pg_class AS indexes ON indexes.oid = indexrelid
WHERE relations.relnamespace = current_schema()::regnamespace AND relations.relkind = 'r'
ORDER BY 1, 2
""")
_TABLES: Final = text("""
SELECT oid AS id, relname FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' ORDER BY relname
""")
_AMCHECK: Final = text("""
SELECT (SELECT quote_ident(extnamespace::regnamespace::text) FROM pg_extension WHERE extname = 'amcheck') AS schema,
  (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS may_use
""")
_CHECKSUMS: Final = text("SELECT current_setting('data_checksums')::boolean")
_BY_INDEX: Final = ("seqscan", "bitmapscan", "tidscan", "hashjoin", "mergejoin", "material", "memoize")
"""The planner methods to switch off, so that queries search by an index."""


def find_postgresql_damage(connection: Connection) -> Iterator[str]:
    """Yield the damage in PostgreSQL: rows that an index does not find, and the findings of amcheck."""
    connection.exec_driver_sql("SET LOCAL jit = off")
    for kind in _BY_INDEX:
        connection.exec_driver_sql(f"SET LOCAL enable_{kind} = off")
    indexes = connection.execute(_INDEXES).all()
    for index in indexes:
        lost_rows = _count_lost(connection, index.held, index.columns, index.condition)
        if lost_rows:
            yield f"{lost_rows} rows of {index.held} are not found by the columns of {index.searched}"
    amcheck = connection.execute(_AMCHECK).one()
    if amcheck.schema is None or not amcheck.may_use:
        return
    schema = amcheck.schema
    for table in connection.execute(_TABLES).all():
        query = text(f"SELECT msg FROM {schema}.verify_heapam(CAST(:id AS oid)::regclass)")  # noqa: S608 - our own schema
        for finding in connection.execute(query, {"id": table.id}).scalars():
            yield f"amcheck of {table.relname}: {finding}"
    for index in indexes:
        query = text(f"SELECT {schema}.bt_index_check(CAST(:id AS oid)::regclass, true)")
        connection.execute(query, {"id": index.id})


def describe_postgresql_checks(engine: Engine) -> tuple[str, ...]:
    """Describe the server's own damage detection, with the next step for each part that is missing."""
    with read_transaction(engine) as connection:
        has_checksums = connection.execute(_CHECKSUMS).scalar()
        amcheck = connection.execute(_AMCHECK).one()
    if has_checksums:
        checksums = "page checksums are on"
    else:
        checksums = "page checksums are off: stop the server and run `pg_checksums --enable`, so that it detects damage"
    if amcheck.schema is None:
        return checksums, "not checked by amcheck: it is not installed (as a superuser: CREATE EXTENSION amcheck)"
    if not amcheck.may_use:
        return checksums, "not checked by amcheck: the user is not a superuser"
    return checksums, "checked by amcheck"


def _count_lost(connection: Connection, table: str, columns: Sequence[str], condition: str | None) -> int:
    """Count the rows that a search for their own values does not find. All rows are read without an index.

    Args:
        connection: A connection to PostgreSQL.
        table: The name of the table.
        columns: The columns of the index.
        condition: The condition of a partial index, in SQL.
    """
    quoted = [_quoted(connection, column) for column in columns]
    indexed = " AND ".join([f"{column} IS NOT NULL" for column in quoted] + ([condition] if condition else []))
    equal = " AND ".join(f"found.{column} = own.{column}" for column in quoted)
    all_rows = f"SELECT ctid AS place, * FROM {_quoted(connection, table)} TABLESAMPLE SYSTEM (100)"  # noqa: S608
    lookup = f"SELECT 1 FROM {_quoted(connection, table)} AS found WHERE {equal} AND found.ctid = own.place"  # noqa: S608
    query = f"SELECT count(*) FROM ({all_rows} WHERE {indexed} OFFSET 0) AS own WHERE NOT EXISTS ({lookup})"  # noqa: S608
    return int(connection.exec_driver_sql(query.replace("%", "%%")).scalar_one())


def _quoted(connection: Connection, identifier: str) -> str:
    return connection.dialect.identifier_preparer.quote(identifier)


MAX_FINDINGS: Final = 100
"""Maximum number of errors that one check reports: a damaged page may contain a thousand records."""

Find = Callable[[Connection], Iterator[str]]
_Check = Callable[[Connection], Iterator[IntegrityError]]


@dataclass(frozen=True, slots=True)
class DatabaseReport:
    """The result of a check of the whole database: the head of the chain, and all damage."""

    head: Head | None
    damaged: tuple[IntegrityError, ...]


def check_database(
    engine: Engine,
    metadata: MetaData,
    noted: Head | None = None,
    find_changes: Find | None = None,
    limits: Iterable[TextLimits] = (),
) -> DatabaseReport:
    """Check the schema and its triggers, the storage, the chain of records, and every record.

    Args:
        engine: The database.
        metadata: All tables of the schema.
        noted: A head of the chain that was noted earlier, which must still be in the chain.
        find_changes: Finds changes of the schema; this module does not know the revisions.
        limits: The limits of texts that the database must enforce.
    """

    def check_schema(connection: Connection) -> Iterator[IntegrityError]:
        changes = tuple(find_changes(connection)) if find_changes else ()
        yield from map(damage_error, changes)
        for trigger in (
            *find_missing_triggers(connection, list_guards(metadata)),
            *triggers.find_missing_limit_triggers(connection, limits),
        ):
            if not any(change.startswith(f"the trigger {trigger} is ") for change in changes):
                yield damage_error(f"the trigger {trigger} is missing or changed")

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
        except UnavailableError as error:  # damage can cause it, too, such as a table without one of its columns
            if not faults:
                raise
            faults.append(damage_error(error.what, error.where))
    head = None
    with suppress(IntegrityError), read_transaction(engine) as connection:
        head = read_head(connection)
    return DatabaseReport(head, tuple(_distinct(faults)))


def _distinct(faults: Iterable[IntegrityError]) -> Iterator[IntegrityError]:
    """Yield each fault once, with a next step that fits a report of all damage."""
    for fault in {(fault.what, fault.where): fault for fault in faults}.values():
        if fault.next_step == RESTORE:
            fault.next_step = RESTORE_NOW
        yield fault


def check_storage(connection: Connection) -> Iterator[IntegrityError]:
    """Yield the damage that the database itself detects: pages, indexes, foreign keys."""
    find_damage = find_sqlite_damage if connection.dialect.name == "sqlite" else find_postgresql_damage
    return map(damage_error, find_damage(connection))


def find_storage_damage(engine: Engine) -> tuple[IntegrityError, ...]:
    """Return the findings of ``check_storage`` for the database ``engine``."""
    return tuple(_collect(engine, check_storage))


def describe_checks(engine: Engine) -> tuple[str, ...]:
    """Describe the database's own damage detection, with the next step for each part that is missing."""
    return describe_postgresql_checks(engine) if engine.dialect.name == "postgresql" else ()


def _check_kind(kind: RecordKind) -> _Check:
    def check(connection: Connection) -> Iterator[IntegrityError]:
        for batch in in_batches(read_records(connection, kind), BATCH):
            digests = {(kind.name, key): digest for key, digest in batch}
            yield from find_differences(connection, (kind.name,), [key for key, _ in batch], digests)
        yield from find_missing(connection, kind)

    return check


def _collect(engine: Engine, check: _Check) -> Iterator[IntegrityError]:
    """Yield the findings of a check, at most ``MAX_FINDINGS``; damage that stops the check is a finding, too."""
    try:
        with read_transaction(engine) as connection:
            yield from _first(check(connection), MAX_FINDINGS)
    except IntegrityError as error:
        yield error


def _first(faults: Iterable[IntegrityError], most: int) -> Iterator[IntegrityError]:
    for count, fault in enumerate(faults):
        if count == most:
            yield damage_error(f"more than {most} errors of this kind")
            return
        yield fault


def claim_database(engine: Engine, registry: str, at: datetime) -> bool:
    """Make the registry ``registry`` the owner of the database; claiming it again changes nothing.

    Returns:
        Whether this call claimed it.

    Raises:
        RefusedError: The database belongs to another registry.
        UnavailableError: The database cannot be used.
    """
    with read_transaction(engine) as connection:
        current_owner = _owner(connection)
    if current_owner is None:
        with write_transaction(engine) as connection:
            current_owner = _owner(connection)
            if current_owner is None:
                insert_record(connection, owners, {"id": registry, "at": at})
                return True
    _refuse_other(engine, current_owner, registry)
    return False


def require_owner(engine: Engine, registry: str) -> None:
    """Require that the database belongs to ``registry`` or to nobody, whatever the revision of its schema.

    Raises:
        RefusedError: The database belongs to another registry.
        UnavailableError: The database cannot be used.
    """
    _refuse_other(engine, owner(engine), registry)


def _refuse_other(engine: Engine, current_owner: str | None, registry: str) -> None:
    if current_owner not in (None, registry):
        raise RefusedError(
            "the database belongs to another registry of benchlock",
            where=database_location(engine),
            next_step="use a separate database, or restore the folder of the registry that owns this one",
        )


def owner(engine: Engine) -> str | None:
    """Return the id of the registry that owns the database, or ``None`` if none does or the database is empty."""
    with read_transaction(engine) as connection:
        return _owner(connection) if connection.dialect.has_table(connection, owners.name) else None


def _owner(connection: Connection) -> str | None:
    registry: str | None = connection.execute(select(owners.c.id)).scalar()
    return registry
