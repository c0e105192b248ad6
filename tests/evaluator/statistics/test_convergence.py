"""Statistics of trainings against published examples, exact cases and seeded simulations."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from benchlock.evaluator.statistics.convergence import (
    SIGNIFICANCE,
    compare_failures,
    find_convergence_point,
    find_permutation_p,
    find_welch_p,
    judge_equivalence,
    olympic_mean,
)

RULES = [16.0, 14.0, 16.0, 17.0, 16.0, 16.0, 15.0, 16.0, 15.0, 16.0]
"""The example of MLPerf's rules for reference convergence points."""
SETS = 2_000
SPREAD = 0.19
"""The coefficient of variation of epochs to 97 % of a small network on digits."""


def draws(mean: float, count: int, seed: int, spread: float = SPREAD) -> list[float]:
    """Epochs as a lognormal distribution has them."""
    deviation = math.sqrt(math.log1p(spread**2))
    return list(np.random.default_rng(seed).lognormal(math.log(mean) - deviation**2 / 2, deviation, count))


def normal_pairs(first: int, second: int) -> Iterator[tuple[list[float], list[float]]]:
    generator = np.random.default_rng(20)
    for _ in range(SETS):
        yield list(generator.normal(13, 2.5, first)), list(generator.normal(13, 2.5, second))


def test_an_olympic_mean_leaves_out_the_best_and_the_worst() -> None:
    assert olympic_mean([1, 5, 6, 7, 100]) == 6
    assert olympic_mean(RULES) == 15.75


def test_one_repeat_without_the_target_is_the_worst_and_two_leave_no_mean() -> None:
    assert olympic_mean([None, 1, 5, 6, 7]) == 6
    assert olympic_mean([None, 1, 5, 6, None, 7]) is None
    assert olympic_mean([1, 5, 6, 7]) is None


@pytest.mark.parametrize(
    ("epochs", "mean", "deviation", "cut"),
    [
        (RULES, 15.75, 0.43, 15.21),
        ([19, 20, 20, 20, 21, 21, 21, 21, 22, 23], 20.75, 0.66, 19.93),
    ],
)
def test_the_reference_convergence_points_of_the_rules_are_reproduced(
    epochs: list[float], mean: float, deviation: float, cut: float
) -> None:
    point = find_convergence_point(epochs)
    assert (point.mean, point.deviation, point.cut) == pytest.approx((mean, deviation, cut), abs=0.005)


def test_welch_rejects_equal_distributions_at_its_level() -> None:
    rejected = sum(find_welch_p(a, b) < SIGNIFICANCE for a, b in normal_pairs(20, 10))
    assert 0.04 <= rejected / SETS <= 0.06


def test_the_level_of_mlperfs_check_is_nearer_8_to_10_percent() -> None:
    rejected = sum(
        mean < find_convergence_point(a, 10).cut
        for a, b in normal_pairs(20, 10)
        if (mean := olympic_mean(b)) is not None
    )
    assert 0.07 <= rejected / SETS <= 0.11


def test_a_faster_optimizer_is_found_and_a_slower_one_is_slower() -> None:
    reference = draws(12.94, 20, seed=1)
    for find_p in (find_welch_p, find_permutation_p):
        assert find_p(reference, draws(8.12, 10, seed=2)) < 0.001
        assert find_p(reference, draws(20.38, 10, seed=2)) > 0.999
        assert 0.05 < find_p(reference, draws(12.94, 10, seed=3)) < 0.95


def test_equal_runs_decide_without_a_spread() -> None:
    assert find_welch_p([9, 9], [9, 9]) == 0.5
    assert find_welch_p([9, 9], [8, 8]) == 0


def test_equivalence_is_rarely_found_at_the_edge_of_the_margin() -> None:
    margin = 0.25
    found = sum(
        judge_equivalence(draws(13, 20, seed), draws(13 * (1 + margin), 20, seed + SETS), margin).answer == "equivalent"
        for seed in range(SETS)
    )
    assert found / SETS <= 0.06  # 5 % and the error of this number of sets


def test_equivalence_is_usually_found_where_it_holds() -> None:
    found = sum(
        judge_equivalence(draws(13, 20, seed), draws(13, 20, seed + 400), 0.25).answer == "equivalent"
        for seed in range(400)
    )
    assert found / 400 > 0.9


def test_a_narrow_margin_is_inconclusive_and_names_the_number_of_repeats() -> None:
    result = judge_equivalence(draws(13, 10, 1), draws(13, 10, 2), 0.1)
    assert result.answer == "inconclusive"
    assert result.needed is not None
    assert result.needed > 10
    assert judge_equivalence(draws(8, 10, 1), draws(20, 10, 2), 0.1).answer == "different"
    assert judge_equivalence([], [], 0.1).answer == "inconclusive"
    assert judge_equivalence([9.0], [9.0], 0.1).answer == "inconclusive"


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ((0, 10), (0, 10), 1.0),
        ((1, 2), (11, 12), 0.27472527472527475),
        ((3, 4), (1, 4), 0.4857142857142857),
        ((0, 10), (5, 10), 0.0325077399380805),
    ],
)
def test_shares_without_the_target_are_compared_exactly(
    first: tuple[int, int], second: tuple[int, int], p: float
) -> None:
    assert compare_failures(first, second) == pytest.approx(p)
    assert compare_failures(second, first) == pytest.approx(p)
