"""Whoever opens the file with any SQL, without our code and our settings, changes nothing that is published."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, Table, text

from benchlock.migrations.schema_check import METADATA
from benchlock.registry.database.engine import write_transaction
from benchlock.registry.database.triggers import find_missing_triggers, trigger_statements
from tests.support.registry.rows import CHILDREN_FIRST, GUARDS, MUTABLE, SEALED, TABLES, joining, over, row


def put(connection: sqlite3.Connection, verb: str, table: Table, values: dict[str, Any], clause: str = "") -> None:
    names, marks = ", ".join(f'"{name}"' for name in values), ", ".join("?" for _ in values)
    connection.execute(f"{verb} INTO {table.name} ({names}) VALUES ({marks}) {clause}", tuple(values.values()))


def content(connection: sqlite3.Connection) -> dict[str, list[Any]]:
    return {table.name: connection.execute(f"SELECT * FROM {table.name}").fetchall() for table in TABLES}


@pytest.fixture(scope="module")
def filled(schema: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with one row in every table, to be copied."""
    path = tmp_path_factory.mktemp("filled") / "registry.db"
    shutil.copy(schema, path)
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in CHILDREN_FIRST:
            put(connection, "INSERT", table, row(table, "a"))
    return path


@pytest.fixture
def raw(filled: Path, path: Path) -> Iterator[sqlite3.Connection]:
    """The file as a stranger opens it, with one row in every table."""
    shutil.copy(filled, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def refused(connection: sqlite3.Connection, statement: Any, *arguments: Any) -> None:  # noqa: ANN401 - see put
    before = content(connection)
    with pytest.raises(sqlite3.IntegrityError, match="is append-only"):
        statement(connection, *arguments)
    assert content(connection) == before


def test_every_table_is_append_only_but_the_list_of_open_runs_and_the_queue() -> None:
    assert set(METADATA.tables) - set(GUARDS) == MUTABLE


def test_no_trigger_is_missing_after_migrating(database: Engine) -> None:
    with write_transaction(database) as connection:
        found = connection.execute(
            text("SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'guard%'")
        ).scalar_one()
        assert find_missing_triggers(connection, GUARDS.values()) == ()
        assert found == 3 * len(TABLES) + len(SEALED)


@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
def test_a_trigger_that_was_dropped_or_changed_is_found(database: Engine, guard: Any) -> None:  # noqa: ANN401
    for name, statement in trigger_statements(guard, "sqlite").items():
        with write_transaction(database) as connection:
            connection.execute(text(f"DROP TRIGGER {name}"))
            assert find_missing_triggers(connection, GUARDS.values()) == (name,)
            connection.execute(text(statement.replace("BEFORE", "AFTER")))
            assert find_missing_triggers(connection, GUARDS.values()) == (name,)
            connection.rollback()


@pytest.mark.parametrize("table", TABLES, ids=GUARDS)
def test_no_table_has_a_row_number_that_a_replace_could_use(raw: sqlite3.Connection, table: Table) -> None:
    with pytest.raises(sqlite3.OperationalError, match="rowid"):
        raw.execute(f"SELECT rowid FROM {table.name}")


@pytest.mark.parametrize("verb", ["UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE", "UPDATE OR ROLLBACK"])
@pytest.mark.parametrize("table", TABLES, ids=GUARDS)
def test_update_is_refused_whatever_the_column(raw: sqlite3.Connection, table: Table, verb: str) -> None:
    for column in table.columns:
        refused(raw, lambda c, name=column.name: c.execute(f'{verb} {table.name} SET "{name}" = "{name}"'))


@pytest.mark.parametrize("table", TABLES, ids=GUARDS)
def test_delete_is_refused(raw: sqlite3.Connection, table: Table) -> None:
    refused(raw, lambda c: c.execute(f"DELETE FROM {table.name}"))
    refused(raw, lambda c: c.execute(f"DELETE FROM {table.name} WHERE true"))


@pytest.mark.parametrize(
    "verb", ["REPLACE", "INSERT OR REPLACE", "INSERT OR IGNORE", "INSERT OR FAIL", "INSERT OR ROLLBACK"]
)
@pytest.mark.parametrize("table", TABLES, ids=GUARDS)
def test_an_insert_over_any_unique_key_is_refused(raw: sqlite3.Connection, table: Table, verb: str) -> None:
    for key in GUARDS[table.name].keys:
        refused(raw, put, verb, table, over(table, key))


@pytest.mark.parametrize("table", TABLES, ids=GUARDS)
def test_an_upsert_is_refused_whatever_the_key(raw: sqlite3.Connection, table: Table) -> None:
    for key in GUARDS[table.name].keys:
        free = next(column.name for column in reversed(list(table.columns)))
        clause = f'ON CONFLICT ({", ".join(key)}) DO UPDATE SET "{free}" = excluded."{free}"'
        refused(raw, put, "INSERT", table, over(table, key), clause)


@pytest.mark.parametrize("table", SEALED, ids=[table.name for table in SEALED])
def test_nothing_is_added_to_what_is_sealed(raw: sqlite3.Connection, table: Table) -> None:
    refused(raw, put, "INSERT", table, joining(table))


@pytest.mark.parametrize("table", SEALED, ids=[table.name for table in SEALED])
def test_nothing_is_added_while_another_one_seals(raw: sqlite3.Connection, path: Path, table: Table) -> None:
    """SQLite lets one write at a time, and only who sees what the last one wrote."""
    sealing = METADATA.tables[GUARDS[table.name].seal.table]  # type: ignore[union-attr] # these have one
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as other:
        for first, second in ((table, sealing), (sealing, table)):
            raw.execute("BEGIN")
            put(raw, "INSERT", first, row(first, "new"))
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                put(other, "INSERT", second, row(second, "new"))
            raw.execute("ROLLBACK")
        other.execute("BEGIN")
        other.execute(f"SELECT count(*) FROM {table.name}").fetchall()
        put(raw, "INSERT", sealing, row(sealing, "new"))
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            put(other, "INSERT", table, row(table, "new"))
        other.execute("ROLLBACK")
        with pytest.raises(sqlite3.IntegrityError, match="is append-only"):
            put(other, "INSERT", table, row(table, "new"))


@pytest.mark.parametrize("table", TABLES, ids=GUARDS)
def test_a_row_of_its_own_is_accepted(raw: sqlite3.Connection, table: Table) -> None:
    put(raw, "INSERT", table, row(table, "bc"))
    assert len(content(raw)[table.name]) == 2
