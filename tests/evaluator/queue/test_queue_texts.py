"""What the commands of a queue take and say."""

import msgspec
import pytest
from msgspec.structs import replace

from benchlock.evaluator.queue.queue_texts import describe_machine, find_machine_trouble, machine_state
from benchlock.evaluator.queue.queue_types import Machine, MachineId
from tests.support.evaluator.queues import facts


def known(**changes: object) -> Machine:
    """A machine that is there, with these changes."""
    return replace(Machine(MachineId("m1"), "a boot", facts(), None, 1.0, gone=False, job=None), **changes)


@pytest.mark.parametrize(
    ("found", "state", "trouble"),
    [
        (known(), "free", ""),
        (
            known(held="its engine failed", held_for=150.0),
            "held back",
            "held back for another 2 min 30 s: its engine failed",
        ),
        (known(held="its engine failed"), "free", "held back until a job ends well there: its engine failed"),
        (known(gone=True, gone_because="its token is revoked"), "gone", "its token is revoked"),
        (known(draining="its owner wants it", held="x"), "draining", "its owner wants it"),
    ],
)
def test_a_machine_that_gets_no_jobs_is_shown_with_the_reason(found: Machine, state: str, trouble: str) -> None:
    assert (machine_state(found), find_machine_trouble(found)) == (state, trouble)
    assert msgspec.convert(msgspec.to_builtins(found), Machine) == found


@pytest.mark.parametrize(
    ("skew", "said"),
    [
        (None, None),
        (4.9, None),
        (-7260.0, "its clock is 2 h 1 min behind the queue's"),
        (90061.0, "its clock is 1 d 1 h ahead of the queue's"),
    ],
)
def test_a_clock_that_differs_is_shown(skew: float | None, said: str | None) -> None:
    words = describe_machine(known(skew=skew))
    assert ("clock" in words) == (said is not None)
    assert said is None or said in words
