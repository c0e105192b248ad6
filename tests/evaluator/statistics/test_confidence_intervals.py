"""Intervals against published values, against brute force, and by how often they hold the truth."""

import math

import numpy as np
import pytest
from scipy import stats

from benchlock.evaluator.statistics.confidence_intervals import (
    UNBOUNDED,
    fraction,
    mean_in_blocks,
    quantile,
    quantile_ranks,
    rate,
)
from benchlock.evaluator.statistics.metric_types import Interval


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (8, 10, 0.4439, 0.9748),  # the textbook example of Clopper and Pearson's interval
        (0, 10, 0.0, 0.3085),
        (10, 10, 0.6915, 1.0),
        (751, 1000, 0.7230, 0.7775),
    ],
)
def test_fraction_of_known_cases(successes: int, n: int, low: float, high: float) -> None:
    found = fraction(successes, n)
    assert found.low == pytest.approx(low, abs=1e-4)
    assert found.high == pytest.approx(high, abs=1e-4)


@pytest.mark.parametrize(("successes", "n"), [(1, 4), (17, 200), (199, 200)])
def test_fraction_solves_its_defining_equations(successes: int, n: int) -> None:
    found = fraction(successes, n)
    assert found.low is not None
    assert found.high is not None
    assert stats.binom.sf(successes - 1, n, found.low) == pytest.approx(0.025)
    assert stats.binom.cdf(successes, n, found.high) == pytest.approx(0.025)


@pytest.mark.parametrize(("successes", "n"), [(1, 0), (0, 0), (5, 4), (-1, 4)])
def test_what_is_no_fraction_is_refused(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="not a fraction"):
        fraction(successes, n)


@pytest.mark.parametrize(("n", "q"), [(10, 0.5), (100, 0.9), (368, 0.99), (1000, 0.99), (7, 0.1)])
def test_quantile_ranks_are_the_tightest_that_hold_each_tail(n: int, q: float) -> None:
    low, high = quantile_ranks(n, q)
    fitting = [rank for rank in range(1, n + 1) if stats.binom.cdf(rank - 1, n, q) <= 0.025]
    assert low == (max(fitting) if fitting else None)
    fitting = [rank for rank in range(1, n + 1) if stats.binom.sf(rank - 1, n, q) <= 0.025]
    assert high == (min(fitting) if fitting else None)


def test_p99_needs_368_samples_for_an_upper_end() -> None:
    assert quantile_ranks(367, 0.99)[1] is None
    assert quantile_ranks(368, 0.99)[1] == 368


def test_p50_needs_six_samples_for_both_ends() -> None:
    assert quantile_ranks(5, 0.5) == (None, None)
    assert quantile_ranks(6, 0.5) == (1, 6)


@pytest.mark.parametrize(("q", "expected"), [(0.5, 50.0), (0.9, 90.0), (0.99, 99.0), (1.0, 100.0), (0.001, 1.0)])
def test_quantile_is_the_nearest_rank(q: float, expected: float) -> None:
    assert quantile([float(i) for i in range(1, 101)], q)[0] == expected


def test_one_sample_is_every_quantile_and_bounds_none() -> None:
    assert quantile([3.0], 0.9) == (3.0, UNBOUNDED)


def test_no_samples_have_no_quantile() -> None:
    with pytest.raises(ValueError, match="zero samples"):
        quantile([], 0.5)


def test_quantile_interval_holds_the_truth_at_least_95_times_in_100() -> None:
    random = np.random.default_rng(3)
    truth = -math.log(1 - 0.9)  # of the exponential distribution
    held = 0
    for _ in range(2000):
        _, ci = quantile(np.sort(random.exponential(size=200)), 0.9)
        assert ci.low is not None
        assert ci.high is not None
        held += ci.low <= truth <= ci.high
    assert held / 2000 >= 0.945


def test_mean_in_blocks_needs_two_values_a_block() -> None:
    assert mean_in_blocks(np.ones(39)) == UNBOUNDED
    assert mean_in_blocks(np.ones(40)) == Interval(1.0, 1.0)


def test_mean_in_blocks_holds_the_truth_where_neighbours_are_alike() -> None:
    random = np.random.default_rng(5)
    held = naive = 0
    for _ in range(400):
        noise = random.normal(size=1200)
        series = np.empty(1200)
        level = 0.0
        for i, shock in enumerate(noise):
            level = 0.7 * level + shock
            series[i] = level
        ci = mean_in_blocks(series)
        assert ci.low is not None
        assert ci.high is not None
        held += ci.low <= 0 <= ci.high
        naive += abs(series.mean()) <= 1.96 * series.std(ddof=1) / math.sqrt(1200)
    assert held / 400 >= 0.92
    assert naive / 400 <= 0.80  # what taking the values for independent would have claimed as 95 %


def test_rate_counts_the_time_between_calls() -> None:
    durations = np.full(100, 0.010)
    ci = rate(
        durations, elapsed=2.0, units=1, mean=mean_in_blocks(durations)
    )  # a call each 20 ms, 10 of them between calls
    assert ci.low == pytest.approx(50)
    assert ci.high == pytest.approx(50)


def test_rate_has_no_upper_end_where_the_mean_duration_may_be_zero() -> None:
    durations = np.zeros(40)
    durations[0] = 1.0
    ci = rate(durations, elapsed=1.0, units=1, mean=mean_in_blocks(durations))
    assert ci.low is not None
    assert ci.low > 0
    assert ci.high is None


def test_rate_of_few_calls_is_unbounded() -> None:
    assert rate(np.ones(10), elapsed=10, units=4, mean=UNBOUNDED) == UNBOUNDED
