"""The schema is made by the revisions alone: completely, at once, by one of several processes."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

from benchlock.artifacts.errors import UnavailableError
from benchlock.migrations import HEAD, configure, upgrade
from benchlock.migrations.schema_check import METADATA, check
from benchlock.registry.database.engine import open_engine, read_revision, read_transaction, write_transaction
from benchlock.registry.database.sqlite import BUSY_TIMEOUT_MS
from benchlock.registry.database.triggers import find_missing_triggers, list_guards
from tests.support.servers.postgresql import open_any

both = pytest.mark.databases
ROOT = Path(__file__).resolve().parents[2]
UPGRADE = """
import sys
from benchlock.migrations import upgrade
from tests.support.servers.postgresql import open_any
engine = open_any(sys.argv[1])
upgrade(engine)
print("alembic" in sys.modules)
"""


def test_head_is_the_only_newest_revision(empty: Engine) -> None:
    with read_transaction(empty) as connection:
        assert ScriptDirectory.from_config(configure(connection)).get_heads() == [HEAD]


def test_the_revisions_make_what_the_tables_say(empty: Engine) -> None:
    assert check(empty) == []


@both
def test_the_check_sees_a_difference(database: Engine) -> None:
    with write_transaction(database) as connection:
        connection.execute(text("ALTER TABLE open_runs ADD COLUMN more TEXT"))
        with pytest.raises(Exception, match="more"):
            command.check(configure(connection))
        connection.rollback()


@both
def test_down_and_up_again_loses_no_guard(database: Engine) -> None:
    with write_transaction(database) as connection:
        command.downgrade(configure(connection), "base")
        assert inspect(connection).get_table_names() == ["alembic_version"]
        if connection.dialect.name == "postgresql":
            assert connection.execute(text("SELECT proname FROM pg_proc WHERE proname LIKE 'guard%'")).all() == []
    upgrade(database)
    with read_transaction(database) as connection:
        assert set(METADATA.tables) < set(inspect(connection).get_table_names())
        assert find_missing_triggers(connection, list_guards(METADATA)) == ()


def test_an_upgrade_that_fails_leaves_nothing(empty: Engine) -> None:
    with write_transaction(empty) as connection:
        connection.execute(text("CREATE TABLE run_blobs (in_the_way TEXT)"))
    with pytest.raises(UnavailableError, match="run_blobs"):
        upgrade(empty)
    with read_transaction(empty) as connection:
        assert inspect(connection).get_table_names() == ["run_blobs"]
        assert read_revision(connection) is None


@both
def test_a_database_of_a_newer_benchlock_is_left_alone(database: Engine) -> None:
    with write_transaction(database) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UnavailableError, match="9999"):
        upgrade(database)


def test_a_database_at_head_is_opened_without_alembic(place: str) -> None:
    answers = [
        subprocess.run(
            [sys.executable, "-c", UPGRADE, place], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
        for _ in range(2)
    ]
    assert answers == ["True\n", "False\n"]


def test_processes_that_upgrade_at_once_make_one_schema(place: str) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", UPGRADE, place], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(4)
    ]
    results = [process.communicate() for process in started]
    assert [(process.returncode, err) for process, (_, err) in zip(started, results, strict=True)] == [(0, b"")] * 4
    engine = open_any(place)
    with read_transaction(engine) as connection:
        assert read_revision(connection) == HEAD
        assert find_missing_triggers(connection, list_guards(METADATA)) == ()
    engine.dispose()


def test_a_connection_is_durable_and_keeps_foreign_keys(database: Engine) -> None:
    with read_transaction(database) as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": BUSY_TIMEOUT_MS}


def test_what_is_no_database_is_said_in_one_line(path: Path) -> None:
    path.write_bytes(b"this is no database, and long enough to be looked at by SQLite " * 20)
    engine = open_engine(path)
    with pytest.raises(UnavailableError, match="not a database"):
        upgrade(engine)
    engine.dispose()


def test_a_reader_does_not_wait_for_a_writer(database: Engine, path: Path) -> None:
    with write_transaction(database) as connection:
        connection.execute(text("CREATE TABLE more (column_of_it TEXT)"))
        with sqlite3.connect(path, timeout=0) as other:
            assert other.execute("SELECT version_num FROM alembic_version").fetchone() == (HEAD,)
        other.close()
        connection.rollback()
