"""Intervals of metrics of classes and probabilities: how often they hold the true value, and what is refused."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.harness.core.job import CLASS_METRICS
from benchlock.evaluator.harness.quality.class_scores import auroc, average_precision, brier, f1, mean_over_classes
from benchlock.evaluator.statistics.class_metrics import estimate_class_metric
from benchlock.evaluator.statistics.confidence_intervals import UNBOUNDED, fraction
from benchlock.evaluator.statistics.metric_types import Interval
from benchlock.evaluator.statistics.paired_tests import compare_measures
from benchlock.evaluator.statistics.quality_metrics import estimate_quality

SETS = 120
MANY = 200_000


def measures_of(random: np.random.Generator, n: int, classes: int, sharpness: float) -> dict[str, npt.NDArray[Any]]:
    """The measures of samples whose scores have a normal error; ``sharpness`` 1 is a calibrated model."""
    labels = random.integers(0, classes, n)
    return measures_of_logits(labels, 2 * sharpness * (random.normal(size=(n, classes)) + 2 * np.eye(classes)[labels]))


def measures_of_logits(labels: npt.NDArray[np.int64], logits: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    powers = np.exp(logits)
    scores = powers / powers.sum(axis=1, keepdims=True)
    best = scores.argmax(axis=1)
    decided = np.column_stack([labels, best])
    return {
        "f1_macro": f1(decided, by_samples=False),
        "f1_weighted": f1(decided, by_samples=True),
        "auroc": mean_over_classes(auroc, labels, scores),
        "average_precision": mean_over_classes(average_precision, labels, scores),
        "ece_15": np.column_stack([scores.max(axis=1), best == labels]),
        "brier": brier(labels, scores),
    }


def value_of(name: str, measures: Mapping[str, npt.NDArray[Any]], n: int) -> float:
    value, _ = estimate_class_metric(name, measures[name], n)
    return value


def coverage(n: int, classes: int, sharpness: float) -> Iterator[tuple[str, float]]:
    """Yield the share of sets whose interval holds the value of very many samples, by metric."""
    true = measures_of(np.random.default_rng(1), MANY, classes, sharpness)
    truth = {name: value_of(name, true, MANY) for name in CLASS_METRICS}
    random, held = np.random.default_rng(n), dict.fromkeys(truth, 0)
    for _ in range(SETS):
        measures = measures_of(random, n, classes, sharpness)
        for name in CLASS_METRICS:
            _, ci = estimate_class_metric(name, measures[name], n)
            assert ci.low is not None
            assert ci.high is not None
            held[name] += ci.low <= truth[name] <= ci.high
    return ((name, count / SETS) for name, count in held.items())


@pytest.mark.parametrize(("n", "classes", "sharpness"), [(30, 2, 1.0), (100, 10, 1.0), (300, 10, 2.0)])
def test_the_intervals_hold_the_truth(n: int, classes: int, sharpness: float) -> None:
    least = stats.binom.ppf(0.001, SETS, 0.95) / SETS  # chance of a failure with 95 %: 1 in 1000
    for name, share in coverage(n, classes, sharpness):
        assert share >= least, name


def test_a_perfect_model_has_an_interval_as_wide_as_of_a_share() -> None:
    decided = np.repeat(np.arange(2), 20)[:, np.newaxis].repeat(2, axis=1)
    value, ci = estimate_class_metric("f1_weighted", f1(decided, by_samples=True), 40)
    assert (value, ci) == (1.0, fraction(40, 40))


def test_few_samples_bound_nothing() -> None:
    measures = measures_of(np.random.default_rng(0), 9, 2, 1.0)
    for name in CLASS_METRICS:
        assert estimate_class_metric(name, measures[name], 9)[1] == UNBOUNDED


@pytest.mark.parametrize(
    ("metric", "measure"),
    [
        ("auroc", np.ones((5, 2))),
        ("auroc", np.full((5, 2), np.nan)),
        ("f1_weighted", np.zeros((4, 2))),
        ("ece_15", np.full((5, 2), 2.0)),
        ("brier", np.zeros((5, 2), np.float32)),
    ],
)
def test_malformed_measures_are_refused(metric: str, measure: npt.NDArray[Any]) -> None:
    with pytest.raises(InvalidInputError, match=f"malformed measures of {metric}|its measures give"):
        estimate_quality(metric, 1.0, 5, {metric: measure})


def test_a_value_that_the_measures_do_not_give_is_refused() -> None:
    measures = measures_of(np.random.default_rng(0), 50, 3, 1.0)
    for name in CLASS_METRICS:
        with pytest.raises(InvalidInputError, match="its measures give"):
            estimate_quality(name, 0.123, 50, measures)


def answers(seed: int, quality: float) -> Mapping[str, npt.NDArray[Any]]:
    """The measures of a model on the same 200 samples; the seed is its own error."""
    labels = np.random.default_rng(0).integers(0, 3, 200)
    logits = np.random.default_rng(seed).normal(size=(200, 3)) + quality * np.eye(3)[labels]
    return measures_of_logits(labels, logits)


@pytest.mark.parametrize("metric", CLASS_METRICS)
def test_two_models_are_compared_sample_by_sample(metric: str) -> None:
    bad, good = answers(1, 0.2), answers(2, 3.0)
    equal = compare_measures(metric, bad, bad, 200)
    assert (equal.difference, equal.ci, equal.is_equal) == (0.0, Interval(0.0, 0.0), True)
    found = compare_measures(metric, bad, good, 200)
    values = [value_of(metric, measures, 200) for measures in (bad, good)]
    assert found.difference == pytest.approx(values[1] - values[0])
    if metric != "ece_15":
        assert found.is_significant
    similar = compare_measures(metric, bad, answers(3, 0.2), 200)
    assert similar.p > 0.01


@pytest.mark.parametrize(("metric", "difference"), [("f1_macro", -1), ("f1_weighted", -1), ("auroc", -1), ("brier", 2)])
def test_a_change_of_every_sample_alike_is_no_chance(metric: str, difference: float) -> None:
    labels = np.repeat(np.arange(2), 20)
    right, wrong = (measures_of_logits(labels, 99.0 * np.eye(2)[each]) for each in (labels, 1 - labels))
    found = compare_measures(metric, right, wrong, 40)
    assert found.difference == pytest.approx(difference)
    assert found.is_significant
    assert found.ci.low is not None
    assert found.ci.high is not None
    assert found.ci.low < found.difference < found.ci.high
    assert found.ci.low * found.ci.high > 0
