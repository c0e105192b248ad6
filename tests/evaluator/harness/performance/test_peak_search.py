"""The search for the peak rate, on systems whose peak is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.performance.peak_search import RESOLUTION, make_rate_check, search


@given(peak=st.floats(0.1, 1e6), away=st.floats(1 / 900, 900))
def test_it_ends_with_neighbours_around_the_peak(peak: float, away: float) -> None:
    low, high = search(lambda rate: rate <= peak, peak * away)
    assert low <= peak < high <= low * RESOLUTION


def test_a_system_that_answers_every_rate_ends_it() -> None:
    with pytest.raises(Failure, match=r"1\.02e\+05 queries/s still meet .*: increase target_qps, or min_q"):
        search(lambda _rate: True, 100)


def test_a_system_that_answers_no_rate_ends_it() -> None:
    with pytest.raises(Failure, match=r"0\.0977 queries/s already exceed the latency bound"):
        search(lambda _rate: False, 100)


def test_a_system_that_contradicts_itself_still_gets_neighbours() -> None:
    answers = iter([True, False, True, False] * 20)
    low, high = search(lambda _rate: next(answers), 100)
    assert low < high <= low * RESOLUTION


def test_one_disturbed_probe_of_a_rate_moves_no_peak() -> None:
    tries = {100.0: 1}  # of the performance phase

    def probe(rate: float) -> bool:
        tries[rate] = tries.get(rate, 0) + 1
        return rate <= 700 and tries[rate] > 1

    low, high = search(make_rate_check(probe, 100, timed=False), 100)
    assert low <= 700 < high <= low * RESOLUTION
    assert set(tries.values()) == {2}


def test_a_rate_that_the_performance_phase_answered_is_answered() -> None:
    asked: list[float] = []

    def probe(rate: float) -> bool:
        asked.append(rate)
        return rate < 90

    low, high = search(make_rate_check(probe, 500, timed=True), 500)
    assert 500 <= low < high <= low * RESOLUTION
    assert 500 not in asked
