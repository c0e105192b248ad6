"""Workers, the service, its database and the connections between them struck at random: nothing is lost or twice.

Two hosts: one with an engine and two workers, one with a worker that has none. Each worker has a cache of its own and
reaches the service through a proxy, and so does the service its database where that is a server. BENCHLOCK_KILLS says
how many strikes there are; a few here, hundreds by hand. BENCHLOCK_SEED repeats their order, not what the machine makes
of it. What is asserted is in the database, in what the harnesses wrote down, and in what the engine told.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchlock.api.client.worker_setup import open_queue
from benchlock.api.local.local_registry import now, open_registry
from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.queue.submission_checks import make_job_request
from benchlock.registry.database.engine import read_transaction
from tests.support.api.commands import BENCHLOCK, Commands
from tests.support.evaluator.stub_harness import Span, spans, stubbed
from tests.support.servers.faulty_proxy import FaultyProxy, proxy_to
from tests.support.servers.postgresql import EMPTY, open_any
from tests.support.servers.postgresql import serving as postgresql_serving
from tests.support.servers.registry_server import free_port
from tests.support.system.python_image import PythonImage, make_image
from tests.support.system.remains import containers, processes
from tests.support.system.striking import DatabaseFile, Line, Postgres, Program, Victim

KILLS = int(os.environ.get("BENCHLOCK_KILLS", "8"))
SEED = int(os.environ.get("BENCHLOCK_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
JOBS = max(6, KILLS * 3 // 4)
KILLERS = 1 + KILLS // 100
"""Jobs that kill every worker that measures them."""
LEAST = 0.5
"""So large a share of the other jobs is done, whatever is struck."""
LEASE = 3.0
ENDED = {"done", "failed", "quarantined", "cancelled"}
HOSTS = {"m1": "a", "m2": "a", "m3": "b"}


@dataclass
class Site:
    """A registry, a service over it, three workers on two hosts that reach it by HTTP alone."""

    folder: Path
    commands: Commands
    place: str
    numbers: random.Random
    workers: list[Program] = field(default_factory=list)
    others: list[tuple[Victim, int]] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    heard: float = 0.0
    turn: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.log = self.folder / "harnesses"
        self.database = open_any(self.place)

    @property
    def all(self) -> list[Victim]:
        return [*self.workers, *(one for one, _ in self.others)]

    def submit(self, image: PythonImage) -> dict[str, str]:
        """Each job with the isolation that it asks for; ``killer`` where it kills."""
        registry = open_registry(str(self.commands.registry), print)
        try:
            assert isinstance(registry.store, LocalStore)
            queue = open_queue(registry)
            evaluation = stubbed(registry.store, self.folder, image)
            found: dict[str, str] = {}
            wanted = [*(["container", "process"] * JOBS)[:JOBS], *["killer"] * KILLERS]
            self.numbers.shuffle(wanted)
            for number, kind in enumerate(wanted):
                longest = 2 * LEASE if kind == "container" else LEASE / 2
                seconds, failure = round(self.numbers.uniform(0.1, longest), 2), "kills" * (kind == "killer")
                lock = evaluation.holding(seconds, failure, self.log).lock(metrics=(), number=number)
                registry.catalogue.put_lock(lock)
                wish = make_job_request(lock, registry.store, "container" if kind == "container" else "process", now)
                found[queue.submit(wish).id] = kind
            return found
        finally:
            registry.database.dispose()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What is in the database, which nobody is asked to look after for that."""
        with read_transaction(self.database) as connection:
            return [tuple(row) for row in connection.exec_driver_sql(query)]

    def is_over(self) -> bool:
        return {state for (state,) in self.rows("SELECT state FROM jobs")} <= ENDED

    def is_at_work(self) -> bool:
        """Whether something is measured, and a worker was heard of since this was so the last time."""
        [(heard, running)] = self.rows("SELECT max(seen), (SELECT count(*) FROM open_runs) FROM machines")
        if running and heard > self.heard:
            self.heard = heard
            return True
        return self.is_over()

    def wait_until(self, happened: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(UnavailableError):  # the database was struck
                if happened():
                    return
            time.sleep(0.2)

    def strike(self) -> None:
        weights = [(one, 3) for one in self.workers] + self.others
        victim = self.numbers.choices([one for one, _ in weights], [weight for _, weight in weights])[0]
        with self.turn:
            kind = victim.strike(self.numbers, time.monotonic(), 2 * LEASE)
        self.done[f"{victim.name.rstrip('123')} {kind}"] += 1

    def mend(self, now: float | None = None) -> None:
        with self.turn:
            for one in self.all:
                one.mend(time.monotonic() if now is None else now)

    @contextmanager
    def mending(self) -> Iterator[None]:
        """What is struck comes to itself meanwhile, whatever the test waits for: that may be what was struck."""
        over = threading.Event()

        def mend() -> None:
            while not over.wait(0.05):
                self.mend()

        thread = threading.Thread(target=mend, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> PythonImage:
    return make_image(tmp_path_factory.mktemp("python"))


@pytest.fixture(params=["sqlite", "postgresql"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    with ExitStack() as stack:
        variables = {"BENCHLOCK_LEASE": str(LEASE)}
        others: list[tuple[Victim, int]]
        if request.param == "postgresql":
            server = stack.enter_context(postgresql_serving())
            server.run(f"CREATE DATABASE kills TEMPLATE {EMPTY}")
            place, proxy = server.address("kills"), stack.enter_context(proxy_to(server.port))
            variables["BENCHLOCK_DATABASE"] = place.replace(f":{server.port}/", f":{proxy.port}/")
            others = [(Postgres("database", server.postmaster), 3), (Line("connection to the database", proxy), 3)]
        else:
            place = str(tmp_path / "registry" / "registry.sqlite")
            others = [(DatabaseFile("database", Path(place)), 3)]
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        commands = Commands(tmp_path / "registry", engine_url, variables)
        commands.done("db", "create")
        found = Site(tmp_path, commands, place, random.Random(SEED), others=others)
        stack.callback(found.database.dispose)
        served(found, lambda port: stack.enter_context(proxy_to(port)))
        for one in found.all:
            stack.callback(one.end)
        yield found


def served(site: Site, proxied: Callable[[int], FaultyProxy]) -> None:
    """The service of the site, and its workers."""
    benchlock, port, common = str(BENCHLOCK), free_port(), site.commands.environment()
    words = [benchlock, "--registry", str(site.commands.registry), "serve", "--open", "--port", str(port)]
    site.others.append((Program("service", words, common, site.folder / "service.log"), 3))
    for name, host in HOSTS.items():
        proxy, home = proxied(port), site.folder / "hosts" / host
        words = [benchlock, "--registry", f"http://127.0.0.1:{proxy.port}", "worker", "--processes", "--machine", name]
        own = {"XDG_CACHE_HOME": str(home / name), "BENCHLOCK_HOST_LOCK": str(home / "lock")}
        (home / name).mkdir(parents=True)
        engine = {} if host == "a" else {"DOCKER_HOST": f"unix://{home}/no-engine.sock"}
        log = site.folder / f"{name}.log"
        site.workers.append(Program(f"worker{name[1:]}", [*words], common | own | engine, log))
        site.others.append((Line(f"connection{name[1:]}", proxy), 1))


@pytest.fixture
def engine_events(engine_url: str, tmp_path: Path) -> Iterator[Path]:
    """What the engine tells of its containers, as it happens."""
    path = tmp_path / "events"
    words = ["docker", f"--host={engine_url}", "events", "--filter", "type=container", "--format", "{{json .}}"]
    with path.open("wb") as written:
        process = subprocess.Popen(words, stdout=written)
    yield path
    process.terminate()
    process.wait(20)


def contained(path: Path) -> list[Span]:
    """When each container ran."""
    found: dict[str, dict[str, float]] = {}
    for event in map(json.loads, path.read_text().splitlines()):
        if event["Action"] in ("start", "die"):
            found.setdefault(event["Actor"]["ID"], {})[event["Action"]] = event["timeNano"] / 1e9
    return [Span(one["start"], one["die"], f"container {id_[:12]}") for id_, one in found.items() if len(one) == 2]


def together(measured: list[Span]) -> list[tuple[Span, Span]]:
    """Those of one host that measured at once."""
    ordered = sorted(measured, key=lambda one: one.begin)
    return [(one, next_) for one, next_ in pairwise(ordered) if next_.begin < one.end]


@pytest.mark.engine
def test_whatever_is_struck_each_job_has_one_result_and_measures_alone(
    site: Site, image: PythonImage, engine_events: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = site.submit(image)
    for one in site.all:
        if isinstance(one, Program):
            one.start()
    with site.mending():
        for _ in range(KILLS):
            site.wait_until(site.is_at_work, 20)
            time.sleep(site.numbers.uniform(0.1, 2.5))
            site.strike()
        site.mend(float("inf"))
        site.wait_until(site.is_over, 120 + JOBS * 5)
    told = tell(site, asked, engine_events)
    with capsys.disabled():
        sys.stdout.write(f"\n{told}\n" * ("BENCHLOCK_KILLS" in os.environ))
    check_jobs(site, asked, told)
    check_alone(site, engine_events)
    assert {one.ask_to_end() for one in site.workers} <= {0, -signal.SIGTERM}  # it may not have begun
    for victim in site.all:
        victim.end()
    assert (processes(site.folder), containers(site.commands)) == ([], [])
    assert site.commands.done("verify")["damaged"] == []


def tell(site: Site, asked: dict[str, str], engine_events: Path) -> dict[str, Any]:
    """What was done, and what became of it: the test's counts."""
    return {
        "seed": SEED,
        "strikes": dict(sorted(site.done.items())),
        "jobs": {kind: dict(found) for kind, found in kinds(site, asked).items()},
        "leases": dict(Counter(ended for (ended,) in site.rows("SELECT ended FROM leases"))),
        "runs": dict(Counter(outcome for (outcome,) in site.rows("SELECT outcome FROM run_ends"))),
        "containers": len(contained(engine_events)),
    }


def kinds(site: Site, asked: dict[str, str]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for job, state in site.rows("SELECT id, state FROM jobs"):
        found.setdefault(asked[job], Counter())[state] += 1
    return found


def check_jobs(site: Site, asked: dict[str, str], told: dict[str, Any]) -> None:
    """No job is lost, none has two results, none goes on for ever."""
    states = {job: (state, lost) for job, state, lost in site.rows("SELECT id, state, lost FROM jobs")}
    assert set(states) == set(asked), "a job was lost"
    assert {state for state, _ in states.values()} <= {"done", "quarantined"}, told
    assert all(lost == 3 for state, lost in states.values() if state == "quarantined"), told
    assert {states[job] for job, kind in asked.items() if kind == "killer"} == {("quarantined", 3)}, told
    others = [states[job][0] for job, kind in asked.items() if kind != "killer"]
    assert others.count("done") >= LEAST * len(others), told
    results = site.rows("SELECT job, run FROM job_results")
    assert sorted(job for job, _ in results) == sorted(job for job, (state, _) in states.items() if state == "done")
    done = [run for (run,) in site.rows("SELECT run FROM run_ends WHERE outcome = 'done'")]
    assert sorted(done) == sorted(run for _, run in results), "a run was committed that is no result"
    began = {run for (run,) in site.rows("SELECT run FROM leases WHERE run IS NOT NULL")}
    assert began == {run for (run,) in site.rows("SELECT run FROM run_ends")}, "a run has no end"
    for left in ("SELECT run FROM open_runs", "SELECT fence FROM lease_slots", "SELECT run FROM held_runs"):
        assert site.rows(left) == []
    assert site.rows("SELECT fence FROM leases WHERE ended IS NULL") == []
    assert {code for one in site.workers for code in one.codes} <= {-9}, "a worker gave up"


def check_alone(site: Site, engine_events: Path) -> None:
    """No two measurements of a host were there at once, whether or not a container held them."""
    outside = spans(site.log)
    assert outside
    for host in sorted(set(HOSTS.values())):
        of_it = [one for one in outside if f"/hosts/{host}/" in one.where]
        assert together([*of_it, *(contained(engine_events) if host == "a" else [])]) == []
