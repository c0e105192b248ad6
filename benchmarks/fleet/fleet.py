"""Machines in virtual time that call the real queue; one process, one event after the other."""

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from sqlalchemy import Connection, Engine, insert, text

from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.evaluator.queue.lease_times import Clock, Times
from benchlock.evaluator.queue.queue_types import FencedError, JobId, JobRequest, Lease, new_job_id
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_types import RunEnd, RunStart, new_run_id
from benchlock.registry.auth.permissions import EVERYTHING, Actor, use_actor
from benchlock.registry.database.engine import read_transaction, write_transaction
from benchlock.registry.database.registry_schema import locks
from benchmarks.fleet.files import Cache, publish
from benchmarks.fleet.workload import RACK, Interval, SimulatedJob, Workload

TIMES = Times(600)
"""A lease of ten minutes, so that a job has about one heartbeat."""
_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_IDLE, _LONGEST_IDLE = 30.0, 600.0
"""The seconds between two requests of an idle machine grow from one to the other."""
_DOWN, _RACK_DOWN = 600.0, 3600.0
"""The seconds until a dead machine is back, and a rack."""
_HANG_MEDIAN, _HANG_SIGMA, _HANG_LONGEST = 180.0, 1.0, 1200.0
_AT_ONCE = 1000
_CHECK_EVERY, _VACUUM_EVERY = 500, 4096
_HOUR = 3600.0
_HOST: dict[str, Any] = {
    "cpu_model": "A CPU",
    "cpu_flags": ["avx2"],
    "cores": 64,
    "memory": 1 << 38,
    "kernel": "Linux",
    **dict.fromkeys(("governor", "engine", "accelerator", "driver")),
}
_PLATFORM = {"os": "linux", "arch": "amd64", "device": "cpu", "python": "3.11"}
_CONSISTENT = text("""
SELECT (SELECT count(*) FROM jobs WHERE state = 'leased') AS leased, (SELECT count(*) FROM lease_slots) AS slots,
    (SELECT count(*) FROM jobs JOIN lease_slots ON lease_slots.fence = jobs.fence WHERE jobs.state = 'leased') AS held
""")
_OPEN = text("""
SELECT EXISTS (SELECT 1 FROM jobs WHERE state = 'queued') OR EXISTS (SELECT 1 FROM jobs WHERE state = 'leased')
    OR EXISTS (SELECT 1 FROM jobs WHERE state = 'delayed')
""")


class VirtualClock(Clock):
    """The queue's clock, moved by the simulation."""

    def __init__(self) -> None:
        super().__init__(TIMES)
        self.time = 0.0

    def now(self, connection: Connection) -> float:  # noqa: ARG002
        return self.time

    @property
    def is_set(self) -> bool:
        return True

    def note(self, connection: Connection, now: float) -> None:
        """Nothing restarts here."""


@dataclass
class Worker:
    """A machine. Events of an older ``life`` are those of a machine that has died since."""

    number: int
    life: int = 0
    lease: Lease | None = None
    job: SimulatedJob | None = None
    run: RunStart | None = None
    since: float = 0.0
    frozen: float = 0.0
    pause: float = _IDLE
    boots: int = 0


class Fleet:
    """The queue, the machines and what happened; ``run`` goes on until every job has ended."""

    def __init__(self, database: Engine, workload: Workload) -> None:
        self.workload, self.database, self.clock = workload, database, VirtualClock()
        self.queue = SqlQueue(database, self._calendar, TIMES, self.clock)
        self.order = random.Random(f"faults {workload.seed}")  # noqa: S311 - no secret
        self.events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self.numbers = count()
        self.workers = [Worker(number) for number in range(workload.machines)]
        self.jobs: dict[JobId, SimulatedJob] = {}
        self.intervals: list[Interval] = []
        self.accepted = Counter[JobId]()
        self.tally = Counter[str]()
        self.first_taken: dict[JobId, float] = {}
        self.last_fence, self.vacuum_at, self.end = 0, 128, 0.0
        self.is_over = False
        self.caches = [Cache(workload.files.sizes) for _ in self.workers]

    def run(self) -> None:
        """Submit all jobs, and let the machines work until every job has ended."""
        with use_actor(self.workload.files.actor):
            self._run()

    def _run(self) -> None:
        self._submit()
        for worker in self.workers:
            self._at(self.order.uniform(0, 1), self._come, worker, worker.life)
        if self.workload.faults.rack:
            self._at(2 * _HOUR, self._lose_rack)
        while self.events and not self.is_over:
            self.clock.time, number, act, values = heapq.heappop(self.events)
            act(*values)
            if number % _CHECK_EVERY == 0:
                self.check()
            if self.last_fence >= self.vacuum_at:
                self.vacuum_at = min(2 * self.vacuum_at, self.vacuum_at + _VACUUM_EVERY)
                self._vacuum()

    def check(self) -> None:
        """Every leased job has the slot of a machine, and there is no other slot."""
        with read_transaction(self.database) as connection:
            row = connection.execute(_CONSISTENT).one()
        assert row.leased == row.slots == row.held, f"at {self.clock.time} s: {row}"

    def _calendar(self) -> datetime:
        return _NOON + timedelta(seconds=self.clock.time)

    def _at(self, seconds: float, act: Callable[..., object], *values: object) -> None:
        heapq.heappush(self.events, (self.clock.time + seconds, next(self.numbers), act, values))

    def _submit(self) -> None:
        with write_transaction(self.database) as connection:
            for lock in self.workload.lock_ids:
                values = {column.name: "x" for column in locks.columns} | {"id": lock, "created_at": _NOON}
                connection.execute(insert(locks).values(values | {"model": lock, "model_version": "1.0.0"}))
            publish(connection, self.workload.lock_ids, self.workload.files.sizes, _NOON)
        for owner in range(self.workload.owners):
            own = [job for job in self.workload.job_list if job.owner == owner]
            with use_actor(Actor(f"owner-{owner:02}", EVERYTHING)):
                for first in range(0, len(own), _AT_ONCE):
                    self._insert(own[first : first + _AT_ONCE])
            if own:
                self.queue.set_share(f"owner-{owner:02}", self.workload.weight(owner), None)
        self._vacuum()

    def _vacuum(self) -> None:
        """Do what the server does by itself while time passes."""
        with self.database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))

    def _insert(self, part: list[SimulatedJob]) -> None:
        requests = []
        for job in part:
            wants = self.workload.wants(job.kind, job.machine)
            lock = self.workload.lock_ids[job.lock]
            requests.append(JobRequest(new_job_id(_NOON), lock, wants, priority=job.priority))
            self.jobs[requests[-1].id] = job
        with write_transaction(self.database) as connection:
            self.queue.insert_all(connection, requests)

    def _come(self, worker: Worker, life: int) -> None:
        self.queue.enrol(self.workload.name(worker.number), f"boot {worker.boots}", self.workload.facts(worker.number))
        self._ask(worker, life)

    def _ask(self, worker: Worker, life: int) -> None:
        if worker.life != life:
            return
        name, nonce = self.workload.name(worker.number), f"{worker.number}.{next(self.numbers)}"
        lease = self.queue.lease(name, f"boot {worker.boots}", nonce)
        if self._happens(self.workload.faults.lost_replies) or self._happens(self.workload.faults.duplicates):
            again = self.queue.lease(name, f"boot {worker.boots}", nonce)
            assert lease is None or again == lease, "a repeated request got another lease"
            lease = again
        if lease is not None:
            self._start(worker, lease)
            return
        with read_transaction(self.database) as connection:
            self.is_over = not connection.execute(_OPEN).scalar_one()
        worker.pause = min(2 * worker.pause, _LONGEST_IDLE)
        self._at(worker.pause * self.order.uniform(0.5, 1), self._ask, worker, life)

    def _start(self, worker: Worker, lease: Lease) -> None:
        assert lease.fence > self.last_fence, "fences must rise"
        self.last_fence, job = lease.fence, self.jobs[lease.job]
        assert self.workload.may_run(worker.number, job), "the machine cannot run the job"
        self.first_taken.setdefault(lease.job, self.clock.time)
        self.caches[worker.number].fetch(job.lock)
        at = self._calendar()
        start = RunStart(
            id=new_run_id(at),
            lock=lease.lock,
            attempt=1,
            isolation="process",
            platform=_PLATFORM,
            host=_HOST,
            process={"pid": 1},
            started_at=at,
        )
        for _ in range(self._deliveries()):
            assert self.queue.begin(lease.fence, start) is not None
        worker.lease, worker.job, worker.run, worker.since, worker.frozen = lease, job, start, self.clock.time, 0.0
        worker.pause = _IDLE
        self._plan(worker, job)

    def _plan(self, worker: Worker, job: SimulatedJob) -> None:
        """Decide what happens to the job: its end, heartbeats, and a death or a hang of the machine."""
        faults, life = self.workload.faults, worker.life
        self._at(job.seconds, self._finish, worker, life)
        if job.seconds > TIMES.beat:
            self._at(TIMES.beat, self._beat, worker, life)
        if job.end == "poison":
            self._at(min(1.0, job.seconds / 2), self._die, worker, life, _DOWN)
        elif self._happens(job.seconds / _HOUR / faults.death_hours):
            self._at(self.order.uniform(0, job.seconds), self._die, worker, life, _DOWN)
        elif self._happens(job.seconds / _HOUR / faults.hang_hours):
            self._at(self.order.uniform(0, job.seconds), self._hang, worker, life)

    def _beat(self, worker: Worker, life: int) -> None:
        if worker.life != life or worker.lease is None:
            return
        if worker.frozen > self.clock.time:
            self._at(worker.frozen - self.clock.time, self._beat, worker, life)
            return
        fence = worker.lease.fence
        answers = [self.queue.beat(fence, "measuring") for _ in range(self._deliveries())]
        if answers[-1] == "lost":
            self._leave(worker, "told at a heartbeat")
            self._ask(worker, worker.life)
        else:
            self._at(TIMES.beat, self._beat, worker, life)

    def _finish(self, worker: Worker, life: int) -> None:
        if worker.life != life or worker.lease is None:
            return
        if worker.frozen > self.clock.time:
            self._at(worker.frozen - self.clock.time, self._finish, worker, life)
            return
        assert worker.job is not None
        assert worker.run is not None
        failure = {"failing": "golden", "crashing": "crash"}.get(worker.job.end)
        end = RunEnd(
            outcome="done" if failure is None else "failed",
            ended_at=self._calendar(),
            failure_class=failure,
            failure_message=None if failure is None else "it failed",
            packages={"numpy": "2.4.0"},
            blobs={"result": Descriptor(digest_bytes(b"result"), 6)},
            timings={"run": worker.job.seconds},
        )
        lease, run = worker.lease, worker.run.id
        try:
            job = self.queue.commit(lease.fence, run, end)
        except FencedError:
            self._leave(worker, "fenced at the end")
        else:
            for _ in range(self._deliveries() - 1):
                self.queue.commit(lease.fence, run, end)
            self.accepted[lease.job] += job.state in ("done", "failed")
            self.end = self.clock.time
            self._leave(worker, None)
        self._ask(worker, worker.life)

    def _leave(self, worker: Worker, why: str | None) -> None:
        """Note the end of the worker's lease; ``why`` its run does not count, else None."""
        assert worker.job is not None
        if why is not None:
            self.tally[why] += 1
        self.intervals.append(Interval(worker.job.owner, worker.since, self.clock.time, why is None))
        worker.lease = worker.job = worker.run = None
        worker.life += 1  # no event of this lease counts any more

    def _die(self, worker: Worker, life: int, down: float) -> None:
        if worker.life != life:
            return
        worker.boots += 1
        if worker.lease is not None:
            self._leave(worker, "died with its machine")
            self._at(TIMES.lease + 1, self.queue.settle)
        else:
            worker.life += 1
        self._at(down, self._come, worker, worker.life)

    def _hang(self, worker: Worker, life: int) -> None:
        if worker.life == life:
            self.tally["hangs"] += 1
            seconds = min(_HANG_LONGEST, self.order.lognormvariate(math.log(_HANG_MEDIAN), _HANG_SIGMA))
            worker.frozen = self.clock.time + seconds

    def _lose_rack(self) -> None:
        for worker in self.workers[: math.ceil(RACK * self.workload.machines)]:
            self._die(worker, worker.life, _RACK_DOWN)

    def _happens(self, chance: float) -> bool:
        return self.order.random() < chance

    def _deliveries(self) -> int:
        """How often a message arrives: once more if it is doubled, or if its answer is lost and it is sent again."""
        faults = self.workload.faults
        return 1 + self._happens(faults.duplicates) + self._happens(faults.lost_replies)
