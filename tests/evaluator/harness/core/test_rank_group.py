"""Processes of ranks: their reports, the end of all with one, and the comparison of their weights."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from benchlock.evaluator.harness.core import rank_group
from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.rank_group import check_synchronized, run_group

DONE = "write(None)"
FAILED = "write({'class': 'predict', 'message': 'connection closed by peer'})"
KILLED = "os.kill(os.getpid(), 9)"
WAITING = "time.sleep(600)"


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The statement that each rank runs, by name; the output folder gets the number of its process."""
    work: dict[str, str] = {}

    def spawn(phase: str, _folder: Path, output: Path, *_rest: object) -> int:
        program = (
            "import json, os, pathlib, time\n"
            f"folder = pathlib.Path({str(output)!r})\n"
            f"(folder / {phase!r}).write_text(str(os.getpid()))\n"
            "def write(failure):\n"
            f"    (folder / 'phase-{phase}.json').write_text(json.dumps({{'failure': failure}}))\n"
            "def wait_start(rank):\n"
            "    while not (folder / rank).exists() or not (folder / rank).read_text():\n"
            "        time.sleep(0.01)\n"
            "def wait_end(rank):\n"
            "    wait_start(rank)\n"
            "    while os.path.exists('/proc/' + (folder / rank).read_text()):\n"
            "        time.sleep(0.01)\n"
            f"{work[phase]}\n"
        )
        return os.posix_spawn(sys.executable, [sys.executable, "-c", program], os.environ)

    monkeypatch.setattr(rank_group, "spawn_phase", spawn)
    return work


def run(work: dict[str, str], folder: Path) -> dict[str, Any]:
    return dict(run_group(tuple(work), folder, folder, 1)[0])


def find_alive(work: dict[str, str], folder: Path) -> list[str]:
    """The ranks whose processes exist."""
    return [rank for rank in work if (folder / rank).exists() and Path("/proc", (folder / rank).read_text()).exists()]


def test_all_ranks_report(processes: dict[str, str], tmp_path: Path) -> None:
    processes |= {"rank-0": DONE, "rank-1": DONE}
    assert list(run(processes, tmp_path)) == ["rank-0", "rank-1"]


def test_a_rank_that_reports_and_then_fails_to_end_is_done(processes: dict[str, str], tmp_path: Path) -> None:
    processes |= {"rank-0": f"{DONE}; {KILLED}", "rank-1": f"time.sleep(1.5); {DONE}"}
    assert list(run(processes, tmp_path)) == ["rank-0", "rank-1"]


@pytest.mark.parametrize(
    ("other", "dying"),
    [
        (WAITING, KILLED),
        (f"wait_start('rank-1'); {FAILED}", f"wait_end('rank-0'); {KILLED}"),
        (f"wait_end('rank-1'); {FAILED}", KILLED),
    ],
)
def test_the_rank_that_died_is_named_and_no_process_is_left(
    processes: dict[str, str], tmp_path: Path, other: str, dying: str
) -> None:
    processes |= {"rank-0": other, "rank-1": dying, "rank-2": WAITING}
    with pytest.raises(Failure, match="the rank-1 phase was killed by SIGKILL") as caught:
        run(processes, tmp_path)
    assert caught.value.kind == "crash"
    assert not find_alive(processes, tmp_path)


def test_a_rank_that_reports_a_failure_ends_the_others(processes: dict[str, str], tmp_path: Path) -> None:
    processes |= {"rank-0": WAITING, "rank-1": FAILED}
    with pytest.raises(Failure, match="connection closed") as caught:
        run(processes, tmp_path)
    assert caught.value.kind == "predict"
    assert not find_alive(processes, tmp_path)


def test_different_weights_name_the_ranks_and_the_first_tensor() -> None:
    equal = {"tensors": {"a": "1", "b": "2"}}
    check_synchronized({"rank-0": equal, "rank-1": equal})
    other = {"tensors": {"a": "1", "b": "3"}}
    with pytest.raises(Failure, match=r"rank-1, rank-2 differ from those of rank-0 .* tensor is 'b'") as caught:
        check_synchronized({"rank-0": equal, "rank-1": other, "rank-2": other})
    assert caught.value.kind == "desync"
    with pytest.raises(Failure, match="they have other tensors"):
        check_synchronized({"rank-0": equal, "rank-1": {"tensors": {**equal["tensors"], "c": "1"}}})
