"""The experiments of each trace level, and how many calls they make."""

from typing import get_args

from benchlock.evaluator.harness.core.job import TraceLevel
from benchlock.evaluator.harness.tracing.trace_levels import EXPERIMENTS, OVER_TIME, Plan, plan_calls
from benchlock.registry.manifests.metric_definitions import TRACE_COSTS


def test_every_level_measures_what_it_costs() -> None:
    assert set(EXPERIMENTS) == set(TRACE_COSTS) == set(get_args(TraceLevel))
    for level, experiments in EXPERIMENTS.items():
        assert experiments == (("none", *TRACE_COSTS[level]) if level != "none" else ())


def test_a_quick_model_makes_two_hundred_calls_in_four_processes() -> None:
    assert plan_calls(1.0, 0.001, 91) == Plan(4, 5, 10)
    assert plan_calls(1.0, 0.001, 91).calls == 200


def test_a_framework_that_starts_slowly_has_fewer_processes_but_as_many_calls() -> None:
    assert plan_calls(24.0, 0.001, 91) == Plan(3, 7, 10)
    assert plan_calls(30.0, 0.001, 91) == Plan(2, 10, 10)
    assert plan_calls(200.0, 0.001, 91) == Plan(1, 20, 10)


def test_a_slow_model_makes_fewer_calls_and_says_why() -> None:
    assert plan_calls(1.0, 0.5, 10) == Plan(4, 1, 10, OVER_TIME)
    assert plan_calls(30.0, 4.0, 10) == Plan(2, 1, 3, OVER_TIME)
    assert plan_calls(900.0, 100.0, 10) == Plan(1, 1, 1, OVER_TIME)


def test_a_model_of_many_operators_fits_the_largest_trace() -> None:
    plan = plan_calls(1.0, 0.001, 2000)
    assert plan.calls * 2000 * 700 <= 64 << 20
    assert plan.reason == "a trace has at most 64 MiB"
