"""The queue interface: jobs, leases, machines, and the state after a lease ends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal, NewType, Protocol, get_args

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.evaluator.queue.lease_clock import Times
from benchlock.evaluator.queue.matching import MachineFacts, Wants
from benchlock.evaluator.records.run_model import Isolation, RunEnd, RunId, RunStart
from benchlock.evaluator.runner.outcome import FailureClass
from benchlock.registry.database.record_values import is_id, new_id

JobState = Literal["queued", "delayed", "leased", "done", "failed", "quarantined", "cancelled"]
"""``delayed``: queued again, and not before a time."""
Phase = Literal["preparing", "measuring", "storing"]
Trouble = Literal["lost", "integrity", "invalid"]
"""What ends a lease without a run's end. ``lost``: nobody heard of it in time. ``integrity``: the machine had other
bytes than were locked. ``invalid``: no machine could run the lock, whatever it has."""
LeaseEnd = Literal["done", "cancelled", "returned"] | FailureClass | Trouble
"""How a lease ended. ``returned``: given back, nothing having been wrong with the job."""

OWN_FAULTS: Final = ("lost", "engine", "integrity")
"""Ends that may lie in the machine: after several in a row it is held back."""
NEUTRAL: Final = ("cancelled", "returned", "crash", "invalid")
"""Ends that say nothing of the machine."""
TERMINAL: Final[frozenset[JobState]] = frozenset(("done", "failed", "quarantined", "cancelled"))
LOST_MACHINES: Final = 3
"""So many machines may a job take with it until it is set aside."""
MOST: Final = {"engine": 4, "crash": 2}
"""How often a job is tried that ends so: what may lie in the machine is tried elsewhere."""
FACTOR: Final = 3.0
LONGEST: Final = 360.0
"""Waiting grows by the factor at every failure, up to so many times the first wait."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many leases of a job ended for a reason after which it is tried again."""

    lost: int = 0
    engine: int = 0
    crash: int = 0

    @property
    def total(self) -> int:
        return self.lost + self.engine + self.crash


@dataclass(frozen=True, slots=True)
class NextState:
    """The state that follows. ``delay`` is in first waits, ``elsewhere``: another machine should have the next try."""

    state: JobState
    tally: Tally
    delay: float = 0.0
    elsewhere: bool = False
    failure: str | None = None


def decide_next_state(ended: LeaseEnd, tally: Tally, *, cancel_asked: bool, is_probe: bool = False) -> NextState:
    """What becomes of a leased job. The end of a probe of a machine that is held back is not counted.

    An answer is an answer, even where cancelling was asked for too late; whatever else happens to such a job ends it.
    """
    found = NextState("delayed", tally, delay=1.0, elsewhere=True) if is_probe else _after(ended, tally)
    if cancel_asked and found.state not in TERMINAL:
        return NextState("cancelled", found.tally)
    return found


def _after(ended: LeaseEnd, tally: Tally) -> NextState:
    if ended == "done":
        return NextState("done", tally)
    if ended in ("cancelled", "returned"):
        return NextState("queued", tally)
    if ended == "lost":
        counted = replace(tally, lost=tally.lost + 1)
        return NextState("quarantined", counted, failure="lost") if counted.lost >= LOST_MACHINES else _again(counted)
    if ended in ("engine", "integrity"):
        counted = replace(tally, engine=tally.engine + 1)
        return NextState("failed", counted, failure=ended) if counted.engine >= MOST["engine"] else _again(counted)
    if ended == "crash":
        counted = replace(tally, crash=tally.crash + 1)
        return NextState("failed", counted, failure=ended) if counted.crash >= MOST["crash"] else _again(counted)
    assert ended == "invalid" or ended in get_args(FailureClass)
    return NextState("failed", tally, failure=ended)


def _again(tally: Tally) -> NextState:
    return NextState("delayed", tally, delay=min(FACTOR ** (tally.total - 1), LONGEST), elsewhere=True)


JobId = NewType("JobId", str)
MachineId = NewType("MachineId", str)
Fence = NewType("Fence", int)
Beat = Literal["keep", "cancel", "lost"]
"""``lost``: the lease is another's or nobody's; what runs under it must end now."""

_PREFIX = "job/"


class FencedError(RefusedError):
    """A lease that holds no more: what was done under it does not count."""

    code = "fenced"


@dataclass(frozen=True, slots=True)
class JobWish:
    """A lock to be run once. The same id again is the same job, so that asking twice does no harm."""

    id: JobId
    lock: Digest
    wants: Wants
    allow_code: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is. ``run`` is its result, else the run of its last lease; ``reason`` its last trouble in words.

    ``due`` is in how many seconds it may be tried again, ``machine`` that of the last lease.
    """

    id: JobId
    lock: Digest
    state: JobState
    phase: Phase | None
    machine: MachineId | None
    run: RunId | None
    tally: Tally
    cancel_asked: bool
    failure: str | None
    reason: str | None
    due: float | None
    submitted_at: datetime


@dataclass(frozen=True, slots=True)
class Lease:
    """A job that is a machine's for a while: for ``times.lease`` seconds from the asking, and from every good beat."""

    fence: Fence
    job: JobId
    lock: Digest
    isolation: Isolation | None
    allow_code: bool
    queue: str
    times: Times


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as known. ``unseen`` are the seconds since it was heard of, ``job`` is what it has a lease on.

    ``gone_because`` is the reason why it is gone, where it is not silence. ``held`` says why it is held back, and gets
    one job after ``held_for`` seconds. Its clock was ``skew`` seconds ahead of the queue's when it said what it is.
    """

    id: MachineId
    boot: str
    facts: MachineFacts
    draining: str | None
    unseen: float
    gone: bool
    job: JobId | None
    gone_because: str | None = None
    held: str | None = None
    held_for: float = 0.0
    skew: float | None = None


@dataclass(frozen=True, slots=True)
class MachineMatch:
    """What stands between a job and a machine: what it ``lacks``, or ``obstacle``; neither where it may take it."""

    machine: MachineId
    lacks: tuple[str, ...]
    obstacle: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is where it is, in one sentence; for each machine what stands between them, the nearest first.

    ``blocked``: no machine can take it as things are. ``ahead`` are the jobs of its class before it, at most
    ``COUNTED_AHEAD`` of them counted.
    """

    job: Job
    blocked: bool
    sentence: str
    machines: tuple[MachineMatch, ...] = ()
    ahead: int = 0


COUNTED_AHEAD = 1000


class Queue(Protocol):
    """Jobs, and who has them. Every verb may be called again when its answer was lost."""

    def submit(self, wish: JobWish) -> Job:
        """Queue a job whose lock the registry has; the same wish again changes nothing.

        Raises:
            UnknownNameError: it has not.
            RefusedError: the token has as many queued jobs as it may have.
            InvalidInputError: another job has its id.
            ForbiddenError: another token submitted it.
        """

    def job(self, job: JobId) -> Job:
        """The job.

        Raises:
            UnknownNameError: there is none of that id.
        """

    def jobs(self, *, state: JobState | None = None, before: JobId | None = None, limit: int = 100) -> Sequence[Job]:
        """The newest jobs, newest first."""

    def cancel(self, job: JobId) -> Job:
        """End the job: at once where nobody has it, else as soon as its agent hears of it; an ended one stays so."""

    def explain(self, job: JobId) -> Explanation:
        """Why the job is where it is."""

    def enrol(self, machine: MachineId, boot: str, facts: MachineFacts, clock: datetime | None = None) -> None:
        """Say what a machine is, before it asks for work and whenever that has changed.

        ``clock`` is what its clock says, which is compared with the queue's, shown, and decides nothing.

        Raises:
            ForbiddenError: another token enrolled it.
            RefusedError: this one has enrolled as many as it may.
            InvalidInputError: the facts are too large, or a text in them has control characters.
        """

    def depart(self, machine: MachineId) -> None:
        """Say that the machine asks for no more work: it counts as gone until it is heard of again.

        Nothing happens where it was not enrolled, or has a lease.

        Raises:
            ForbiddenError: another token enrolled it.
        """

    def machines(self, *, after: MachineId | None = None, limit: int | None = None) -> Sequence[Machine]:
        """Every machine that ever was enrolled, by name: those ``after`` one, and so many, where that is given."""

    def drain(self, machine: MachineId, why: str | None) -> None:
        """Give it no more jobs, or some again where ``why`` is None."""

    def lease(self, machine: MachineId, boot: str, nonce: str | None = None) -> Lease | None:
        """A job that the machine may take, none where there is none or where it has one.

        The same ``nonce`` again is the same question, whose answer was lost: it has the same answer, where it holds.

        Raises:
            UnknownNameError: it was not enrolled.
            ForbiddenError: another token enrolled it.
        """

    def begin(self, fence: Fence, start: RunStart) -> RunStart | None:
        """Record that the lease's run starts, as it is recorded; None where the lease holds no more.

        Raises:
            IncompleteRecordError: something that every record has is missing.
            InvalidInputError: its id is of a later time, or another run has its id.
        """

    def beat(self, fence: Fence, phase: Phase) -> Beat:
        """Hold the lease for its length from now on."""

    def commit(self, fence: Fence, run: RunId, end: RunEnd) -> Job:
        """Record the run's end and what becomes of the job, at once or not at all.

        Raises:
            FencedError: the lease holds no more; its run is recorded as abandoned.
            RunEndedError: the run has another end already, and keeps it.
            InvalidInputError: it ends without what every end says, or as abandoned.
            IntegrityError: over HTTP, the end does not fit the lock.
        """

    def release(self, fence: Fence, ended: LeaseEnd, reason: str) -> None:
        """Give the job back without a result; nothing where the lease holds no more."""

    def holds(self, fence: Fence) -> bool:
        """Whether the lease holds still."""

    def name(self) -> str:
        """The queue's own name, which containers carry."""


def new_job_id(at: datetime) -> JobId:
    """A fresh id: later jobs sort later."""
    return JobId(_PREFIX + new_id(at))


def parse_job_id(text: str) -> JobId:
    """The job id that ``text`` spells.

    Raises:
        InvalidInputError: it spells none.
    """
    if not text.startswith(_PREFIX) or not is_id(text.removeprefix(_PREFIX)):
        raise InvalidInputError(
            f"{text!r} is no job", next_step="write job/ and its 26 characters, as `jobs` lists them"
        )
    return JobId(text)
