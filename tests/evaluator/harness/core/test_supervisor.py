"""How a phase that left no report died, and where the kernel counts its kills."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.supervisor import describe_death, fork_phase, oom_kills
from tests.evaluator.harness.conftest import write_job


@pytest.mark.parametrize(
    ("code", "memory_ran_out", "kind", "message"),
    [
        (-signal.SIGKILL, True, "out-of-memory", "memory limit reached"),
        (-signal.SIGKILL, False, "crash", "killed by SIGKILL"),
        (-signal.SIGSEGV, True, "crash", "killed by SIGSEGV"),
        (-signal.SIGABRT, False, "crash", "killed by SIGABRT"),
        (-40, False, "crash", "killed by signal 40"),
        (0, False, "crash", "exit code 0 and no report"),
        (3, True, "crash", "exit code 3 and no report"),
    ],
)
def test_a_death_has_a_class(code: int, memory_ran_out: bool, kind: str, message: str) -> None:
    failure = describe_death("accuracy", code, memory_ran_out=memory_ran_out)
    assert failure.kind == kind
    assert message in failure.message


def test_a_phase_that_may_not_be_a_process_names_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    with pytest.raises(Failure, match=r"could not start: .* \(limits\.processes\) reached"):
        fork_phase("accuracy", lambda: None, tmp_path, 1)


V2 = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"


@pytest.mark.parametrize(
    ("membership", "counters", "expected"),
    [
        ("0::/system.slice/run\n", {"system.slice/run/memory.events": V2}, 2),
        ("0::/docker/abc\n", {"memory.events": V2}, 2),  # a container that sees its own group at the top
        ("0::/\n", {}, 0),  # the root group has no counter
        ("5:cpu,cpuacct:/x\n4:memory:/x\n0::/x\n", {"memory/x/memory.oom_control": V1}, 5),
        ("4:memory:/docker/abc\n", {"memory/memory.oom_control": V1}, 5),
        ("4:memory:/x\n", {"memory/x/memory.oom_control": "under_oom 0\n"}, 0),  # a kernel before 4.13
    ],
)
def test_kills_are_read_from_the_groups_own_counter(
    tmp_path: Path, membership: str, counters: dict[str, str], expected: int
) -> None:
    (tmp_path / "membership").write_text(membership)
    for name, content in counters.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert oom_kills(tmp_path / "membership", tmp_path / "cgroup") == expected


def test_no_control_groups_no_kills(tmp_path: Path) -> None:
    assert oom_kills(tmp_path / "absent", tmp_path) == 0


@pytest.fixture
def watching(
    zipapp: Path, tmp_path: Path, break_at: Callable[[int, str], dict[str, Any]], wait_for: Callable[..., None]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A harness whose performance phase hangs in a query, and the process id of that phase."""
    write_job(tmp_path / "job", break_at(300, "hang") | {"metrics": ["latency_p50"]})
    command = [sys.executable, str(zipapp), str(tmp_path / "job"), str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as parent:
        wait_for((tmp_path / "out" / "loadgen" / "mlperf_log_detail.txt").exists)
        (phase,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        try:
            yield parent, int(phase)
        finally:
            parent.kill()


def test_a_phase_does_not_outlive_the_process_that_watches_it(
    watching: tuple[subprocess.Popen[bytes], int], wait_for: Callable[..., None]
) -> None:
    parent, phase = watching
    assert alive(phase)
    parent.kill()
    wait_for(lambda: not alive(phase))


def test_the_watching_process_waits_without_working(
    watching: tuple[subprocess.Popen[bytes], int], wait_for: Callable[..., None]
) -> None:
    """The kernel gave it no processor once, which a busy machine does not change."""
    parent, phase = watching
    wait_for(lambda: state(parent.pid) == "S")
    before = turns(parent.pid)
    time.sleep(0.7)
    assert alive(phase)
    assert (state(parent.pid), turns(parent.pid)) == ("S", before)


def alive(pid: int) -> bool:
    try:
        return state(pid) != "Z"
    except FileNotFoundError:
        return False


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def turns(pid: int) -> int:
    """How often a process had a processor and left it, by its own will or not."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.partition(":")[0].endswith("ctxt_switches"))
