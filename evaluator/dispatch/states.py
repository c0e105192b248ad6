"""What becomes of a job when one of its leases ends: a function of how it ended and of what happened before."""

from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from benchlock.evaluator.runner.results import FailureClass

JobState = Literal["queued", "delayed", "leased", "done", "failed", "quarantined", "cancelled"]
"""``delayed``: queued again, and not before a time."""
Phase = Literal["preparing", "measuring", "storing"]
Trouble = Literal["lost", "integrity", "invalid"]
"""What ends a lease without a run's end. ``lost``: nobody heard of it in time. ``integrity``: the machine had other
bytes than were locked. ``invalid``: no machine could run the lock, whatever it has."""
Ended = Literal["done", "cancelled", "returned"] | FailureClass | Trouble
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
class Next:
    """The state that follows. ``delay`` is in first waits, ``elsewhere``: another machine should have the next try."""

    state: JobState
    tally: Tally
    delay: float = 0.0
    elsewhere: bool = False
    failure: str | None = None


def after(ended: Ended, tally: Tally, *, cancel_asked: bool, is_probe: bool = False) -> Next:
    """What becomes of a leased job. The end of a probe of a machine that is held back is not counted.

    An answer is an answer, even where cancelling was asked for too late; whatever else happens to such a job ends it.
    """
    found = Next("delayed", tally, delay=1.0, elsewhere=True) if is_probe else _after(ended, tally)
    if cancel_asked and found.state not in TERMINAL:
        return Next("cancelled", found.tally)
    return found


def _after(ended: Ended, tally: Tally) -> Next:
    if ended == "done":
        return Next("done", tally)
    if ended in ("cancelled", "returned"):
        return Next("queued", tally)
    if ended == "lost":
        counted = replace(tally, lost=tally.lost + 1)
        return Next("quarantined", counted, failure="lost") if counted.lost >= LOST_MACHINES else _again(counted)
    if ended in ("engine", "integrity"):
        counted = replace(tally, engine=tally.engine + 1)
        return Next("failed", counted, failure=ended) if counted.engine >= MOST["engine"] else _again(counted)
    if ended == "crash":
        counted = replace(tally, crash=tally.crash + 1)
        return Next("failed", counted, failure=ended) if counted.crash >= MOST["crash"] else _again(counted)
    assert ended == "invalid" or ended in get_args(FailureClass)
    return Next("failed", tally, failure=ended)


def _again(tally: Tally) -> Next:
    return Next("delayed", tally, delay=min(FACTOR ** (tally.total - 1), LONGEST), elsewhere=True)
