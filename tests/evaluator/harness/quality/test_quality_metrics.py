"""Every quality metric, sample by sample: against sums written out, Pillow's masks, and what each refuses."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job import Axes, Job, Output
from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.harness.datasets import Boxes, Label
from benchlock.evaluator.harness.inference.predictions import PredictionRecorder, add_detections, check_picture
from benchlock.evaluator.harness.quality.classification import ClassificationTally, decisions
from benchlock.evaluator.harness.quality.tally import Tally, open_tally
from benchlock.evaluator.harness.steps.image import decode
from benchlock.evaluator.harness.steps.step_tensor import Geometry


def output(kind: str = "class-scores", offset: int = 0, threshold: float | None = None) -> Output:
    return Output("scores", kind, None, Axes(0, None, None), offset, threshold, ())


def tally_of(
    job: dict[str, Any],
    metrics: Sequence[str],
    **output: Any,  # noqa: ANN401 - keys
) -> Tally:
    """The tally of a job whose output says what is given."""
    job["metrics"] = list(metrics)
    job["model"]["outputs"] = [{"name": "scores", "type": "class-scores"} | output]
    return open_tally(parse_job(job))


def test_right_samples_are_counted_after_the_label_offset(job: dict[str, Any]) -> None:
    labels = (6, 7, 2, 1)
    tally = tally_of(job, ["top1", "top5"], label_offset=1)
    scores = np.arange(8, dtype=np.float32)  # class 7 first, then 6, 5, 4, 3
    for label in labels:
        tally.add({"scores": scores}, label, None)
    assert tally.document() == {"top1": {"correct": 1, "n": 4}, "top5": {"correct": 2, "n": 4}}
    assert tally.measures() == {}


@pytest.mark.parametrize("width", [2, 4, 5, 12])
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64])
def test_all_samples_at_once_count_as_one_by_one(width: int, offset: int, dtype: type[Any]) -> None:
    """Ties, numbers that are none, and labels that are no class among them."""
    random = np.random.default_rng(width)
    scores = random.integers(0, 4, (300, width)).astype(dtype)
    if dtype is not np.int64:
        scores[random.random(scores.shape) < 0.1] = np.nan
        scores[random.random(scores.shape) < 0.05] = -np.inf
    labels = random.integers(-2, width + 2, 300).tolist()
    one, all_ = (ClassificationTally(output(offset=offset), ("top1", "top5")) for _ in range(2))
    for row, label in zip(scores, labels, strict=True):
        one.add({"scores": row}, label, None)
    assert all_.add_all(scores[:, np.newaxis, :], labels)
    assert all_.document() == one.document()
    assert all_._rows == one._rows


def test_samples_that_need_more_than_scores_are_added_one_by_one() -> None:
    assert not ClassificationTally(output(threshold=0.5), ("top1",)).add_all(np.zeros((3, 1)), [0, 1, 0])
    assert not ClassificationTally(output("class-index"), ("top1",)).add_all(np.zeros((3, 5)), [0, 1, 0])
    assert not ClassificationTally(output(), ("top1",)).add_all(np.zeros((3, 2, 5)), [0, 1, 0])
    assert not ClassificationTally(output(), ("top1",)).add_all(np.zeros((3, 5)), [np.zeros(2), 1, 0])


def test_calls_that_are_kept_apart_are_decided_one_by_one(job: dict[str, Any]) -> None:
    labels: list[Label] = [np.array([1, 0, 1]), 1]
    frames = {"length": 2, "step": 2, "pad_start": 0, "pad_end": False, "calls": "each"}
    job["model"]["inputs"][0]["steps"].append({"frame": frames})
    tally = tally_of(job, ["top1"], reduce="none", threshold=0.5)
    tally.add({"scores": np.array([[0.7], [0.1], [0.2]])}, labels[0], None)
    tally.add({"scores": np.array([[0.9], [0.4]])}, labels[1], None)  # one label for all calls
    assert tally.document() == {"top1": {"value": 0.6, "n": 5}}
    assert tally.measures()["top1"].tolist() == [[2, 3], [1, 2]]
    with pytest.raises(Failure, match="2 decisions, but the sample has 3 labels"):
        tally.add({"scores": np.array([[0.9], [0.4]])}, labels[0], None)


def test_errors_are_those_of_the_numbers(job: dict[str, Any]) -> None:
    labels: list[Label] = [3.0, -1, np.array([1.0])]
    tally = tally_of(job, ["rmse", "mae"], type="value")
    for value, label in zip((5.0, -2.0, 1.0), labels, strict=True):
        tally.add({"scores": np.array([[value]], np.float32)}, label, None)
    found = tally.document()
    assert found == {"rmse": {"value": pytest.approx((5 / 3) ** 0.5), "n": 3}, "mae": {"value": 1.0, "n": 3}}
    assert {name: values.tolist() for name, values in tally.measures().items()} == {"rmse": [4, 1, 0], "mae": [2, 1, 0]}


@pytest.mark.parametrize(
    ("values", "label", "message"),
    [
        ([1.0, 2.0], 1.0, "2 values per sample, but the label has 1"),
        ([float("nan")], 1.0, r"prediction \[nan\] is not finite"),
    ],
)
def test_a_value_that_has_no_error_is_refused(
    values: list[float], label: float, message: str, job: dict[str, Any]
) -> None:
    with pytest.raises(Failure, match=message):
        tally_of(job, ["mae"], type="value").add({"scores": np.array(values)}, label, None)


def plain_miou(pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]], ignored: int) -> float:
    """Pixel by pixel, with sets."""
    points = [(n, y, x) for n, (_, truth) in enumerate(pairs) for y, x in np.ndindex(truth.shape)]
    points = [(n, y, x) for n, y, x in points if pairs[n][1][y, x] != ignored]
    found = {(point, int(pairs[point[0]][0][point[1:]])) for point in points}
    wanted = {(point, int(pairs[point[0]][1][point[1:]])) for point in points}
    classes = {label for _, label in found | wanted} - {ignored}
    parts = [({p for p, one in found if one == c}, {p for p, one in wanted if one == c}) for c in classes]
    return sum(len(a & b) / len(a | b) for a, b in parts) / len(parts)


def test_masks_are_compared_class_by_class_over_all_pixels(job: dict[str, Any]) -> None:
    random = np.random.default_rng(3)
    job["dataset"]["ignore_label"] = 255
    truths = [random.choice(np.array([0, 1, 2, 5, 255], np.uint8), (9, 13)) for _ in range(4)]
    found = [np.where(random.random((9, 13)) < 0.6, truth, random.integers(0, 4, (9, 13))) for truth in truths]
    tally = tally_of(job, ["miou"], type="mask", label_offset=1)
    for truth, mask in zip(truths, found, strict=True):
        tally.add({"scores": mask.astype(np.int64)[np.newaxis] + 1}, truth, None)
    expected = plain_miou(list(zip(found, truths, strict=True)), 255)
    assert tally.document() == {"miou": {"value": pytest.approx(expected), "n": 4}}


@pytest.mark.parametrize("size", [(20, 30), (60, 40), (7, 11)])
def test_a_mask_is_laid_over_the_original_as_pillow_does(size: tuple[int, int], job: dict[str, Any]) -> None:
    """The network's mask is of a fourth of its input's size, which is not the picture's. Odd sides leave no ties."""
    mask = np.random.default_rng(4).integers(0, 3, (7, 9), dtype=np.uint8)
    truth = np.asarray(Image.fromarray(mask).resize(size[::-1], Image.Resampling.NEAREST))
    tally = tally_of(job, ["miou"], type="mask", label_offset=0)
    tally.add({"scores": mask}, truth, (Geometry.identity(*size).resized(28, 36)))
    assert tally.document()["miou"]["value"] == 1.0


def test_pixels_that_were_cropped_away_are_not_compared(job: dict[str, Any]) -> None:
    truth = np.zeros((6, 8), np.int64)
    truth[1:5, 2:6] = 1
    tally = tally_of(job, ["miou"], type="mask", label_offset=0)
    tally.add({"scores": np.ones((4, 4), np.int64)}, truth, (Geometry.identity(6, 8).cropped(1, 2, 4, 4)))
    assert tally.measures()["miou"].tolist() == [[0, 1, 16, 16]]


def test_a_mask_is_laid_over_the_first_picture_alone(job: dict[str, Any]) -> None:
    """A second picture's way is not that of the mask, if the first one lost its own."""
    job["model"]["inputs"].append(job["model"]["inputs"][0] | {"name": "depth"})
    truth = np.zeros((6, 8), np.uint8)
    tally = tally_of(job, ["miou"], type="mask", label_offset=0)
    assert parse_job(job).model.first_image == "picture"
    message = r"a mask is \[3, 4\], but the label is \[6, 8\]; input picture: its steps do not determine the origin"
    with pytest.raises(Failure, match=message):
        tally.add({"scores": np.zeros((3, 4), np.uint8)}, truth, None)


@pytest.mark.parametrize("form", ["jpeg", "png", "tiff"])
@pytest.mark.parametrize(("exif", "size", "other"), [("apply", (5, 3), (3, 5)), ("ignore", (3, 5), (5, 3))])
def test_a_mask_lies_over_the_picture_as_it_was_decoded(
    form: str, exif: str, size: tuple[int, int], other: tuple[int, int], job: dict[str, Any]
) -> None:
    """Of a picture on its side, whatever its reader does by itself; a mask that lies the other way is refused."""
    orientation = Image.Exif()
    orientation[0x0112] = 6
    stream = io.BytesIO()
    Image.new("RGB", (5, 3)).save(stream, form, exif=orientation)
    decoded = decode(stream.getvalue(), color="RGB", exif=exif)
    assert decoded.values.shape[:2] == size
    truth = np.arange(15, dtype=np.uint8).reshape(size) % 3
    tally = tally_of(job, ["miou"], type="mask", label_offset=0)
    tally.add({"scores": np.repeat(np.repeat(truth, 2, 0), 2, 1)}, truth, (decoded.geometry))
    assert tally.document()["miou"]["value"] == 1.0
    message = rf"the picture \[{size[0]}, {size[1]}\], but the label is \[{other[0]}, {other[1]}\]"
    with pytest.raises(Failure, match=message):
        tally.add({"scores": np.zeros((10, 6))}, np.zeros(other, np.uint8), (decoded.geometry))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((2, 3, 4)), r"\[2, 3, 4\] per sample is not a mask"),
        (np.full((3, 3), 0.5), "but has fractions"),
        (np.zeros((3, 4)), r"a mask is \[3, 4\], but the label is \[3, 3\]"),
    ],
)
def test_what_is_no_mask_of_the_picture_is_refused(values: NDArray[Any], message: str, job: dict[str, Any]) -> None:
    label = np.zeros((3, 3), np.uint8)
    with pytest.raises(Failure, match=message):
        tally_of(job, ["miou"], type="mask", label_offset=0).add({"scores": values}, label, None)


def test_labels_of_any_size_are_counted_in_the_memory_of_their_pixels(job: dict[str, Any]) -> None:
    truth = np.array([[0, 3], [2**40, 2**40]])
    tally = tally_of(job, ["miou"], type="mask", label_offset=0)
    tally.add({"scores": np.array([[0, -(2**40)], [2**40, 0]])}, truth, None)
    assert tally.measures()["miou"].tolist() == [[0, 0, 1, 2], [0, 3, 0, 1], [0, 2**40, 1, 2]]


def detecting(job: dict[str, Any], metrics: Sequence[str]) -> Job:
    job["metrics"] = list(metrics)
    job["model"]["outputs"] = [{"name": "boxes", "type": "boxes"}, {"name": "found", "type": "box-scores"}]
    job["model"]["predictions"] = {
        "type": "detections",
        "boxes": "boxes",
        "scores": "found",
        "box_format": "xyxy-absolute",
        "background": 0,
        "label_offset": 1,
        "score_threshold": 0.1,
    }
    return parse_job(job)


def boxes(*corners: Sequence[float]) -> Boxes:
    xyxy = np.array(corners, np.float64).reshape(-1, 4)
    areas = np.prod(xyxy[:, 2:] - xyxy[:, :2], axis=1)
    return Boxes(np.full(len(xyxy), 3), xyxy, areas, np.zeros(len(xyxy), bool))


def test_detections_are_compared_by_label_and_stored_by_class(job: dict[str, Any]) -> None:
    """Class 4 is label 3. Of two labelled boxes one is found, and before it something that is none."""
    labels = [boxes([0, 0, 10, 10]), boxes([20, 20, 40, 40])]
    asked = detecting(job, ["map", "map_50"])
    scores = np.zeros((1, 5))
    scores[0, 4] = 0.5
    geometry = Geometry.identity(100, 100).resized(50, 50)
    samples = [
        {"boxes": np.array([[0, 0, 5, 5]]), "found": scores},
        {"boxes": np.array([[40, 40, 45, 45]]), "found": scores * 1.5},
    ]
    recorder, tally = PredictionRecorder(asked.model), open_tally(asked)
    for outputs, label in zip(samples, labels, strict=True):
        prediction = add_detections(asked.model, outputs, geometry)
        recorder.add(prediction, geometry)
        tally.add(prediction, label, geometry)
    assert recorder.tensors()["detections"].tolist() == [[0, 4, 0.5, 0, 0, 10, 10], [1, 4, 0.75, 80, 80, 90, 90]]
    assert list(recorder.tensors()) == ["detections"]
    # At half of the recall the precision is one half, for 51 of the 101 recalls that COCO's evaluation looks at.
    expected = {"value": pytest.approx(0.5 * 51 / 101), "n": 2}
    assert tally.document() == {"map": expected, "map_50": expected}


def test_detections_are_kept_where_no_metric_is_asked(job: dict[str, Any]) -> None:
    asked = detecting(job, [])
    outputs = {"boxes": np.zeros((0, 4)), "found": np.zeros((0, 2))}
    recorder = PredictionRecorder(asked.model)
    recorder.add(add_detections(asked.model, outputs, Geometry.identity(5, 5)), None)
    assert recorder.tensors()["detections"].shape == (0, 7)
    with pytest.raises(Failure, match="do not determine the origin of its pixels"):
        add_detections(asked.model, outputs, None)


def test_boxes_without_a_picture_are_refused(job: dict[str, Any]) -> None:
    port = {"name": "picture", "type": "tensor", "dtype": "float32", "shape": [None, 1, 8, 12], "steps": []}
    job["model"]["inputs"] = [port]
    with pytest.raises(Failure, match="no input has type image") as caught:
        check_picture(detecting(job, []).model)
    assert caught.value.kind == "load"


def test_boxes_that_nobody_labelled_have_no_precision(job: dict[str, Any]) -> None:
    asked = detecting(job, ["map"])
    tally = open_tally(asked)
    for label in (boxes(), boxes()):
        outputs = {"boxes": np.ones((1, 4)), "found": np.ones((1, 2))}
        tally.add(add_detections(asked.model, outputs, Geometry.identity(5, 5)), label, None)
    with pytest.raises(Failure, match="no sample has a box, which map needs") as caught:
        tally.document()
    assert caught.value.kind == "load"


def test_ties_go_to_the_lowest_index() -> None:
    scores = np.array([0, 4, 9, 9, 4, 4, 4, 4], np.int8)
    assert decisions(output(), scores, 1).tolist() == [2]
    assert decisions(output(), scores, 5).tolist() == [2, 3, 1, 4, 5]


def test_axes_of_length_one_are_no_matter_and_fewer_classes_are_all_of_them() -> None:
    assert decisions(output(), np.array([[[1.0, 3.0, 2.0]]]), 5).tolist() == [1, 2, 0]


@pytest.mark.parametrize(("score", "expected"), [(0.7, [1, 0]), (0.5, [1, 0]), (0.4999, [0, 1])])
def test_one_score_is_class_1_from_its_threshold_on(score: float, expected: list[int]) -> None:
    assert decisions(output(threshold=0.5), np.array([score]), 2).tolist() == expected
    assert decisions(output(threshold=0.5), np.array([score]), 1).tolist() == expected[:1]


def test_indices_are_taken_as_they_are() -> None:
    assert decisions(output("class-index"), np.array(4), 1).tolist() == [4]
    assert decisions(output("class-index"), np.array([4, 2, 9, 1, 0, 3]), 5).tolist() == [4, 2, 9, 1, 0]


@pytest.mark.parametrize(
    ("port", "values", "ranks", "message"),
    [
        (output("class-index"), np.array(4), 5, "1 classes per sample, but top5 needs 5"),
        (output(), np.zeros((2, 3)), 1, r"\[2, 3\] are not classes of one sample"),
        (output(), np.zeros(1), 1, "needs a threshold"),
    ],
)
def test_what_holds_no_classes_is_refused(port: Output, values: NDArray[np.float64], ranks: int, message: str) -> None:
    with pytest.raises(Failure, match=message):
        decisions(port, values, ranks)
