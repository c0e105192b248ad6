"""Supervision of phases: each runs in a child process whose end becomes a report."""

import faulthandler
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from .failures import Failure
from .phase_environment import phase_variables

_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def oom_kills(membership: Path = _MEMBERSHIP, root: Path = _ROOT) -> int:
    """Return the counter ``oom_kill`` of the process's control group; 0 where the kernel shows none."""
    for counters in _counter_files(membership, root):
        if counters.is_file():
            for line in counters.read_text(encoding="ascii").splitlines():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return 0


def _counter_files(membership: Path, root: Path) -> Iterator[Path]:
    """Yield possible paths of the counter: below the group's path, or at the top inside a container."""
    lines = membership.read_text(encoding="utf-8").splitlines() if membership.is_file() else []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for prefix in (path.lstrip("/"), ""):
            if not controllers:
                yield root / prefix / "memory.events"
            elif "memory" in controllers.split(","):
                yield root / "memory" / prefix / "memory.oom_control"


def run_phase(
    phase: str, job_folder: Path, output: Path, threads: int, rate: float | None = None
) -> tuple[dict[str, Any], float]:
    """Run a phase in a new interpreter; return its report and its wall-clock seconds.

    The parent waits in the kernel, because a spinning parent would take CPU time from the measurement.

    Args:
        phase: The name of the phase.
        job_folder: The folder of the job.
        output: The folder for results.
        threads: The thread count of every runtime.
        rate: The arrival rate of a probe, in queries a second.

    Raises:
        Failure: The failure that the phase reports, or the class of its abnormal end.
    """
    arguments = ["--rate", repr(rate)] if rate is not None else []
    silence = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    return _watched(
        phase, output, lambda: spawn_phase(phase, job_folder, output, phase_variables(threads), silence, arguments)
    )


def spawn_phase(
    phase: str,
    job_folder: Path,
    output: Path,
    variables: Mapping[str, str],
    stdin: tuple[Any, ...],
    arguments: Sequence[str] = (),
) -> int:
    """Start a phase in a new interpreter; return the number of its process. ``stdin`` is a file action."""
    harness = (__package__ or "").rpartition(".")[0]
    command = [sys.executable, "-P", "-X", "faulthandler", "-m", harness, str(job_folder), str(output)]
    command += ["--phase", phase, *arguments, "--since", str(time.monotonic_ns())]
    return os.posix_spawn(sys.executable, command, variables, file_actions=[stdin])


class PhaseProcess:
    """A phase in a new interpreter that takes orders through a socket, which is its standard input."""

    def __init__(
        self, phase: str, job_folder: Path, output: Path, threads: int, variables: Mapping[str, str] | None = None
    ) -> None:
        """Start the phase, with environment ``variables`` beside those of every phase.

        Raises:
            Failure: ``crash``: there are too many processes.
        """
        self._phase, self._output = phase, output
        self._report = phase_report(output, phase)
        self._report.unlink(missing_ok=True)
        self._kills = oom_kills()
        self._socket, theirs = socket.socketpair()
        stdin = (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)
        environment = {**phase_variables(threads), **(variables or {})}
        with theirs, explain_full_group(phase):
            self._process: int | None = spawn_phase(phase, job_folder, output, environment, stdin)
        self._lines = self._socket.makefile("rb")

    def send(self, order: bytes) -> None:
        """Send an order; nothing happens where the process has ended, which ``receive`` and ``finish`` report."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(order)

    def receive(self) -> int:
        """Return the number on the next line of the process.

        Raises:
            Failure: The failure that the phase reports, or the class of its abnormal end.
        """
        try:
            line = self._lines.readline()
        except ConnectionResetError:
            line = b""
        if not line.endswith(b"\n"):
            self.finish()
            raise Failure("crash", f"the {self._phase} phase ended early")
        return int(line)

    def finish(self) -> dict[str, Any]:
        """Wait for the end of the process; return its report.

        Raises:
            Failure: As ``receive``.
        """
        assert self._process is not None
        process, self._process = self._process, None
        _, status = os.waitpid(process, 0)
        return read_report(self._phase, self._report, status, self._kills)

    def close(self) -> None:
        """Kill the process if it has not ended."""
        self._lines.close()
        self._socket.close()
        if self._process is not None:
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)
            self._process = None


def fork_phase(phase: str, work: Callable[[], None], output: Path, threads: int) -> tuple[dict[str, Any], float]:
    """Run ``work`` as the phase ``phase`` in a fork of this process; return as ``run_phase`` does.

    A fork saves the start of an interpreter. This process must not have loaded the libraries of phases. Where this
    process has a random hash seed, which the fork would inherit, use ``run_phase`` for a reproducible order of sets.
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
    """Run ``work``, then end the process with its exit code."""
    code = 1
    try:
        os.environ.update(variables)
        faulthandler.enable()
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - as the interpreter does at its end
        traceback.print_exc()
    finally:
        end_process(code)


def end_process(code: int) -> NoReturn:
    """End this process with an exit code; what it has printed is written, and no destructor runs."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _watched(phase: str, output: Path, start: Callable[[], int]) -> tuple[dict[str, Any], float]:
    """Wait for the process that ``start`` starts; return its report and its seconds.

    The process has ended on return.
    """
    report = phase_report(output, phase)
    report.unlink(missing_ok=True)
    kills, began = oom_kills(), time.perf_counter()
    with explain_full_group(phase):
        process = start()
    try:
        _, status = os.waitpid(process, 0)
    except BaseException:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        raise
    seconds = time.perf_counter() - began
    return read_report(phase, report, status, kills), seconds


@contextmanager
def explain_full_group(phase: str) -> Iterator[None]:
    """Turn the kernel's error when a control group has reached its limit of tasks into a failure."""
    try:
        yield
    except BlockingIOError as error:
        reason = "could not start: limit of processes and threads (limits.processes) reached"
        raise Failure("crash", f"the {phase} phase {reason}") from error


def read_report(phase: str, report: Path, status: int, kills: int) -> dict[str, Any]:
    """Return the report of a phase whose process has ended.

    Args:
        phase: The name of the phase.
        report: The path of its report, which is removed.
        status: How its process ended, as from ``os.waitpid``.
        kills: The counter ``oom_kill`` before its start.

    Raises:
        Failure: The failure that the phase reports, or that of its death.
    """
    if not report.exists():
        code = os.waitstatus_to_exitcode(status)
        raise describe_death(phase, code, memory_ran_out=oom_kills() > kills)
    document: dict[str, Any] = json.loads(report.read_bytes())
    report.unlink()
    if document["failure"] is not None:
        raise Failure(document["failure"]["class"], document["failure"]["message"])
    return document


def phase_report(output: Path, phase: str) -> Path:
    """Return the path of the report of ``phase``."""
    return output / f"phase-{phase}.json"


def describe_death(phase: str, code: int, *, memory_ran_out: bool) -> Failure:
    """Return the failure of a phase that ended without a report.

    Args:
        phase: The name of the phase.
        code: The exit code, or minus the signal, as in ``subprocess``.
        memory_ran_out: Whether the kernel killed a process of the control group for memory meanwhile.
    """
    if code >= 0:
        return Failure("crash", f"the {phase} phase ended with exit code {code} and no report")
    number = -code
    is_known = number in set(signal.Signals)
    name = signal.Signals(number).name if is_known else f"signal {number}"
    if number == signal.SIGKILL and memory_ran_out:
        return Failure("out-of-memory", f"the kernel killed the {phase} phase: memory limit reached")
    return Failure("crash", f"the {phase} phase was killed by {name}")
