"""Triggers that make tables append-only and limit the bytes of texts, on SQLite and PostgreSQL.

A replaced row (``OR REPLACE``, an upsert) fires no delete trigger there, so a trigger before INSERT looks for the key,
and for every other unique key, itself.

Unique keys need none of them: an INSERT over one fails, does nothing, or is an UPDATE, which is refused.

What is sealed must not grow while another transaction seals it, either: neither would see the other's row. So whoever
inserts into a guarded table is the only one who does, until the transaction ends; ``writing`` is it from its start, and
loses nothing. Whoever comes after waits, and then sees the seal: in a view of the database that is older than it, the
deferred foreign key to the sealing row fails at the commit.

The triggers fire for those too who ask for the ways of a replica (``session_replication_role``), and nobody's temporary
table stands in for the one that seals.

No statement changes a row that is there, whoever sends it: UPDATE, DELETE, TRUNCATE, MERGE, and an INSERT that replaces
are refused. Rows that would be added to something sealed are too: to a version already published, to a run already
ended. ``guards_sqlite`` and ``guards_postgresql`` say how.

A table asks for it in its ``info``: ``{"append_only": True}``, and ``{"sealed_by": TABLE}`` where the row of TABLE
that its foreign key names ends what may be added.

No statement stores a longer text, whoever sends it. Triggers leave rows alone that are longer already, as no check
constraint of SQLite does: such rows stay readable, and columns beside the long one can be updated.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from sqlalchemy import Connection, MetaData, Table, UniqueConstraint, text

REFUSAL = "append-only"


@dataclass(frozen=True, slots=True)
class Seal:
    """The row that ends what may be added: its table, and pairs of (this table's column, that table's column)."""

    table: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """An append-only table: its name, its unique keys, and what seals it."""

    table: str
    keys: tuple[tuple[str, ...], ...]
    seal: Seal | None = None

    def trigger(self, event: str) -> str:
        """The name of one of its triggers."""
        return f"guard_{self.table}_{event}"


def row_exists(table: str, columns: tuple[tuple[str, str], ...]) -> str:
    """The condition that a row of ``table`` has the new row's values: pairs of (the new row's column, the table's)."""
    match = " AND ".join(f"{theirs} = NEW.{ours}" for ours, theirs in columns)
    return f"EXISTS (SELECT 1 FROM {table} WHERE {match})"  # noqa: S608 - names of our own tables


def sqlite_triggers(guard: Guard) -> Mapping[str, str]:
    made = {
        "update": _trigger(guard, "update", "UPDATE", None),
        "delete": _trigger(guard, "delete", "DELETE", None),
        "replace": _trigger(guard, "replace", "INSERT", _key_exists(guard)),
    }
    if guard.seal:
        made["sealed"] = _trigger(guard, "sealed", "INSERT", row_exists(guard.seal.table, guard.seal.columns))
    return {guard.trigger(event): statement for event, statement in made.items()}


def find_missing_sqlite_triggers(connection: Connection, wanted: Iterable[Guard]) -> tuple[str, ...]:
    rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
    found = {row.name: row.sql for row in rows}
    expected = {name: sql for guard in wanted for name, sql in sqlite_triggers(guard).items()}
    return tuple(name for name, sql in expected.items() if found.get(name) != sql)


def _key_exists(guard: Guard) -> str:
    return " OR ".join(row_exists(guard.table, tuple(zip(key, key, strict=True))) for key in guard.keys)


def _trigger(guard: Guard, event: str, verb: str, condition: str | None) -> str:
    when = f" WHEN {condition}" if condition else ""
    return (
        f"CREATE TRIGGER {guard.trigger(event)} BEFORE {verb} ON {guard.table} FOR EACH ROW{when} "
        f"BEGIN SELECT RAISE(ABORT, '{guard.table} is {REFUSAL}'); END"
    )


WRITER = 0x62656E63686C6F63
"""The advisory lock that the only transaction holds which writes: "benchloc"."""

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
    """One trigger: when it fires, in SQL and as the database says it, and what its function does."""

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
    return {"search path": _PATH} | dict(chain.from_iterable(one.statements() for one in _triggers(guard)))


def postgresql_cleanup_statements(guard: Guard) -> tuple[str, ...]:
    return tuple(f"DROP FUNCTION {one.name}()" for one in _triggers(guard))


def find_missing_postgresql_triggers(connection: Connection, wanted: Iterable[Guard]) -> tuple[str, ...]:
    found = {tuple(row) for row in connection.execute(text(_FOUND))}
    expected = chain.from_iterable(_triggers(guard) for guard in wanted)
    return tuple(one.name for one in expected if (one.name, one.table, one.kind, one.body) not in found)


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
    """The guard of every append-only table of ``metadata``."""
    return tuple(
        Guard(table.name, _unique_keys(table), _seal(table))
        for table in metadata.sorted_tables
        if table.info.get("append_only")
    )


def trigger_statements(guard: Guard, dialect: str) -> Mapping[str, str]:
    """The statements that make the guard's triggers, to be executed in their order; each by a name of its own."""
    return sqlite_triggers(guard) if dialect == "sqlite" else postgresql_triggers(guard)


def cleanup_statements(guard: Guard, dialect: str) -> tuple[str, ...]:
    """The statements that remove what is left of the guard when its table, and so its triggers, are dropped."""
    return () if dialect == "sqlite" else postgresql_cleanup_statements(guard)


def find_missing_triggers(connection: Connection, wanted: Iterable[Guard]) -> tuple[str, ...]:
    """The names of the triggers that the database lacks, or has in another form."""
    missing_there = (
        find_missing_sqlite_triggers if connection.dialect.name == "sqlite" else find_missing_postgresql_triggers
    )
    return missing_there(connection, wanted)


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
"""What every refusal says: ``run_ends.failure_message: 16384 bytes of text are the limit``."""

_ALWAYS: Final = "SELECT tgname, prosrc FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid WHERE tgenabled = 'A'"


@dataclass(frozen=True, slots=True)
class TextLimits:
    """The columns of a table with their limits, in bytes of UTF-8."""

    table: str
    columns: tuple[tuple[str, int], ...]

    @property
    def trigger(self) -> str:
        """Return the name of the trigger."""
        return f"limit_{self.table}"


def limit_trigger_statements(limits: TextLimits, dialect: str) -> Mapping[str, str]:
    """Return the statements that make the triggers of one table, in their order, each with its name."""
    return dict(_sqlite(limits) if dialect == "sqlite" else _postgresql(limits))


def limit_cleanup_statements(limits: TextLimits, dialect: str) -> tuple[str, ...]:
    """Return the statements that remove the triggers from a table that stays."""
    if dialect == "sqlite":
        return tuple(f"DROP TRIGGER {name}" for name in dict(_sqlite(limits)))
    return (f"DROP TRIGGER {limits.trigger} ON {limits.table}", f"DROP FUNCTION {limits.trigger}()")


def find_missing_limit_triggers(connection: Connection, wanted: Iterable[TextLimits]) -> tuple[str, ...]:
    """Return the names of the triggers that the database lacks, or has in another form."""
    if connection.dialect.name == "sqlite":
        rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
        expected = {name: sql for limits in wanted for name, sql in _sqlite(limits)}
    else:
        rows = connection.execute(text(_ALWAYS))
        expected = {limits.trigger: _body(limits) for limits in wanted}
    present = {row[0]: row[1] for row in rows}
    return tuple(name for name, content in expected.items() if present.get(name) != content)


def _sqlite(limits: TextLimits) -> Iterator[tuple[str, str]]:
    """Count the bytes of the text as it is stored: the function for it came with SQLite 3.43."""
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
