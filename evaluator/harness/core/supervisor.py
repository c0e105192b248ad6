"""Supervision of phases: each runs in a child process whose end becomes a report."""

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from .environment import phase_variables
from .failures import Failure

_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def oom_kills(membership: Path = _MEMBERSHIP, root: Path = _ROOT) -> int:
    """The counter ``oom_kill`` of the group; 0 where the kernel has none to show."""
    for counters in _counter_files(membership, root):
        if counters.is_file():
            for line in counters.read_text(encoding="ascii").splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return 0


def _counter_files(membership: Path, root: Path) -> Iterator[Path]:
    """Where the counter may be: below the group's path or, in a container that sees its own group alone, at the top."""
    lines = membership.read_text(encoding="utf-8").splitlines() if membership.is_file() else []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for place in (path.lstrip("/"), ""):
            if not controllers:
                yield root / place / "memory.events"
            elif "memory" in controllers.split(","):
                yield root / "memory" / place / "memory.oom_control"


def run_phase(
    phase: str, job_folder: Path, output: Path, threads: int, rate: float | None = None
) -> tuple[dict[str, Any], float]:
    """What the phase reported, and its wall-clock seconds, in a new interpreter. ``rate`` is a probe's, a second.

    It waits in the kernel: a parent that spins takes the processor from what is measured.

    Raises:
        Failure: the phase's own, or the class of its death.
    """
    harness = (__package__ or "").rpartition(".")[0]
    command = [sys.executable, "-P", "-X", "faulthandler", "-m", harness, str(job_folder), str(output)]
    command += ["--phase", phase, *(["--rate", repr(rate)] if rate is not None else [])]

    def started() -> int:
        since = ["--since", str(time.monotonic_ns())]
        return os.posix_spawn(
            sys.executable,
            [*command, *since],
            phase_variables(threads),
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
        )

    return _watched(phase, output, started)


def fork_phase(phase: str, work: Callable[[], None], output: Path, threads: int) -> tuple[dict[str, Any], float]:
    """As ``run_phase``, of ``work`` in a copy of this process, which has not loaded what phases load.

    That spares the start of an interpreter. Where this one was started with a random seed for its hashes, which a copy
    would have too, ``run_phase`` is what gives equal orders.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    variables = phase_variables(threads)

    def started() -> int:
        number = os.fork()
        if number == 0:
            _work(work, variables)
        return number

    return _watched(phase, output, started)


def _work(work: Callable[[], None], variables: Mapping[str, str]) -> NoReturn:
    """``work`` as all that this process ever does."""
    code = 1
    try:
        os.environ.update(variables)
        faulthandler.enable()
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - what the interpreter would do at its end
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _watched(phase: str, output: Path, start: Callable[[], int]) -> tuple[dict[str, Any], float]:
    """What the process reported whose id ``start`` returned, and its seconds. It has ended when this returns."""
    report = phase_report(output, phase)
    report.unlink(missing_ok=True)
    kills, began = oom_kills(), time.perf_counter()
    try:
        process = start()
    except BlockingIOError as error:
        # The kernel's word for a control group that may have no more tasks.
        what = "could not be started: the limit of processes and threads (limits.processes) was reached"
        raise Failure("crash", f"the {phase} phase {what}") from error
    try:
        _, status = os.waitpid(process, 0)
    except BaseException:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        raise
    seconds = time.perf_counter() - began
    if not report.exists():
        code = os.waitstatus_to_exitcode(status)
        raise death(phase, code, memory_ran_out=oom_kills() > kills)
    document: dict[str, Any] = json.loads(report.read_bytes())
    report.unlink()
    if document["failure"] is not None:
        raise Failure(document["failure"]["class"], document["failure"]["message"])
    return document, seconds


def phase_report(output: Path, phase: str) -> Path:
    return output / f"phase-{phase}.json"


def death(phase: str, code: int, *, memory_ran_out: bool) -> Failure:
    """The failure of a phase that ended with ``code`` (minus the signal, as ``subprocess`` says it) and no report."""
    if code >= 0:
        return Failure("crash", f"the {phase} phase ended with exit code {code} and no report")
    number = -code
    known = number in set(signal.Signals)
    name = signal.Signals(number).name if known else f"signal {number}"
    if number == signal.SIGKILL and memory_ran_out:
        return Failure("out-of-memory", f"the {phase} phase was killed by the kernel: its memory limit was reached")
    return Failure("crash", f"the {phase} phase was killed by {name}")
