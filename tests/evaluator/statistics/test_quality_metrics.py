"""Metrics out of what each sample adds: against the sums of others, and intervals by how often they hold the truth."""

import contextlib
import io
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from scipy import stats

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.harness.datasets import Boxes
from benchlock.evaluator.harness.quality.detection import evaluate
from benchlock.evaluator.statistics.confidence_intervals import UNBOUNDED, mean_iou_interval, share_interval
from benchlock.evaluator.statistics.metric_types import Interval
from benchlock.evaluator.statistics.quality_metrics import (
    balanced_halves,
    bootstrap,
    estimate_quality,
    half_sample_interval,
    mean_interval,
    mean_iou,
    precisions,
    ranks,
)
from tests.support.evaluator.boxes import PICTURES, Drawn, Floats, coverage_of, detections_of


def library(rows: Floats, labels: list[Boxes]) -> list[float]:
    """The twelve figures that the library's own summary prints, of what the COCO formats hold."""
    truth, found = COCO(), None
    flat = [(picture, index) for picture, label in enumerate(labels) for index in range(len(label.classes))]
    truth.dataset = {
        "info": {},
        "images": [{"id": picture} for picture in range(len(labels))],
        "categories": [{"id": number} for number in range(1, 5)],
        "annotations": [
            {
                "id": number + 1,
                "image_id": picture,
                "category_id": int(labels[picture].classes[index]),
                "bbox": [
                    *labels[picture].xyxy[index, :2],
                    *np.diff(labels[picture].xyxy[index].reshape(2, 2), axis=0)[0],
                ],
                "area": labels[picture].areas[index],
                "iscrowd": int(labels[picture].crowd[index]),
            }
            for number, (picture, index) in enumerate(flat)
        ],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        found = truth.loadRes(
            [
                {"image_id": int(row[0]), "category_id": int(row[1]), "score": row[2],
                 "bbox": [row[3], row[4], row[5] - row[3], row[6] - row[4]]}
                for row in rows
            ]
        )  # fmt: skip
        evaluation = COCOeval(truth, found, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return list(evaluation.stats)


@pytest.mark.parametrize("seed", [1, 2])
def test_average_precision_is_the_one_that_the_library_prints(seed: int) -> None:
    rows, labels = detections_of(seed)
    precision, measures = evaluate(rows, labels)
    expected = library(rows, labels)
    for metric, part, value in (("map", precision, expected[0]), ("map_50", precision[:1], expected[1])):
        assert part[part > -1].mean() == pytest.approx(value, abs=1e-12)
        found = estimate_quality(metric, value, PICTURES, measures)
        assert (found.value, found.n) == (value, PICTURES)
        assert found.ci.low is not None
        assert found.ci.high is not None
        assert found.ci.low < value < found.ci.high


def test_a_sample_that_is_drawn_twice_counts_as_two() -> None:
    rows, labels = detections_of(3)
    weights = np.random.default_rng(4).integers(0, 3, PICTURES)
    _, measures = evaluate(rows, labels)
    copies = [number for number, count in enumerate(weights) for _ in range(count)]
    copied = np.vstack(
        [[[place, *row[1:]] for row in rows[rows[:, 0] == number]] for place, number in enumerate(copies)]
    )
    precision, _ = evaluate(copied, [labels[number] for number in copies])
    ranked = list(ranks(measures, PICTURES, slice(None)))
    found = precisions(ranked, np.arange(PICTURES), weights[None].astype(np.float64))
    assert np.nanmean(found) == pytest.approx(precision[precision > -1].mean(), abs=1e-12)


@pytest.mark.parametrize("detector", ["blind", "good", "bad"])
@pytest.mark.parametrize(("classes", "sets"), [(3, 50), (12, 30)])
def test_the_interval_of_average_precision_holds_the_truth(detector: str, classes: int, sets: int) -> None:
    """The precision of 30 pictures is higher than that of many, and of 12 classes most are rare."""
    for found in coverage_of(Drawn(detector, PICTURES, classes), sets).values():
        assert found.shown >= 0.86 * sets


def test_the_interval_over_halves_of_a_mean_is_student_s_over_the_groups() -> None:
    """Far from 0 and 1 and of groups that are alike, where the arcsine is nearly straight."""
    values = np.random.default_rng(8).normal(0.5, 0.02, size=32)
    halves = (balanced_halves(32) @ values / 16).reshape(-1, 2, 1)
    found = half_sample_interval(np.array([values.mean()]), halves)
    low, high = stats.t.interval(0.95, 31, values.mean(), stats.sem(values))
    assert found.low == pytest.approx(low, abs=1e-4)
    assert found.high == pytest.approx(high, abs=1e-4)


def test_any_two_groups_are_as_often_in_the_same_half_as_not() -> None:
    for samples, groups in ((2, 2), (3, 2), (31, 16), (32, 32), (900, 32)):
        halves = balanced_halves(samples)
        assert halves.shape == (2 * (groups - 1), groups)
        assert (halves[::2] + halves[1::2] == 1).all()
        together = halves.T @ halves
        assert (together == np.where(np.eye(groups), groups - 1, groups / 2 - 1)).all()


def test_the_end_takes_away_what_halves_lie_above_the_whole() -> None:
    """The low end more than the high one, since nobody knows how fast it falls with the samples."""
    found = half_sample_interval(np.array([0.5]), np.full((31, 2, 1), 0.55))
    above = np.arcsin(np.sqrt(0.55)) - np.arcsin(np.sqrt(0.5))
    assert found.low == pytest.approx(np.sin(np.pi / 4 - (1 + np.sqrt(2)) * above) ** 2)
    assert found.high == 0.5


def test_a_class_that_half_of_the_pictures_do_not_show_widens_the_interval() -> None:
    halves = np.stack([np.linspace(0.58, 0.62, 31), np.linspace(0.62, 0.58, 31)], axis=1)[..., None].repeat(4, axis=2)
    whole = np.array([0.5, 0.6, 0.7, 0.6])
    rare = halves.copy()
    rare[:, 0, 3] = np.nan
    known, unknown = half_sample_interval(whole, halves), half_sample_interval(whole, rare)
    assert known.low is not None
    assert known.high is not None
    assert unknown.low is not None
    assert unknown.high is not None
    assert unknown.low < known.low - 0.6 / 2 / 4
    assert unknown.high > known.high


def test_boxes_in_one_picture_bound_nothing() -> None:
    one = Boxes(np.array([1]), np.array([[0.0, 0, 10, 10]]), np.array([100.0]), np.array([False]))
    none = Boxes(np.zeros(0, int), np.zeros((0, 4)), np.zeros(0), np.zeros(0, bool))
    rows = np.array([[0, 1, 0.9, 0, 0, 10, 10]])
    for others in range(3):
        _, measures = evaluate(rows, [one] + [none] * others)
        assert estimate_quality("map", 1.0, 1 + others, measures).ci == UNBOUNDED
    _, measures = evaluate(np.array([rows[0], [1, *rows[0, 1:]]]), [one, one])
    assert estimate_quality("map", 1.0, 2, measures).ci == Interval(1.0, 1.0)


def test_detections_of_what_is_nowhere_labelled_are_no_class_of_the_mean() -> None:
    labels = [Boxes(np.array([7]), np.array([[0.0, 0, 10, 10]]), np.array([100.0]), np.array([False]))] * 2
    rows = np.array([[0, 7, 0.9, 0, 0, 10, 10], [1, 7, 0.8, 0, 0, 10, 10], [1, 3, 0.99, 0, 0, 10, 10]])
    _, measures = evaluate(rows, labels)
    assert estimate_quality("map", 1.0, 2, measures).ci == Interval(1.0, 1.0)


def rows_of_masks(seed: int, samples: int) -> npt.NDArray[np.int64]:
    random = np.random.default_rng(seed)
    rows = []
    for sample in range(samples):
        for label in range(4):
            if random.random() < 0.7:
                union = int(random.integers(10, 400))
                rows.append([sample, label, int(union * random.beta(6, 2)), union])
    return np.asarray(rows, np.int64)


def test_mean_iou_is_of_all_pixels_class_by_class() -> None:
    rows = np.array([[0, 0, 6, 10], [0, 1, 1, 2], [1, 0, 0, 10], [2, 1, 2, 2]])
    found = estimate_quality("miou", (6 / 20 + 3 / 4) / 2, 3, {"miou": rows})
    assert found.value == pytest.approx(0.525)
    with pytest.raises(InvalidInputError, match=r"reports miou 0.6, but its measures give 0.525"):
        estimate_quality("miou", 0.6, 3, {"miou": rows})


def test_the_bootstrap_agrees_with_that_of_scipy() -> None:
    values = np.random.default_rng(8).beta(2, 5, size=200)
    found = bootstrap(lambda weights: float(weights @ values / weights.sum()), 200)
    other = stats.bootstrap((values,), np.mean, method="basic", n_resamples=4000, random_state=1).confidence_interval
    assert found.low == pytest.approx(other.low, rel=0.02)
    assert found.high == pytest.approx(other.high, rel=0.02)
    assert found == bootstrap(lambda weights: float(weights @ values / weights.sum()), 200)


def test_the_version_of_the_definition_says_how_the_interval_is_made() -> None:
    rows = rows_of_masks(1, 60)
    value = judged_value(rows)
    today, earlier = (estimate_quality("miou", value, 60, {"miou": rows}, version).ci for version in (2, 1))
    assert today == estimate_quality("miou", value, 60, {"miou": rows}).ci == mean_iou_interval(rows, 60)
    assert earlier == bootstrap(mean_iou(rows, 60), 60)
    counts = np.array([[2, 3], [1, 3], [3, 3], [0, 3]] * 5)
    today, earlier = (estimate_quality("top1", 0.5, 60, {"top1": counts}, version).ci for version in (2, 1))
    assert today == share_interval(counts)
    assert earlier != today


def judged_value(rows: npt.NDArray[np.int64]) -> float:
    return float(np.mean([part[:, 2].sum() / part[:, 3].sum() for part in (rows[rows[:, 1] == k] for k in range(4))]))


@pytest.mark.parametrize(("metric", "truth"), [("mae", np.sqrt(2 / np.pi)), ("rmse", 1.0)])
def test_the_interval_of_errors_holds_the_truth(metric: str, truth: float) -> None:
    random = np.random.default_rng(11)
    held = 0
    for _ in range(1000):
        errors = random.normal(size=80)
        measures = np.abs(errors) if metric == "mae" else errors**2
        value = float(measures.mean()) if metric == "mae" else float(np.sqrt(measures.mean()))
        ci = estimate_quality(metric, value, 80, {metric: measures}).ci
        assert ci.low is not None
        assert ci.high is not None
        held += bool(ci.low <= truth <= ci.high)
    assert held >= 925


def test_the_interval_of_a_mean_is_student_s() -> None:
    values = np.array([1.0, 4.0, 4.0, 7.0])
    expected = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    found = mean_interval(values)
    assert (found.low, found.high) == pytest.approx(expected)
    assert mean_interval(values[:1]) == UNBOUNDED


def test_decisions_of_calls_are_drawn_by_the_sample() -> None:
    """A sample whose calls are all alike says no more than one decision."""
    counts = np.array([[10, 10], [0, 10]] * 10)
    found = estimate_quality("top1", 0.5, 200, {"top1": counts}).ci
    assert found.low == pytest.approx(0.3, abs=0.06)
    assert found.high == pytest.approx(0.7, abs=0.06)


def test_one_sample_bounds_nothing() -> None:
    assert estimate_quality("miou", 0.5, 1, {"miou": np.array([[0, 0, 1, 2]])}).ci == UNBOUNDED
    assert estimate_quality("rmse", 2.0, 1, {"rmse": np.array([4.0])}).ci == UNBOUNDED


BROKEN: dict[str, dict[str, npt.NDArray[Any]]] = {
    "mae": {"mae": np.ones(4)},
    "rmse": {"rmse": np.array([1.0, -1.0, 1.0])},
    "miou": {"miou": np.array([[3, 0, 1, 1]])},
    "top1": {"top1": np.ones((3, 2))},
    "map": {"map.scores": np.ones(1), "map.rows": np.array([[9, 1]]), "map.labelled": np.array([[0, 1, 1]]),
            "map.matches": np.ones((1, 10), np.uint8)},
    "map_50": {},
}  # fmt: skip


@pytest.mark.parametrize("metric", BROKEN)
def test_measures_that_do_not_fit_are_refused(metric: str) -> None:
    with pytest.raises(InvalidInputError, match=metric):
        estimate_quality(metric, 1.0, 3, BROKEN[metric])
