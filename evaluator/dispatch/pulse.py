"""The beats of a lease, and the watch that ends what runs under it before its lease does."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal, Self

from benchlock.artifacts.errors import BenchlockError
from benchlock.evaluator.dispatch.queue import Beat, Lease, Queue
from benchlock.evaluator.dispatch.states import Phase
from benchlock.evaluator.dispatch.times import since_boot
from benchlock.registry.access.errors import UnauthorizedError

Verdict = Literal["lost", "cancel", "refused"]
"""``refused``: the queue does not accept the agent's token any more."""
_LOOKS: Final = 20
"""So often in a lease the watch looks at the time: what it waits by stands still while the host sleeps."""


class Pulse:
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
