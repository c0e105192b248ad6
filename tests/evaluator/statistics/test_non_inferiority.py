"""One-sided tests of a candidate against a baseline: their error rates in simulation, and their bounds."""

import math

import numpy as np
import pytest

from benchlock.evaluator.statistics.equivalence import ROUND_DRIFT, ratio
from benchlock.evaluator.statistics.non_inferiority import (
    RegressionTest,
    decide_regression,
    divide_level,
    find_allowance,
    find_power,
)
from benchmarks.simulation.decisions import HOSTS, Host, gate_test

MARGIN = 0.05
TIMES = 600
SEED = 23


def simulated(host: Host, truth: float, spread: float, rounds: int = 6, level: float = 0.05) -> list[RegressionTest]:
    random = np.random.default_rng(SEED)
    return [gate_test(host, random, truth, spread, MARGIN, rounds, level) for _ in range(TIMES)]


def share(tests: list[RegressionTest], answer: str) -> float:
    return sum(test.answer == answer for test in tests) / len(tests)


def error(probability: float) -> float:
    """Three standard errors of a simulated share."""
    return 3 * math.sqrt(probability * (1 - probability) / TIMES)


@pytest.mark.parametrize("host", HOSTS, ids=[host.name for host in HOSTS])
@pytest.mark.parametrize("spread", [0.02, 0.08])
def test_without_a_change_a_regression_is_as_rare_as_stated(host: Host, spread: float) -> None:
    """A spread of 8 % is the harder case: no interval is within the margin, so nothing passes instead."""
    assert share(simulated(host, 1.0, spread), "regression") <= 0.05 + error(0.05)


def test_of_several_metrics_none_is_a_false_regression_more_often_than_stated() -> None:
    level = divide_level(4)
    random = np.random.default_rng(SEED)
    families = [
        [gate_test(HOSTS[0], random, 1.0, 0.08, MARGIN, 6, level).answer for _ in range(4)] for _ in range(TIMES)
    ]
    assert sum("regression" in answers for answers in families) / TIMES <= 0.05 + error(0.05)


@pytest.mark.parametrize(("spread", "rounds", "level"), [(0.02, 6, 0.05), (0.04, 6, 0.05), (0.04, 12, 0.025)])
def test_a_regression_of_the_margin_is_found_as_often_as_stated(spread: float, rounds: int, level: float) -> None:
    """The stated power is estimated from the spread of the rounds; its mean over simulations is compared."""
    tests = simulated(HOSTS[0], 1 + MARGIN, spread, rounds, level)
    found = share(tests, "regression")
    # The geometric mean of two turns of the baseline halves its part of the variance.
    true_power = find_power(spread * math.sqrt(1.5), rounds, math.log1p(MARGIN), level)
    assert abs(found - true_power) <= error(true_power)
    assert abs(float(np.mean([test.power for test in tests])) - found) <= 0.05 + error(found)


@pytest.mark.parametrize("host", HOSTS, ids=[host.name for host in HOSTS])
def test_a_regression_of_the_margin_passes_as_rarely_as_stated(host: Host) -> None:
    assert share(simulated(host, 1 + MARGIN, 0.02), "passed") <= 0.05 + error(0.05)


def test_an_unchanged_candidate_passes_on_a_calm_host() -> None:
    assert share(simulated(HOSTS[0], 1.0, 0.01), "passed") >= 0.99


def decide(values: list[float], direction: str = "lower", margin: float = MARGIN) -> RegressionTest:
    estimate = ratio([1.0] * len(values), values, paired=True, inflation=ROUND_DRIFT)
    assert estimate is not None
    test = decide_regression(estimate, direction, margin, 0.05)
    assert test is not None
    return test


@pytest.mark.parametrize(
    ("values", "direction", "answer"),
    [
        ([1.10, 1.11, 1.10, 1.11, 1.10, 1.11], "lower", "regression"),
        ([1.10, 1.11, 1.10, 1.11, 1.10, 1.11], "higher", "passed"),
        ([0.90, 0.91, 0.90, 0.91, 0.90, 0.91], "higher", "regression"),
        ([0.90, 0.91, 0.90, 0.91, 0.90, 0.91], "lower", "passed"),
        ([1.01, 1.02, 1.01, 1.02, 1.01, 1.02], "lower", "passed"),
        ([0.90, 1.15, 0.95, 1.20, 0.90, 1.10], "lower", "undecided"),
    ],
)
def test_better_passes_and_a_proven_change_within_the_margin_passes(
    values: list[float], direction: str, answer: str
) -> None:
    assert decide(values, direction).answer == answer


def test_an_undecided_test_is_decided_by_as_many_rounds_as_it_states() -> None:
    values = [0.97, 1.10, 0.98, 1.08, 0.96, 1.06]
    test = decide(values)
    assert test.answer == "undecided"
    assert test.rounds is not None
    assert test.rounds > len(values)
    again = decide(values * math.ceil(test.rounds / len(values)))
    assert again.answer != "undecided"
    assert again.rounds is None


def test_a_hopeless_spread_states_no_number_of_rounds() -> None:
    assert decide([0.2, 5.0, 0.3, 4.0, 0.25, 4.5]).rounds is None


def test_values_without_any_spread_are_decided() -> None:
    assert decide([1.2] * 6).answer == "regression"
    assert decide([1.0] * 6).answer == "passed"
    assert decide([1.0] * 6).power == 1.0


def test_one_round_decides_nothing() -> None:
    estimate = ratio([1.0], [1.5], paired=True)
    assert estimate is not None
    assert decide_regression(estimate, "lower", MARGIN, 0.05) is None


def test_a_margin_is_relative_to_the_baseline_in_both_directions() -> None:
    assert math.exp(find_allowance("lower", 0.1)) == pytest.approx(1.1)
    assert math.exp(-find_allowance("higher", 0.1)) == pytest.approx(0.9)


def test_power_grows_with_rounds_and_falls_with_the_spread() -> None:
    powers = [find_power(0.06, rounds, math.log1p(MARGIN), 0.05) for rounds in (3, 6, 12, 24)]
    assert powers == sorted(powers)
    assert find_power(0.01, 6, math.log1p(MARGIN), 0.05) > powers[1]
