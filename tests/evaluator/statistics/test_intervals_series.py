"""Intervals of series whose values depend on each other: by how often they hold the truth, and when they are absent."""

import numpy as np
import pytest
from scipy import stats

from benchlock.evaluator.statistics.confidence_intervals import (
    FEWEST_CALLS,
    UNBOUNDED,
    count_independent,
    mean_of_series,
    quantile,
    quantile_of_series,
)
from benchlock.evaluator.statistics.metric_types import LEVEL, Interval
from benchmarks.simulation.processes import Process, autoregressive, constant_queue, exponential_queue
from benchmarks.simulation.within_runs import estimate_coverage


@pytest.mark.parametrize(
    ("process", "calls", "runs"),
    [
        (autoregressive(0.0), 200, 400),
        (autoregressive(0.5), 1000, 300),
        (autoregressive(0.9), 200, 400),
        (autoregressive(0.9), 1000, 300),
        (exponential_queue(0.5), 1000, 300),
        (exponential_queue(0.8), 1000, 300),
        (exponential_queue(0.8), 10_000, 200),
        (exponential_queue(0.8), 40_000, 100),
        (constant_queue(0.8), 10_000, 200),
    ],
    ids=lambda one: one.name if isinstance(one, Process) else str(one),
)
def test_the_interval_within_a_run_holds_the_truth_90_times_in_100(process: Process, calls: int, runs: int) -> None:
    found = estimate_coverage(process, calls, runs)
    assert found.given > 0.5
    assert found.held >= 0.90


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution_at_its_level() -> None:
    values = np.random.default_rng(1).normal(size=4096)
    interval = mean_of_series(values)
    assert interval.low is not None
    assert interval.high is not None
    error = values.std() / np.sqrt(count_independent(values))
    assert (interval.high - interval.low) / (2 * error) == pytest.approx(stats.norm.ppf((1 + LEVEL) / 2), rel=1e-12)


def test_what_takes_dependent_calls_for_independent_does_not() -> None:
    assert estimate_coverage(autoregressive(0.9), 1000, 300).naive < 0.6
    assert estimate_coverage(exponential_queue(0.8), 10_000, 100).naive < 0.6


def test_a_run_that_is_too_short_for_its_dependence_has_no_interval() -> None:
    """Its slowest changes take longer than a batch of its calls."""
    assert estimate_coverage(autoregressive(0.99), FEWEST_CALLS, 200).given < 0.15


def test_few_calls_bound_nothing() -> None:
    values = np.random.default_rng(1).normal(size=FEWEST_CALLS)
    assert quantile_of_series(values[1:], 0.5)[1] == UNBOUNDED
    assert quantile_of_series(values, 0.5)[1] != UNBOUNDED
    assert mean_of_series(values[1:]) == UNBOUNDED
    assert mean_of_series(values) != UNBOUNDED


def test_the_value_is_the_nearest_rank_of_all_calls() -> None:
    values = np.random.default_rng(2).normal(size=1000)
    for q in (0.5, 0.9, 0.99):
        assert quantile_of_series(values, q)[0] == quantile(np.sort(values), q)[0]


def test_a_series_that_never_varies_is_known_exactly() -> None:
    same = np.full(1000, 2.0)
    assert quantile_of_series(same, 0.5) == (2.0, Interval(2.0, 2.0))
    assert mean_of_series(same) == Interval(2.0, 2.0)


def test_a_clock_that_ticks_coarsely_makes_no_dependence() -> None:
    """Many calls take as many ticks: which of them came first says nothing."""
    ticks = np.random.default_rng(3).integers(1, 4, 2000).astype(float)
    assert count_independent(ticks) > 500
    assert quantile_of_series(ticks, 0.5) == (2.0, Interval(2.0, 2.0))


def test_independent_values_count_nearly_all_and_a_trend_hardly_any() -> None:
    random = np.random.default_rng(4)
    assert count_independent(random.normal(size=4000)) > 1000
    assert count_independent(np.linspace(0.0, 1.0, 4000)) < 10
    assert quantile_of_series(np.linspace(0.0, 1.0, 4000), 0.5)[1] == UNBOUNDED


def test_a_mean_of_dependent_values_holds_the_truth() -> None:
    random = np.random.default_rng(5)
    held = [
        ci.low is not None and ci.high is not None and ci.low <= 0 <= ci.high
        for ci in map(mean_of_series, autoregressive(0.9).draw(random, 300, 1000))
    ]
    assert np.mean(held) >= 0.90
