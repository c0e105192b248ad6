"""Bodies for jobs, leases and machines."""

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from benchlock.artifacts import size_limits
from benchlock.artifacts.digest import Digest, DigestText
from benchlock.evaluator.queue.lease_clock import Times
from benchlock.evaluator.queue.matching import MachineFacts
from benchlock.evaluator.queue.queue_types import (
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
from benchlock.evaluator.records.run_model import Isolation, Moment, RunEnd, RunId, RunStart, RunText

JobText = Annotated[str, Meta(pattern=r"^job/[0-9a-hjkmnp-tv-z]{26}$", examples=["job/01kam1v3mz4w0q3d5g7h9j2k4m"])]
MachineText = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", examples=["m-5f0c3a9d1b22"])]
Boot = Annotated[str, Meta(min_length=1), size_limits.limit_text(size_limits.MACHINE)]
Nonce = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")]
Reason = Annotated[str, size_limits.limit_text(size_limits.REASON)]
FenceNumber = Annotated[int, Meta(ge=1, lt=1 << 62)]
Released = Literal["cancelled", "returned", "engine", "integrity", "invalid"]
"""Why an agent gives back a lease without a run. Only the queue decides that an agent is lost."""
LONGEST_WAIT = 25.0
"""The maximum seconds that an agent waits for a lease in one request."""


class JobAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to queue: one run of a stored lock, or of the lock that answers a request.

    Submitting the same ``job`` again has no effect, even if versions were published meanwhile.
    """

    lock: DigestText | UnsetType = UNSET
    request: Annotated[dict[str, Any], size_limits.limit_document(size_limits.REQUEST)] | UnsetType = UNSET
    isolation: Isolation | None = None
    allow_code: bool = False
    job: JobText | UnsetType = UNSET


class JobOnWire(Struct, frozen=True, kw_only=True):
    """A job. ``run`` is its result, else the run of its last lease; it is retried in ``again_in`` seconds."""

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
    """Jobs, newest first; ``next`` is the cursor of the next page, absent on the last."""

    jobs: tuple[JobOnWire, ...]
    next: str | UnsetType = UNSET


class StandingTold(Struct, frozen=True, kw_only=True):
    """The reasons why a machine cannot take a job now: requirements that it lacks, and a temporary obstacle."""

    machine: str
    lacks: tuple[str, ...]
    obstacle: str | None


class ExplanationTold(Struct, frozen=True, kw_only=True):
    """The explanation of a job's state; with ``blocked``, no known machine can take the job."""

    job: JobOnWire
    blocked: bool
    why: str
    machines: tuple[StandingTold, ...]
    ahead: int


class Enrolment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts of a machine in its current boot; ``clock`` is shown only, and has no effect."""

    boot: Boot
    facts: Annotated[dict[str, Any], size_limits.limit_document(size_limits.MACHINE_FACTS)]
    clock: Moment | None = None


class MachineOnWire(Struct, frozen=True, kw_only=True):
    """A machine. ``unseen`` are the seconds since its last request, ``gone_because`` is why else it counts as gone.

    ``held`` is why it gets no job for the next ``held_for`` seconds. ``skew`` is how many seconds its clock was ahead
    of the server's.
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
    """Machines by name; ``next`` is the cursor of the next page, absent on the last."""

    machines: tuple[MachineOnWire, ...]
    next: str | UnsetType = UNSET


class Draining(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason why a machine gets no more jobs; null ends the draining."""

    draining: Annotated[str, Meta(min_length=1), size_limits.limit_text(size_limits.REASON)] | None


class LeaseAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine's request for a lease, which waits for at most ``wait`` seconds.

    A repeated request with the same ``nonce`` has the same answer.
    """

    machine: MachineText
    boot: Boot
    nonce: Nonce | None = None
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] = 0.0


class LeaseOnWire(Struct, frozen=True, kw_only=True):
    """A lease, valid for ``seconds`` from its request and from each heartbeat."""

    fence: int
    job: JobText
    lock: DigestText
    isolation: Isolation | None
    allow_code: bool
    queue: str
    seconds: float


class LeaseAnswer(Struct, frozen=True, kw_only=True):
    """A lease, or null if there is no job for the machine."""

    lease: LeaseOnWire | None


class Beating(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A heartbeat with the current phase of the job."""

    phase: Phase


class Beaten(Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat: continue, stop because the job was cancelled, or stop because the lease is lost."""

    answer: Beat


class Holding(Struct, frozen=True, kw_only=True):
    """Whether a lease is still held."""

    holds: bool


class QueueTold(Struct, frozen=True, kw_only=True):
    """The name of the queue, with which its workers label their containers."""

    name: str


class Began(Struct, frozen=True, kw_only=True):
    """The recorded start of a run, or null if the lease is no longer held."""

    start: RunStart | None


class Committed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The end of the run of a lease."""

    run: RunText
    end: RunEnd


class Release(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason why a lease is given back."""

    ended: Released
    reason: Reason


def encode_job(job: Job) -> JobOnWire:
    """Encode a job."""
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
    """Encode a job for a list, with a shortened reason."""
    reason = None if job.reason is None else size_limits.shorten(job.reason, size_limits.SUMMARY)
    return encode_job(replace(job, reason=reason))


def decode_job(job: JobOnWire) -> Job:
    """Decode a job."""
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


def encode_explanation(explanation: Explanation) -> ExplanationTold:
    """Encode the explanation of a job's state."""
    machines = tuple(
        StandingTold(machine=match.machine, lacks=match.lacks, obstacle=match.obstacle)
        for match in explanation.machines
    )
    return ExplanationTold(
        job=encode_job(explanation.job),
        blocked=explanation.blocked,
        why=explanation.sentence,
        machines=machines,
        ahead=explanation.ahead,
    )


def decode_explanation(document: ExplanationTold) -> Explanation:
    """Decode the explanation of a job's state."""
    machines = tuple(MachineMatch(MachineId(match.machine), match.lacks, match.obstacle) for match in document.machines)
    return Explanation(decode_job(document.job), document.blocked, document.why, machines, document.ahead)


def encode_machine(machine: Machine) -> MachineOnWire:
    """Encode a machine."""
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


def decode_machine(document: MachineOnWire) -> Machine:
    """Decode a machine."""
    return Machine(
        id=MachineId(document.machine),
        boot=document.boot,
        facts=MachineFacts.read(document.facts),
        draining=document.draining,
        unseen=document.unseen,
        gone=document.gone,
        job=None if document.job is None else JobId(document.job),
        gone_because=document.gone_because,
        held=document.held,
        held_for=document.held_for,
        skew=document.skew,
    )


def encode_lease(lease: Lease) -> LeaseOnWire:
    """Encode a lease."""
    return LeaseOnWire(
        fence=lease.fence,
        job=lease.job,
        lock=lease.lock,
        isolation=lease.isolation,
        allow_code=lease.allow_code,
        queue=lease.queue,
        seconds=lease.times.lease,
    )


def decode_lease(document: LeaseOnWire) -> Lease:
    """Decode a lease."""
    return Lease(
        Fence(document.fence),
        JobId(document.job),
        Digest(document.lock),
        document.isolation,
        document.allow_code,
        document.queue,
        Times(document.seconds),
    )
