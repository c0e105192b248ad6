"""The guards on SQLite.

A replaced row (``OR REPLACE``, an upsert) fires no delete trigger there, so a trigger before INSERT looks for the key,
and for every other unique key, itself.
"""

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, text

from benchlock.registry.catalogue.guarded import REFUSAL, Guard, row_exists


def triggers(guard: Guard) -> Mapping[str, str]:
    made = {
        "update": _trigger(guard, "update", "UPDATE", None),
        "delete": _trigger(guard, "delete", "DELETE", None),
        "replace": _trigger(guard, "replace", "INSERT", _key_exists(guard)),
    }
    if guard.seal:
        made["sealed"] = _trigger(guard, "sealed", "INSERT", row_exists(guard.seal.table, guard.seal.columns))
    return {guard.trigger(event): statement for event, statement in made.items()}


def missing(connection: Connection, wanted: Iterable[Guard]) -> tuple[str, ...]:
    rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
    found = {row.name: row.sql for row in rows}
    expected = {name: sql for guard in wanted for name, sql in triggers(guard).items()}
    return tuple(name for name, sql in expected.items() if found.get(name) != sql)


def _key_exists(guard: Guard) -> str:
    return " OR ".join(row_exists(guard.table, tuple(zip(key, key, strict=True))) for key in guard.keys)


def _trigger(guard: Guard, event: str, verb: str, condition: str | None) -> str:
    when = f" WHEN {condition}" if condition else ""
    return (
        f"CREATE TRIGGER {guard.trigger(event)} BEFORE {verb} ON {guard.table} FOR EACH ROW{when} "
        f"BEGIN SELECT RAISE(ABORT, '{guard.table} is {REFUSAL}'); END"
    )
