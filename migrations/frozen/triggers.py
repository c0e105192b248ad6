"""Triggers that make tables append-only, and that reject texts over the limit of their column."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

_REFUSAL: Final = "append-only"
_WRITER: Final = 0x62656E63686C6F63
"""The id of the advisory lock that the one writing transaction on PostgreSQL holds."""
_REFUSE: Final = (
    f"RAISE EXCEPTION '% is {_REFUSAL}', TG_TABLE_NAME "
    "USING ERRCODE = 'integrity_constraint_violation', TABLE = TG_TABLE_NAME;"
)
_PATH: Final = "SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true)"


@dataclass(frozen=True, slots=True)
class Seal:
    """The row that ends insertions: its table, and pairs of (this table's column, that table's column)."""

    table: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """An append-only table: its name, its unique keys, and its seal."""

    table: str
    keys: tuple[tuple[str, ...], ...]
    seal: Seal | None = None

    def trigger(self, event: str) -> str:
        """Return the name of the trigger for an event."""
        return f"guard_{self.table}_{event}"


def triggers(guard: Guard, dialect: str) -> Mapping[str, str]:
    """Return the statements that create the triggers, in order, each with its name."""
    if dialect == "sqlite":
        return _sqlite(guard)
    statements = (_postgresql_statements(guard, *one) for one in _postgresql(guard))
    return {"search path": _PATH} | dict(chain.from_iterable(statements))


def leftovers(guard: Guard, dialect: str) -> tuple[str, ...]:
    """Return the statements that remove the functions of a guard after its table was dropped."""
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
    """Yield the triggers: name of the event, condition, level, and body of the function."""
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


_MARK: Final = "bytes of text are the limit"


@dataclass(frozen=True, slots=True)
class TextLimits:
    """The columns of a table with their limits, in bytes of UTF-8."""

    table: str
    columns: tuple[tuple[str, int], ...]

    @property
    def trigger(self) -> str:
        """The name of the trigger."""
        return f"limit_{self.table}"


def text_limit_triggers(limits: TextLimits, dialect: str) -> Mapping[str, str]:
    """Return the statements that create the triggers of one table, in order, each with its name."""
    return dict(_sqlite_limits(limits) if dialect == "sqlite" else _postgresql_limits(limits))


def text_limit_leftovers(limits: TextLimits, dialect: str) -> tuple[str, ...]:
    """Return the statements that remove the triggers from a table that stays."""
    if dialect == "sqlite":
        return tuple(f"DROP TRIGGER {name}" for name in dict(_sqlite_limits(limits)))
    return (f"DROP TRIGGER {limits.trigger} ON {limits.table}", f"DROP FUNCTION {limits.trigger}()")


def _sqlite_limits(limits: TextLimits) -> Iterator[tuple[str, str]]:
    """Count the bytes by a cast to BLOB: ``octet_length`` exists since SQLite 3.43 only."""
    insert = _cases(limits, "")
    yield from _trigger(limits, "insert", "INSERT", insert)
    columns = ", ".join(f'"{column}"' for column, _ in limits.columns)
    yield from _trigger(limits, "update", f"UPDATE OF {columns}", _cases(limits, ' AND NEW."{0}" IS NOT OLD."{0}"'))


def _cases(limits: TextLimits, more: str) -> str:
    return " ".join(
        f'WHEN length(CAST(NEW."{column}" AS BLOB)) > {most}{more.format(column)} '
        f"THEN RAISE(ABORT, '{_refusal(limits.table, column, most)}')"
        for column, most in limits.columns
    )


def _trigger(limits: TextLimits, event: str, when: str, cases: str) -> Iterator[tuple[str, str]]:
    name = f"{limits.trigger}_{event}"
    yield name, f"CREATE TRIGGER {name} BEFORE {when} ON {limits.table} FOR EACH ROW BEGIN SELECT CASE {cases} END; END"


def _postgresql_limits(limits: TextLimits) -> Iterator[tuple[str, str]]:
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
    return f"{table}.{column}: {most} {_MARK}"
