"""Bodies for jobs, leases and machines, which are values of ``evaluator.queue``."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from benchlock.artifacts import size_limits
from benchlock.artifacts.digest import DigestText
from benchlock.evaluator.queue.queue_types import (
    MAX_COMPARED_LOCKS,
    MAX_LINES,
    MAX_ROUNDS,
    MIN_ROUNDS,
    Beat,
    Job,
    JobText,
    Lease,
    Machine,
    MachineText,
    MaxRunning,
    OwnerText,
    Phase,
    Priority,
    ProgressLine,
    Share,
    Weight,
)
from benchlock.evaluator.records.comparison_types import ComparisonId
from benchlock.evaluator.records.run_types import Isolation, Moment, RunEnd, RunStart, RunText

Boot = Annotated[str, Meta(min_length=1), size_limits.limit_text(size_limits.MACHINE)]
Nonce = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")]
Reason = Annotated[str, size_limits.limit_text(size_limits.REASON)]
Released = Literal["cancelled", "returned", "engine", "integrity", "invalid"]
"""Why an agent gives back a lease without a run. Only the queue decides that an agent is lost."""
LONGEST_WAIT = 25.0
"""The maximum seconds that an agent waits for a job in one request."""


class JobSubmission(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job to queue: one run of a stored lock, or of the lock that answers a request.

    With ``machine``, no other machine may run it. Jobs of a higher ``priority`` come before others of the same token.
    Submitting the same ``job`` again has no effect, even if versions were published meanwhile.
    """

    lock: DigestText | UnsetType = UNSET
    request: Annotated[dict[str, Any], size_limits.limit_document(size_limits.REQUEST)] | UnsetType = UNSET
    isolation: Isolation | None = None
    allow_code: bool = False
    job: JobText | UnsetType = UNSET
    machine: MachineText | None = None
    priority: Priority = 0


Margins = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[float, Meta(gt=0, lt=1)]],
    Meta(max_length=16, description="Relative margins by metric.", examples=[{"latency_p50": 0.05}]),
]


class ComparisonSubmission(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs to queue in turn on one machine: ``rounds`` of each lock, and of the first lock again as a control.

    Without a ``machine``, the only one that can run all locks does. The margins are those that all locks state, unless
    ``margins`` has another one for a metric. With margins, there may be a single lock, which runs twice a round: the
    verdict on one of these runs compares all of them with the earlier runs of the lock.
    Submitting the same ``comparison`` again has no effect.
    """

    locks: Annotated[tuple[DigestText, ...], Meta(min_length=1, max_length=MAX_COMPARED_LOCKS)]
    machine: MachineText | None = None
    rounds: Annotated[int, Meta(ge=MIN_ROUNDS, le=MAX_ROUNDS)] | None = None
    comparison: ComparisonId | UnsetType = UNSET
    margins: Margins = {}


class QueuedComparison(Struct, frozen=True, kw_only=True):
    """An interleaved comparison in the queue; its jobs are in the order in which they run."""

    comparison: ComparisonId
    jobs: tuple[Job, ...]


class MatrixSubmission(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A matrix to submit; the same content again adds only the runs that are missing."""

    matrix: Annotated[dict[str, Any], size_limits.limit_document(size_limits.REQUEST)]


class JobPage(Struct, frozen=True, kw_only=True):
    """Jobs, newest first; ``next`` is the cursor of the next page, absent on the last."""

    jobs: tuple[Job, ...]
    next: str | UnsetType = UNSET


class Enrolment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts of a machine in its current boot; ``clock`` is shown only, and has no effect."""

    boot: Boot
    facts: Annotated[dict[str, Any], size_limits.limit_document(size_limits.MACHINE_FACTS)]
    clock: Moment | None = None


class MachinePage(Struct, frozen=True, kw_only=True):
    """Machines by name; ``next`` is the cursor of the next page, absent on the last."""

    machines: tuple[Machine, ...]
    next: str | UnsetType = UNSET


class DrainRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason why a machine gets no more jobs; null ends the draining."""

    draining: Annotated[str, Meta(min_length=1), size_limits.limit_text(size_limits.REASON)] | None


class ShareUpdate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The weight or the quota of an owner of jobs, or both; ``max_running`` is null without a limit."""

    owner: OwnerText
    weight: Weight | UnsetType = UNSET
    max_running: MaxRunning | UnsetType | None = UNSET


class ShareList(Struct, frozen=True, kw_only=True):
    """The shares of all owners of jobs, in the order in which machines serve them."""

    shares: tuple[Share, ...]


class LeaseRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine's request for a lease, which waits for at most ``wait`` seconds.

    A repeated request with the same ``nonce`` has the same answer.
    """

    machine: MachineText
    boot: Boot
    nonce: Nonce | None = None
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] = 0.0


class WorkStatus(Struct, frozen=True, kw_only=True):
    """Whether the queue has a job that the machine may take."""

    has_job: bool


class LeaseResponse(Struct, frozen=True, kw_only=True):
    """A lease, or null if there is no job for the machine."""

    lease: Lease | None


class HeartbeatRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A heartbeat with the current phase of the job."""

    phase: Phase


class ProgressReport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lines of the progress of a job, in the order of their numbers."""

    lines: Annotated[tuple[ProgressLine, ...], Meta(max_length=MAX_LINES)]


class HeartbeatResponse(Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat: continue, stop because the job was cancelled, or stop because the lease is lost."""

    answer: Beat


class LeaseStatus(Struct, frozen=True, kw_only=True):
    """Whether a lease is still held."""

    holds: bool


class QueueName(Struct, frozen=True, kw_only=True):
    """The name of the queue, with which its workers label their containers."""

    name: str


class StartResponse(Struct, frozen=True, kw_only=True):
    """The recorded start of a run, or null if the lease is no longer held."""

    start: RunStart | None


class EndRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The end of the run of a lease."""

    run: RunText
    end: RunEnd


class ReleaseRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason why a lease is given back."""

    ended: Released
    reason: Reason
