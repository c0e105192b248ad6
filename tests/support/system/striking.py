"""What a test strikes at random: programs, servers of databases and connections, each of which comes to itself again.

``strike`` does one harm and says which; ``mend`` is called again and again, and undoes it when its time has come.
"""

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.support.servers.faulty_proxy import Fault, FaultyProxy
from tests.support.servers.postgresql import Postmaster

_HOLD = """
import sqlite3, sys, time
held = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
held.execute("BEGIN IMMEDIATE")
held.execute("UPDATE machines SET draining = 'it was never committed'")
time.sleep(600)
"""
"""A writer that is killed before it commits."""


class Victim(Protocol):
    """Something that can be struck."""

    name: str

    def strike(self, numbers: random.Random, now: float, longest: float) -> str:
        """Do it some harm, for ``longest`` seconds at most; which."""

    def mend(self, now: float) -> None:
        """Undo what is due."""

    def end(self) -> None:
        """Undo everything, and leave nothing."""


@dataclass
class Program:
    """A command that is started again whenever it has ended; ``codes`` are those with which it ended by itself."""

    name: str
    words: list[str]
    environment: dict[str, str]
    log: Path
    running: "subprocess.Popen[bytes] | None" = None
    wakes: float | None = None
    starts: float | None = None
    codes: list[int] = field(default_factory=list)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(self.words, env=self.environment, stdout=log, stderr=log)
        self.starts = None

    def strike(self, numbers: random.Random, now: float, longest: float) -> str:
        running = self.running
        if running is None or running.poll() is not None or self.wakes is not None or numbers.random() < 0.5:
            self.kill()
            self.starts = now + numbers.choice((0, numbers.uniform(0, longest / 2)))
            return "killed"
        running.send_signal(signal.SIGSTOP)
        self.wakes = now + numbers.uniform(0.2, longest)
        return "stopped"

    def mend(self, now: float) -> None:
        if self.running is not None and self.running.poll() is not None:
            self.codes.append(self.running.returncode)
            self.running, self.starts = None, now + 0.5
        if self.wakes is not None and self.wakes <= now:
            self.wake()
        if self.starts is not None and self.starts <= now:
            self.start()

    def wake(self) -> None:
        if self.running is not None:
            self.running.send_signal(signal.SIGCONT)
        self.wakes = None

    def kill(self) -> None:
        if self.running is not None:
            self.running.kill()
            self.running.wait()
        self.running, self.wakes, self.starts = None, None, None

    def ask_to_end(self) -> int:
        """Its exit code, once it was asked to end; 0 where nothing is there."""
        if self.running is None:
            return 0
        self.wake()
        self.running.terminate()
        code = self.running.wait(60)
        self.running = None
        return code

    def end(self) -> None:
        self.kill()


@dataclass
class Line:
    """The connections through a proxy."""

    name: str
    proxy: FaultyProxy
    flows: float | None = None

    def strike(self, numbers: random.Random, now: float, longest: float) -> str:
        kind = numbers.choice(("cut", "stalled", "half-closed", "broken", "unanswered"))
        if kind == "cut":
            self.proxy.cut()
        elif kind == "half-closed":
            self.proxy.end_one_way(numbers.choice(("up", "down")))
        elif kind == "stalled":
            self.proxy.stall()
            self.flows = now + numbers.uniform(0.2, longest)
        else:  # the next request comes in part; or whole, and its answer does not
            self.proxy.faults = [Fault("up" if kind == "broken" else "down", numbers.randrange(200))]
        return kind

    def mend(self, now: float) -> None:
        if self.flows is not None and self.flows <= now:
            self.proxy.flow()
            self.flows = None

    def end(self) -> None:
        self.proxy.faults.clear()
        self.proxy.flow()


@dataclass
class Postgres:
    """A server of PostgreSQL: its first process or one of the others killed, or all of them stopped."""

    name: str
    postmaster: Postmaster
    wakes: float | None = None
    starts: float | None = None

    def strike(self, numbers: random.Random, now: float, longest: float) -> str:
        kind = numbers.choice(("killed", "crashed", "stopped"))
        process, others = self.postmaster.process, self._others()
        assert process is not None
        if kind == "stopped" and self.wakes is None and others:
            for pid in (process.pid, *others):
                _send(pid, signal.SIGSTOP)
            self.wakes = now + numbers.uniform(0.2, longest)
        elif kind == "crashed" and others:
            _send(numbers.choice(others), signal.SIGKILL)
        else:
            process.kill()
            process.wait()
            self._wake(others)  # they end when they see that the first is gone
            self.starts = now + numbers.choice((0, numbers.uniform(0, longest / 2)))
            return "killed"
        return kind

    def mend(self, now: float) -> None:
        process = self.postmaster.process
        assert process is not None
        if self.wakes is not None and self.wakes <= now:
            self._wake([process.pid, *self._others()])
        if self.starts is None and process.poll() is not None:  # others of the one before it were there still
            self.starts = now + 0.2
        if self.starts is not None and self.starts <= now:
            self.postmaster.start()
            self.starts = None

    def end(self) -> None:
        self.wakes = self.wakes and 0.0
        self.starts = self.starts and 0.0
        self.mend(0.0)

    def _wake(self, pids: list[int]) -> None:
        for pid in pids:
            _send(pid, signal.SIGCONT)
        self.wakes = None

    def _others(self) -> list[int]:
        process = self.postmaster.process
        assert process is not None
        with suppress(OSError):
            found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii")
            return [int(pid) for pid in found.split()]
        return []


@dataclass
class DatabaseFile:
    """A file of SQLite: another writer has it, and is killed before it commits."""

    name: str
    path: Path
    writer: "subprocess.Popen[bytes] | None" = None
    ends: float = 0.0

    def strike(self, numbers: random.Random, now: float, longest: float) -> str:
        self.end()
        self.writer = subprocess.Popen([sys.executable, "-c", _HOLD, str(self.path)])
        self.ends = now + numbers.uniform(0.2, longest)
        return "held by a writer, which is killed"

    def mend(self, now: float) -> None:
        if self.ends <= now:
            self.end()

    def end(self) -> None:
        if self.writer is not None:
            self.writer.kill()
            self.writer.wait()
            self.writer = None


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
