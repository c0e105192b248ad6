"""Intervals of several decisions, or many pixels, a sample: how often they hold the truth, and what bounds nothing."""

import numpy as np
import pytest

from benchlock.evaluator.statistics.confidence_intervals import (
    FEWEST_SAMPLES,
    UNBOUNDED,
    fraction,
    mean_iou_interval,
    share_interval,
)
from benchmarks.simulation.quality import DECISIONS, MASKS, Decisions, Masks, coverage_of_decisions, coverage_of_masks


def name_of(kind: Masks | Decisions) -> str:
    return kind.name


@pytest.mark.parametrize("samples", [30, 100])
@pytest.mark.parametrize("masks", MASKS, ids=name_of)
def test_the_interval_of_miou_holds_the_truth(masks: Masks, samples: int) -> None:
    """Of 200 sets 92 % and more, less two standard errors; the bootstrap held it in 70 to 93 %."""
    assert coverage_of_masks(masks, samples, 200).held >= 0.92 - 2 * (0.92 * 0.08 / 200) ** 0.5


@pytest.mark.parametrize("samples", [20, 100])
@pytest.mark.parametrize("kind", DECISIONS, ids=name_of)
def test_the_interval_of_decisions_that_are_kept_apart_holds_the_truth(kind: Decisions, samples: int) -> None:
    assert coverage_of_decisions(kind, samples, 400).held >= 0.92 - 2 * (0.92 * 0.08 / 400) ** 0.5


def test_the_bootstrap_of_the_first_version_holds_it_less_often() -> None:
    held = [coverage_of_masks(masks, 30, 60, bootstrap=True).held for masks in MASKS[1:5]]
    assert min(held) < 0.85


def test_samples_whose_decisions_are_all_alike_are_worth_one_each() -> None:
    counts = np.array([[10, 10], [0, 10]] * 10)
    found, plain = share_interval(counts), fraction(10, 20)
    assert found.low == pytest.approx(plain.low, abs=0.03)
    assert found.high == pytest.approx(plain.high, abs=0.03)


def test_one_decision_a_sample_has_nearly_the_exact_interval() -> None:
    counts = np.stack([np.arange(200) < 150, np.ones(200)], axis=1).astype(np.int64)
    found, plain = share_interval(counts), fraction(150, 200)
    assert found.low == pytest.approx(plain.low, abs=0.003)
    assert found.high == pytest.approx(plain.high, abs=0.003)


@pytest.mark.parametrize("right", [0, 5])
def test_an_interval_of_decisions_that_are_all_alike_has_a_width(right: int) -> None:
    found = share_interval(np.array([[right, 5]] * 20))
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low == pytest.approx(1 - 0.025 ** (1 / 20), abs=0.02)  # that of 20 samples, not of 100


def test_an_interval_of_masks_that_are_all_right_has_a_width() -> None:
    rows = np.array([[sample, label, 50, 50] for sample in range(30) for label in range(3)])
    found = mean_iou_interval(rows, 30)
    assert found.high == 1
    assert found.low == pytest.approx(1 - 2.045 / 60, abs=1e-3)


def test_few_samples_bound_nothing() -> None:
    rows = np.array([[sample, 0, 5, 10] for sample in range(FEWEST_SAMPLES)])
    counts = np.array([[1, 2]] * FEWEST_SAMPLES)
    assert mean_iou_interval(rows[:-1], FEWEST_SAMPLES - 1) == UNBOUNDED
    assert mean_iou_interval(rows, FEWEST_SAMPLES) != UNBOUNDED
    assert share_interval(counts[:-1]) == UNBOUNDED
    assert share_interval(np.array([*counts[:-1], [0, 0]])) == UNBOUNDED
    assert share_interval(counts) != UNBOUNDED


def test_a_class_of_one_sample_widens_the_interval() -> None:
    rows = np.array([[sample, label, 60 + 10 * label + sample % 7, 100] for sample in range(30) for label in range(3)])
    alone = np.vstack([rows, [[0, 3, 80, 100]]])
    known, unknown = mean_iou_interval(rows, 30), mean_iou_interval(alone, 30)
    assert known.low is not None
    assert known.high is not None
    assert unknown.low is not None
    assert unknown.high is not None
    assert unknown.high - unknown.low > 2 * (known.high - known.low)
