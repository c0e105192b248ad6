"""The beats of a lease: one that stalls does not end it, and the lease is counted from when it was asked for."""

import threading
from typing import cast

from msgspec.structs import replace

from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.queue.lease_times import since_boot
from benchlock.evaluator.queue.queue_types import Beat, Fence, Lease, Phase, Queue, new_job_id
from benchlock.evaluator.worker.lease_heartbeats import Heartbeat
from benchlock.registry.auth.permissions import ForbiddenError, UnauthorizedError
from tests.support.evaluator.recorded import NOON

LEASE = Lease(Fence(1), new_job_id(NOON), digest_bytes(b"a lock"), None, False, "a queue", 3)


class Away:
    """A queue whose first beats have no answer."""

    def __init__(self, away: int) -> None:
        self.away, self.beats, self.enough = away, 0, threading.Event()

    def beat(self, fence: Fence, phase: Phase) -> Beat:  # noqa: ARG002
        self.beats += 1
        if self.beats > self.away + 1:
            self.enough.set()
        if self.beats <= self.away:
            raise UnavailableError("no answer")
        return "keep"


def test_beats_without_an_answer_are_said_again_at_once_and_the_lease_goes_on() -> None:
    queue = Away(3)
    with Heartbeat(cast("Queue", queue), LEASE, lambda: None, since_boot()) as found:
        assert queue.enough.wait(60)
        assert found.verdict is None


def test_a_lease_whose_answer_came_late_is_over_as_soon_as_one_whose_answer_came_at_once() -> None:
    over = threading.Event()
    with Heartbeat(cast("Queue", Away(1000)), LEASE, over.set, since_boot() - LEASE.times.grace) as found:
        assert over.wait(60)
        assert found.verdict == "lost"


def test_a_lease_whose_token_is_refused_is_over_at_the_first_beat() -> None:
    class Refusing(Away):
        def beat(self, fence: Fence, phase: Phase) -> Beat:
            super().beat(fence, phase)
            raise UnauthorizedError("the token is revoked")

    queue, over = Refusing(0), threading.Event()
    with Heartbeat(cast("Queue", queue), LEASE, over.set, since_boot()) as found:
        assert over.wait(60)
        assert (found.verdict, queue.beats) == ("refused", 1)
        assert isinstance(found.refusal, UnauthorizedError)


def test_a_forbidden_beat_does_not_end_the_token_and_is_repeated() -> None:
    class Forbidding(Away):
        def beat(self, fence: Fence, phase: Phase) -> Beat:
            try:
                return super().beat(fence, phase)
            except UnavailableError as error:
                raise ForbiddenError("a proxy does not let this request through") from error

    queue = Forbidding(3)
    with Heartbeat(cast("Queue", queue), LEASE, lambda: None, since_boot()) as found:
        assert queue.enough.wait(60)
        assert (found.verdict, found.refusal) == (None, None)


def test_a_new_phase_is_sent_at_once_and_not_with_the_next_regular_beat() -> None:
    class Listening(Away):
        def beat(self, fence: Fence, phase: Phase) -> Beat:  # noqa: ARG002
            phases.append(phase)
            self.enough.set()
            return "keep"

    phases, queue = list[Phase](), Listening(0)
    rare = replace(LEASE, seconds=36_000.0)
    with Heartbeat(cast("Queue", queue), rare, lambda: None, since_boot()) as found:
        for phase in ("measuring", "storing"):
            queue.enough.clear()
            found.enter(phase)
            assert queue.enough.wait(60)
    assert phases == ["measuring", "storing"]
