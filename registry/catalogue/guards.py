"""How the database itself refuses to change what is published: triggers, made from a description of each table.

Three statements can change a row: UPDATE, DELETE, and an INSERT that replaces (``OR REPLACE``, an upsert). On SQLite a
replaced row fires no delete trigger, so a trigger before INSERT looks for the key, and for every other unique key,
itself. A fourth trigger refuses rows that would be added to something sealed: to a version already published, to a run
already ended.

A table asks for it in its ``info``: ``{"append_only": True}``, and ``{"sealed_by": TABLE}`` where the row of TABLE
that its foreign key names ends what may be added.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, MetaData, Table, UniqueConstraint, text

from artifacts.errors import UnavailableError

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


def guards(metadata: MetaData) -> tuple[Guard, ...]:
    """The guard of every append-only table of ``metadata``."""
    return tuple(
        Guard(table.name, _unique_keys(table), _seal(table))
        for table in metadata.sorted_tables
        if table.info.get("append_only")
    )


def triggers(guard: Guard, dialect: str) -> Mapping[str, str]:
    """The statements that make the guard's triggers, by the triggers' names.

    Raises:
        UnavailableError: the dialect has no form of them yet.
    """
    if dialect != "sqlite":
        raise UnavailableError(f"no guards are written for {dialect}", next_step="use a SQLite registry")
    made = {
        "update": _sqlite_trigger(guard, "update", "UPDATE", None),
        "delete": _sqlite_trigger(guard, "delete", "DELETE", None),
        "replace": _sqlite_trigger(guard, "replace", "INSERT", _key_exists(guard)),
    }
    if guard.seal:
        made["sealed"] = _sqlite_trigger(guard, "sealed", "INSERT", _row_exists(guard.seal.table, guard.seal.columns))
    return {_name(guard, event): statement for event, statement in made.items()}


def missing(connection: Connection, wanted: Iterable[Guard]) -> tuple[str, ...]:
    """The names of the triggers that the database lacks, or has in another form."""
    rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
    found = {row.name: row.sql for row in rows}
    expected = {name: sql for guard in wanted for name, sql in triggers(guard, connection.dialect.name).items()}
    return tuple(name for name, sql in expected.items() if found.get(name) != sql)


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


def _name(guard: Guard, event: str) -> str:
    return f"guard_{guard.table}_{event}"


def _key_exists(guard: Guard) -> str:
    return " OR ".join(_row_exists(guard.table, tuple(zip(key, key, strict=True))) for key in guard.keys)


def _row_exists(table: str, columns: Iterable[tuple[str, str]]) -> str:
    match = " AND ".join(f"{theirs} = NEW.{ours}" for ours, theirs in columns)
    return f"EXISTS (SELECT 1 FROM {table} WHERE {match})"  # noqa: S608 - names of our own tables


def _sqlite_trigger(guard: Guard, event: str, verb: str, condition: str | None) -> str:
    when = f" WHEN {condition}" if condition else ""
    return (
        f"CREATE TRIGGER {_name(guard, event)} BEFORE {verb} ON {guard.table} FOR EACH ROW{when} "
        f"BEGIN SELECT RAISE(ABORT, '{guard.table} is {REFUSAL}'); END"
    )
