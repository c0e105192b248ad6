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
from benchlock.evaluator.queue.lease_times import Times
from benchlock.evaluator.queue.queue_clock import Clock
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
_PAUSES = 60.0, 1200.0
"""The shortest and the longest pause of the database, in seconds; a lease outlives the one, not the other."""
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
        """Do nothing: the simulation keeps the time, also when the service restarts."""


@dataclass
class Worker:
    """A machine. Events of an older ``life`` are those of a machine that has died since.

    ``skew`` is the seconds by which its clock is ahead, ``heard`` the time of the last answer about its lease.
    """

    number: int
    skew: float
    life: int = 0
    lease: Lease | None = None
    job: SimulatedJob | None = None
    run: RunStart | None = None
    since: float = 0.0
    heard: float = 0.0
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
        skew = workload.faults.skew
        self.workers = [Worker(number, self.order.uniform(-skew, skew)) for number in range(workload.machines)]
        self.jobs: dict[JobId, SimulatedJob] = {}
        self.intervals: list[Interval] = []
        self.accepted = Counter[JobId]()
        self.tally = Counter[str]()
        self.first_taken: dict[JobId, float] = {}
        self.last_fence, self.vacuum_at, self.end, self.paused_until = 0, 128, 0.0, 0.0
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
        faults = self.workload.faults
        if faults.rack:
            self._at(2 * _HOUR, self._lose_rack)
        for hours, happen in ((faults.pause_hours, self._pause), (faults.restart_hours, self._restart)):
            if hours < math.inf:
                self._at(hours * _HOUR, happen)
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

    def _calendar(self, skew: float = 0.0) -> datetime:
        return _NOON + timedelta(seconds=self.clock.time + skew)

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

    def _is_put_off(self, act: Callable[..., object], *values: object) -> bool:
        """Whether the database pauses; then the message is sent again afterwards."""
        left = self.paused_until - self.clock.time
        if left > 0:
            self._at(left + self.order.uniform(0, TIMES.again), act, *values)
        return left > 0

    def _come(self, worker: Worker, life: int) -> None:
        if self._is_put_off(self._come, worker, life):
            return
        name, facts = self.workload.name(worker.number), self.workload.facts(worker.number)
        self.queue.enrol(name, f"boot {worker.boots}", facts, self._calendar(worker.skew))
        self._ask(worker, life)

    def _ask(self, worker: Worker, life: int) -> None:
        if worker.life != life or self._is_put_off(self._ask, worker, life):
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
            started_at=at,  # of the service's clock, as in every worker
        )
        for _ in range(self._deliveries()):
            assert self.queue.begin(lease.fence, start) is not None
        worker.lease, worker.job, worker.run, worker.frozen, worker.pause = lease, job, start, 0.0, _IDLE
        worker.since = worker.heard = self.clock.time
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
        if self._is_put_off(self._beat, worker, life):
            return
        # Of an agent that had no answer for so long, either the watchdog or the heartbeat comes first.
        gives_up = self.clock.time - worker.heard > TIMES.grace and self._happens(0.5)
        fence, number = worker.lease.fence, 0 if gives_up else self._deliveries()
        answers = [self.queue.beat(fence, "measuring") for _ in range(number)]
        if answers and answers[-1] != "lost":
            worker.heard = self.clock.time
            self._at(TIMES.beat, self._beat, worker, life)
        else:
            self._leave(worker, "told at a heartbeat" if answers else "without an answer to its heartbeats")
            self._ask(worker, worker.life)

    def _finish(self, worker: Worker, life: int) -> None:
        if worker.life != life or worker.lease is None:
            return
        if worker.frozen > self.clock.time:
            self._at(worker.frozen - self.clock.time, self._finish, worker, life)
            return
        if self._is_put_off(self._finish, worker, life):
            return
        assert worker.job is not None
        assert worker.run is not None
        failure = {"failing": "golden", "crashing": "crash"}.get(worker.job.end)
        end = RunEnd(
            outcome="done" if failure is None else "failed",
            ended_at=self._calendar(worker.skew),
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
            self._at(TIMES.lease + 1, self._settle)
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

    def _pause(self) -> None:
        """Let the database answer nobody for a while; machines go on with their jobs."""
        self.tally["pauses of the database"] += 1
        self.paused_until = self.clock.time + self.order.uniform(*_PAUSES)
        self._at(self.workload.faults.pause_hours * _HOUR, self._pause)

    def _restart(self) -> None:
        """Start the service anew: nothing that it keeps in memory, and no connection, outlives it."""
        self.tally["restarts of the service"] += 1
        self.database.dispose()
        self.queue = SqlQueue(self.database, self._calendar, TIMES, self.clock)
        self._at(self.workload.faults.restart_hours * _HOUR, self._restart)

    def _settle(self) -> None:
        if not self._is_put_off(self._settle):
            self.queue.settle()

    def _happens(self, chance: float) -> bool:
        return self.order.random() < chance

    def _deliveries(self) -> int:
        """How often a message arrives: once more if it is doubled, or if its answer is lost and it is sent again."""
        faults = self.workload.faults
        return 1 + self._happens(faults.duplicates) + self._happens(faults.lost_replies)
