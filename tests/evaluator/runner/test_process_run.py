"""Processes as the runner makes them: what reaches them, what they may, and that none is left."""

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.runner.job_folder import HARNESS, RunFolders
from benchlock.evaluator.runner.process_run import MARK, ProcessRun, birth, end_abandoned, run_process
from benchlock.evaluator.runner.run_outcome import Ending
from benchlock.registry.lock.lockfile import LockedLimits

CPUS = (min(os.sched_getaffinity(0)),)


@pytest.fixture
def place(tmp_path: Path) -> RunFolders:
    made = RunFolders(tmp_path)
    for folder in (made.job, made.output, made.scratch):
        folder.mkdir()
    return made


def run(place: RunFolders, code: str, seconds: float = 60, accelerators: tuple[int, ...] = ()) -> Ending:
    """Run ``code`` in the place of the harness."""
    with zipfile.ZipFile(place.job / HARNESS, "w") as archive:
        archive.writestr("__main__.py", code)
    limits = LockedLimits(seconds=seconds, bytes=1 << 30, cpus=1, processes=10)
    return run_process(ProcessRun(Path(sys.executable), limits, CPUS, accelerators), place, SILENT)


def answer(place: RunFolders, code: str) -> Any:  # noqa: ANN401 - any JSON value
    ending = run(place, f"import json, os, sys\n{code}\nprint(json.dumps(answer))")
    assert ending.code == 0, ending.log
    return json.loads(ending.log)


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until_gone(pid: int) -> None:
    end = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_what_cannot_be_watched_is_ended(place: RunFolders) -> None:
    """Its mark cannot be written: nobody else could end it."""
    (place.root / MARK).mkdir()
    left = place.scratch / "pid"
    with pytest.raises(OSError, match="Is a directory"):
        run(place, f"import os, time; open({str(left)!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    if left.exists() and left.read_text():  # it may have been ended before it came so far
        wait_until_gone(int(left.read_text()))


@pytest.mark.parametrize(("accelerators", "visible"), [((), ""), ((1, 3), "1,3")])
def test_it_sees_its_own_accelerators_alone(place: RunFolders, accelerators: tuple[int, ...], visible: str) -> None:
    code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['CUDA_DEVICE_ORDER'], sep='/', end='')"
    assert run(place, code, accelerators=accelerators).log == f"{visible}/PCI_BUS_ID".encode()


def test_it_is_given_the_job_and_the_output_folder(place: RunFolders) -> None:
    assert answer(place, "answer = sys.argv[1:]") == [str(place.job), str(place.output)]


def test_nothing_of_the_caller_reaches_it(place: RunFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    flags = "[sys.flags.safe_path, sys.flags.no_user_site, sys.flags.hash_randomization]"
    found = answer(place, f"answer = [dict(os.environ), sys.path, os.getcwd(), {flags}]")
    variables, path, folder, flags = found
    assert set(variables) - {"LC_CTYPE"} == {
        "PATH", "HOME", "TMPDIR", "LANG", "TZ", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUNBUFFERED",
        "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES",
    }  # fmt: skip
    assert (variables["HOME"], folder, flags) == (str(place.scratch), str(place.scratch), [True, 1, 0])
    assert "/nowhere" not in path


def test_it_has_the_chosen_cpus_and_so_have_its_children(place: RunFolders) -> None:
    code = (
        "import subprocess; ask = 'import os; print(sorted(os.sched_getaffinity(0)))'\n"
        "answer = subprocess.run([sys.executable, '-c', ask], capture_output=True, text=True).stdout"
    )
    assert answer(place, code) == f"{list(CPUS)}\n"


def test_what_it_prints_and_how_it_ended_is_kept(place: RunFolders) -> None:
    ending = run(place, "import sys; print('out'); sys.stdout.flush(); sys.stderr.write('err'); sys.exit(7)")
    assert ending.code == 7
    assert sorted(ending.log.split()) in ([b"err", b"out"], [b"errout"])
    assert 0 < ending.ran < 60


def test_a_death_by_signal_is_told(place: RunFolders) -> None:
    assert run(place, "import os; os.kill(os.getpid(), 9)").code == -signal.SIGKILL


def test_its_time_ends_it_and_all_its_children(place: RunFolders) -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open(sys.argv[2] + '/child', 'w').write(str(child.pid))\n"
        "time.sleep(600)"
    )
    used = time.process_time()
    ending = run(place, code, seconds=2)
    assert ending.code is None
    assert 2 <= ending.ran < 600
    assert time.process_time() - used < 0.5  # the parent waited in the kernel
    wait_until_gone(int((place.output / "child").read_text()))


def test_children_that_outlive_it_are_ended(place: RunFolders) -> None:
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open(sys.argv[2] + '/child', 'w').write(str(child.pid))"
    )
    assert run(place, code).code == 0
    wait_until_gone(int((place.output / "child").read_text()))


def test_a_daemon_that_left_the_group_is_ended_and_its_child(place: RunFolders) -> None:
    code = (
        "import os, sys, time\n"
        "if not os.fork():\n"
        "    os.setsid()\n"
        "    if os.fork():\n"
        "        os._exit(0)\n"
        "    child = os.fork()\n"
        "    if child:\n"
        "        open(sys.argv[2] + '/new', 'w').write(f'{os.getpid()} {child}')\n"
        "        os.rename(sys.argv[2] + '/new', sys.argv[2] + '/daemon')\n"
        "    os.setsid() if not child else None\n"
        "    time.sleep(30)\n"
        "while not os.path.exists(sys.argv[2] + '/daemon'):\n"
        "    time.sleep(0.01)"
    )
    assert run(place, code).code == 0
    pids = (place.output / "daemon").read_text().split()
    assert [pid for pid in pids if is_running(int(pid))] == []


def test_children_of_this_process_are_left_alone(place: RunFolders, sleeper: subprocess.Popen[bytes]) -> None:
    assert run(place, "").code == 0
    assert sleeper.poll() is None
    sleeper.kill()
    sleeper.wait()


def test_an_interpreter_that_is_not_there_is_an_error(place: RunFolders) -> None:
    limits = LockedLimits(seconds=1, bytes=1, cpus=1, processes=1)
    with pytest.raises(UnavailableError, match="cannot start the interpreter"):
        run_process(ProcessRun(place.root / "no-python", limits, CPUS), place, SILENT)


@pytest.fixture
def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)


def test_an_abandoned_process_is_ended(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    (tmp_path / MARK).write_text(f"{sleeper.pid} {birth(sleeper.pid)}")
    end_abandoned(tmp_path / MARK)
    assert sleeper.wait(60) == -signal.SIGKILL


@pytest.mark.parametrize("mark", ["{pid} 1", "{pid}", "", "x y"])
def test_a_process_that_only_has_its_number_is_left_alone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], mark: str
) -> None:
    (tmp_path / MARK).write_text(mark.format(pid=sleeper.pid))
    end_abandoned(tmp_path / MARK)
    end_abandoned(tmp_path / "absent")
    assert sleeper.poll() is None
    sleeper.kill()
    sleeper.wait()
