"""A worker's lease: heartbeats, records under the lease, and the host lock."""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, Self, TypeVar

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError
from benchlock.evaluator.queue.lease_clock import since_boot
from benchlock.evaluator.queue.queue_model import Beat, Fence, FencedError, Job, Lease, Phase, Queue
from benchlock.evaluator.records.run_model import Run, RunEnd, RunEndedError, RunId, RunStart
from benchlock.evaluator.runner.engine import LABEL, Engine
from benchlock.registry.auth.permissions import UnauthorizedError

Verdict = Literal["lost", "cancel", "refused"]
"""``refused``: the queue does not accept the agent's token any more."""
_LOOKS: Final = 20
"""So often in a lease the watch looks at the time: what it waits by stands still while the host sleeps."""


class Heartbeat:
    """Beats for ``lease`` while the context is held, and calls ``over`` once, from a thread, when it is over.

    It is over when the queue says so, or refuses the agent's token, and when no beat was answered for the lease's
    grace: then the queue may be about to give the job to another. ``asked`` is when the lease was asked for, in seconds
    since the host's boot: it counts from then, however long the answer took. While the end is being recorded nothing is
    left to be ended, and nothing is called.
    """

    def __init__(self, queue: Queue, lease: Lease, over: Callable[[], None], asked: float) -> None:
        self._queue, self._lease, self._over = queue, lease, over
        self._good = asked
        self._ended = threading.Event()
        self._mutex = threading.Lock()
        self._phase: Phase = "preparing"
        self._verdict: Verdict | None = None
        self.refusal: BenchlockError | None = None
        """Why the queue refused the agent's token, where it did."""
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._beat, self._watch)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._mutex:
            self._ended.set()

    @property
    def verdict(self) -> Verdict | None:
        """Why the lease is over; None as long as it is not."""
        return self._verdict

    def enter(self, phase: Phase) -> None:
        """Say what is being done from now on."""
        self._phase = phase

    def _beat(self) -> None:
        pause = self._lease.times.beat
        while not self._ended.wait(pause):
            asked = since_boot()
            answer: Beat | Verdict | None = None
            with suppress(Exception):  # whatever it is, this beat was no good one; the watch counts
                answer = self._ask()
            if answer == "keep":
                self._good = asked
            elif answer is not None and self._end(answer):
                return
            pause = self._lease.times.again if answer is None else self._lease.times.beat

    def _ask(self) -> Beat | Verdict:
        try:
            return self._queue.beat(self._lease.fence, self._phase)
        except UnauthorizedError as error:
            self.refusal = error
            return "refused"

    def _watch(self) -> None:
        while self._verdict is None and not self._ended.wait(self._lease.times.lease / _LOOKS):
            if since_boot() - self._good > self._lease.times.grace:
                self._end("lost")

    def _end(self, verdict: Verdict) -> bool:
        """Whether there is no more to be told: not where the end is being recorded, which goes on."""
        with self._mutex:  # so that nothing is called any more once the context was left
            if self._verdict is None and not self._ended.is_set() and self._phase != "storing":
                self._verdict = verdict
                self._over()
            return self._verdict is not None


_Answer = TypeVar("_Answer")
_LEASES = 10
"""So many leases long an end is offered to a queue that does not answer."""


class LeasedJournal:
    """The one run of a lease. ``settled`` is called before its end is offered: from then on nothing interrupts."""

    def __init__(self, queue: Queue, lease: Lease, pulse: Heartbeat, settled: Callable[[], None]) -> None:
        self._queue, self._lease, self._pulse, self._settled = queue, lease, pulse, settled
        self._start: RunStart | None = None
        self._end: RunEnd | None = None
        self.job: Job | None = None
        """What became of the job, once the end was recorded."""

    @property
    def began(self) -> RunId | None:
        """The run that the queue knows of."""
        return None if self._start is None else self._start.id

    def count(self, lock: Digest) -> int:  # noqa: ARG002
        """Nothing: the queue counts when the run starts."""
        return 0

    def start(self, start: RunStart) -> None:
        """Record the start.

        Raises:
            FencedError: the lease is another's by now.
        """
        recorded = self._insist(lambda: self._queue.begin(self._lease.fence, start), self._lease.times.grace)
        if recorded is None:
            raise FencedError(f"the lease on {self._lease.job} is over", where=self._lease.job)
        self._start = recorded

    def finish(self, run: RunId, end: RunEnd) -> None:
        """Record the end, as long as it takes; where the lease is over the run counts as abandoned.

        Raises:
            FencedError: it is over.
            RunEndedError: an end that was said before holds; ``job`` is known.
        """
        self._settled()
        once = self._pulse.verdict in ("lost", "refused") or self._end is not None
        patience = 0.0 if once else _LEASES * self._lease.times.lease
        self._end = end
        try:
            self.job = self._insist(lambda: self._queue.commit(self._lease.fence, run, end), patience)
        except RunEndedError:  # an end that was said before, and whose answer was lost, holds
            self.job = self._queue.job(self._lease.job)
            raise

    def get(self, run: RunId) -> Run:  # noqa: ARG002
        """The run, as it was recorded."""
        assert self._start is not None
        return Run(self._start, self._end)

    def _insist(self, ask: Callable[[], _Answer], seconds: float) -> _Answer:
        """Ask until the queue answers, for ``seconds``: every verb may be said again.

        Raises:
            UnavailableError: it does not answer, or does not take what this machine says, which may be in its clock:
                another machine may do better.
        """
        first = since_boot()
        while True:
            try:
                return ask()
            except UnavailableError:
                if since_boot() - first > seconds:
                    raise
            except UnauthorizedError:  # of the agent's token, not of the record
                raise
            except InvalidInputError as error:
                raise UnavailableError(
                    f"the queue does not take the record of this machine: {error.what}", where=error.where
                ) from error
            time.sleep(self._lease.times.beat / 4)


CONTAINER: Final = "benchlock-measure-0"
"""The name of the container that measures: an engine gives it once."""
QUEUE_LABEL: Final = "benchlock.queue"
FENCE_LABEL: Final = "benchlock.fence"
_MODE = 0o644


@contextmanager
def host_lock(path: Path) -> Iterator[int | None]:
    """A descriptor that holds the host's lock, None where something else does.

    Whatever inherits it holds the lock too: a harness goes on holding it when its agent is dead.

    Raises:
        UnavailableError: the file cannot be made or opened.
    """
    try:
        descriptor = _opened(path)
    except OSError as error:
        raise UnavailableError(
            f"the host's lock cannot be opened: {error.strerror or error}",
            where=str(path),
            next_step="name another file with BENCHLOCK_HOST_LOCK, the same one for every agent of this host",
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    """It is made only where it is not there: Linux lets nobody say O_CREAT of another's file in a folder like /tmp."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    with suppress(FileNotFoundError):
        return os.open(path, flags)
    with suppress(FileExistsError):
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, _MODE)
    return os.open(path, flags)


def make_labels(queue: str, fence: int) -> dict[str, str]:
    """What a container that measures says of the lease that it is under."""
    return {QUEUE_LABEL: queue, FENCE_LABEL: str(fence)}


def remove_stale_container(engine: Engine, queue: Queue) -> str | None:
    """Remove the container that has the name where it is nobody's any more; why it stays where it does.

    One of this queue is asked for there. Of another's nothing is known: it stays as long as it runs.

    Raises:
        UnavailableError: the engine failed, or the queue cannot be asked.
    """
    found = engine.named(CONTAINER)
    if found is None:
        return None
    fence = found.labels.get(FENCE_LABEL, "")
    whose = found.labels.get(LABEL, "somebody's")
    if found.lives:
        if found.labels.get(QUEUE_LABEL) != queue.name() or not fence.isdecimal():
            return f"this host is measuring {whose}, which is none of this queue's"
        if queue.holds(Fence(int(fence))):
            return f"this host is measuring {whose}, whose lease holds"
    engine.end(found.id)
    return None
