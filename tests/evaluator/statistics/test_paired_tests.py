"""Two models on the same samples: exact tests against sums of others, and how often they are wrong."""

from collections.abc import Callable
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from msgspec.structs import replace
from scipy import stats

from benchlock.evaluator.harness.quality.detection import evaluate
from benchlock.evaluator.statistics import paired_tests
from benchlock.evaluator.statistics.confidence_intervals import UNBOUNDED
from benchlock.evaluator.statistics.metric_types import Interval, PairedTest
from benchlock.evaluator.statistics.paired_tests import adjust, compare_decisions, compare_measures
from benchlock.evaluator.statistics.quality_metrics import estimate_quality
from tests.support.evaluator.boxes import Drawn, detections_of

Bools = npt.NDArray[np.bool_]


def decisions(only_first: int, only_second: int, n: int) -> tuple[Bools, Bools]:
    number = np.arange(n)
    both = number >= only_first + only_second
    return both | (number < only_first), both | ((number >= only_first) & (number < only_first + only_second))


@pytest.mark.parametrize(("only_first", "only_second"), [(300, 200), (5, 0), (6, 0), (3, 9), (1, 1), (0, 1), (10, 10)])
def test_mcnemar_is_the_sum_of_the_tails(only_first: int, only_second: int) -> None:
    found = compare_decisions(*decisions(only_first, only_second, 10_000))
    discordant = only_first + only_second
    tail = sum(comb(discordant, k) for k in range(min(only_first, only_second) + 1)) / 2**discordant
    assert found.p == pytest.approx(min(1.0, 2 * tail), rel=1e-9)
    assert (found.only_first, found.only_second, found.n) == (only_first, only_second, 10_000)
    assert found.difference == pytest.approx((only_second - only_first) / 10_000)
    assert found.ci.low is not None
    assert found.ci.high is not None
    assert found.ci.low <= found.difference <= found.ci.high


@pytest.mark.parametrize("n", [20, 100, 359, 1000])
@pytest.mark.parametrize(("first", "second"), [(0.398, 0), (0.1, 0), (0.1, 0.02), (0, 0), (1, 0)])
def test_the_interval_of_paired_decisions_holds_the_truth(first: float, second: float, n: int) -> None:
    """The chances of all counts of samples that one model alone decides right, where the interval holds the truth."""
    counts = np.arange(n + 1)
    others = [stats.binom.pmf(counts, n - one, second / (1 - first) if second else 0.0) for one in counts]
    chances = stats.binom.pmf(counts, n, first)[:, np.newaxis] * np.array(others)
    held = 0.0
    for only_first, only_second in np.argwhere(chances > 1e-6):
        ci = compare_decisions(*decisions(only_first, only_second, n)).ci
        assert ci.low is not None
        assert ci.high is not None
        held += chances[only_first, only_second] * (ci.low <= second - first <= ci.high)
    assert held >= 0.94


@pytest.mark.parametrize("discordant", range(1, 60))
def test_the_interval_excludes_0_where_mcnemar_is_significant(discordant: int) -> None:
    for only_first in range(discordant + 1):
        for n in (discordant, 1000):
            found = compare_decisions(*decisions(only_first, discordant - only_first, n))
            assert found.is_significant == (found.p <= 0.05)


def test_models_that_decide_alike_are_equal() -> None:
    found = compare_decisions(*decisions(0, 0, 50))
    assert (found.p, found.difference, found.is_equal, found.is_significant) == (1.0, 0.0, True, False)


def rows_of_masks(seed: int, n: int, quality: float = 6.0) -> npt.NDArray[np.int64]:
    """Return what ``n`` samples of four classes add to miou: the unions are those of the seed."""
    random, scores = np.random.default_rng(seed), np.random.default_rng([seed, int(quality * 100)])
    rows = []
    for sample in range(n):
        for label in range(4):
            if random.random() < 0.7:
                union = int(random.integers(10, 400))
                rows.append([sample, label, int(union * scores.beta(quality, 2)), union])
    return np.asarray(rows, np.int64)


def measures_of(metric: str, seed: int, n: int, quality: float) -> dict[str, Any]:
    random = np.random.default_rng([seed, int(quality * 100)])
    if metric == "miou":
        return {"miou": rows_of_masks(seed, n, quality)}
    if metric == "map":
        return dict(evaluate(*detections_of(seed, n, Drawn("good" if quality > 5 else "bad", n)))[1])
    if metric == "top1":
        decided = np.random.default_rng(seed).integers(1, 6, n)
        return {"top1": np.stack([random.binomial(decided, quality / 10), decided], axis=1)}
    return {metric: np.random.default_rng(seed).exponential(size=n) * random.uniform(0.5, 1, n) / quality}


@pytest.mark.parametrize("metric", ["miou", "map", "top1", "mae", "rmse"])
def test_the_difference_is_that_of_the_values(metric: str) -> None:
    first, second = measures_of(metric, 3, 30, 6.0), measures_of(metric, 3, 30, 4.0)
    found = compare_measures(metric, first, second, 30)
    values = []
    for measures in (first, second):
        n = int(measures["top1"][:, 1].sum()) if metric == "top1" else 30
        value = value_of(metric, measures)
        values.append(estimate_quality(metric, value, n, measures).value)  # refuses another value
    assert found.difference == pytest.approx(values[1] - values[0], abs=1e-12)
    assert (found.method, found.n) == ("resampling", 30)
    assert found.is_significant == (found.p <= 0.05 and found.ci.low is not None and abs(found.difference) > 0)


def value_of(metric: str, measures: dict[str, Any]) -> float:
    if metric == "miou":
        rows = measures["miou"]
        parts = [rows[rows[:, 1] == label] for label in np.unique(rows[:, 1])]
        return float(np.mean([part[:, 2].sum() / part[:, 3].sum() for part in parts]))
    if metric == "top1":
        return float(measures["top1"][:, 0].sum() / measures["top1"][:, 1].sum())
    if metric == "map":
        return float(
            paired_tests.average_precision("map", measures, measures, 30)[1](np.repeat(np.eye(2), 30, axis=1))[0]
        )
    mean = float(measures[metric].mean())
    return mean if metric == "mae" else mean**0.5


def test_a_test_by_exchange_and_its_interval_agree_with_those_of_scipy() -> None:
    random = np.random.default_rng(8)
    first = random.exponential(size=40)
    second = first * random.uniform(0.8, 1.1, 40)
    found = compare_measures("mae", {"mae": first}, {"mae": second}, 40)
    other = stats.permutation_test(
        (second, first), lambda a, b: float((a - b).mean()), permutation_type="samples", n_resamples=9999, rng=1
    )
    assert found.p == pytest.approx(other.pvalue, abs=0.02)
    low, high = stats.t.interval(0.95, 39, (second - first).mean(), stats.sem(second - first))
    assert found.ci.low == pytest.approx(low, abs=0.1 * (high - low))
    assert found.ci.high == pytest.approx(high, abs=0.1 * (high - low))
    assert found == compare_measures("mae", {"mae": first}, {"mae": second}, 40)


@pytest.mark.parametrize("metric", ["miou", "map", "top1", "mae", "rmse"])
def test_a_model_is_equal_to_itself(metric: str) -> None:
    measures = measures_of(metric, 5, 20, 6.0)
    found = compare_measures(metric, measures, measures, 20)
    assert (found.difference, found.p, found.is_significant, found.is_equal) == (0.0, 1.0, False, True)


def test_equal_values_of_samples_that_differ_are_not_equal() -> None:
    found = compare_measures("mae", {"mae": np.array([1.0, 2.0])}, {"mae": np.array([2.0, 1.0])}, 2)
    assert (found.difference, found.is_equal) == (0.0, False)
    assert not compare_decisions(*decisions(3, 3, 50)).is_equal


@pytest.mark.parametrize("metric", ["map", "mae"])
def test_so_many_comparisons_can_find_a_difference(metric: str) -> None:
    """Of 60 comparisons Holm's method wants the least ``p`` to be 0.05 / 60 at most."""
    first, second = measures_of(metric, 3, 30, 6.0), measures_of(metric, 3, 30, 1.0)
    found = compare_measures(metric, first, second, 30, comparisons=60)
    assert adjust([found, *[replace(found, p=1.0)] * 59])[0].is_significant


def test_few_samples_that_differ_decide_nothing_though_their_bootstrap_excludes_zero() -> None:
    """Four of 20, all in one direction: as likely as 1 of 8 if neither model is better."""
    first = np.ones(20)
    second = first - np.repeat([1.0, 0.0], [4, 16])
    found = compare_measures("mae", {"mae": first}, {"mae": second}, 20)
    assert found.p == pytest.approx(1 / 8, abs=0.03)
    assert not found.is_significant


def test_one_sample_bounds_nothing() -> None:
    found = compare_measures("mae", {"mae": np.ones(1)}, {"mae": np.zeros(1)}, 1)
    assert (found.ci, found.p, found.is_significant) == (UNBOUNDED, 1.0, False)


@pytest.mark.parametrize(
    ("metric", "draw"),
    [
        ("mae", lambda random, n: random.exponential(size=n) ** 2),
        ("rmse", lambda random, n: random.exponential(size=n) ** 2 * (random.random(n) < 0.3)),
        ("top1", lambda random, n: np.stack([random.integers(0, 4, n), np.full(n, 3)], axis=1)),
    ],
)
def test_equal_models_are_seldom_called_different(
    metric: str, draw: Callable[[np.random.Generator, int], npt.NDArray[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paired_tests, "DRAWS", 199)
    random = np.random.default_rng(12)
    found = [compare_measures(metric, {metric: draw(random, 20)}, {metric: draw(random, 20)}, 20) for _ in range(400)]
    assert sum(one.is_significant for one in found) <= 0.05 * 400 + 2 * (0.05 * 0.95 * 400) ** 0.5


def test_large_sets_are_resampled_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of all draws at once would need 800 MB of 50,000 samples."""
    monkeypatch.setattr(paired_tests, "AT_ONCE", 1000)
    largest = 0

    def watched(random: np.random.RandomState, count: int, units: int) -> Any:  # noqa: ANN401 - as the original
        nonlocal largest
        largest = max(largest, count * units)
        return draw(random, count, units)

    draw = paired_tests.draw
    monkeypatch.setattr(paired_tests, "draw", watched)
    errors = np.random.default_rng(1).exponential(size=(2, 100))
    compare_measures("mae", {"mae": errors[0]}, {"mae": errors[1]}, 100)
    assert largest <= 500


def test_several_comparisons_are_adjusted_by_holm() -> None:
    tests = [PairedTest("mcnemar", 9, 0.1, Interval(0.1, 0.2), p) for p in (0.03, 0.01, 0.04, 0.5)]
    found = adjust(tests)
    assert [one.adjusted for one in found] == pytest.approx([0.09, 0.04, 0.09, 0.5])
    assert [one.is_significant for one in found] == [False, True, False, False]
    assert {one.comparisons for one in found} == {4}
    assert [one.p for one in found] == [0.03, 0.01, 0.04, 0.5]


@pytest.mark.parametrize(
    ("metric", "measures"),
    [
        ("mae", {"mae": np.ones(4)}),
        ("top1", {"top1": np.ones((3, 2))}),
        ("miou", {"miou": np.array([[3, 0, 1, 1]])}),
        ("rmse", {}),
    ],
)
def test_measures_of_other_samples_are_refused(metric: str, measures: dict[str, Any]) -> None:
    with pytest.raises((ValueError, KeyError)):
        compare_measures(metric, measures, measures, 3)
