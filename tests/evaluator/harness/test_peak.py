"""The search for the peak rate, on systems whose peak is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.harness.failures import Failure
from evaluator.harness.performance.peak import RESOLUTION, search


@given(peak=st.floats(0.1, 1e6), away=st.floats(1 / 900, 900))
def test_it_ends_with_neighbours_around_the_peak(peak: float, away: float) -> None:
    low, high = search(lambda rate: rate <= peak, peak * away)
    assert low <= peak < high <= low * RESOLUTION


def test_a_system_that_answers_every_rate_ends_it() -> None:
    with pytest.raises(Failure, match=r"1\.02e\+05 queries a second are still answered .*: raise target_qps, or min_q"):
        search(lambda _rate: True, 100)


def test_a_system_that_answers_no_rate_ends_it() -> None:
    with pytest.raises(Failure, match=r"not even 0\.0977 queries a second are answered within the bound"):
        search(lambda _rate: False, 100)


def test_a_system_that_contradicts_itself_still_gets_neighbours() -> None:
    answers = iter([True, False, True, False] * 20)
    low, high = search(lambda _rate: next(answers), 100)
    assert low < high <= low * RESOLUTION
