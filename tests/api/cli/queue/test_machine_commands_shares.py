"""`shares` lists and sets the shares of machine time; `run --submit --priority` sorts the jobs of a token."""

import json
from pathlib import Path

import pytest

from benchlock.api.cli.main import run
from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.local.local_registry import open_registry
from benchlock.evaluator.queue.queue_types import Queue
from tests.support.evaluator.queues import LOCKS, keep_lock, wish


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
        (["embedded"], "need each other"),
        (["--weight", "2"], "need each other"),
        (["embedded", "--max-running", "2", "--no-max-running"], "--max-running contradicts"),
        (["token/none", "--weight", "2"], "the queue has no owner token/none"),
    ],
)
def test_what_sets_no_share_is_refused(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert run(["shares", *words]) != 0
    assert said in capsys.readouterr().err


def test_a_priority_is_for_submitted_jobs_and_bounded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: dict[str, object] = {}
    monkeypatch.setattr("benchlock.api.cli.run_commands.submit", lambda *_, **options: submitted.update(options))
    call(capsys, "run", "x.lock", "--submit", "--priority", "3")
    assert submitted == {"allow_code": False, "priority": 3}
    assert run(["run", "x.lock", "--priority", "3"]) != 0
    assert "--priority needs --submit" in capsys.readouterr().err
    assert run(["run", "x.lock", "--submit", "--priority", "6"]) != 0
    assert "6 is not in the range" in capsys.readouterr().err
