"""A run as a process: the same harness without the isolation of a container."""

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO

from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.runner.job_folder import HARNESS, INTERPRETER, RunFolders
from benchlock.evaluator.runner.output_limits import ConsoleOutput, OutputWatch, Quota, choose_quota
from benchlock.evaluator.runner.run_outcome import Ending
from benchlock.registry.lock.lockfile import LockedLimits

NOT_ENFORCED = ("memory", "processes", "network")
"""The limits that a container enforces and a process does not."""

MARK = "process"
"""The file in a run's folder that names its process, so that an abandoned process can be ended."""

_PATH = "/usr/local/bin:/usr/bin:/bin"
_PIECE = 1 << 16
_GRACE_SECONDS = 10
_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.01
_START_TIME = 19  # of the fields of /proc/PID/stat after the command's name


@dataclass(frozen=True, slots=True)
class ProcessRun:
    """The parameters of a process.

    Attributes:
        python: The interpreter of the environment with the locked wheels.
        limits: The limits of the lock.
        cpus: The numbers of the CPUs that it may use.
        accelerators: The numbers of the accelerators that it gets.
        inherited: The descriptors that it inherits.
        quota: The quota of its output; None for the default.
    """

    python: Path
    limits: LockedLimits
    cpus: tuple[int, ...]
    accelerators: tuple[int, ...] = ()
    inherited: tuple[int, ...] = ()
    quota: Quota | None = None


def run_process(process_run: ProcessRun, folders: RunFolders, progress: Progress) -> Ending:
    """Run the harness until it ends or its time is over, and kill all its processes in any case.

    Raises:
        UnavailableError: The interpreter cannot be started.
    """
    output, readers = ConsoleOutput(progress), list[threading.Thread]()
    try:
        with _kill_orphans():
            ending = _run(process_run, folders, output, readers)
    finally:
        for reader in readers:  # after the orphans, which keep its pipe open
            reader.join(_GRACE_SECONDS)
        output.close()
    return replace(ending, log=output.log)


def _run(
    process_run: ProcessRun, folders: RunFolders, output: ConsoleOutput, readers: list[threading.Thread]
) -> Ending:
    """Run the harness; its output goes to ``output`` by the threads that are added to ``readers``."""
    start = time.perf_counter()
    process = _start(process_run, folders)
    started, used = time.perf_counter(), time.process_time()
    assert process.stdout is not None
    assert process.stderr is not None
    readers += (_start_reader(process.stdout, output, error=False), _start_reader(process.stderr, output, error=True))
    try:
        quota = process_run.quota or choose_quota(folders.root, process_run.limits.bytes)
        with OutputWatch(folders.output, quota, partial(end_group, process.pid)) as watch:
            is_over = _wait(process, process_run.limits.seconds)
        ran, watched = time.perf_counter() - started, time.process_time() - used
    finally:
        end_group(process.pid)
        process.wait()
    return Ending(
        code=process.returncode if is_over else None,
        out_of_memory=False,
        log=b"",  # complete once the readers have ended
        started_in=started - start,
        ran=ran,
        watched=watched,
        excess=watch.excess,
    )


def environment(scratch: Path, accelerators: tuple[int, ...]) -> Mapping[str, str]:
    """Return the complete environment of the process, with nothing of the caller's and only these accelerators."""
    return {
        # The driver's order is that of nvidia-smi; CUDA's default order puts the fastest first.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, accelerators)),
        "PATH": _PATH,
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        **INTERPRETER,
    }


@contextmanager
def _kill_orphans() -> Iterator[None]:
    """Kill at the end the processes that started inside and left their group.

    No other thread may start a process meanwhile. On Linux an orphan becomes a child of this process.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", lambda *_: None)
    before = _find_children()
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        deadline = time.monotonic() + _GRACE_SECONDS
        while (orphans := _find_children() - before) and time.monotonic() < deadline:
            for pid in orphans:  # their children are orphans in the next round
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(_POLL_SECONDS)
        prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _find_children() -> set[int]:
    pids = set[int]()
    for file in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            pids.update(map(int, file.read_text().split()))
    return pids


def end_group(leader: int) -> None:
    """Kill every process of the group; do nothing if none is left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def end_abandoned(mark: Path) -> None:
    """Kill the processes of the run with the file ``mark``, unless its process id was reused."""
    try:
        number, born = mark.read_text(encoding="ascii").split()
        pid = int(number)
    except (OSError, ValueError):
        return
    if birth(pid) == born:
        end_group(pid)


def _start(process_run: ProcessRun, folders: RunFolders) -> subprocess.Popen[bytes]:
    # The interpreter sees neither the user's packages nor the working folder, and only the variables below.
    command = [
        str(process_run.python),
        "-s",
        "-P",
        "-B",
        str(folders.job / HARNESS),
        str(folders.job),
        str(folders.output),
    ]
    try:
        process = subprocess.Popen(
            command,
            cwd=folders.scratch,
            env=environment(folders.scratch, process_run.accelerators),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=process_run.inherited,
        )
    except OSError as error:
        raise UnavailableError(
            f"cannot start the interpreter: {error.strerror or error}", where=str(process_run.python)
        ) from error
    try:
        (folders.root / MARK).write_text(f"{process.pid} {birth(process.pid)}", encoding="ascii")
        # Later threads and processes inherit the CPUs; this early, that is all of its work.
        with suppress(ProcessLookupError):
            os.sched_setaffinity(process.pid, process_run.cpus)
    except BaseException:  # no other code knows the process yet
        with process:
            end_group(process.pid)
        raise
    return process


def birth(pid: int) -> str | None:
    """Return when the process started, in clock ticks of the kernel; with the process id this identifies it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return status.rpartition(")")[2].split()[_START_TIME]


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for the end; return whether it came within ``seconds``.

    A thread waits in the kernel, because ``Popen.wait`` with a timeout would poll.
    """
    waiter = threading.Thread(target=process.wait, daemon=True, name="process-wait")
    waiter.start()
    waiter.join(seconds)
    return not waiter.is_alive()


def _start_reader(pipe: IO[bytes], output: ConsoleOutput, *, error: bool) -> threading.Thread:
    def read() -> None:
        with pipe:
            while piece := os.read(pipe.fileno(), _PIECE):
                output.feed(b"" if error else piece, piece if error else b"")

    thread = threading.Thread(target=read, daemon=True, name="process-output")
    thread.start()
    return thread
