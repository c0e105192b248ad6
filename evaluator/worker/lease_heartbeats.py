"""A worker's lease: heartbeats, records under the lease, and the lock of the host."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, Self, TypeVar

from benchlock.artifacts.atomic_files import lock_if_free
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError
from benchlock.evaluator.queue.lease_times import since_boot
from benchlock.evaluator.queue.queue_types import Beat, Fence, FencedError, Job, Lease, Phase, Queue
from benchlock.evaluator.records.run_types import Run, RunEnd, RunEndedError, RunId, RunStart
from benchlock.evaluator.runner.container_engine import LABEL, Engine
from benchlock.registry.auth.permissions import UnauthorizedError

Verdict = Literal["lost", "cancel", "refused"]
"""Why a lease is over. ``refused``: the queue no longer accepts the agent's token."""
_LOOKS: Final = 20
"""How often per lease the watchdog reads the clock: its own timeout does not advance while the host sleeps."""


class Heartbeat:
    """The heartbeats of a lease, sent by threads while the context is open.

    ``over`` is called once, from a thread, when the lease is over: when the queue says so, when it refuses the agent's
    token, or when no heartbeat was acknowledged for the grace period, after which the queue may give the job to
    another machine. Nothing is called while the end of the run is being recorded, because then no run is left to end.

    Args:
        queue: The queue.
        lease: The lease.
        over: Called when the lease is over.
        asked_at: When the lease was requested, in seconds since the host's boot. The lease counts from then, however
            long the response took.
    """

    def __init__(self, queue: Queue, lease: Lease, over: Callable[[], None], asked_at: float) -> None:
        """Prepare the heartbeats; the context starts them."""
        self._queue, self._lease, self._over = queue, lease, over
        self._good = asked_at
        self._ended, self._due = threading.Event(), threading.Event()
        self._mutex = threading.Lock()
        self._phase: Phase = "preparing"
        self._verdict: Verdict | None = None
        self.refusal: BenchlockError | None = None
        """Why the queue refused the agent's token, if it did."""
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._beat, self._watch)]

    def __enter__(self) -> Self:
        """Start the heartbeats."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the heartbeats."""
        with self._mutex:
            self._ended.set()
        self._due.set()

    @property
    def verdict(self) -> Verdict | None:
        """Why the lease is over; None while it is valid."""
        return self._verdict

    @property
    def phase(self) -> Phase:
        """The phase that the next heartbeat reports."""
        return self._phase

    def enter(self, phase: Phase) -> None:
        """Set the phase that heartbeats report, and send one now, so that pages do not show the phase before."""
        self._phase = phase
        self._due.set()

    def _beat(self) -> None:
        pause = self._lease.times.beat
        while True:
            self._due.wait(pause)
            self._due.clear()
            if self._ended.is_set():
                return
            asked_at = since_boot()
            answer: Beat | Verdict | None = None
            with suppress(Exception):  # any error means an unacknowledged heartbeat; the watchdog decides
                answer = self._ask()
            if answer == "keep":
                self._good = asked_at
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
        """End the lease unless the run's end is being recorded; return whether the lease is over."""
        with self._mutex:  # so that nothing is called after the context was left
            if self._verdict is None and not self._ended.is_set() and self._phase != "storing":
                self._verdict = verdict
                self._over()
            return self._verdict is not None


_Answer = TypeVar("_Answer")
_LEASES = 10
"""How long the agent tries to record an end at a queue that does not respond, in lengths of a lease."""


class LeasedJournal:
    """The journal of the only run of a lease.

    ``settled`` is called before the end is sent; from then on nothing interrupts the agent.
    """

    def __init__(self, queue: Queue, lease: Lease, heartbeat: Heartbeat, settled: Callable[[], None]) -> None:
        """Open the journal of a lease."""
        self._queue, self._lease, self._heartbeat, self._settled = queue, lease, heartbeat, settled
        self._start: RunStart | None = None
        self._end: RunEnd | None = None
        self.job: Job | None = None
        """The job after its end was recorded."""

    @property
    def began(self) -> RunId | None:
        """The id of the run that the queue has recorded."""
        return None if self._start is None else self._start.id

    def count(self, lock: Digest) -> int:  # noqa: ARG002
        """Return 0: the queue counts the runs when one starts."""
        return 0

    def start(self, start: RunStart) -> None:
        """Record the start of the run.

        Raises:
            FencedError: The lease is over.
        """
        recorded = self._insist(lambda: self._queue.begin(self._lease.fence, start), self._lease.times.grace)
        if recorded is None:
            raise FencedError(f"the lease on {self._lease.job} is over", where=self._lease.job)
        self._start = recorded

    def finish(self, run: RunId, end: RunEnd) -> None:
        """Record the end of the run, and retry for as long as it takes.

        Raises:
            FencedError: The lease is over; the run counts as abandoned.
            RunEndedError: An end that was sent earlier is recorded; ``job`` is known.
        """
        self._settled()
        once = self._heartbeat.verdict in ("lost", "refused") or self._end is not None
        patience = 0.0 if once else _LEASES * self._lease.times.lease
        self._end = end
        try:
            self.job = self._insist(lambda: self._queue.commit(self._lease.fence, run, end), patience)
        except RunEndedError:  # an end that was sent earlier, and whose response was lost, is recorded
            self.job = self._queue.job(self._lease.job)
            raise

    def get(self, run: RunId) -> Run:  # noqa: ARG002
        """Return the run as recorded."""
        assert self._start is not None
        return Run(self._start, self._end)

    def _insist(self, ask: Callable[[], _Answer], seconds: float) -> _Answer:
        """Call the queue until it responds, for at most ``seconds``.

        Raises:
            UnavailableError: The queue does not respond, or rejects the record, for example because of this machine's
                clock: another machine may succeed.
        """
        first = since_boot()
        while True:
            try:
                return ask()
            except UnavailableError:
                if since_boot() - first > seconds:
                    raise
            except UnauthorizedError:  # the token is refused, not the record
                raise
            except InvalidInputError as error:
                raise UnavailableError(
                    f"the queue rejected the record of this machine: {error.what}", where=error.where
                ) from error
            time.sleep(self._lease.times.beat / 4)


CONTAINER: Final = "benchlock-measure-0"
"""The name of the container that measures; an engine allows it only once."""
QUEUE_LABEL: Final = "benchlock.queue"
FENCE_LABEL: Final = "benchlock.fence"
_MODE = 0o644


@contextmanager
def host_lock(path: Path) -> Iterator[int | None]:
    """Lock the host for a measurement; yield the descriptor, or None if another process holds the lock.

    A process that inherits the descriptor holds the lock too, so a harness keeps it when its agent has died.

    Raises:
        UnavailableError: The lock file cannot be created or opened.
    """
    try:
        descriptor = _open_lock_file(path)
    except OSError as error:
        raise UnavailableError(
            f"cannot open the host lock: {error.strerror or error}",
            where=str(path),
            next_step="set BENCHLOCK_HOST_LOCK to another file, the same one for all workers of this host",
        ) from error
    with lock_if_free(descriptor) as is_locked:
        yield descriptor if is_locked else None


def _open_lock_file(path: Path) -> int:
    """Open the lock file, and create it only if it is missing.

    Linux refuses ``O_CREAT`` for a file of another user in a sticky folder such as /tmp (``fs.protected_regular``).
    """
    flags = os.O_RDONLY | os.O_CLOEXEC
    with suppress(FileNotFoundError):
        return os.open(path, flags)
    with suppress(FileExistsError):
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, _MODE)
    return os.open(path, flags)


def make_labels(queue: str, fence: int) -> dict[str, str]:
    """Return the labels that tie a measuring container to its lease."""
    return {QUEUE_LABEL: queue, FENCE_LABEL: str(fence)}


def remove_stale_container(engine: Engine, queue: Queue) -> str | None:
    """Remove the measuring container unless it is in use; return why it must stay, if it must.

    The queue is asked about a container of its own. A container of another queue stays as long as it runs.

    Raises:
        UnavailableError: The engine failed, or the queue does not respond.
    """
    container = engine.find_container(CONTAINER)
    if container is None:
        return None
    fence = container.labels.get(FENCE_LABEL, "")
    run = container.labels.get(LABEL, "an unknown run")
    if container.lives:
        if container.labels.get(QUEUE_LABEL) != queue.name() or not fence.isdecimal():
            return f"this host is measuring {run}, which belongs to another queue"
        if queue.holds(Fence(int(fence))):
            return f"this host is measuring {run}, whose lease is still valid"
    engine.end(container.id)
    return None
