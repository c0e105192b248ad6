"""SQLite's log is moved into its file beside the writers, who neither wait for it nor hear of its faults."""

import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, PoolProxiedConnection

from registry.access.log import note
from registry.catalogue.checkpoints import EVERY, NAME, PAGES
from registry.catalogue.database import reading
from registry.catalogue.together import Together

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
FRAME = 4096 + 24  # bytes of a page in the log
MANY = 2 * EVERY  # after which there was a checkpoint


def write(target: str = "x") -> Callable[[Connection], None]:
    return lambda connection: note(connection, "a.test", target, NOON)


def write_many(together: Together, commits: int = MANY, target: str = "x") -> None:
    for _ in range(commits):
        together.do(write(target))
    for thread in threading.enumerate():
        if thread.name == NAME:
            thread.join(30)
            assert not thread.is_alive()


def log_of(database: Engine) -> Path:
    return Path(f"{database.url.database}-wal")


def rows_in(database: Engine, folder: Path, *, log: bool) -> int:
    """Rows that another program finds in a copy of the file, with or without its log."""
    copy = folder / "copy.db"
    shutil.copy(str(database.url.database), copy)
    if log:
        shutil.copy(log_of(database), f"{copy}-wal")
    with closing(sqlite3.connect(copy)) as connection:
        found: int = connection.execute("SELECT count(*) FROM actions").fetchone()[0]
    return found


def test_what_was_committed_comes_into_the_file_while_it_is_open(database: Engine, tmp_path: Path) -> None:
    together = Together(database)
    write_many(together, 20)
    assert rows_in(database, tmp_path, log=False) == 0
    write_many(together)
    assert EVERY <= rows_in(database, tmp_path, log=False) <= MANY + 20
    assert rows_in(database, tmp_path, log=True) == MANY + 20


def test_the_log_starts_anew(database: Engine) -> None:
    write_many(Together(database), 2 * PAGES // 3, "x" * 40_000)  # ten pages each: more than six logs
    assert log_of(database).stat().st_size < 1.5 * PAGES * FRAME


def test_a_reader_keeps_his_state_and_nobody_waits_for_him(database: Engine, tmp_path: Path) -> None:
    together = Together(database)
    write_many(together, 5)
    count = "SELECT count(*) FROM actions"
    with reading(database) as connection:
        assert connection.exec_driver_sql(count).scalar() == 5
        write_many(together)
        assert connection.exec_driver_sql(count).scalar() == 5
    write_many(together)
    assert rows_in(database, tmp_path, log=False) > MANY


@pytest.mark.parametrize("fault", ["no connection", "no thread"])
def test_one_that_fails_is_done_later(
    database: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    together = Together(database)

    connect = Engine.raw_connection

    def fail(one: Engine) -> PoolProxiedConnection:
        if threading.current_thread().name != NAME:
            return connect(one)
        failed.append(fault)
        raise sqlite3.OperationalError(fault)

    def refuse(_: threading.Thread) -> None:
        failed.append(fault)
        raise RuntimeError(fault)

    failed: list[str] = []
    with monkeypatch.context() as patch:
        if fault == "no connection":
            patch.setattr(Engine, "raw_connection", fail)
        else:
            patch.setattr(threading.Thread, "start", refuse)
        write_many(together)
    assert failed
    assert rows_in(database, tmp_path, log=False) == 0
    write_many(together)
    assert rows_in(database, tmp_path, log=False) > MANY
