"""What becomes of a job when a lease ends: whatever happens to it, it ends, and an answer is an answer."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlock.evaluator.queue.queue_types import (
    LONGEST,
    LOST_MACHINES,
    MAX_TRIES,
    TERMINAL,
    LeaseEnd,
    Tally,
    decide_next_state,
)
from benchlock.evaluator.runner.run_outcome import FailureClass

ENDS: list[LeaseEnd] = [
    *("done", "cancelled", "returned", "lost", "integrity", "invalid"),
    *get_args(FailureClass),
]
TALLIES = st.builds(Tally, *(st.integers(0, 5) for _ in range(3)))
FINAL = sorted({*get_args(FailureClass)} - {"engine", "crash"})


@given(ended=st.sampled_from(ENDS), tally=TALLIES, cancel=st.booleans())
def test_a_job_is_waiting_or_over_and_never_counts_backwards(ended: LeaseEnd, tally: Tally, cancel: bool) -> None:
    found = decide_next_state(ended, tally, cancel_asked=cancel)
    assert found.state in {*TERMINAL, "queued", "delayed"}
    counted = found.tally.total - tally.total
    assert counted == (ended in ("lost", "engine", "integrity", "crash"))
    assert (found.failure is not None) == (found.state in ("failed", "quarantined"))
    assert found.elsewhere == (found.state == "delayed") or cancel
    assert 0 <= found.delay <= LONGEST
    if cancel:
        assert found.state in TERMINAL


@given(st.lists(st.sampled_from([one for one in ENDS if one not in ("cancelled", "returned")]), max_size=40))
def test_a_job_that_keeps_failing_ends(ends: list[LeaseEnd]) -> None:
    tally, most = Tally(), LOST_MACHINES + MAX_TRIES["engine"] + MAX_TRIES["crash"] - 2
    for tries, ended in enumerate(ends, start=1):
        found = decide_next_state(ended, tally, cancel_asked=False)
        if found.state in TERMINAL:
            assert tries <= most
            return
        tally = found.tally
    assert len(ends) < most


@pytest.mark.parametrize("failure", FINAL)
def test_what_the_run_says_of_the_lock_is_the_answer_at_once(failure: FailureClass) -> None:
    assert decide_next_state(failure, Tally(lost=2, engine=3, crash=1), cancel_asked=True).state == "failed"


def test_the_third_machine_lost_sets_a_job_aside() -> None:
    states = []
    tally = Tally()
    for _ in range(LOST_MACHINES):
        found = decide_next_state("lost", tally, cancel_asked=False)
        states.append(found.state)
        tally = found.tally
    assert states == ["delayed", "delayed", "quarantined"]


def test_waits_grow_by_three() -> None:
    tallies = [Tally(engine=count) for count in range(3)]
    assert [decide_next_state("engine", tally, cancel_asked=False).delay for tally in tallies] == [1, 3, 9]


def test_given_back_counts_nothing_and_waits_for_nothing() -> None:
    found = decide_next_state("returned", Tally(crash=1), cancel_asked=False)
    assert (found.state, found.tally, found.delay, found.elsewhere) == ("queued", Tally(crash=1), 0, False)
