"""A registry whose parts are struck at random, and what must be true of it afterwards.

What is asserted is in the database, in what the harnesses wrote down, and in what the engine told.
"""

import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.local.local_registry import now, open_registry
from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.queue.submission_checks import make_job_request
from benchlock.registry.database.engine import read_transaction
from tests.support.api.commands import Commands
from tests.support.evaluator.stub_harness import Span, spans, stubbed
from tests.support.servers.postgresql import open_any
from tests.support.system.python_image import PythonImage
from tests.support.system.striking import Program, Victim

ENDED = {"done", "failed", "quarantined", "cancelled"}


@dataclass
class Site:
    """A registry, what runs on it, and what can be struck: ``workers`` and ``others``, each with a weight."""

    folder: Path
    commands: Commands
    place: str
    numbers: random.Random
    lease: float
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

    def submit(self, image: PythonImage | None, wanted: Iterable[str]) -> dict[str, str]:
        """Queue jobs; each with what was ``wanted``: the isolation that it asks for, or how it is as a process.

        That is ``killer`` if it kills its worker, ``long`` or ``medium`` if it lasts long, or ``empty``.
        """
        registry = open_registry(str(self.commands.registry), print)
        try:
            assert isinstance(registry.store, LocalStore)
            queue = open_queue(registry)
            evaluation = stubbed(registry.store, self.folder, image)
            found: dict[str, str] = {}
            for number, kind in enumerate(wanted):
                least, longest = {"container": (0.1, 2), "long": (40, 40), "medium": (2, 2), "empty": (0, 0)}.get(
                    kind, (0.1, 0.5)
                )
                seconds, failure = self.lease * self.numbers.uniform(least, longest), "kills" * (kind == "killer")
                lock = evaluation.holding(round(seconds, 2), failure, self.log).lock(metrics=(), number=number)
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

    def strike(self, victim: Victim | None = None) -> str:
        """Strike a victim, or one that is drawn; what was done to it, ``missed`` where it was not there."""
        weights = [(one, 3) for one in self.workers] + self.others
        victim = victim or self.numbers.choices([one for one, _ in weights], [weight for _, weight in weights])[0]
        with self.turn:
            kind = victim.strike(self.numbers, time.monotonic(), 2 * self.lease)
        self.done[f"{victim.name.rstrip('123')} {kind}"] += 1
        return kind

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


@contextmanager
def recorded_events(engine_url: str, path: Path) -> Iterator[Path]:
    """What the engine tells of its containers, as it happens, written to ``path``."""
    words = ["docker", f"--host={engine_url}", "events", "--filter", "type=container", "--format", "{{json .}}"]
    with path.open("wb") as written:
        process = subprocess.Popen(words, stdout=written)
    try:
        yield path
    finally:
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


def tell(site: Site, asked: dict[str, str], engine_events: Path) -> dict[str, Any]:
    """What was done, and what became of it."""
    return {
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


def check_jobs(site: Site, asked: dict[str, str], told: dict[str, Any], least: float) -> None:
    """No job is lost, none has two results, none goes on for ever; of those that kill nobody, ``least`` are done."""
    states = {job: (state, lost) for job, state, lost in site.rows("SELECT id, state, lost FROM jobs")}
    assert set(states) == set(asked), "a job was lost"
    assert {state for state, _ in states.values()} <= {"done", "quarantined"}, told
    assert all(lost == 3 for state, lost in states.values() if state == "quarantined"), told
    assert {states[job] for job, kind in asked.items() if kind == "killer"} <= {("quarantined", 3)}, told
    others = [states[job][0] for job, kind in asked.items() if kind != "killer"]
    assert others.count("done") >= least * len(others), told
    results = site.rows("SELECT job, run FROM job_results")
    assert sorted(job for job, _ in results) == sorted(job for job, (state, _) in states.items() if state == "done")
    done = [run for (run,) in site.rows("SELECT run FROM run_ends WHERE outcome = 'done'")]
    assert sorted(done) == sorted(run for _, run in results), "a run was committed that is no result"
    began = {run for (run,) in site.rows("SELECT run FROM leases WHERE run IS NOT NULL")}
    assert began == {run for (run,) in site.rows("SELECT run FROM run_ends")}, "a run has no end"
    for left in ("SELECT run FROM open_runs", "SELECT fence FROM lease_slots", "SELECT run FROM held_runs"):
        assert site.rows(left) == []
    assert site.rows("SELECT fence FROM leases WHERE ended IS NULL") == []


def overlaps(site: Site, engine_events: Path, hosts: Sequence[str]) -> list[tuple[Span, Span]]:
    """Measurements of one of the hosts at once, whether or not a container held them; the engine is of the first."""
    outside = spans(site.log)
    assert outside
    found = []
    for host in hosts:
        of_it = [one for one in outside if f"/hosts/{host}/" in one.where]
        found += together([*of_it, *(contained(engine_events) if host == hosts[0] else [])])
    return found
