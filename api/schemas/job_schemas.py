"""Bodies for jobs, leases and machines."""

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from benchlock.api.schemas.artifact_schemas import DigestText
from benchlock.api.schemas.run_schemas import Moment, RunBegun, RunOver, RunText
from benchlock.api.schemas.shared_fields import limit_document, limit_text
from benchlock.artifacts import size_limits
from benchlock.artifacts.digest import Digest
from benchlock.evaluator.queue.lease_clock import Times
from benchlock.evaluator.queue.matching import MachineFacts
from benchlock.evaluator.queue.queue_model import (
    Beat,
    Explanation,
    Fence,
    Job,
    JobId,
    JobState,
    Lease,
    Machine,
    MachineId,
    MachineMatch,
    Phase,
    Tally,
)
from benchlock.evaluator.records.run_model import Isolation, RunId

JobText = Annotated[str, Meta(pattern=r"^job/[0-9a-hjkmnp-tv-z]{26}$", examples=["job/01kam1v3mz4w0q3d5g7h9j2k4m"])]
MachineText = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", examples=["m-5f0c3a9d1b22"])]
Boot = Annotated[str, Meta(min_length=1), limit_text(size_limits.MACHINE)]
Nonce = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")]
Reason = Annotated[str, limit_text(size_limits.REASON)]
FenceNumber = Annotated[int, Meta(ge=1, lt=1 << 62)]
Released = Literal["cancelled", "returned", "engine", "integrity", "invalid"]
"""How an agent gives a lease back that has no run. That nobody heard of it is the queue's to say."""
LONGEST_WAIT = 25.0
"""Seconds that an agent may wait for work in one request."""


class JobAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lock that the registry has, or a request, whose lock is made: to be run once by a worker.

    The same ``job`` again is the same job, whatever was published meanwhile.
    """

    lock: DigestText | UnsetType = UNSET
    request: Annotated[dict[str, Any], limit_document(size_limits.REQUEST)] | UnsetType = UNSET
    isolation: Isolation | None = None
    allow_code: bool = False
    job: JobText | UnsetType = UNSET


class JobOnWire(Struct, frozen=True, kw_only=True):
    """A job. ``run`` is its result, else the run of its last lease; ``again_in`` seconds it is tried again."""

    job: JobText
    lock: DigestText
    state: JobState
    phase: Phase | None
    machine: str | None
    run: RunText | None
    lost: int
    engine: int
    crash: int
    cancel_asked: bool
    failure: str | None
    reason: str | None
    again_in: float | None
    submitted_at: datetime


class JobPage(Struct, frozen=True, kw_only=True):
    """Jobs, newest first; ``next`` is the cursor of the older ones, absent where there are none."""

    jobs: tuple[JobOnWire, ...]
    next: str | UnsetType = UNSET


class StandingTold(Struct, frozen=True, kw_only=True):
    """What stands between a job and a machine; nothing where it may take it."""

    machine: str
    lacks: tuple[str, ...]
    obstacle: str | None


class ExplanationTold(Struct, frozen=True, kw_only=True):
    """Why a job is where it is. ``blocked``: no machine can take it as things are."""

    job: JobOnWire
    blocked: bool
    why: str
    machines: tuple[StandingTold, ...]
    ahead: int


class Enrolment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a machine is, in this boot; and what its ``clock`` says, which is shown and decides nothing."""

    boot: Boot
    facts: Annotated[dict[str, Any], limit_document(size_limits.MACHINE_FACTS)]
    clock: Moment | None = None


class MachineOnWire(Struct, frozen=True, kw_only=True):
    """A machine as known; ``unseen`` are the seconds since it was heard of, ``gone_because`` why else it is gone.

    ``held`` says why it is held back, until it is given a job after ``held_for`` seconds. ``skew`` is by how many
    seconds its clock was ahead of the server's.
    """

    machine: str
    boot: str
    facts: dict[str, Any]
    draining: str | None
    unseen: float
    gone: bool
    job: JobText | None
    gone_because: str | None = None
    held: str | None = None
    held_for: float = 0.0
    skew: float | None = None


class MachinePage(Struct, frozen=True, kw_only=True):
    """Machines, by name; ``next`` where there are more."""

    machines: tuple[MachineOnWire, ...]
    next: str | UnsetType = UNSET


class Draining(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a machine gets no more jobs; null gives it some again."""

    draining: Annotated[str, Meta(min_length=1), limit_text(size_limits.REASON)] | None


class LeaseAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine asks for work, and waits for some so many seconds.

    The same ``nonce`` again is the same question, and has the same answer.
    """

    machine: MachineText
    boot: Boot
    nonce: Nonce | None = None
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] = 0.0


class LeaseOnWire(Struct, frozen=True, kw_only=True):
    """A lease: for ``seconds`` from the asking, and again from each beat."""

    fence: int
    job: JobText
    lock: DigestText
    isolation: Isolation | None
    allow_code: bool
    queue: str
    seconds: float


class LeaseAnswer(Struct, frozen=True, kw_only=True):
    """A lease, or null where there is no work."""

    lease: LeaseOnWire | None


class Beating(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is being done under a lease."""

    phase: Phase


class Beaten(Struct, frozen=True, kw_only=True):
    """Go on, end it since it was cancelled, or end it since it is lost."""

    answer: Beat


class Holding(Struct, frozen=True, kw_only=True):
    """Whether a lease holds."""

    holds: bool


class QueueTold(Struct, frozen=True, kw_only=True):
    """The queue's own name, which the containers of its workers carry."""

    name: str


class Began(Struct, frozen=True, kw_only=True):
    """The start as recorded, or null where the lease holds no more."""

    start: RunBegun | None


class Committed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The end of a lease's run."""

    run: RunText
    end: RunOver


class Release(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a lease is given back."""

    ended: Released
    reason: Reason


def encode_job(job: Job) -> JobOnWire:
    return JobOnWire(
        job=job.id,
        lock=job.lock,
        state=job.state,
        phase=job.phase,
        machine=job.machine,
        run=job.run,
        lost=job.tally.lost,
        engine=job.tally.engine,
        crash=job.tally.crash,
        cancel_asked=job.cancel_asked,
        failure=job.failure,
        reason=job.reason,
        again_in=job.due,
        submitted_at=job.submitted_at,
    )


def job_summary(job: Job) -> JobOnWire:
    """Return the job as a list shows it: with a short reason."""
    reason = None if job.reason is None else size_limits.shorten(job.reason, size_limits.SUMMARY)
    return encode_job(replace(job, reason=reason))


def decode_job(job: JobOnWire) -> Job:
    return Job(
        id=JobId(job.job),
        lock=Digest(job.lock),
        state=job.state,
        phase=job.phase,
        machine=None if job.machine is None else MachineId(job.machine),
        run=None if job.run is None else RunId(job.run),
        tally=Tally(job.lost, job.engine, job.crash),
        cancel_asked=job.cancel_asked,
        failure=job.failure,
        reason=job.reason,
        due=job.again_in,
        submitted_at=job.submitted_at,
    )


def encode_explanation(found: Explanation) -> ExplanationTold:
    machines = tuple(
        StandingTold(machine=one.machine, lacks=one.lacks, obstacle=one.obstacle) for one in found.machines
    )
    return ExplanationTold(
        job=encode_job(found.job), blocked=found.blocked, why=found.sentence, machines=machines, ahead=found.ahead
    )


def decode_explanation(told: ExplanationTold) -> Explanation:
    machines = tuple(MachineMatch(MachineId(one.machine), one.lacks, one.obstacle) for one in told.machines)
    return Explanation(decode_job(told.job), told.blocked, told.why, machines, told.ahead)


def encode_machine(machine: Machine) -> MachineOnWire:
    return MachineOnWire(
        machine=machine.id,
        boot=machine.boot,
        facts=machine.facts.document(),
        draining=machine.draining,
        unseen=machine.unseen,
        gone=machine.gone,
        job=machine.job,
        gone_because=machine.gone_because,
        held=machine.held,
        held_for=machine.held_for,
        skew=machine.skew,
    )


def decode_machine(told: MachineOnWire) -> Machine:
    return Machine(
        id=MachineId(told.machine),
        boot=told.boot,
        facts=MachineFacts.read(told.facts),
        draining=told.draining,
        unseen=told.unseen,
        gone=told.gone,
        job=None if told.job is None else JobId(told.job),
        gone_because=told.gone_because,
        held=told.held,
        held_for=told.held_for,
        skew=told.skew,
    )


def encode_lease(lease: Lease) -> LeaseOnWire:
    return LeaseOnWire(
        fence=lease.fence,
        job=lease.job,
        lock=lease.lock,
        isolation=lease.isolation,
        allow_code=lease.allow_code,
        queue=lease.queue,
        seconds=lease.times.lease,
    )


def decode_lease(told: LeaseOnWire) -> Lease:
    return Lease(
        Fence(told.fence),
        JobId(told.job),
        Digest(told.lock),
        told.isolation,
        told.allow_code,
        told.queue,
        Times(told.seconds),
    )
