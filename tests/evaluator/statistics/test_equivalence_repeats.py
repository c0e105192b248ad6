"""Values over several runs, and ratios of two groups: against scipy, and by how often they hold the truth."""

import math

import numpy as np
import pytest
from scipy import stats

from benchlock.evaluator.statistics.confidence_intervals import UNBOUNDED
from benchlock.evaluator.statistics.equivalence import (
    FEWEST,
    centre,
    find_interval_over_runs,
    ratio,
    runs_to_decide,
    width,
)
from benchlock.evaluator.statistics.metric_types import Interval

A = [1.00, 1.04, 0.98, 1.07, 1.01]
B = [1.11, 1.12, 1.10, 1.20, 1.09]


def test_the_value_over_runs_is_their_median() -> None:
    assert centre([1.0, 4.0]) == pytest.approx(2.0)
    assert centre([0.0, 4.0]) == pytest.approx(2.0)
    assert centre([-1.0, 4.0]) == pytest.approx(1.5)
    assert centre([9.0, 2.0, 1.0]) == 2.0


def test_the_interval_over_runs_lies_between_order_statistics() -> None:
    values = [float(number) for number in (3, 1, 2, 10, 5, 4, 9, 7, 8, 6)]
    assert find_interval_over_runs(values) == Interval(
        2.0, 9.0
    )  # of 10 runs the chance of one below the median or none is 1.1 %
    assert find_interval_over_runs(values[:6]) == Interval(1.0, 10.0)


def test_fewer_than_six_runs_bound_nothing_and_equal_runs_everything() -> None:
    assert find_interval_over_runs([1.0] * 5) == UNBOUNDED
    assert width(1.0, UNBOUNDED) == math.inf
    assert find_interval_over_runs([2.0] * 6) == Interval(2.0, 2.0)
    assert width(2.0, find_interval_over_runs([2.0] * 6)) == 0.0


def noise(random: np.random.Generator, runs: int, spikes: float) -> np.ndarray:
    """Values of so many runs, of which a share is half as slow again."""
    return np.asarray(random.normal(scale=0.02, size=runs) + 0.4 * (random.random(runs) < spikes))


@pytest.mark.parametrize("spikes", [0.0, 0.1, 0.3])
def test_the_interval_over_runs_holds_the_truth_on_a_host_with_spikes(spikes: float) -> None:
    """Some runs are half as slow again; Student's t of the mean would miss the median."""
    random = np.random.default_rng(13)
    truth = float(np.median(noise(random, 400_000, spikes)))
    for runs in (6, 10, 20):
        ends = [find_interval_over_runs(list(noise(random, runs, spikes))) for _ in range(500)]
        held = [ci.low is not None and ci.high is not None and ci.low <= truth <= ci.high for ci in ends]
        assert np.mean(held) >= 0.93  # of 95 %, two standard errors


def test_the_width_is_that_of_the_farther_end() -> None:
    assert width(2.0, Interval(1.9, 2.2)) == pytest.approx(0.1)
    assert width(0.0, Interval(-1.0, 1.0)) == math.inf


def test_watching_costs_width() -> None:
    values = [float(number) for number in range(1, 41)]
    plain, watched = find_interval_over_runs(values), find_interval_over_runs(values, watched=True)
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
            found = find_interval_over_runs(list(runs[:number]), watched=True)
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


def test_what_neighbouring_pairs_share_widens_their_interval() -> None:
    plain, wide = (ratio(A, B, paired=True, inflation=inflation) for inflation in (1.0, 4.0))
    assert plain is not None
    assert wide is not None
    reach, double = (math.log((one.ci.high or 0) / (one.value or 0)) for one in (plain, wide))
    assert double == pytest.approx(2 * reach)


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


def test_the_first_lock_counts_with_both_of_its_turns() -> None:
    again = [1.02, 1.00, 1.01, 1.03, 0.99]
    found = ratio(A, B, paired=True, again=again)
    expected = ratio(list(np.sqrt(np.multiply(A, again))), B, paired=True)
    assert found is not None
    assert expected is not None
    assert found.value == pytest.approx(expected.value)
    assert found.ci.low == pytest.approx(expected.ci.low)


def test_so_many_runs_would_decide() -> None:
    near = ratio(A * 2, A * 2, paired=False)
    assert near is not None
    found = {margin: runs_to_decide(near, margin) for margin in (0.001, 0.01, 0.02, 0.05)}
    assert found[0.001] is None  # more than anybody makes
    assert None not in (found[0.01], found[0.02], found[0.05])
    assert found[0.01] > found[0.02] > found[0.05] >= FEWEST  # type: ignore[operator]
    one = ratio([1.0], [1.1], paired=False)
    assert one is not None
    assert runs_to_decide(one, 0.05) is None
