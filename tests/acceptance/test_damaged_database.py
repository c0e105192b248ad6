"""A database that was changed is not copied, not shown and not taken for whole by any command."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from benchlock.api.local.registry_database import DATABASE_FILE
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.records.run_types import RunId
from benchlock.migrations import upgrade
from benchlock.migrations.schema_check import METADATA
from benchlock.registry.database.engine import open_engine, write_transaction
from benchlock.registry.database.triggers import list_guards, trigger_statements
from tests.support.api.commands import Commands
from tests.support.api.warm import Warm
from tests.support.registry.filled import BLOB, fill, store_blobs
from tests.support.registry.forging import forge, remove_guards


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    """Commands on a registry with records of every kind, and all blobs that they name."""
    home = tmp_path / "registry"
    home.mkdir()
    store_blobs(LocalStore(home / "blobs"))
    return Warm(home)


@pytest.fixture
def run(commands: Commands) -> RunId:
    database = open_engine(commands.registry / DATABASE_FILE)
    upgrade(database)
    runs = fill(database)
    database.dispose()
    return runs[0].id


def change(database: Engine, statement: str) -> None:
    """Change rows as somebody does who removes the triggers, and makes them again."""
    remove_guards(database)
    forge(database, statement)
    with write_transaction(database) as connection:
        for guard in list_guards(METADATA):
            for trigger in trigger_statements(guard, "sqlite").values():
                connection.exec_driver_sql(trigger)
    database.dispose()


def test_a_forged_figure_is_found_by_every_command(commands: Commands, run: RunId, tmp_path: Path) -> None:
    whole = commands.call("verify").document  # whose contradictions are those of figures without evidence
    assert whole["damaged"] == []
    commands.done("backup", tmp_path / "backup")
    before = (tmp_path / "backup" / "database.sqlite").read_bytes()
    change(open_engine(commands.registry / DATABASE_FILE), f"UPDATE run_metrics SET value = 1 WHERE run = '{run}'")
    for words in (["show", run], ["backup", str(tmp_path / "backup")]):
        error = commands.error(4, *words)
        assert error["code"] == "damaged-database", words
        assert run in f"{error['message']} {error['where']}", words
    listed = commands.call("runs")
    assert (listed.code, [one["id"] for one in listed.document["damaged"]]) == (4, [run])
    assert (tmp_path / "backup" / "database.sqlite").read_bytes() == before
    answer = commands.call("verify", "--head", whole["head"])
    assert answer.code == 4
    assert [fault["where"] for fault in answer.document["damaged"]] == [f"run_ends: {run}"]
    assert f"run_ends: {run}" not in [fault["where"] for fault in answer.document["contradictions"]]


def test_of_a_damaged_file_of_a_run_it_says_what_helps(commands: Commands, run: RunId, tmp_path: Path) -> None:
    path = LocalStore(commands.registry / "blobs").path(BLOB.digest)
    path.chmod(0o644)
    path.write_bytes(b"something else")
    for words in (["verify"], ["verify", run]):
        (fault,) = commands.call(*words).document["damaged"]
        assert fault["where"].startswith("run/"), words
        assert "rerun the lock" in fault["next"], words
    assert "rerun the lock" in commands.error(4, "get", run, "-o", str(tmp_path / "files"))["next"]


def test_a_noted_head_is_compared(commands: Commands, run: RunId) -> None:  # noqa: ARG001 - it fills
    count, _, link = commands.call("verify").document["head"].partition(":")
    other = f"{link[:-1]}{'0' if link[-1] != '0' else '1'}"
    answer = commands.call("verify", "--head", f"{count}:{other}")
    assert (answer.code, len(answer.document["damaged"])) == (4, 1)
    assert commands.error(2, "verify", "--head", "nothing")["code"] == "invalid-input"


def test_a_damaged_page_is_found_by_every_command(commands: Commands, run: RunId, tmp_path: Path) -> None:  # noqa: ARG001
    assert commands.done("doctor")["damaged"] == []
    database = commands.registry / DATABASE_FILE
    pages = bytearray(database.read_bytes())
    for page in range(4096 * 8, len(pages), 4096):
        pages[page] = 0xFF  # no kind of page
    database.write_bytes(pages)
    for words in (["doctor"], ["verify"], ["runs"], ["backup", str(tmp_path / "backup")]):
        answer = commands.call(*words)
        assert answer.code == 4, words
        assert "Traceback" not in answer.stderr
    assert not (tmp_path / "backup").exists()
