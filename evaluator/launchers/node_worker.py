"""The worker of a node as a process of its own, which a task of the cluster engine starts and waits for.

This module is imported on every node, inside a process of the engine, so it imports nothing but the standard library.
"""

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Final

from benchlock.evaluator.launchers.tethered_process import tether

_GRACE_SECONDS: Final = 30.0
"""How long a worker may take to return its job after SIGTERM."""
_PIPE_SECONDS: Final = 1.0
"""How long the output of an ended worker is read: a process that a killed worker left may hold the pipes open."""
_LINES: Final = 4
"""The number of last lines of a failed worker that are reported; an error has at most three."""
_MAX_MESSAGE: Final = 500
_OF_ENGINE: Final = ("RAY_", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
"""Prefixes of variables that Ray sets in its processes: a worker sees the host as it does without Ray."""


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """The worker that a node shall run. It contains no secret, because engines show the arguments of tasks.

    Attributes:
        registry: The URL of the registry's server.
        machine: The machine's name; empty for the name that the worker derives from its host.
        token_file: The file on the node with the worker's token; empty for the settings of the node.
        processes: Whether the worker may run processes.
        allow_code: Whether those processes may run code of models.
    """

    registry: str
    machine: str = ""
    token_file: str = ""
    processes: bool = False
    allow_code: bool = False

    @property
    def flags(self) -> list[str]:
        """The options for what the worker may run."""
        return ["--processes"] * self.processes + ["--allow-code"] * self.allow_code

    def words(self) -> list[str]:
        """Return the command line of the worker."""
        command = [sys.executable, "-m", "benchlock.api.cli.main", "--registry", self.registry, "worker"]
        machine = ["--machine", self.machine] if self.machine else []
        return [*command, "--until-idle", "--json", *machine, *self.flags]

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the worker, made from that of a task of the engine."""
        kept = {name: value for name, value in variables.items() if not name.startswith(_OF_ENGINE)}
        return kept | ({"BENCHLOCK_TOKEN_FILE": self.token_file} if self.token_file else {})


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """How a worker ended. It says nothing about results, which only the registry has.

    Attributes:
        code: Its exit code, negative for a signal; None if the engine started none or lost it.
        machine: Its machine; empty if it failed.
        jobs: The number of jobs that it ran.
        message: The last lines that it wrote, if it failed.
    """

    code: int | None
    machine: str = ""
    jobs: int = 0
    message: str = ""


def run_worker(order: WorkerOrder) -> WorkerReport:
    """Run a worker until no job fits its machine.

    If the task is cancelled, the worker returns its job to the queue. If the task's process dies, so does the worker
    (``tether``).
    """
    process = subprocess.Popen(
        tether(order.words()),
        env=order.environment(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    lines: deque[str] = deque(maxlen=_LINES)
    answer: list[str] = []
    readers = (
        threading.Thread(target=_forward, args=(process.stderr, lines), daemon=True),
        threading.Thread(target=answer.extend, args=(process.stdout,), daemon=True),
    )
    for reader in readers:
        reader.start()
    try:
        code = process.wait()
    finally:
        _end(process)
    for reader, stream in zip(readers, (process.stderr, process.stdout), strict=True):
        reader.join(_PIPE_SECONDS)
        if not reader.is_alive():
            stream.close()
    return make_report(code, "".join(answer), "\n".join(lines))


def make_report(code: int, answer: str, lines: str) -> WorkerReport:
    """Return the report on a worker.

    Args:
        code: Its exit code.
        answer: The JSON document that it wrote: what it did, or its error. A killed worker wrote none.
        lines: The last lines that it wrote.
    """
    document = json.loads(answer) if answer else {}
    if code == 0:
        return WorkerReport(code, document["machine"], document["jobs"])
    error = document.get("error", {})
    next_step = f"; next: {error['next']}" if error.get("next") else ""
    return WorkerReport(code, message=shorten(error.get("message", lines) + next_step))


def shorten(text: str) -> str:
    """Return the last lines of a text as one line of limited length."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-_LINES:])[:_MAX_MESSAGE]


def _forward(stream: IO[str], lines: deque[str]) -> None:
    """Write what the worker says to the log of the task."""
    for line in stream:
        lines.append(line.strip())
        sys.stderr.write(line)


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def describe_error(error: BaseException) -> str:
    """Return the first lines of an error's message as one line, or the name of its type."""
    lines = str(error).strip().splitlines()[:_LINES]
    return shorten("\n".join(lines)) or type(error).__name__
