"""Boxes out of outputs: against the definitions written out pair by pair, and against pycocotools' overlaps."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pycocotools import mask

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job import Detections, Suppression
from benchlock.evaluator.harness.inference.detections import detect, overlaps, suppress
from benchlock.evaluator.harness.steps.step_tensor import Geometry

Floats = NDArray[np.float64]
TERMS = Detections("boxes", "scores", None, None, "xyxy-absolute", None, 0, 0.25, None, None)
GEOMETRY = Geometry.identity(100, 200)


def found(terms: Detections, geometry: Geometry = GEOMETRY, **outputs: Any) -> list[list[float]]:  # noqa: ANN401 - lists
    result: list[list[float]] = detect(terms, {key: np.asarray(one) for key, one in outputs.items()}, geometry).tolist()
    return result


def plainly(terms: Detections, boxes: Floats, scores: Floats) -> list[list[float]]:
    """The same by the words of the format, one pair of boxes after the other, with no array."""
    candidates = [
        (-float(score), index, label)
        for index, line in enumerate(scores)
        for label, score in enumerate(line)
        if score > terms.score_threshold and label != terms.background
    ]
    kept: list[tuple[float, int, int]] = []
    for score, index, label in sorted(candidates):
        rivals = [one for one in kept if terms.nms and (one[2] == label or not terms.nms.per_class)]
        if all(terms.nms and _iou(boxes[index], boxes[one[1]]) <= terms.nms.iou for one in rivals):
            kept.append((score, index, label))
    return [[label, -score, *boxes[index]] for score, index, label in kept[: terms.max_detections]]


def _iou(a: Floats, b: Floats) -> float:
    sides = [max(0.0, min(a[i + 2], b[i + 2]) - max(a[i], b[i])) for i in (0, 1)]
    areas = [(one[2] - one[0]) * (one[3] - one[1]) for one in (a, b)]
    return float(sides[0] * sides[1] / (sum(areas) - sides[0] * sides[1]))


@pytest.mark.parametrize("nms", [None, Suppression(0.4, per_class=True), Suppression(0.4, per_class=False)])
@pytest.mark.parametrize(("background", "most"), [(None, None), (0, None), (None, 9), (0, 9)])
def test_detections_are_those_of_the_definition(
    nms: Suppression | None, background: int | None, most: int | None
) -> None:
    random = np.random.default_rng(5)
    corners = random.uniform(0, 80, (150, 2))
    boxes = np.hstack([corners, corners + random.uniform(5, 60, (150, 2))])
    scores = np.round(random.random((150, 4)), 2)  # with ties
    terms = replace(TERMS, nms=nms, background=background, max_detections=most)
    assert found(terms, boxes=boxes, scores=scores) == plainly(terms, boxes, scores)


def test_overlaps_are_those_of_pycocotools() -> None:
    random = np.random.default_rng(6)
    boxes = np.hstack([random.integers(0, 50, (40, 2)), random.integers(1, 60, (40, 2))]).astype(np.float64)
    corners = np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]])
    expected = mask.iou(boxes[:7], boxes, [0] * 40)
    np.testing.assert_allclose([overlaps(corner, corners) for corner in corners[:7]], expected, atol=1e-12)


def test_a_box_on_the_limit_of_the_overlap_stays() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [0, 5, 10, 15], [0, 4, 10, 14]])  # overlaps of 1/3 and 3/7
    assert suppress(boxes, 1 / 3).tolist() == [0, 1]
    assert suppress(boxes, 0.33).tolist() == [0]


def test_a_box_that_goes_takes_none_with_it_and_empty_ones_overlap_nothing() -> None:
    chain = np.array([[0.0, 0, 10, 10], [0, 4, 10, 14], [0, 8, 10, 18]])
    assert suppress(chain, 0.3).tolist() == [0, 2]
    assert suppress(np.zeros((3, 4)), 0.0).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("form", "box"),
    [
        ("xyxy", [20, 10, 60, 30]),
        ("yxyx", [10, 20, 30, 60]),
        ("xywh", [20, 10, 40, 20]),
        ("cxcywh", [40, 20, 40, 20]),
    ],
)
def test_every_form_of_a_box_is_the_same_box(form: str, box: list[float]) -> None:
    sides = [100, 200, 100, 200] if form == "yxyx" else [200, 100, 200, 100]
    expected = [[0.0, 0.5, 20.0, 10.0, 60.0, 30.0]]
    assert found(replace(TERMS, box_format=f"{form}-absolute"), boxes=[box], scores=[[0.5]]) == expected
    relative = found(replace(TERMS, box_format=f"{form}-relative"), boxes=[np.divide(box, sides)], scores=[[0.5]])
    assert relative == [pytest.approx(expected[0])]


def test_a_score_on_the_threshold_goes_in_its_own_type() -> None:
    scores = np.array([[0.25], [0.3]], np.float32)
    boxes = np.array([[0, 0, 1, 1], [5, 5, 6, 6]])
    assert len(found(TERMS, boxes=boxes, scores=scores)) == 1
    assert (
        found(replace(TERMS, score_threshold=0.3), boxes=boxes, scores=scores) == []
    )  # which is 0.30000001 in float32


def test_classes_may_come_in_an_output_and_a_count_says_how_many_rows_are_meant() -> None:
    terms = replace(TERMS, classes="classes", count="count", background=3)
    boxes = np.array([[[0, 0, 1, 1], [5, 5, 6, 6], [7, 7, 8, 8], [9, 9, 9, 9]]], np.float32)
    outputs: dict[str, Any] = {
        "boxes": boxes,
        "scores": np.array([[0.5, 0.9, 0.75, 0.99]], np.float32),
        "classes": np.array([[2.0, 3.0, 1.0, np.nan]], np.float32),
    }
    expected = [[1.0, 0.75, 7.0, 7.0, 8.0, 8.0], [2.0, 0.5, 0.0, 0.0, 1.0, 1.0]]
    assert found(terms, **outputs, count=np.array([3.0], np.float32)) == expected
    assert found(terms, **outputs, count=0) == []


def test_scores_alone_are_of_class_0_and_no_box_is_none() -> None:
    assert found(TERMS, boxes=[[0, 0, 1, 1]], scores=[0.5])[0][0] == 0
    assert found(TERMS, boxes=np.zeros((0, 4)), scores=np.zeros((0, 9))) == []
    assert found(replace(TERMS, nms=Suppression(0.5, per_class=True)), boxes=[[0, 0, 1, 1]], scores=[[0.1]]) == []


@pytest.mark.parametrize(
    ("changes", "outputs", "message"),
    [
        ({}, {"boxes": np.zeros((3, 5)), "scores": np.ones((3, 1))}, r"\[3, 5\] per sample, not a list of boxes"),
        ({}, {"boxes": np.zeros((3, 2, 4)), "scores": np.ones((3, 2))}, r"\[3, 2, 4\] per sample, not a list"),
        ({}, {"boxes": np.zeros((3, 4)), "scores": np.ones((2, 3))}, r"scores: \[2, 3\] per sample for 3 boxes"),
        ({"classes": "c"}, {"boxes": np.zeros((3, 4)), "scores": np.ones((3, 2)), "c": np.ones(3)}, "2 scores per box"),
        ({"classes": "c"}, {"boxes": np.zeros((1, 4)), "scores": np.ones(1), "c": np.array([0.5])}, "not an integer"),
        (
            {"classes": "c"},
            {"boxes": np.zeros((1, 4)), "scores": np.ones(1), "c": np.ones((1, 2))},
            "2 classes per box",
        ),
        (
            {"count": "n"},
            {"boxes": np.zeros((3, 4)), "scores": np.ones(3), "n": np.array(4)},
            "4 is not a number of boxes up to 3",
        ),
        (
            {"count": "n"},
            {"boxes": np.zeros((3, 4)), "scores": np.ones(3), "n": np.ones(2)},
            "not a number of boxes up to 3",
        ),
    ],
)
def test_outputs_that_make_no_boxes_say_why(changes: dict[str, Any], outputs: dict[str, Any], message: str) -> None:
    with pytest.raises(Failure, match=message) as caught:
        found(replace(TERMS, **changes), **outputs)
    assert caught.value.kind == "predict"


def test_boxes_are_taken_back_to_the_original() -> None:
    """A 400 x 300 picture, scaled to half, cropped to its middle 120 x 100, given margins of 8 and 4."""
    there = GEOMETRY.identity(300, 400).resized(150, 200).cropped(25, 40, 100, 120).padded(4, 4, 8, 8)
    original = [100.0, 80.0, 200.0, 120.0]
    here = [original[0] / 2 - 40 + 8, original[1] / 2 - 25 + 4, original[2] / 2 - 40 + 8, original[3] / 2 - 25 + 4]
    assert found(TERMS, there, boxes=[here], scores=[[0.5]])[0][2:] == pytest.approx(original)
    relative = np.divide(here, [136, 108, 136, 108])
    terms = replace(TERMS, box_format="xyxy-relative")
    assert found(terms, there, boxes=[relative], scores=[[0.5]])[0][2:] == pytest.approx(original)
