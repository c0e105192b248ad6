"""The cost of each trace level, from pairs of fresh processes."""

import numpy as np
import pytest

from benchlock.evaluator.statistics.metric_types import Interval, Metric, metric_faults
from benchlock.evaluator.statistics.trace_overheads import CallSeries, estimate_overheads, typical_call

PROCESSES, CALLS = 5, 40
SPREAD = 5_000.0
"""The standard deviation of what a process adds to all of its calls, in nanoseconds."""


def calls(mean: float, seed: int, *, processes: int = PROCESSES, spread: float = SPREAD) -> CallSeries:
    """Calls of a host that drifts by a third over the processes, the same for every experiment."""
    random = np.random.default_rng(seed)
    numbers = np.repeat(np.arange(processes), CALLS)
    drift = np.linspace(0, mean / 3, processes)[numbers]
    layout = random.normal(0, spread, processes)[numbers]
    durations = (mean + drift + layout + random.gamma(2.0, 1000.0, len(numbers))).astype(np.int64)
    return CallSeries(durations, numbers, np.zeros_like(numbers))


def compare(shallow: CallSeries, deep: CallSeries) -> Metric:
    (metric,) = estimate_overheads({"none": shallow, "model": deep}).values()
    return metric


def contains(metric: Metric, value: float) -> bool:
    low, high = metric.ci.low, metric.ci.high
    assert low is not None
    assert high is not None
    return low <= value <= high


def test_each_level_is_compared_with_the_one_below() -> None:
    experiments = {"none": calls(200_000, 1), "model": calls(200_000, 2), "framework": calls(300_000, 3)}
    model, framework = estimate_overheads(experiments).values()
    assert (model.name, framework.name) == ("trace_overhead_model", "trace_overhead_framework")
    assert abs(model.value) < 1e-5
    assert framework.value == pytest.approx(1.17e-4, rel=0.1)
    assert contains(model, model.value)
    assert contains(framework, framework.value)
    assert not contains(framework, 0)
    assert not list(metric_faults((model, framework)))


@pytest.mark.parametrize("processes", [2, 3, PROCESSES])
def test_the_interval_contains_the_difference_as_often_as_it_claims(processes: int) -> None:
    pairs = (
        (calls(1e5, seed, processes=processes), calls(1e5, seed + 1, processes=processes)) for seed in range(0, 2000, 2)
    )
    contained = sum(contains(compare(*pair), 0) for pair in pairs)
    assert 928 <= contained <= 972  # of 1000 at 95 %: less than 1 in 500 by chance on either side


def test_preempted_calls_do_not_count_unless_most_are() -> None:
    quiet, disturbed = calls(100_000, 5), calls(100_000, 6)
    preempted = np.arange(len(disturbed.durations)) % 5 == 0
    slowed = disturbed._replace(durations=disturbed.durations + preempted * 1_000_000_000)
    marked = slowed._replace(preempted=preempted.astype(np.int64))
    assert compare(quiet, marked).value == pytest.approx(compare(quiet, disturbed).value, abs=1e-6)
    most = disturbed._replace(preempted=np.ones_like(preempted, np.int64))
    assert compare(quiet, most) == compare(quiet, disturbed)


def test_the_typical_call_is_the_mean_over_processes_of_their_median() -> None:
    series = CallSeries(np.array([1, 2, 90, 4, 5, 6]), np.array([0, 0, 0, 1, 1, 1]), np.zeros(6, np.int64))
    assert typical_call(series) == pytest.approx(3.5e-9)


def test_one_pair_of_processes_has_no_interval() -> None:
    once = calls(100_000, 1, processes=1)
    metric = compare(once, once._replace(durations=once.durations + 1000))
    assert metric.value == pytest.approx(1e-6)
    assert metric.ci == Interval(None, None)
