"""Values over several runs, and ratios of two groups: against scipy, and by how often they hold the truth."""

import math

import numpy as np
import pytest
from scipy import stats

from evaluator.statistics.figures import Interval
from evaluator.statistics.intervals import UNBOUNDED
from evaluator.statistics.repeats import FEWEST, centre, over_runs, ratio, width

A = [1.00, 1.04, 0.98, 1.07, 1.01]
B = [1.11, 1.12, 1.10, 1.20, 1.09]


def test_times_are_averaged_as_factors_and_others_as_they_are() -> None:
    assert centre([1.0, 4.0]) == pytest.approx(2.0)
    assert centre([0.0, 4.0]) == pytest.approx(2.0)
    assert centre([-1.0, 4.0]) == pytest.approx(1.5)


def test_the_interval_over_runs_is_students_t_of_the_logarithms() -> None:
    logs = np.log(A)
    low, high = stats.t.interval(0.95, len(A) - 1, logs.mean(), stats.sem(logs))
    found = over_runs(A)
    assert found.low == pytest.approx(math.exp(low))
    assert found.high == pytest.approx(math.exp(high))


def test_values_that_are_not_positive_have_the_plain_interval() -> None:
    values = [0.0, 0.1, 0.3]
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    found = over_runs(values)
    assert found.low == pytest.approx(low)
    assert found.high == pytest.approx(high)


def test_one_run_bounds_nothing_and_equal_runs_everything() -> None:
    assert over_runs([1.0]) == UNBOUNDED
    assert width(1.0, UNBOUNDED) == math.inf
    exact = over_runs([2.0, 2.0, 2.0])
    assert exact.low == pytest.approx(2.0)
    assert exact.high == pytest.approx(2.0)
    assert width(2.0, exact) == pytest.approx(0.0)


def test_the_width_is_that_of_the_farther_end() -> None:
    assert width(2.0, Interval(1.9, 2.2)) == pytest.approx(0.1)
    assert width(0.0, Interval(-1.0, 1.0)) == math.inf


def test_watching_costs_width() -> None:
    plain, watched = over_runs(A), over_runs(A, watched=True)
    assert plain.low is not None
    assert watched.low is not None
    assert watched.low < plain.low


@pytest.mark.parametrize("wanted", [0.004, 0.006, 0.010])
def test_who_stops_at_a_narrow_interval_holds_the_truth_95_times_in_100(wanted: float) -> None:
    random = np.random.default_rng(11)
    held, tries = 0, 1500
    for _ in range(tries):
        runs = np.exp(random.normal(scale=0.01, size=60))
        found = UNBOUNDED
        for number in range(FEWEST, len(runs) + 1):
            found = over_runs(list(runs[:number]), watched=True)
            if width(centre(list(runs[:number])), found) <= wanted:
                break
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1.0 <= found.high
    assert held / tries >= 0.94  # of a truth of 0.95, two standard errors


def test_pairs_are_held_against_their_neighbours() -> None:
    found = ratio(A, B, paired=True)
    assert found is not None
    quotients = np.log(B) - np.log(A)
    for ci, level in ((found.ci, 0.95), (found.narrow, 0.90)):
        low, high = stats.t.interval(level, len(A) - 1, quotients.mean(), stats.sem(quotients))
        assert ci.low == pytest.approx(math.exp(low))
        assert ci.high == pytest.approx(math.exp(high))
    assert found.value == pytest.approx(math.exp(quotients.mean()))
    assert (found.n, found.paired) == (5, True)


def test_others_are_compared_as_welch_does() -> None:
    found = ratio(A, B[:4], paired=False)
    assert found is not None
    for ci, level in ((found.ci, 0.95), (found.narrow, 0.90)):
        expected = stats.ttest_ind(np.log(B[:4]), np.log(A), equal_var=False).confidence_interval(level)
        assert ci.low == pytest.approx(math.exp(expected.low))
        assert ci.high == pytest.approx(math.exp(expected.high))
    assert (found.n, found.paired) == (4, False)


def test_drift_that_both_share_drops_out_of_pairs() -> None:
    drift = np.linspace(1.0, 1.5, 6)
    found, unpaired = (ratio(list(drift), list(drift * 1.02), paired=paired) for paired in (True, False))
    assert found is not None
    assert unpaired is not None
    assert found.ci.low == pytest.approx(1.02)
    assert found.ci.high == pytest.approx(1.02)
    assert unpaired.ci.low is not None
    assert unpaired.ci.low < 1


def test_one_run_each_has_a_ratio_without_bounds() -> None:
    for paired in (True, False):
        found = ratio([2.0], [3.0], paired=paired)
        assert found is not None
        assert found.value == pytest.approx(1.5)
        assert (found.ci, found.narrow) == (UNBOUNDED, UNBOUNDED)


def test_runs_that_never_vary_have_an_exact_ratio() -> None:
    found = ratio([2.0, 2.0], [3.0, 3.0], paired=False)
    assert found is not None
    assert found.ci.low == pytest.approx(1.5)
    assert found.ci.high == pytest.approx(1.5)


def test_nothing_is_a_multiple_of_zero() -> None:
    assert ratio([0.0, 1.0], [1.0, 1.0], paired=True) is None
