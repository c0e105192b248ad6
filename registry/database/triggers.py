"""Triggers that make tables append-only and limit the bytes of texts, on SQLite and PostgreSQL.

No client can change an existing row of an append-only table: UPDATE, DELETE, TRUNCATE, MERGE, and an INSERT that
replaces a row are refused. Rows that would be added to a sealed record are refused as well, such as further files of a
published version or further metrics of an ended run. A table requests these triggers in its ``info``: ``{"append_only":
True}``, and ``{"sealed_by": TABLE}`` if a row of TABLE, referenced by the foreign key, seals its rows.

On SQLite, a replaced row (``OR REPLACE``, an upsert) fires no delete trigger. A trigger before INSERT therefore looks
for the primary key and for every other unique key.

On PostgreSQL, unique keys need no trigger: an INSERT over an existing key fails, does nothing, or is an UPDATE, which
is refused. A record must not grow while another transaction seals it either, because neither would see the other's row.
An INSERT into a guarded table therefore takes the writer's advisory lock until the transaction ends; a transaction of
``write_transaction`` holds it from its start. The next writer waits and then sees the seal. If its view of the database
is older than the seal, the deferred foreign key to the sealing row fails at the commit. The triggers fire for replicas
too (``session_replication_role``), and a temporary table cannot replace the sealing table.

No client can store a text beyond its limit. The triggers ignore rows that were too long before they existed, which a
check constraint of SQLite would not: such rows stay readable, and their other columns can be updated.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from sqlalchemy import Connection, MetaData, Table, UniqueConstraint, text

REFUSAL = "append-only"


@dataclass(frozen=True, slots=True)
class Seal:
    """The sealing row: its table, and pairs of (column of the sealed table, column of the sealing table)."""

    table: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """The protection of an append-only table: its name, its unique keys, and its seal."""

    table: str
    keys: tuple[tuple[str, ...], ...]
    seal: Seal | None = None

    def trigger(self, event: str) -> str:
        """Return the name of the trigger for an event."""
        return f"guard_{self.table}_{event}"


def row_exists(table: str, columns: tuple[tuple[str, str], ...]) -> str:
    """Return the condition that ``table`` has a row with the new row's values.

    Args:
        table: The table to search.
        columns: Pairs of (column of the new row, column of ``table``).
    """
    match = " AND ".join(f"{theirs} = NEW.{ours}" for ours, theirs in columns)
    return f"EXISTS (SELECT 1 FROM {table} WHERE {match})"  # noqa: S608 - names of our own tables


def sqlite_triggers(guard: Guard) -> Mapping[str, str]:
    """Return the statements that create the triggers of a guard on SQLite, by trigger name."""
    statements = {
        "update": _trigger(guard, "update", "UPDATE", None),
        "delete": _trigger(guard, "delete", "DELETE", None),
        "replace": _trigger(guard, "replace", "INSERT", _key_exists(guard)),
    }
    if guard.seal:
        statements["sealed"] = _trigger(guard, "sealed", "INSERT", row_exists(guard.seal.table, guard.seal.columns))
    return {guard.trigger(event): statement for event, statement in statements.items()}


def find_missing_sqlite_triggers(connection: Connection, guards: Iterable[Guard]) -> tuple[str, ...]:
    """Return the names of triggers that an SQLite database lacks or has in another form."""
    rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
    present = {row.name: row.sql for row in rows}
    expected = {name: sql for guard in guards for name, sql in sqlite_triggers(guard).items()}
    return tuple(name for name, sql in expected.items() if present.get(name) != sql)


def _key_exists(guard: Guard) -> str:
    return " OR ".join(row_exists(guard.table, tuple(zip(key, key, strict=True))) for key in guard.keys)


def _trigger(guard: Guard, event: str, verb: str, condition: str | None) -> str:
    when = f" WHEN {condition}" if condition else ""
    return (
        f"CREATE TRIGGER {guard.trigger(event)} BEFORE {verb} ON {guard.table} FOR EACH ROW{when} "
        f"BEGIN SELECT RAISE(ABORT, '{guard.table} is {REFUSAL}'); END"
    )


WRITER = 0x62656E63686C6F63
"""Key of the advisory lock of the only writing transaction: "benchloc" in ASCII."""

_ROW, _BEFORE, _INSERT, _DELETE, _UPDATE, _TRUNCATE = (1 << bit for bit in range(6))
_REFUSE = (
    f"RAISE EXCEPTION '% is {REFUSAL}', TG_TABLE_NAME "
    "USING ERRCODE = 'integrity_constraint_violation', TABLE = TG_TABLE_NAME;"
)
_PATH = "SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true)"
_FOUND = """
SELECT tgname, relname, tgtype, prosrc
FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_proc ON pg_proc.oid = tgfoid
WHERE relnamespace = current_schema()::regnamespace AND proname = tgname AND tgenabled = 'A' AND tgqual IS NULL
AND tgattr = '' AND proconfig = ARRAY['search_path=' || quote_ident(current_schema()) || ', pg_temp']
"""


@dataclass(frozen=True, slots=True)
class _Trigger:
    """A trigger on PostgreSQL: its events in SQL and as the bits of ``pg_trigger.tgtype``, and its function body."""

    name: str
    table: str
    when: str
    each: str
    kind: int
    body: str

    def statements(self) -> Iterator[tuple[str, str]]:
        function = f"CREATE OR REPLACE FUNCTION {self.name}() RETURNS trigger LANGUAGE plpgsql"
        yield f"{self.name}()", f"{function} SET search_path FROM CURRENT AS $${self.body}$$"
        trigger = f"CREATE TRIGGER {self.name} BEFORE {self.when} ON {self.table} FOR EACH {self.each}"
        yield self.name, f"{trigger} EXECUTE FUNCTION {self.name}()"
        yield f"{self.name} always", f"ALTER TABLE {self.table} ENABLE ALWAYS TRIGGER {self.name}"


def postgresql_triggers(guard: Guard) -> Mapping[str, str]:
    """Return the statements that create the triggers of a guard on PostgreSQL, each with a unique name."""
    return {"search path": _PATH} | dict(chain.from_iterable(trigger.statements() for trigger in _triggers(guard)))


def postgresql_cleanup_statements(guard: Guard) -> tuple[str, ...]:
    """Return the statements that remove the trigger functions after the table was dropped."""
    return tuple(f"DROP FUNCTION {trigger.name}()" for trigger in _triggers(guard))


def find_missing_postgresql_triggers(connection: Connection, guards: Iterable[Guard]) -> tuple[str, ...]:
    """Return the names of triggers that a PostgreSQL database lacks or has in another form."""
    present = {tuple(row) for row in connection.execute(text(_FOUND))}
    expected = chain.from_iterable(_triggers(guard) for guard in guards)
    return tuple(
        trigger.name for trigger in expected if (trigger.name, trigger.table, trigger.kind, trigger.body) not in present
    )


def _triggers(guard: Guard) -> Iterator[_Trigger]:
    def trigger(event: str, when: str, kind: int, body: str) -> _Trigger:
        each = "ROW" if kind & _ROW else "STATEMENT"
        return _Trigger(guard.trigger(event), guard.table, when, each, kind | _BEFORE, f"BEGIN {body} END")

    yield trigger("change", "UPDATE OR DELETE", _ROW | _UPDATE | _DELETE, _REFUSE)
    yield trigger("truncate", "TRUNCATE", _TRUNCATE, _REFUSE)
    yield trigger("alone", "INSERT", _INSERT, f"PERFORM pg_advisory_xact_lock({WRITER}); RETURN NULL;")
    if guard.seal:
        sealed = row_exists(guard.seal.table, guard.seal.columns)
        yield trigger("sealed", "INSERT", _ROW | _INSERT, f"IF {sealed} THEN {_REFUSE} END IF; RETURN NEW;")


__all__ = [
    "REFUSAL",
    "Guard",
    "Seal",
    "cleanup_statements",
    "find_missing_triggers",
    "list_guards",
    "trigger_statements",
]


def list_guards(metadata: MetaData) -> tuple[Guard, ...]:
    """Return the guard of every append-only table of ``metadata``."""
    return tuple(
        Guard(table.name, _unique_keys(table), _seal(table))
        for table in metadata.sorted_tables
        if table.info.get("append_only")
    )


def trigger_statements(guard: Guard, dialect: str) -> Mapping[str, str]:
    """Return the statements that create the triggers of a guard, in order, each with a unique name."""
    return sqlite_triggers(guard) if dialect == "sqlite" else postgresql_triggers(guard)


def cleanup_statements(guard: Guard, dialect: str) -> tuple[str, ...]:
    """Return the statements that remove the rest of a guard after its table and triggers were dropped."""
    return () if dialect == "sqlite" else postgresql_cleanup_statements(guard)


def find_missing_triggers(connection: Connection, guards: Iterable[Guard]) -> tuple[str, ...]:
    """Return the names of triggers that the database lacks or has in another form."""
    find_missing = (
        find_missing_sqlite_triggers if connection.dialect.name == "sqlite" else find_missing_postgresql_triggers
    )
    return find_missing(connection, guards)


def _unique_keys(table: Table) -> tuple[tuple[str, ...], ...]:
    constraints = [tuple(c.columns.keys()) for c in table.constraints if isinstance(c, UniqueConstraint)]
    indexes = [tuple(index.columns.keys()) for index in table.indexes if index.unique]
    return (tuple(table.primary_key.columns.keys()), *sorted(constraints + indexes))


def _seal(table: Table) -> Seal | None:
    sealing = table.info.get("sealed_by")
    if sealing is None:
        return None
    (key,) = (key for key in table.foreign_key_constraints if key.referred_table.name == sealing)
    return Seal(sealing, tuple((element.parent.name, element.column.name) for element in key.elements))


MARK: Final = "bytes of text are the limit"
"""The end of every message, such as ``run_ends.failure_message: 16384 bytes of text are the limit``."""

_ALWAYS: Final = "SELECT tgname, prosrc FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid WHERE tgenabled = 'A'"


@dataclass(frozen=True, slots=True)
class TextLimits:
    """The columns of a table with their limits in bytes of UTF-8."""

    table: str
    columns: tuple[tuple[str, int], ...]

    @property
    def trigger(self) -> str:
        """The name of the trigger."""
        return f"limit_{self.table}"


def limit_trigger_statements(limits: TextLimits, dialect: str) -> Mapping[str, str]:
    """Return the statements that create the limit triggers of a table, in order, each with a unique name."""
    return dict(_sqlite(limits) if dialect == "sqlite" else _postgresql(limits))


def limit_cleanup_statements(limits: TextLimits, dialect: str) -> tuple[str, ...]:
    """Return the statements that remove the limit triggers from a table that stays."""
    if dialect == "sqlite":
        return tuple(f"DROP TRIGGER {name}" for name in dict(_sqlite(limits)))
    return (f"DROP TRIGGER {limits.trigger} ON {limits.table}", f"DROP FUNCTION {limits.trigger}()")


def find_missing_limit_triggers(connection: Connection, text_limits: Iterable[TextLimits]) -> tuple[str, ...]:
    """Return the names of limit triggers that the database lacks or has in another form."""
    if connection.dialect.name == "sqlite":
        rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
        expected = {name: sql for limits in text_limits for name, sql in _sqlite(limits)}
    else:
        rows = connection.execute(text(_ALWAYS))
        expected = {limits.trigger: _body(limits) for limits in text_limits}
    present = {row[0]: row[1] for row in rows}
    return tuple(name for name, content in expected.items() if present.get(name) != content)


def _sqlite(limits: TextLimits) -> Iterator[tuple[str, str]]:
    """Yield the limit triggers for SQLite. They cast texts to BLOB: ``octet_length`` needs SQLite 3.43."""
    insert = _cases(limits, "")
    yield from _limit_trigger(limits, "insert", "INSERT", insert)
    columns = ", ".join(f'"{column}"' for column, _ in limits.columns)
    yield from _limit_trigger(
        limits, "update", f"UPDATE OF {columns}", _cases(limits, ' AND NEW."{0}" IS NOT OLD."{0}"')
    )


def _cases(limits: TextLimits, more: str) -> str:
    return " ".join(
        f'WHEN length(CAST(NEW."{column}" AS BLOB)) > {most}{more.format(column)} '
        f"THEN RAISE(ABORT, '{_refusal(limits.table, column, most)}')"
        for column, most in limits.columns
    )


def _limit_trigger(limits: TextLimits, event: str, when: str, cases: str) -> Iterator[tuple[str, str]]:
    name = f"{limits.trigger}_{event}"
    yield name, f"CREATE TRIGGER {name} BEFORE {when} ON {limits.table} FOR EACH ROW BEGIN SELECT CASE {cases} END; END"


def _postgresql(limits: TextLimits) -> Iterator[tuple[str, str]]:
    name, columns = limits.trigger, ", ".join(f'"{column}"' for column, _ in limits.columns)
    function = f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql"
    yield f"{name}()", f"{function} AS $${_body(limits)}$$"
    trigger = f"CREATE TRIGGER {name} BEFORE INSERT OR UPDATE OF {columns} ON {limits.table}"
    yield name, f"{trigger} FOR EACH ROW EXECUTE FUNCTION {name}()"
    yield f"{name} always", f"ALTER TABLE {limits.table} ENABLE ALWAYS TRIGGER {name}"


def _body(limits: TextLimits) -> str:
    checks = " ".join(
        f'IF octet_length(NEW."{column}"::text) > {most} '
        f'AND (TG_OP = \'INSERT\' OR NEW."{column}"::text IS DISTINCT FROM OLD."{column}"::text) THEN '
        f"RAISE EXCEPTION '{_refusal(limits.table, column, most)}' "
        f"USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME; END IF;"
        for column, most in limits.columns
    )
    return f"BEGIN {checks} RETURN NEW; END"


def _refusal(table: str, column: str, most: int) -> str:
    return f"{table}.{column}: {most} {MARK}"
