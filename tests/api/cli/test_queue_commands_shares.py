"""`shares` lists and sets the shares of machine time; `run --submit --priority` sorts the jobs of a token."""

import json
from pathlib import Path

import pytest

from benchlock.api.cli.main import run
from benchlock.api.client.worker_setup import open_queue
from benchlock.api.local.local_registry import open_registry
from benchlock.evaluator.queue.queue_types import Queue
from tests.support.evaluator.evidence import IDX
from tests.support.evaluator.queues import LOCKS, keep_lock, wish
from tests.support.resolution.variants import variant


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """The queue of the command's registry, with a job."""
    opened = open_registry(str(tmp_path / "registry"), lambda _: None)
    monkeypatch.setenv("BENCHLOCK_REGISTRY", str(tmp_path / "registry"))
    keep_lock(opened.database, LOCKS[0])
    queue = open_queue(opened)
    queue.submit(wish())
    return queue


def call(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    assert run(list(words)) == code, capsys.readouterr()
    return capsys.readouterr()


def test_shares_are_listed_and_set(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    assert "embedded" in call(capsys, "shares")[0]
    call(capsys, "shares", "embedded", "--weight", "2.5")
    out, _ = call(capsys, "--json", "shares", "embedded", "--max-running", "4")
    (share,) = json.loads(out)["shares"]
    assert (share["weight"], share["max_running"], share["is_waiting"]) == (2.5, 4, True)
    assert "0 of 4" in call(capsys, "shares", "embedded", "--weight", "3")[0]
    assert "0 of any" in call(capsys, "shares", "embedded", "--no-max-running")[0]
    assert [one.weight for one in queue.shares()] == [3]


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["embedded"], "give an owner with --weight"),
        (["--weight", "2"], "give an owner with --weight"),
        (["embedded", "--max-running", "2", "--no-max-running"], "give an owner with --weight"),
        (["token/none", "--weight", "2"], "the queue has no owner token/none"),
    ],
)
def test_what_sets_no_share_is_refused(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert run(["shares", *words]) != 0
    assert said in capsys.readouterr().err


def test_a_job_is_submitted_with_a_priority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_registry(str(tmp_path / "registry"), lambda _: None)
    monkeypatch.setenv("BENCHLOCK_REGISTRY", str(tmp_path / "registry"))
    made = variant({"files": IDX})
    made.publish(opened.catalogue, opened.store)
    lock = made.lock
    opened.catalogue.put_lock(lock)
    call(capsys, "run", lock.id, "--submit", "--priority", "3")
    assert [job["priority"] for job in json.loads(call(capsys, "jobs", "--json")[0])["jobs"]] == [3]
    assert run(["run", lock.id, "--priority", "3"]) != 0
    assert "--priority needs --submit" in capsys.readouterr().err
