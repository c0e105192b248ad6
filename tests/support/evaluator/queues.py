"""What tests of the queue are made of: a clock that they set, machines, locks, runs."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, insert

from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.evaluator.queue.job_matching import JobRequirements, MachineFacts, RequiredPlatform
from benchlock.evaluator.queue.lease_times import Times
from benchlock.evaluator.queue.queue_clock import Clock
from benchlock.evaluator.queue.queue_types import JobId, JobRequest, MachineId, new_job_id
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.comparison_types import ComparisonTurn
from benchlock.evaluator.records.run_types import Outcome, RunEnd, RunId, RunStart, new_run_id
from benchlock.registry.database.engine import write_transaction
from benchlock.registry.database.registry_schema import locks
from benchlock.registry.requests.hardware_requirements import HostFacts
from tests.support.evaluator.recorded import HOST, NOON, PLATFORM

GIB = 1 << 30
LOCK = digest_bytes(b"a lock")
LOCKS = (LOCK, digest_bytes(b"a second lock"), digest_bytes(b"a third lock"))
BOOT = "a boot"
TIMES = Times(60)
CPU = RequiredPlatform("linux", "amd64", "cpu", layered=True, finished=False)
ANY = JobRequirements((CPU,), {}, cpus=1)
LARGE = JobRequirements((CPU,), {"cpus": 8, "memory": "64GiB"}, cpus=1)
ARM = JobRequirements((RequiredPlatform("linux", "arm64", "cpu", layered=True, finished=False),), {}, cpus=1)
CONFINED = JobRequirements((CPU,), {}, cpus=1, isolation="container")
PINNED = JobRequirements((CPU,), {}, cpus=1, machine="m1")


class Ticking(Clock):
    """Stands still until it is moved."""

    def __init__(self) -> None:
        super().__init__(TIMES)
        self.time = 1000.0

    def now(self, connection: Connection) -> float:  # noqa: ARG002
        return self.time

    @property
    def is_set(self) -> bool:
        return True

    def note(self, connection: Connection, now: float) -> None:
        pass


def facts(
    cpus: int = 2,
    memory: int = 8 * GIB,
    engine: str | None = "Engine 27",
    arch: str = "amd64",
    *,
    processes: bool = True,
    code: bool = True,
) -> MachineFacts:
    host = HostFacts("linux", arch, cpus, memory, (), "no driver")
    return MachineFacts(host, engine, "A CPU", "Linux 6.1", None, processes, code)


def queue_of(database: Engine, clock: Clock, times: Times = TIMES) -> SqlQueue:
    """A queue on the database, with the locks that wishes name."""
    for lock in LOCKS:
        keep_lock(database, lock)
    return SqlQueue(database, lambda: datetime.now(UTC), times, clock)


def keep_lock(database: Engine, lock: Digest = LOCK) -> None:
    with write_transaction(database) as connection:
        columns = {column.name: "x" for column in locks.columns} | {"id": lock, "created_at": NOON}
        connection.execute(insert(locks).values(columns))


def wish(wants: JobRequirements = ANY, job: JobId | None = None, lock: Digest = LOCK) -> JobRequest:
    return JobRequest(job or new_job_id(NOON), lock, wants)


def turns(count: int = 3, comparison: str = "0" * 16) -> list[tuple[JobRequest, ComparisonTurn]]:
    """As many jobs of a comparison, for m1 alone."""
    made = (
        ComparisonTurn(id=comparison, round=1 + number, rounds=count, arm=0, control=False, margins={"top1": 0.1})
        for number in range(count)
    )
    return [(wish(PINNED), turn) for turn in made]


def machine(number: int) -> MachineId:
    return MachineId(f"m{number}")


def start(run: RunId | None = None, **changes: Any) -> RunStart:  # noqa: ANN401 - fields of any type
    fields: dict[str, Any] = {
        "id": run or new_run_id(NOON),
        "lock": LOCK,
        "attempt": 1,
        "isolation": "process",
        "platform": PLATFORM,
        "host": HOST,
        "process": {"pid": 1},
        "started_at": NOON,
    }
    return RunStart(**(fields | changes))


def end(outcome: Outcome = "done", failure: str | None = None) -> RunEnd:
    return RunEnd(
        outcome=outcome,
        ended_at=NOON + timedelta(minutes=1),
        failure_class=failure,
        failure_message=None if failure is None else f"it was {failure}",
        packages={"numpy": "2.4.0"},
        blobs={"result": Descriptor(digest_bytes(b"result"), 6)},
        timings={"run": 1.0},
    )
