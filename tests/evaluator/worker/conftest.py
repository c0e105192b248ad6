"""A registry in a folder, locks whose harness does nothing, and an agent that runs them as processes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine as Database

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.queue.lease_times import Times
from benchlock.evaluator.queue.queue_types import Job, JobId, MachineId, Queue
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.queue.submission_checks import make_job_request
from benchlock.evaluator.records.comparison_types import ComparisonTurn
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import RunJournal
from benchlock.evaluator.runner.container_engine import Engine
from benchlock.evaluator.runner.host_platform import HostTurn
from benchlock.evaluator.worker.worker_agent import Agent, WorkerEnvironment
from benchlock.evaluator.workflows.run import Runner
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.lock.lockfile import Lock, load
from tests.support.evaluator.stub_harness import Stubbed, stubbed


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Site:
    """A registry with a queue whose leases last as long as the test says, and what its agents said."""

    home: Path
    database: Database
    evaluation: Stubbed
    times: Times
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = self.evaluation.store
        self.catalogue = Catalogue(self.database, now)
        self.records = Records(self.database)
        self.queue = SqlQueue(self.database, now, self.times)
        self.log = self.home / "harnesses"

    def submit(self, seconds: float = 0.0, failure: str = "", turn: ComparisonTurn | None = None) -> JobId:
        lock = self.evaluation.holding(seconds, failure, self.log).lock(metrics=())
        wish = make_job_request(lock, self.store, "process", now)
        self.catalogue.put_lock(lock)
        return self.queue.submit(wish).id if turn is None else self.queue.submit_comparison([(wish, turn)])[0].id

    def agent(
        self, name: str = "m1", queue: Queue | None = None, connect: Callable[[], Engine | None] = lambda: None
    ) -> Agent:
        def fetch(lock: Digest) -> Lock:
            return load(self.catalogue.get_lock(lock), lock)

        def build(journal: RunJournal, turn: HostTurn, engine: Engine | None) -> Runner:
            keep = self.catalogue.put_lock
            return Runner(self.home, self.store, journal, engine, now, SILENT, self.said.append, keep, turn)

        workshop = WorkerEnvironment(self.home, connect, fetch, build, self.said.append)
        return Agent(
            queue or self.queue, MachineId(name), workshop, self.home / "host.lock", processes=True, pause=0.05
        )

    def job(self, job: JobId) -> Job:
        return self.queue.job(job)


@pytest.fixture
def site(database: Database, tmp_path: Path) -> Site:
    home = tmp_path / "registry"
    home.mkdir()
    return Site(home, database, stubbed(LocalStore(home / "blobs"), tmp_path), Times(3))
