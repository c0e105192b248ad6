"""Whoever is let into a database on a server, with any SQL and without our code, changes nothing that is published."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import randbytes
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Engine, Table, text

from benchlock.evaluator.records.runs_schema import runs
from benchlock.migrations.schema_check import METADATA
from benchlock.registry.database.engine import open_server, write_transaction
from benchlock.registry.database.triggers import find_missing_triggers, trigger_statements
from tests.support.registry.rows import EVERY, GUARDS, SEALED, TABLES, joining, over, row
from tests.support.servers.postgresql import PostgresServer

NOTHING = sql.SQL("")
Raw = psycopg.Connection[Any]
ISOLATIONS = [level for level in psycopg.IsolationLevel if level.name != "READ_UNCOMMITTED"]
every = pytest.mark.parametrize("table", TABLES, ids=GUARDS)
every_sealed = pytest.mark.parametrize("table", SEALED, ids=[table.name for table in SEALED])


@pytest.fixture(scope="module")
def address(postgresql: PostgresServer) -> Iterator[str]:
    """A database with one row in every table."""
    with postgresql.database() as address:
        with psycopg.connect(address) as connection:
            for table in EVERY:
                connection.execute(*inserting(table, row(table, "a")))
        yield address


@pytest.fixture
def raw(address: str) -> Iterator[Raw]:
    """The database as a stranger opens it; what a test does is undone."""
    with psycopg.connect(address) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def served(address: str) -> Iterator[Engine]:
    engine = open_server(address)
    yield engine
    engine.dispose()


def said(statement: LiteralString, table: Table, **names: str) -> sql.Composed:
    """A statement about a table and columns of it."""
    columns = {name: sql.Identifier(column) for name, column in names.items()}
    return sql.SQL(statement).format(table=sql.Identifier(table.name), **columns)


def inserting(table: Table, values: dict[str, Any], clause: sql.Composable = NOTHING) -> tuple[Any, Any]:
    names, marks = sql.SQL(", ").join(map(sql.Identifier, values)), sql.SQL(", ").join(sql.Placeholder() * len(values))
    statement = sql.SQL("INSERT INTO {} ({}) VALUES ({}) {}").format(sql.Identifier(table.name), names, marks, clause)
    return statement, tuple(values.values())


def content(connection: Raw, table: Table) -> list[Any]:
    return connection.execute(said("SELECT * FROM {table}", table)).fetchall()


def refused(connection: Raw, table: Table, statement: Any, values: Any = None) -> None:  # noqa: ANN401 - any statement
    before = content(connection, table)
    with (
        pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="is append-only"),
        connection.transaction(),
    ):
        connection.execute(statement, values)
    assert content(connection, table) == before


def test_keys_are_sorted_byte_by_byte_where_the_database_does_it_backwards(raw: Raw) -> None:
    ((collation, is_backwards),) = raw.execute(
        "SELECT datcollate, 'a' > 'b' FROM pg_database WHERE datname = current_database()"
    ).fetchall()
    assert is_backwards == (collation != "C")
    others = raw.execute(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public' "
        "AND data_type IN ('text', 'character varying') AND collation_name IS DISTINCT FROM 'C' "
        "AND table_name <> 'alembic_version'"
    ).fetchall()
    assert others == [], "make them of registry.database.column_types: TEXT, letters(n)"


def test_whole_numbers_have_64_bits(raw: Raw) -> None:
    assert (
        raw.execute(
            "SELECT attrelid::regclass FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
            "WHERE relnamespace = 'public'::regnamespace AND atttypid = 'integer'::regtype"
        ).fetchall()
        == []
    )


def test_no_trigger_is_missing_after_migrating(served: Engine) -> None:
    with write_transaction(served) as connection:
        found = connection.execute(
            text("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgname LIKE 'guard%'")
        ).scalar_one()
        assert find_missing_triggers(connection, GUARDS.values()) == ()
        assert found == 3 * len(TABLES) + len(SEALED)


@pytest.mark.parametrize("guard", [GUARDS["files"], GUARDS["versions"]], ids=["files", "versions"])
def test_a_trigger_that_was_dropped_or_changed_is_found(served: Engine, guard: Any) -> None:  # noqa: ANN401
    names = [
        name for name in trigger_statements(guard, "postgresql") if name.startswith("guard") and name.isidentifier()
    ]
    assert len(names) == (4 if guard.seal else 3)
    for name in names:
        weaker = (
            f"DROP TRIGGER {name} ON {guard.table}",
            f"ALTER TABLE {guard.table} DISABLE TRIGGER {name}",
            f"ALTER TABLE {guard.table} ENABLE TRIGGER {name}",
            f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            f"ALTER FUNCTION {name}() RESET search_path",
        )
        for statement in weaker:
            with write_transaction(served) as connection:
                connection.execute(text(statement))
                assert find_missing_triggers(connection, GUARDS.values()) == (name,), statement
                connection.rollback()


@every
def test_update_is_refused_whatever_the_column(raw: Raw, table: Table) -> None:
    for column in table.columns:
        refused(raw, table, said("UPDATE {table} SET {column} = {column}", table, column=column.name))


@every
def test_delete_and_truncate_are_refused(raw: Raw, table: Table) -> None:
    refused(raw, table, said("DELETE FROM {table}", table))
    refused(raw, table, said("DELETE FROM {table} WHERE true", table))
    refused(raw, table, said("TRUNCATE {table} CASCADE", table))
    refused(raw, table, said("MERGE INTO {table} USING (SELECT 1) AS one ON true WHEN MATCHED THEN DELETE", table))


@every
def test_an_insert_over_any_unique_key_changes_nothing(raw: Raw, table: Table) -> None:
    before = content(raw, table)
    for key in GUARDS[table.name].keys:
        with pytest.raises(psycopg.IntegrityError), raw.transaction():
            raw.execute(*inserting(table, over(table, key)))
        if table not in SEALED:
            raw.execute(*inserting(table, over(table, key), sql.SQL("ON CONFLICT DO NOTHING")))
        assert content(raw, table) == before


@every
def test_an_upsert_and_a_merge_are_refused_whatever_the_key(raw: Raw, table: Table) -> None:
    for key in GUARDS[table.name].keys:
        taken, columns = over(table, key), sql.SQL(", ").join(map(sql.Identifier, key))
        free = sql.Identifier(list(table.columns)[-1].name)
        clause = sql.SQL("ON CONFLICT ({}) DO UPDATE SET {} = excluded.{}").format(columns, free, free)
        refused(raw, table, *inserting(table, taken, clause))
        merge = sql.SQL(
            "MERGE INTO {} AS old USING (SELECT * FROM {}) AS new ON {} WHEN MATCHED THEN UPDATE SET {} = new.{}"
        ).format(
            sql.Identifier(table.name),
            sql.Identifier(table.name),
            sql.SQL(" AND ").join(sql.SQL("old.{} = new.{}").format(*[sql.Identifier(name)] * 2) for name in key),
            free,
            free,
        )
        refused(raw, table, merge)


@every_sealed
def test_nothing_is_added_to_what_is_sealed(raw: Raw, table: Table) -> None:
    refused(raw, table, *inserting(table, joining(table)))
    refused(raw, table, *inserting(table, joining(table), sql.SQL("ON CONFLICT DO NOTHING")))
    before = content(raw, table)
    values = joining(table)
    names = sql.SQL(", ").join(map(sql.Identifier, values))
    with (
        pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="is append-only"),
        raw.transaction(),
        raw.cursor() as cursor,
        cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table.name), names)) as copy,
    ):
        copy.write_row(tuple(values.values()))
    assert content(raw, table) == before


@every_sealed
def test_no_setting_and_no_table_of_one_s_own_gets_around_it(raw: Raw, table: Table) -> None:
    sealing = METADATA.tables[GUARDS[table.name].seal.table]  # type: ignore[union-attr] # these have one
    raw.execute("SET session_replication_role = replica")
    raw.execute(said("CREATE TEMP TABLE {table} (LIKE {table})", sealing))
    raw.execute("SET search_path = pg_temp, public")
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="is append-only"), raw.transaction():
        raw.execute(*inserting(table, joining(table)))
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="is append-only"), raw.transaction():
        raw.execute(said("DELETE FROM {table}", table))


@pytest.mark.parametrize("isolation", ISOLATIONS, ids=lambda level: level.name)
@every_sealed
def test_nothing_is_added_while_another_one_seals(
    address: str, table: Table, isolation: psycopg.IsolationLevel
) -> None:
    """Whichever comes first, and whatever the second one saw before."""
    sealing = METADATA.tables[GUARDS[table.name].seal.table]  # type: ignore[union-attr] # these have one
    for first, second in ((table, sealing), (sealing, table)):
        name = randbytes(4).hex()
        with psycopg.connect(address) as one, psycopg.connect(address) as other, ThreadPoolExecutor() as pool:
            one.execute(*inserting(runs, row(runs, name) | {"lock": "a"}))
            one.commit()
            other.isolation_level = isolation
            assert other.execute(said("SELECT * FROM {table}", second)).fetchall()
            one.execute(*inserting(first, row(first, name)))
            waiting = pool.submit(partial(other.execute, *inserting(second, row(second, name))))
            with pytest.raises(TimeoutError):
                waiting.result(0.05)
            problems = [attempt(one.commit), attempt(waiting.result), attempt(other.commit)]
            other.rollback()
        with psycopg.connect(address) as one:
            added, seals = ([row for row in content(one, place) if name in row] for place in (table, sealing))
        assert (added, len(seals)) == ([], 1), problems


def attempt(act: Any) -> str:  # noqa: ANN401 - anything that can be called
    try:
        act()
    except psycopg.Error as error:
        return str(error)
    return ""
