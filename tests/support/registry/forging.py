"""Rows that are changed behind the guards of a database, as whoever owns its file or its server can."""

import sqlite3
from contextlib import closing
from typing import Any

from sqlalchemy import Engine

from benchlock.migrations.schema_check import METADATA
from benchlock.registry.catalogue.resolver_statements import render_statement
from benchlock.registry.database.engine import write_transaction


def remove_guards(database: Engine) -> None:
    """Let anybody change any row: without triggers, which on PostgreSQL are foreign keys too."""
    if database.dialect.name == "postgresql":
        for name in METADATA.tables:
            forge(database, f"ALTER TABLE {name} DISABLE TRIGGER ALL")
        return
    with closing(sqlite3.connect(str(database.url.database), isolation_level=None)) as raw:
        for (name,) in raw.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'guard%'"
        ).fetchall():
            raw.execute(f"DROP TRIGGER {name}")


def forge(database: Engine, statement: str, **values: Any) -> None:  # noqa: ANN401 - values of any column
    """Run a statement that changes rows, without the checks of foreign keys."""
    if database.dialect.name == "postgresql":
        with write_transaction(database) as connection:
            connection.exec_driver_sql(render_statement(statement, "postgresql"), values)
        return
    with closing(sqlite3.connect(str(database.url.database), isolation_level=None)) as raw:
        raw.execute(statement, values)
