"""Runs that nobody runs any more: found, ended, recorded; living ones are left alone."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy import insert

from benchlock.artifacts.digest import digest_bytes
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import RunEnd, RunId, RunStart, new_run_id
from benchlock.evaluator.runner import container_run, process_run
from benchlock.evaluator.runner.host_platform import this_host
from benchlock.evaluator.runner.orphans import claim_folder, sweep
from benchlock.evaluator.runner.process_run import birth
from benchlock.registry.database.engine import write_transaction
from benchlock.registry.database.registry_schema import locks

LOCK = digest_bytes(b"a lock")
HOLD = """
import sys, time
from pathlib import Path
from benchlock.evaluator.runner.orphans import claim_folder
with claim_folder(Path(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    time.sleep(600)
"""


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def records(database: sqlalchemy.Engine) -> Records:
    with write_transaction(database) as connection:
        columns = {column.name: "x" for column in locks.columns} | {"id": LOCK, "created_at": now()}
        connection.execute(insert(locks).values(columns))
    return Records(database)


def started(records: Records, back: int = 0) -> RunId:
    at = now() - timedelta(seconds=back)
    run = new_run_id(at)
    records.start(
        RunStart(
            id=run,
            lock=LOCK,
            attempt=1,
            isolation="process",
            platform={"os": "linux", "arch": "amd64", "device": "cpu", "python": "3.11"},
            host=this_host().fingerprint(None),
            process={"pid": 1},
            started_at=at,
        )
    )
    return run


@pytest.fixture
def holder(tmp_path: Path, records: Records) -> Iterator[tuple[RunId, "subprocess.Popen[str]"]]:
    """A run that is alive in another process."""
    run = started(records)
    command = [sys.executable, "-c", HOLD, str(tmp_path), run]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == "held\n"
        yield run, held
        held.kill()


def folder(home: Path, run: RunId) -> Path:
    return home / "runs" / run.removeprefix("run/")


def outcome(records: Records, run: RunId) -> str | None:
    end = records.get(run).end
    return None if end is None else end.outcome


def test_a_claimed_folder_is_there_as_long_as_it_is_held(tmp_path: Path, records: Records) -> None:
    run = started(records)
    with claim_folder(tmp_path, run) as place:
        assert place.root == folder(tmp_path, run)
        (place.root / "file").touch()
        assert sweep(records.unfinished(), records.finish, None, tmp_path, now) == ()
        assert (place.root / "file").exists()
    assert not place.root.exists()


def test_a_folder_whose_container_may_be_left_stays(tmp_path: Path, records: Records) -> None:
    with claim_folder(tmp_path, started(records)) as place:
        (place.root / container_run.MARK).touch()
    assert place.root.exists()


def test_a_living_run_is_left_alone_and_a_dead_one_is_recorded(
    tmp_path: Path, records: Records, holder: tuple[RunId, "subprocess.Popen[str]"]
) -> None:
    run, held = holder
    assert sweep(records.unfinished(), records.finish, None, tmp_path, now) == ()
    assert folder(tmp_path, run).exists()
    held.kill()
    held.wait()
    assert sweep(records.unfinished(), records.finish, None, tmp_path, now) == (run,)
    assert outcome(records, run) == "abandoned"
    assert not folder(tmp_path, run).exists()
    assert sweep(records.unfinished(), records.finish, None, tmp_path, now) == ()


def test_a_run_without_a_folder_is_abandoned(tmp_path: Path, records: Records) -> None:
    earlier, later = started(records, back=5), started(records)
    assert sweep(records.unfinished(), records.finish, None, tmp_path, now) == (earlier, later)
    assert {outcome(records, run) for run in (earlier, later)} == {"abandoned"}


def test_a_folder_without_a_run_is_removed(tmp_path: Path, records: Records) -> None:
    """Its process was killed before the start was recorded, or after the end was."""
    run = started(records)
    records.finish(run, RunEnd(outcome="cancelled", ended_at=now()))
    folder(tmp_path, run).mkdir(parents=True)
    (folder(tmp_path, run) / "alive").touch()
    stranger = folder(tmp_path, new_run_id(now()))
    stranger.mkdir()
    assert sweep(records.unfinished(), records.finish, None, tmp_path, now) == ()
    assert outcome(records, run) == "cancelled"
    assert list((tmp_path / "runs").iterdir()) == []


def test_without_an_engine_what_may_have_a_container_waits_for_one(tmp_path: Path, records: Records) -> None:
    run = started(records)
    folder(tmp_path, run).mkdir(parents=True)
    (folder(tmp_path, run) / container_run.MARK).touch()
    assert sweep(records.unfinished(), records.finish, None, tmp_path, now) == (run,)
    assert (folder(tmp_path, run) / container_run.MARK).exists()
    assert sweep(records.unfinished(), records.finish, None, tmp_path, now) == ()


def test_the_process_of_an_abandoned_run_is_ended(tmp_path: Path, records: Records) -> None:
    run = started(records)
    folder(tmp_path, run).mkdir(parents=True)
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    (folder(tmp_path, run) / process_run.MARK).write_text(f"{left.pid} {birth(left.pid)}")
    assert sweep(records.unfinished(), records.finish, None, tmp_path, now) == (run,)
    assert left.wait(60) == -9


def test_two_sweeps_at_once_record_one_end(tmp_path: Path, records: Records) -> None:
    run = started(records)
    folder(tmp_path, run).mkdir(parents=True)
    (folder(tmp_path, run) / "alive").touch()
    found = [sweep(records.unfinished(), records.finish, None, tmp_path, now) for _ in range(2)]
    assert found == [(run,), ()]
