"""The database itself refuses texts beyond their limits, and leaves those alone that were there before."""

from typing import Any

import pytest
from alembic import command
from sqlalchemy import Engine, Table, func, inspect, select, text, update

from benchlock.api.local.registry_database import check_database
from benchlock.artifacts.size_limits import REASON, TooLongError
from benchlock.evaluator.queue.queue_schema import jobs
from benchlock.evaluator.records.runs_schema import run_ends
from benchlock.migrations import configure, upgrade
from benchlock.migrations.schema_check import METADATA, list_text_limits
from benchlock.registry.catalogue.resolver_statements import render_statement
from benchlock.registry.database.engine import read_transaction, write_transaction
from benchlock.registry.database.triggers import find_missing_limit_triggers, limit_trigger_statements
from tests.support.registry.rows import EVERY, row

both = pytest.mark.databases
BEFORE = "0016"


def put(engine: Engine, table: Table, values: dict[str, Any]) -> None:
    columns, marks = ", ".join(f'"{column}"' for column in values), ", ".join(f":{column}" for column in values)
    statement = f"INSERT INTO {table.name} ({columns}) VALUES ({marks})"
    with write_transaction(engine) as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
        connection.exec_driver_sql(render_statement(statement, engine.dialect.name), values)
        connection.rollback()


def as_long(table: Table, column: str, size: int) -> str:
    """A text of so many bytes, for a column of text or of JSON."""
    plain = "é" * (size // 2) + "a" * (size % 2)
    is_json = type(table.c[column].type).__name__ == "JSON"
    return f'"{plain[1:]}"' if is_json else plain


@both
def test_every_column_refuses_one_byte_too_many(database: Engine) -> None:
    """The row is refused by its text, before anything else is wrong with it."""
    for limits in list_text_limits():
        table = METADATA.tables[limits.table]
        for column, most in limits.columns:
            values = row(table, "a") | {column: as_long(table, column, most + 2)}
            with pytest.raises(TooLongError, match=rf"{table.name}\.{column}: {most} bytes"):
                put(database, table, values)


@both
def test_a_text_of_as_many_bytes_is_stored(database: Engine) -> None:
    with write_transaction(database) as connection:
        for table in EVERY:
            limits = next((dict(one.columns) for one in list_text_limits() if one.table == table.name), {})
            free = {name: most for name, most in limits.items() if not _is_key(table, name)}
            values = row(table, "a") | {name: as_long(table, name, most) for name, most in free.items()}
            columns, marks = ", ".join(f'"{one}"' for one in values), ", ".join(f":{one}" for one in values)
            statement = f"INSERT INTO {table.name} ({columns}) VALUES ({marks})"
            connection.exec_driver_sql(render_statement(statement, connection.dialect.name), values)
        connection.rollback()


def _is_key(table: Table, name: str) -> bool:
    """Keys are as in the other tables; an index of PostgreSQL takes no long text either."""
    indexed = {column.name for index in table.indexes for column in index.columns}
    return name in table.primary_key.columns or bool(table.c[name].foreign_keys) or name in indexed


@both
def test_rows_that_are_longer_already_stay_and_their_other_columns_change(database: Engine) -> None:
    with write_transaction(database) as connection:
        command.downgrade(configure(connection), BEFORE)
        schema = inspect(connection)
        for table in (one for one in EVERY if one.name in schema.get_table_names()):
            known = {column["name"] for column in schema.get_columns(table.name)}
            values = {name: value for name, value in row(table, "a").items() if name in known}
            if table is run_ends:
                values |= {"failure_message": "x" * 100_000}
            if table is jobs:
                values |= {"reason": "x" * 100_000}
            columns, marks = ", ".join(f'"{one}"' for one in values), ", ".join(f":{one}" for one in values)
            statement = f"INSERT INTO {table.name} ({columns}) VALUES ({marks})"
            connection.exec_driver_sql(render_statement(statement, connection.dialect.name), values)
    upgrade(database)
    with write_transaction(database) as connection:
        connection.execute(update(jobs).values(state="queued", reason=jobs.c.reason))
        with pytest.raises(Exception, match=f"jobs.reason: {REASON} bytes"), connection.begin_nested():
            connection.execute(update(jobs).values(reason="y" * (REASON + 1)))
        connection.execute(update(jobs).values(reason="y" * REASON))
    with read_transaction(database) as connection:
        assert connection.execute(select(func.length(run_ends.c.failure_message))).scalar() == 100_000
        assert connection.execute(select(jobs.c.state, func.length(jobs.c.reason))).one() == ("queued", REASON)


@both
def test_a_trigger_that_was_dropped_is_noticed(database: Engine) -> None:
    with write_transaction(database) as connection:
        assert find_missing_limit_triggers(connection, list_text_limits()) == ()
        limits = list_text_limits()[0]
        name = (
            next(iter(limit_trigger_statements(limits, "sqlite")))
            if connection.dialect.name == "sqlite"
            else limits.trigger
        )
        on = "" if connection.dialect.name == "sqlite" else f" ON {limits.table}"
        connection.execute(text(f"DROP TRIGGER {name}{on}"))
        assert find_missing_limit_triggers(connection, list_text_limits()) == (name,)
    (found,) = [str(one) for one in check_database(database).damaged if name in str(one)]
    assert f"the trigger {name} is missing" in found
