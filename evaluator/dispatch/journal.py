"""Where a run under a lease is recorded: by the queue, as long as the lease holds."""

import time
from collections.abc import Callable
from typing import TypeVar

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.evaluator.dispatch.pulse import Pulse
from benchlock.evaluator.dispatch.queue import FencedError, Job, Lease, Queue
from benchlock.evaluator.dispatch.times import since_boot
from benchlock.evaluator.records.runs import Run, RunEnd, RunEndedError, RunId, RunStart
from benchlock.registry.access.errors import UnauthorizedError

_Answer = TypeVar("_Answer")
_LEASES = 10
"""So many leases long an end is offered to a queue that does not answer."""


class LeasedJournal:
    """The one run of a lease. ``settled`` is called before its end is offered: from then on nothing interrupts."""

    def __init__(self, queue: Queue, lease: Lease, pulse: Pulse, settled: Callable[[], None]) -> None:
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
