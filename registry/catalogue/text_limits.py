"""How the database itself limits the bytes of texts: triggers, made from the limits of each table.

No statement stores a longer text, whoever sends it. Triggers leave rows alone that are longer already, as no check
constraint of SQLite does: such rows stay readable, and columns beside the long one can be updated.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

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


def triggers(limits: TextLimits, dialect: str) -> Mapping[str, str]:
    """Return the statements that make the triggers of one table, in their order, each with its name."""
    return dict(_sqlite(limits) if dialect == "sqlite" else _postgresql(limits))


def leftovers(limits: TextLimits, dialect: str) -> tuple[str, ...]:
    """Return the statements that remove the triggers from a table that stays."""
    if dialect == "sqlite":
        return tuple(f"DROP TRIGGER {name}" for name in dict(_sqlite(limits)))
    return (f"DROP TRIGGER {limits.trigger} ON {limits.table}", f"DROP FUNCTION {limits.trigger}()")


def missing(connection: Connection, wanted: Iterable[TextLimits]) -> tuple[str, ...]:
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
