"""CPU time of whole processes, and of one function in a process of its own; both with a limit."""

import os
import resource
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent.parent
_PRELOADED = ["benchmarks.resolving.solving", "benchmarks.resolving.plain"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Process:
    """A process that ended: seconds of CPU, user and system, of it and its children; exit code and output."""

    seconds: float
    code: int
    output: str


def environment() -> dict[str, str]:
    """This one, with this checkout's code, and without settings that change what is measured."""
    dropped = ("PYTHONDONTWRITEBYTECODE", "BENCHLOCK_", "UV_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}


def run(command: Sequence[str], environment: Mapping[str, str], limit: int) -> Process | None:
    """Run a command to its end; ``None`` where that took more than ``limit`` seconds of CPU."""
    with TemporaryFile() as output:
        started = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        resource.prlimit(started.pid, resource.RLIMIT_CPU, (limit, limit))
        _, status, used = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        if started.returncode in (-signal.SIGKILL, -signal.SIGXCPU):
            return None
        return Process(used.ru_utime + used.ru_stime, started.returncode, output.read().decode())


def alone(limit: int, function: Callable[..., T], *arguments: Any) -> T | None:  # noqa: ANN401 - the function's own
    """The function's answer from a fresh process, modules loaded; ``None`` where it took over ``limit`` s."""
    context = get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sending, limit, function, arguments))
    process.start()
    sending.close()
    try:
        found: T = receiving.recv()
    except EOFError:
        process.join()
        if process.exitcode in (-signal.SIGKILL, -signal.SIGXCPU):
            return None
        raise
    finally:
        receiving.close()
    process.join()
    return found


def _answer(sending: Connection, limit: int, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    sending.send(function(*arguments))


def forget(path: Path) -> None:
    """Write a file to the disk and drop it from the page cache, so that whoever opens it next reads it anew."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
