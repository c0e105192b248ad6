"""The interface of the queue: jobs, leases, machines, and the next state of a job after a lease."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Final, Literal, NewType, Protocol, get_args

from msgspec import UNSET, Meta, Struct, UnsetType, field, structs

from benchlock.artifacts import size_limits
from benchlock.artifacts.digest import Digest, DigestText
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.evaluator.queue.job_matching import JobRequirements, MachineFacts
from benchlock.evaluator.queue.lease_times import Times
from benchlock.evaluator.records.comparison_types import ComparisonTurn
from benchlock.evaluator.records.run_types import Isolation, RunEnd, RunId, RunStart, RunText
from benchlock.evaluator.runner.run_outcome import FailureClass
from benchlock.registry.database.ids_and_timestamps import is_id, new_id

JobState = Literal["queued", "delayed", "leased", "done", "failed", "quarantined", "cancelled"]
"""``delayed``: queued again, but not before a given time."""
Phase = Literal["preparing", "measuring", "storing"]
Trouble = Literal["lost", "integrity", "invalid"]
"""Ends of a lease without the end of a run. ``lost``: no heartbeat arrived in time. ``integrity``: the machine's
bytes differ from the locked ones. ``invalid``: no machine can run the lock."""
LeaseEnd = Literal["done", "cancelled", "returned"] | FailureClass | Trouble
"""How a lease ended. ``returned``: given back without a fault of the job."""

OWN_FAULTS: Final = ("lost", "engine", "integrity")
"""Ends that the machine may have caused: after several in a row it is held back."""
NEUTRAL: Final = ("cancelled", "returned", "crash", "invalid")
"""Ends that say nothing about the machine."""
TERMINAL: Final[frozenset[JobState]] = frozenset(("done", "failed", "quarantined", "cancelled"))
INCOMPLETE: Final = TERMINAL - {"done"}
"""States of jobs that ended without a completed run."""
LOST_MACHINES: Final = 3
"""The number of machines lost during a job after which the job is quarantined."""
MAX_TRIES: Final = {"engine": 4, "crash": 2}
"""The maximum number of tries that end this way; a fault of the machine is retried on another one."""
MAX_COMPARED_LOCKS: Final = 4
"""The maximum number of locks of an interleaved comparison in the queue."""
MIN_ROUNDS: Final = 3
MAX_ROUNDS: Final = 24
FACTOR: Final = 3.0
LONGEST: Final = 360.0
"""The delay grows by ``FACTOR`` with every failure, up to ``LONGEST`` times the first delay."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of leases of a job that ended in each way after which the job is retried."""

    lost: int = 0
    engine: int = 0
    crash: int = 0

    @property
    def total(self) -> int:
        """The number of failures of every kind."""
        return self.lost + self.engine + self.crash


@dataclass(frozen=True, slots=True)
class NextState:
    """The next state of a job after a lease.

    Attributes:
        state: The next state.
        tally: The counted failures.
        delay: The delay before the next try, in multiples of ``Times.wait``.
        elsewhere: Whether another machine should have the next try.
        failure: The class of the failure of a job that failed.
    """

    state: JobState
    tally: Tally
    delay: float = 0.0
    elsewhere: bool = False
    failure: str | None = None


def decide_next_state(lease_end: LeaseEnd, tally: Tally, *, cancel_asked: bool, is_probe: bool = False) -> NextState:
    """Decide the next state of a leased job. The failed probe of a machine that is held back is not counted.

    A result stands even if the job was cancelled meanwhile; any other end of a cancelled job cancels it.

    Args:
        lease_end: How the lease ended.
        tally: The failures so far.
        cancel_asked: Whether somebody cancelled the job while it was leased.
        is_probe: Whether the lease was a free probe of its machine.
    """
    following = NextState("delayed", tally, delay=1.0, elsewhere=True) if is_probe else _decide(lease_end, tally)
    if cancel_asked and following.state not in TERMINAL:
        return NextState("cancelled", following.tally)
    return following


def _decide(lease_end: LeaseEnd, tally: Tally) -> NextState:
    if lease_end == "done":
        return NextState("done", tally)
    if lease_end in ("cancelled", "returned"):
        return NextState("queued", tally)
    if lease_end == "lost":
        counted = replace(tally, lost=tally.lost + 1)
        return NextState("quarantined", counted, failure="lost") if counted.lost >= LOST_MACHINES else _retry(counted)
    if lease_end in ("engine", "integrity"):
        counted = replace(tally, engine=tally.engine + 1)
        return (
            NextState("failed", counted, failure=lease_end)
            if counted.engine >= MAX_TRIES["engine"]
            else _retry(counted)
        )
    if lease_end == "crash":
        counted = replace(tally, crash=tally.crash + 1)
        return (
            NextState("failed", counted, failure=lease_end) if counted.crash >= MAX_TRIES["crash"] else _retry(counted)
        )
    assert lease_end == "invalid" or lease_end in get_args(FailureClass)
    return NextState("failed", tally, failure=lease_end)


def _retry(tally: Tally) -> NextState:
    return NextState("delayed", tally, delay=min(FACTOR ** (tally.total - 1), LONGEST), elsewhere=True)


JobId = NewType("JobId", str)
JobText = Annotated[JobId, Meta(pattern=r"^job/[0-9a-hjkmnp-tv-z]{26}$", examples=["job/01kam1v3mz4w0q3d5g7h9j2k4m"])]
MachineId = NewType("MachineId", str)
MachineText = Annotated[MachineId, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", examples=["m-5f0c3a9d1b22"])]
Fence = NewType("Fence", int)
Beat = Literal["keep", "cancel", "lost"]
"""The response to a heartbeat. ``lost``: the lease is over, and the run under it must end now."""

_PREFIX = "job/"


class FencedError(RefusedError):
    """The refusal of a lease that is no longer valid; the work under it does not count."""

    code = "fenced"


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The request to run a lock once. The same id again is the same job, so a repeated request is harmless."""

    id: JobId
    lock: Digest
    wants: JobRequirements
    allow_code: bool = False
    priority: int = 0


class Job(Struct, frozen=True, kw_only=True):
    """A job in its current state.

    Attributes:
        id: The id.
        lock: The lock to run.
        state: The state.
        phase: The phase of the run of a leased job.
        machine: The machine of the last lease.
        run: The run that is the result, else the run of the last lease.
        lost: The number of machines that were lost with it.
        engine: The number of its failures because of a machine.
        crash: The number of its crashes.
        cancel_asked: Whether somebody cancelled it while it was leased.
        failure: The class of the failure.
        reason: The message of the last failure, shortened in lists.
        due: The seconds until it may be retried.
        submitted_at: The calendar time of its submission.
        part_of: Its turn in an interleaved comparison.
        priority: Its priority among the jobs of its owner.
    """

    id: JobText = field(name="job")
    lock: DigestText
    state: JobState
    phase: Phase | None
    machine: MachineId | None
    run: RunText | None
    lost: int
    engine: int
    crash: int
    cancel_asked: bool
    failure: str | None
    reason: str | None
    due: float | None = field(name="again_in")
    submitted_at: datetime
    part_of: ComparisonTurn | None = None
    priority: int = 0

    @property
    def tally(self) -> Tally:
        """The counted failures."""
        return Tally(self.lost, self.engine, self.crash)


class Lease(Struct, frozen=True):
    """The right of a machine to run a job, for ``seconds`` after the request and after each heartbeat.

    The record of the run states ``part_of``, its turn in an interleaved comparison.
    """

    fence: Fence
    job: JobText
    lock: DigestText
    isolation: Isolation | None
    allow_code: bool
    queue: str
    seconds: float
    part_of: ComparisonTurn | None = None

    @property
    def times(self) -> Times:
        """The durations of the lease."""
        return Times(self.seconds)


MAX_LINES: Final = 200
"""The maximum number of lines of a lease that are kept, and of lines in one report."""
_Number = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ProgressLine(Struct, frozen=True):
    """Line ``number`` of a lease: ``done`` of ``total`` units of a task; without ``total`` their number is unknown."""

    number: _Number
    task: Annotated[str, size_limits.limit_text(size_limits.TASK)]
    done: _Count
    total: _Count | None = None


class LiveJob(Struct, frozen=True):
    """What pages show of a job while it runs.

    Attributes:
        key: Changes whenever the page has to be loaded again.
        state: The state of the job.
        fence: Its last lease; 0 without one.
        lines: The progress of that lease, at most ``MAX_LINES`` lines; of a hidden run, none.
    """

    key: str
    state: str
    fence: int
    lines: tuple[ProgressLine, ...] = ()

    @property
    def last(self) -> int:
        """The number of the last line; 0 without lines."""
        return self.lines[-1].number if self.lines else 0


class Machine(Struct, frozen=True):
    """A machine as the queue knows it.

    Attributes:
        id: The name.
        boot: The id of its last known boot, and of its cache of files if it has one.
        facts: Its facts.
        draining: Why it gets no more jobs; None if it gets jobs.
        unseen: The seconds since its last request.
        gone: Whether it counts as gone.
        job: The job that it has a lease on.
        gone_because: The reason why it is gone, unless the reason is silence.
        held: Why it is held back after faults.
        held_for: The seconds until it gets one job as a probe.
        skew: The seconds by which its clock was ahead of the queue's at its enrolment.
    """

    id: MachineId = field(name="machine")
    boot: str
    facts: MachineFacts
    draining: str | None
    unseen: float
    gone: bool
    job: JobText | None
    gone_because: str | None = None
    held: str | None = None
    held_for: float = 0.0
    skew: float | None = None


class MachineMatch(Struct, frozen=True):
    """A job compared with a machine, which may take it if there are neither ``lacks`` nor an ``obstacle``."""

    machine: MachineId
    lacks: tuple[str, ...]
    obstacle: str | None = None


OwnerText = Annotated[
    str,
    Meta(min_length=1),
    size_limits.limit_text(size_limits.NAME),
    Meta(examples=["token/01kam1v3mz4w0q3d5g7h9j2k4m"]),
]
Weight = Annotated[float, Meta(ge=0.01, le=100)]
MaxRunning = Annotated[int, Meta(ge=0, le=1_000_000)]
MAX_PRIORITY: Final = 5
Priority = Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]


class Share(Struct, frozen=True, kw_only=True):
    """The share of an owner of jobs in the machine time.

    Attributes:
        owner: The token that submits the jobs, or a fixed word without tokens.
        weight: Its part of the machine time, relative to the weights of the other owners.
        max_running: The maximum number of its running jobs; None without a limit.
        running: The number of its running jobs.
        is_waiting: Whether it has queued jobs.
        seconds: The machine time of its ended leases.
        used: The seconds divided by the weight by which owners are sorted; those of running jobs are estimated.
    """

    owner: OwnerText
    weight: float
    max_running: int | None
    running: int
    is_waiting: bool
    seconds: float
    used: float

    @property
    def is_full(self) -> bool:
        """Whether the owner has its maximum of running jobs."""
        return self.max_running is not None and self.running >= self.max_running


class Explanation(Struct, frozen=True):
    """The reason for the state of a job, in one sentence, with every machine's match, the closest first.

    Attributes:
        job: The job.
        blocked: Whether no machine can take it at present.
        sentence: The reason.
        machines: The match with each machine.
        ahead: The number of queued jobs of its owner before it that its machines can run, counted up to
            ``COUNTED_AHEAD``.
        needs_machine: Whether it waits for a machine that is not there: it is queued and blocked, names no machine,
            and its owner may run more jobs.
        requirements: What a machine must have for it; None unless it is queued or delayed.
    """

    job: Job
    blocked: bool
    sentence: str = field(name="why")
    machines: tuple[MachineMatch, ...] = ()
    ahead: int = 0
    needs_machine: bool = False
    requirements: JobRequirements | None = None


COUNTED_AHEAD = 1000


class Queue(Protocol):
    """The interface of a queue. Every method may be called again after a lost response."""

    def submit(self, request: JobRequest) -> Job:
        """Queue a job whose lock the registry has; the same request again changes nothing.

        Raises:
            UnknownNameError: The registry does not have the lock.
            RefusedError: The token has the maximum number of queued jobs.
            InvalidInputError: Another job has its id.
            ForbiddenError: Another token submitted it.
        """

    def job(self, job: JobId) -> Job:
        """Return the job.

        Raises:
            UnknownNameError: There is no job with that id.
        """

    def jobs(
        self, *, state: JobState | None = None, prefix: str = "", before: JobId | None = None, limit: int = 100
    ) -> Sequence[Job]:
        """List the newest jobs, newest first.

        Args:
            state: Only jobs in this state.
            prefix: Only jobs whose ids begin with this; then they are sorted by id.
            before: Only jobs that are older than this one.
            limit: The maximum number of jobs.
        """

    def cancel(self, job: JobId) -> Job:
        """Cancel the job: at once if it is not leased, else with its next heartbeat; an ended job stays as it is.

        The other jobs of its interleaved comparison are cancelled, too.
        """

    def explain(self, job: JobId) -> Explanation:
        """Explain why the job is in its state."""

    def enrol(self, machine: MachineId, boot: str, facts: MachineFacts, clock: datetime | None = None) -> None:
        """Register a machine, before its first request for work and whenever its facts have changed.

        Args:
            machine: The name of the machine.
            boot: The id of its current boot, and of its cache of files if it has one.
            facts: Its facts.
            clock: The time of its clock; the difference from the queue's is shown and decides nothing.

        Raises:
            ForbiddenError: Another token enrolled it.
            RefusedError: This token has enrolled the maximum number of machines.
            InvalidInputError: The facts are too large, or a text in them has control characters.
        """

    def depart(self, machine: MachineId) -> None:
        """Announce that the machine requests no more work: it counts as gone until its next request.

        Nothing happens if the machine is not enrolled or has a lease.

        Raises:
            ForbiddenError: Another token enrolled it.
        """

    def machines(self, *, after: MachineId | None = None, limit: int | None = None) -> Sequence[Machine]:
        """List every enrolled machine by name.

        Args:
            after: Only machines whose names follow this one.
            limit: The maximum number of machines.
        """

    def drain(self, machine: MachineId, why: str | None) -> None:
        """Give the machine no more jobs; with None as ``why`` give it jobs again."""

    def shares(self) -> Sequence[Share]:
        """List the shares of all owners of jobs, in the order in which machines serve them."""

    def set_share(
        self, owner: str, weight: float | UnsetType = UNSET, max_running: int | UnsetType | None = UNSET
    ) -> None:
        """Set the weight or the quota of an owner of jobs, or both.

        Raises:
            UnknownNameError: There is no such owner.
        """

    def lease(self, machine: MachineId, boot: str, nonce: str | None = None) -> Lease | None:
        """Lease a job that the machine may take; return None if there is none or if the machine has one.

        Args:
            machine: The machine that requests work.
            boot: The id of its current boot, and of its cache of files if it has one.
            nonce: Identifies the request. The same nonce again repeats a request whose response was lost, and gets the
                same lease if that is still valid.

        Raises:
            UnknownNameError: The machine is not enrolled.
            ForbiddenError: Another token enrolled it.
        """

    def wait_for_job(self, machine: MachineId, seconds: float) -> bool:
        """Wait until the machine may take a job, ``seconds`` at most; return whether it may. Nothing is leased.

        It may return early, and its ``True`` does not promise a lease: another machine may take the job.
        """

    def begin(self, fence: Fence, start: RunStart) -> RunStart | None:
        """Record the start of the lease's run and return it as recorded; None if the lease is over.

        Raises:
            IncompleteRecordError: A field that every record has is missing.
            InvalidInputError: Its id is of a later time, or another run has its id.
        """

    def beat(self, fence: Fence, phase: Phase) -> Beat:
        """Extend the lease by its full length from now."""

    def report(self, fence: Fence, lines: Sequence[ProgressLine]) -> None:
        """Store lines of the lease's progress; do nothing for lines that are stored, or if the lease is over."""

    def commit(self, fence: Fence, run: RunId, end: RunEnd) -> Job:
        """Record the run's end and the job's next state in one transaction.

        Raises:
            FencedError: The lease is over; its run is recorded as abandoned.
            RunEndedError: The run already has another end and keeps it.
            InvalidInputError: The end lacks a required field, or is ``abandoned``.
            IntegrityError: Over HTTP, the end does not fit the lock.
        """

    def release(self, fence: Fence, ended: LeaseEnd, reason: str) -> None:
        """Give the job back without a result; do nothing if the lease is over."""

    def holds(self, fence: Fence) -> bool:
        """Return whether the lease is still valid."""

    def name(self) -> str:
        """Return the queue's own id, which containers carry as a label."""


def summarize_job(job: Job) -> Job:
    """Return the job as lists have it: with a shortened reason."""
    reason = None if job.reason is None else size_limits.shorten(job.reason, size_limits.SUMMARY)
    return structs.replace(job, reason=reason)


def new_job_id(at: datetime) -> JobId:
    """Create a new id; later jobs sort after earlier ones."""
    return JobId(_PREFIX + new_id(at))


def parse_job_id(text: str) -> JobId:
    """Parse a job id.

    Raises:
        InvalidInputError: The text is not a job id.
    """
    if not text.startswith(_PREFIX) or not is_id(text.removeprefix(_PREFIX)):
        raise InvalidInputError(
            f"invalid job id {text!r}", next_step="use an id as listed by `jobs`: job/ and 26 characters"
        )
    return JobId(text)
