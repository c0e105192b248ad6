"""How many child processes run at once, and with how much memory, whoever asks for them."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from benchlock.artifacts.errors import BusyError
from benchlock.artifacts.isolation import isolated_calls
from benchlock.artifacts.isolation.isolated_calls import run_isolated
from benchlock.artifacts.isolation.resource_limits import (
    SLOT_CLAIM,
    ChildSlots,
    LimitExceededError,
    Limits,
    SlotClaim,
    find_memory,
)

GIB: Final = 1 << 30
FUNCTIONS: Final = "tests.support.artifacts.isolated"


@pytest.mark.parametrize("budget", [0, GIB, 3 * GIB, 7 * GIB, 9 * GIB, 31 * GIB])
def test_slots_share_the_budget(budget: int) -> None:
    slots = ChildSlots(budget)
    assert slots.count >= 2
    assert slots.count * slots.memory <= max(budget, 2 * GIB)
    assert slots.memory >= min(max(budget // 2, GIB), 4 * GIB)


def test_one_caller_never_has_all_slots() -> None:
    slots, gate, begun = ChildSlots(3 * GIB), threading.Event(), threading.Semaphore(0)

    def hold(owner: str) -> None:
        SLOT_CLAIM.set(SlotClaim(owner))
        with slots.slot():
            begun.release()
            gate.wait(60)

    with ThreadPoolExecutor(4) as threads:
        mine = [threads.submit(hold, "first") for _ in range(2)]
        assert begun.acquire(timeout=60)
        other = threads.submit(hold, "second")
        taken = [begun.acquire(timeout=10), begun.acquire(timeout=0.2)]
        owners = dict(slots.taken)
        gate.set()
        assert taken == [True, False]
        assert owners == {"first": 1, "second": 1}
        for one in (*mine, other):
            one.result(60)
    with ExitStack() as held:
        for _ in range(slots.count):
            held.enter_context(slots.slot())  # whoever works for nobody may have all


class Queue:
    """Claims that wait for the slots; ``served`` are the owners of those that have had one, in order."""

    def __init__(self, slots: ChildSlots, threads: ThreadPoolExecutor) -> None:
        self.slots = slots
        self.served: list[str] = []
        self._threads = threads

    def take(self, claim: SlotClaim) -> None:
        SLOT_CLAIM.set(claim)
        with self.slots.slot():
            self.served.append(claim.owner)

    def add(self, claim: SlotClaim) -> None:
        """Let a claim arrive, and return when it waits."""
        before = self.slots.waiting
        self._threads.submit(self.take, claim)
        wait_until(lambda: self.slots.waiting > before)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_urgent_claims_are_served_first_and_each_in_the_order_of_arrival() -> None:
    with ThreadPoolExecutor(5) as threads, ExitStack() as held:
        queue = Queue(ChildSlots(3 * GIB), threads)
        held.enter_context(queue.slots.slot())
        with queue.slots.slot():
            for owner, urgent in (("a", False), ("b", False), ("c", True), ("d", False), ("e", True)):
                queue.add(SlotClaim(owner, urgent=urgent))
        wait_until(lambda: len(queue.served) == 5)
        assert queue.served == ["c", "e", "a", "b", "d"]


def test_a_newcomer_does_not_overtake_whoever_waits() -> None:
    with ThreadPoolExecutor(1) as threads, ExitStack() as held:
        queue = Queue(ChildSlots(3 * GIB), threads)
        held.enter_context(queue.slots.slot())
        for _ in range(20):
            queue.served.clear()
            with queue.slots.slot():
                queue.add(SlotClaim("first"))
            queue.take(SlotClaim("newcomer"))
            SLOT_CLAIM.set(SlotClaim())
            assert queue.served == ["first", "newcomer"]


def test_whoever_has_their_share_keeps_nobody_else_waiting() -> None:
    with ThreadPoolExecutor(2) as threads, ExitStack() as first:
        queue = Queue(ChildSlots(3 * GIB), threads)
        with queue.slots.slot():
            SLOT_CLAIM.set(SlotClaim("first"))
            first.enter_context(queue.slots.slot())
            SLOT_CLAIM.set(SlotClaim())
            queue.add(SlotClaim("first", urgent=True))
            queue.add(SlotClaim("second"))
        wait_until(lambda: queue.served == ["second"])
        assert queue.slots.waiting == 1
        first.close()
        wait_until(lambda: queue.served == ["second", "first"])


def test_a_claim_gives_up_at_its_deadline() -> None:
    with ThreadPoolExecutor(1) as threads, ExitStack() as held:
        queue = Queue(ChildSlots(3 * GIB), threads)
        for _ in range(queue.slots.count):
            held.enter_context(queue.slots.slot())
        late = threads.submit(queue.take, SlotClaim("late", urgent=True, deadline=time.monotonic() + 0.05))
        with pytest.raises(BusyError) as refused:
            late.result(60)
        assert refused.value.next_step
        assert queue.slots.waiting == 0
        queue.add(SlotClaim("later"))
        held.close()
        wait_until(lambda: queue.served == ["later"])


def test_a_child_has_the_memory_of_a_slot_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated_calls, "child_slots", lambda: ChildSlots(0))
    with pytest.raises(LimitExceededError, match="1024 MiB of memory"):
        run_isolated(f"{FUNCTIONS}:take_memory", 1 << 30, limits=Limits(memory=8 * GIB), subject="the trial")


def test_children_wait_for_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = ChildSlots(0)
    monkeypatch.setattr(isolated_calls, "child_slots", lambda: slots)
    with ThreadPoolExecutor(1) as threads, ExitStack() as held:
        for _ in range(slots.count):
            held.enter_context(slots.slot())
        call = threads.submit(run_isolated, f"{FUNCTIONS}:take_memory", 1, limits=Limits(), subject="the trial")
        with pytest.raises(TimeoutError):
            call.result(0.5)
        held.close()
        assert call.result(60) == 1


def test_the_memory_is_that_of_the_cgroup(tmp_path: Path) -> None:
    own = tmp_path / "own"
    machine = find_memory(tmp_path, tmp_path / "none")
    assert machine > 0

    own.write_text("0::/system.slice/benchlock.service\n")
    group = tmp_path / "system.slice" / "benchlock.service"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    assert find_memory(tmp_path, own) == machine
    (group.parent / "memory.max").write_text("2048\n")
    assert find_memory(tmp_path, own) == 2048
    (group / "memory.max").write_text("1024\n")
    assert find_memory(tmp_path, own) == 1024

    own.write_text("3:cpuset:/\n4:memory:/docker/12ab\n")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("512\n")
    assert find_memory(tmp_path, own) == 512
