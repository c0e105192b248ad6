"""Workers, and the server between them and the queue, killed and stopped at random moments: nothing is lost or twice.

BENCHLOCK_KILLS says how many times; a few here, hundreds by hand. What is asserted is in the database, and in what the
harnesses themselves wrote down: each holds what no two of a host may hold at once.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from api.wiring import open_registry
from artifacts.local import LocalStore
from tests.support.commands import BENCHLOCK, Commands
from tests.support.registry_server import free_port
from tests.support.remains import processes
from tests.support.stub_harness import events, stubbed

KILLS = int(os.environ.get("BENCHLOCK_KILLS", "8"))
JOBS = max(6, KILLS // 2)
LEASE = 3.0
ENDED = {"done", "failed", "quarantined", "cancelled"}


@dataclass
class Process:
    """A command that is started again whenever it was killed."""

    name: str
    words: list[str]
    environment: dict[str, str]
    folder: Path
    running: "subprocess.Popen[bytes] | None" = None
    wakes_at: float | None = None

    def start(self) -> None:
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.running = subprocess.Popen(self.words, env=self.environment, stdout=log, stderr=log)

    def strike(self, numbers: random.Random) -> str:
        """Kill it and start it again, or stop it for a while; what was done."""
        assert self.running is not None
        if self.wakes_at is not None or numbers.random() < 0.5:
            self.end()
            self.start()
            return "killed"
        self.running.send_signal(signal.SIGSTOP)
        self.wakes_at = time.monotonic() + numbers.uniform(0.2, 2 * LEASE)
        return "stopped"

    def wake(self, now: float) -> None:
        if self.wakes_at is not None and self.wakes_at <= now:
            assert self.running is not None
            self.running.send_signal(signal.SIGCONT)
            self.wakes_at = None

    def end(self) -> None:
        assert self.running is not None
        self.running.kill()
        self.running.wait()
        self.wakes_at = None


@dataclass
class Site:
    """A registry in a folder, a server over it, two workers of one host that reach it by HTTP alone."""

    folder: Path
    numbers: random.Random
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.commands = Commands(self.folder / "registry")
        self.log = self.folder / "harnesses"
        port = free_port()
        common = self.commands.environment() | {
            "BENCHLOCK_LEASE": str(LEASE),
            "BENCHLOCK_HOST_LOCK": str(self.folder / "host.lock"),
        }
        benchlock = str(BENCHLOCK)
        serve = [benchlock, "--registry", str(self.commands.registry), "serve", "--open", "--port", str(port)]
        url = f"http://127.0.0.1:{port}"
        self.server = Process("server", serve, common, self.folder)
        self.workers = [
            Process(
                name,
                [benchlock, "--registry", url, "worker", "--processes", "--machine", name],
                common | {"XDG_CACHE_HOME": str(self.folder / "cache" / name)},
                self.folder,
            )
            for name in ("m1", "m2")
        ]

    @property
    def all(self) -> list[Process]:
        return [self.server, *self.workers]

    def submit(self, count: int) -> list[str]:
        registry = open_registry(str(self.commands.registry), print)
        try:
            assert isinstance(registry.store, LocalStore)
            evaluation, found = stubbed(registry.store, self.folder), []
            for number in range(count):
                seconds = round(self.numbers.uniform(0.1, 1.5), 2)
                lock = evaluation.holding(seconds, "", self.log).lock(metrics=("top1",), number=number)
                registry.catalogue.put_lock(lock)
                found.append(self.commands.done("run", "--submit", "--isolation", "process", lock.id)["job"])
            return found
        finally:
            registry.database.dispose()

    def jobs(self) -> dict[str, Any]:
        listed = self.commands.done("jobs", "--limit", "10000")["jobs"]
        return {one["job"]: one for one in listed}

    def strike(self) -> None:
        victim = self.numbers.choice([*self.workers, *self.workers, self.server])
        self.done[f"{'server' if victim is self.server else 'worker'} {victim.strike(self.numbers)}"] += 1

    def pass_time(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            for one in self.all:
                one.wake(now)
            time.sleep(0.05)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path, random.Random())
    yield found
    for one in found.all:
        if one.running is not None:
            with suppress(ProcessLookupError):
                one.end()


def rows(site: Site, query: str) -> list[tuple[Any, ...]]:
    registry = open_registry(str(site.commands.registry), print)
    try:
        with registry.database.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(query)]
    finally:
        registry.database.dispose()


def test_whatever_is_killed_each_job_has_one_result_and_measures_alone(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = site.submit(JOBS)
    for one in site.all:
        one.start()
    for _ in range(KILLS):
        site.pass_time(site.numbers.uniform(0.1, 2.5))
        site.strike()
    deadline = time.monotonic() + 120 + JOBS * 5
    while time.monotonic() < deadline and any(one["state"] not in ENDED for one in site.jobs().values()):
        site.pass_time(1)
    found = site.jobs()
    told = (dict(site.done), Counter(one["state"] for one in found.values()))
    assert set(found) == set(asked), "a job was lost"
    assert {one["state"] for one in found.values()} <= {"done", "quarantined"}, told
    assert all(one["lost"] == 3 for one in found.values() if one["state"] == "quarantined"), told
    results = rows(site, "SELECT job, run FROM job_results")
    assert sorted(job for job, _ in results) == sorted(job for job, one in found.items() if one["state"] == "done")
    done = [run for (run,) in rows(site, "SELECT run FROM run_ends WHERE outcome = 'done'")]
    assert sorted(done) == sorted(run for _, run in results), "a run was committed that is no result"
    assert rows(site, "SELECT run FROM open_runs") == [], "a run is running for ever"
    assert rows(site, "SELECT fence FROM lease_slots") == []
    assert rows(site, "SELECT fence FROM leases WHERE ended IS NULL") == []
    assert "together" not in {name for name, *_ in events(site.log)}, "two measured at once"
    leases = Counter(ended for (ended,) in rows(site, "SELECT ended FROM leases"))
    with capsys.disabled():
        sys.stdout.write(
            f"\n{dict(site.done)}; jobs {dict(told[1])}; leases {dict(leases)}\n" * ("BENCHLOCK_KILLS" in os.environ)
        )
    for one in site.workers:
        assert one.running is not None
        one.running.send_signal(signal.SIGCONT)
        one.running.terminate()
        assert one.running.wait(30) == 0
    site.server.end()
    assert processes(site.folder) == []
