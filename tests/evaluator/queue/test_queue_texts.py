"""What the commands of a queue take and say."""

import msgspec
import pytest
from msgspec.structs import replace

from benchlock.evaluator.queue.queue_texts import (
    PHASES,
    describe_line,
    describe_machine,
    find_machine_trouble,
    job_state,
    machine_state,
)
from benchlock.evaluator.queue.queue_types import Job, Machine, MachineId, Phase, ProgressLine, new_job_id
from tests.support.evaluator.queues import LOCK, facts, machine
from tests.support.evaluator.recorded import NOON


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


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (ProgressLine(1, "accuracy", 1200, 50_000), "accuracy: 1,200 of 50,000 samples"),
        (ProgressLine(1, "score", 12), "score: 12 samples"),
        (ProgressLine(1, "performance", 62_290, 62_290), "performance: 62,290 of 62,290 calls"),
        (ProgressLine(1, "operator", 1, 3), "operator: 1 of 3 cases"),
        (
            ProgressLine(1, "verifying digests of the lock", 1536, 3 << 20),
            "verifying digests of the lock: 1.5 KiB of 3.0 MiB",
        ),
        (ProgressLine(1, "installing wheels", 2, 9), "installing wheels: 2 of 9 wheels"),
        (ProgressLine(1, "resolving wheels", 0), "resolving wheels"),
        (ProgressLine(1, "a task of a later worker", 2, 9), "a task of a later worker: 2 of 9 steps"),
    ],
)
def test_progress_is_counted_in_a_unit(line: ProgressLine, words: str) -> None:
    assert describe_line(line) == words


@pytest.mark.parametrize("phase", PHASES)
def test_a_job_of_a_worker_is_described_without_words_of_the_code(phase: Phase) -> None:
    job = Job(
        id=new_job_id(NOON), lock=LOCK, state="leased", phase=phase, machine=machine(1), run=None, lost=0, engine=0,
        crash=0, cancel_asked=False, failure=None, reason=None, due=None, submitted_at=NOON,
    )  # fmt: skip
    assert job_state(job) == f"taken by worker m1, {PHASES[phase]}"
    assert job_state(replace(job, cancel_asked=True)).endswith(", cancellation requested")
    again = replace(job, state="delayed", phase=None)
    assert job_state(replace(again, due=90.0)) == "queued again, next try in 1 min 30 s"
    assert job_state(replace(job, state="done", phase=None)) == "done"
