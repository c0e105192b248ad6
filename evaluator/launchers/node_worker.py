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

    def words(self) -> list[str]:
        """Return the command line of the worker."""
        flags = (
            ("--machine", self.machine) if self.machine else (),
            ("--processes",) if self.processes else (),
            ("--allow-code",) if self.allow_code else (),
        )
        command = [sys.executable, "-m", "benchlock.api.cli.main", "--registry", self.registry, "worker"]
        return [*command, "--until-idle", "--json", *(word for flag in flags for word in flag)]

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the worker, made from that of a task of the engine."""
        kept = {name: value for name, value in variables.items() if not name.startswith(_OF_ENGINE)}
        return kept | ({"BENCHLOCK_TOKEN_FILE": self.token_file} if self.token_file else {})


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """How a worker ended. It says nothing about results, which only the registry has.

    Attributes:
        code: Its exit code; negative for a signal.
        machine: Its machine; empty if it failed.
        jobs: The number of jobs that it ran.
        message: The last lines that it wrote, if it failed.
    """

    code: int
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
    answers: list[str] = []
    readers = (
        threading.Thread(target=_forward, args=(process.stderr, lines), daemon=True),
        threading.Thread(target=answers.extend, args=(process.stdout,), daemon=True),
    )
    for reader in readers:
        reader.start()
    try:
        code = process.wait()
    finally:
        _end(process)
    for reader in readers:  # a killed worker's harness may hold the pipes open
        reader.join(1.0)
    if code:
        return WorkerReport(code, message="; ".join(lines)[:_MAX_MESSAGE])
    answer = json.loads("".join(answers))
    return WorkerReport(code, answer["machine"], answer["jobs"])


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
