"""The triggers that let nobody change rows of append-only tables, nor add rows to what another row has sealed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

_REFUSAL: Final = "append-only"
_WRITER: Final = 0x62656E63686C6F63
"""The advisory lock of the only transaction on PostgreSQL that writes."""
_REFUSE: Final = (
    f"RAISE EXCEPTION '% is {_REFUSAL}', TG_TABLE_NAME "
    "USING ERRCODE = 'integrity_constraint_violation', TABLE = TG_TABLE_NAME;"
)
_PATH: Final = "SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true)"


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
        """Return the name of one of its triggers."""
        return f"guard_{self.table}_{event}"


def triggers(guard: Guard, dialect: str) -> Mapping[str, str]:
    """Return the statements that make the triggers, to be executed in their order; each by a name of its own."""
    if dialect == "sqlite":
        return _sqlite(guard)
    statements = (_postgresql_statements(guard, *one) for one in _postgresql(guard))
    return {"search path": _PATH} | dict(chain.from_iterable(statements))


def leftovers(guard: Guard, dialect: str) -> tuple[str, ...]:
    """Return the statements that remove what is left of the guard when its table, and so its triggers, are dropped."""
    if dialect == "sqlite":
        return ()
    return tuple(f"DROP FUNCTION {guard.trigger(event)}()" for event, *_ in _postgresql(guard))


def _sqlite(guard: Guard) -> dict[str, str]:
    keys = " OR ".join(_row_exists(guard.table, tuple(zip(key, key, strict=True))) for key in guard.keys)
    made = {
        "update": _sqlite_trigger(guard, "update", "UPDATE", None),
        "delete": _sqlite_trigger(guard, "delete", "DELETE", None),
        "replace": _sqlite_trigger(guard, "replace", "INSERT", keys),
    }
    if guard.seal:
        made["sealed"] = _sqlite_trigger(guard, "sealed", "INSERT", _row_exists(guard.seal.table, guard.seal.columns))
    return {guard.trigger(event): statement for event, statement in made.items()}


def _sqlite_trigger(guard: Guard, event: str, verb: str, condition: str | None) -> str:
    when = f" WHEN {condition}" if condition else ""
    return (
        f"CREATE TRIGGER {guard.trigger(event)} BEFORE {verb} ON {guard.table} FOR EACH ROW{when} "
        f"BEGIN SELECT RAISE(ABORT, '{guard.table} is {_REFUSAL}'); END"
    )


def _postgresql(guard: Guard) -> Iterator[tuple[str, str, str, str]]:
    """Yield the triggers: event, when they fire, for each what, and what their function does."""
    yield "change", "UPDATE OR DELETE", "ROW", _REFUSE
    yield "truncate", "TRUNCATE", "STATEMENT", _REFUSE
    yield "alone", "INSERT", "STATEMENT", f"PERFORM pg_advisory_xact_lock({_WRITER}); RETURN NULL;"
    if guard.seal:
        sealed = _row_exists(guard.seal.table, guard.seal.columns)
        yield "sealed", "INSERT", "ROW", f"IF {sealed} THEN {_REFUSE} END IF; RETURN NEW;"


def _postgresql_statements(guard: Guard, event: str, when: str, each: str, body: str) -> Iterator[tuple[str, str]]:
    name = guard.trigger(event)
    function = f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql"
    yield f"{name}()", f"{function} SET search_path FROM CURRENT AS $$BEGIN {body} END$$"
    trigger = f"CREATE TRIGGER {name} BEFORE {when} ON {guard.table} FOR EACH {each}"
    yield name, f"{trigger} EXECUTE FUNCTION {name}()"
    yield f"{name} always", f"ALTER TABLE {guard.table} ENABLE ALWAYS TRIGGER {name}"


def _row_exists(table: str, columns: tuple[tuple[str, str], ...]) -> str:
    match = " AND ".join(f"{theirs} = NEW.{ours}" for ours, theirs in columns)
    return f"EXISTS (SELECT 1 FROM {table} WHERE {match})"  # noqa: S608 - names of our own tables
