"""Tally of mean average precision, as pycocotools computes it."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.failures import Failure
from ..core.phase_environment import explain_missing_library
from ..datasets import Boxes, Label
from ..inference.detections import number_rows
from ..predictors import Tensors
from ..steps.step_tensor import Geometry

# The part of COCOeval's 10 IoU thresholds, 0.5 to 0.95, over which a metric is the mean.
_THRESHOLDS = {"map": slice(None), "map_50": slice(0, 1)}
_MAX_DETECTIONS = 100
_FALSE, _TRUE, _IGNORED = 0, 1, 2


class DetectionTally:
    """The detections and the labelled boxes of each sample."""

    def __init__(self, label_offset: int, metrics: tuple[str, ...]) -> None:
        """Start without any sample."""
        self._label_offset = label_offset
        self._metrics = metrics
        self._rows: list[NDArray[np.float64]] = []
        self._labels: list[Boxes] = []
        self._result: tuple[dict[str, Any], Tensors] | None = None

    def add(self, prediction: Mapping[str, NDArray[Any]], label: Label, geometry: Geometry | None) -> None:  # noqa: ARG002
        """Add the tensor ``detections`` [K, 6] of one sample, as ``inference.detections.detect`` returns it."""
        if not isinstance(label, Boxes):
            raise Failure("load", "dataset: its labels are not boxes")
        self._rows.append(prediction["detections"])
        self._labels.append(label)

    def document(self) -> dict[str, Any]:
        """Implement ``Tally.document``: the mean of the precision over thresholds, recall and classes."""
        return self._evaluate_once()[0]

    def measures(self) -> Tensors:
        """Return the matches of detections and labelled boxes.

        ``map.scores`` float64 [D] and ``map.rows`` int64 [D, 2], sample and label, are the compared detections, by
        label and sample, best first. ``map.matches`` uint8 [D, 10] is 1 where a detection matches a labelled box at a
        threshold, 2 where it is ignored, else 0. ``map.labelled`` int64 [R, 3] is sample, label, and the number of
        boxes to detect.
        """
        return self._evaluate_once()[1]

    def _evaluate_once(self) -> tuple[dict[str, Any], Tensors]:
        if self._result is None:
            rows = number_rows(self._rows)
            rows[:, 1] -= self._label_offset
            precision, measures = evaluate(rows, self._labels)
            if not (precision > -1).any():
                raise Failure("load", f"dataset: no sample has a box, which {self._metrics[0]} needs")
            values = {metric: precision[_THRESHOLDS[metric]] for metric in self._metrics}
            n = len(self._labels)
            document = {name: {"value": float(part[part > -1].mean()), "n": n} for name, part in values.items()}
            self._result = document, measures
        return self._result


def require_metric_library(metric: str) -> None:
    """Raise unless the library that computes ``metric`` is installed.

    Raises:
        Failure: ``load``: the library is missing.
    """
    with explain_missing_library(f"the metric {metric}"):
        import pycocotools.cocoeval  # noqa: F401, PLC0415 - only for detection


def evaluate(detections: NDArray[np.float64], labels: Sequence[Boxes]) -> tuple[NDArray[np.float64], Tensors]:
    """Run COCO's evaluation of boxes of all sizes, with at most 100 detections per class and image.

    Args:
        detections: [K, 7] as ``number_rows`` returns, with labels in place of class indices.
        labels: The labelled boxes of each sample.

    Returns:
        The precision [10 IoU thresholds, 101 recalls, classes], -1 for a class without boxes to detect, and the tensors
        of
        ``DetectionTally.measures``.
    """
    from pycocotools.cocoeval import COCOeval  # noqa: PLC0415 - only for detection

    classes = sorted(
        {int(entry) for label in labels for entry in label.classes} | {int(entry) for entry in detections[:, 1]}
    )
    with contextlib.redirect_stdout(io.StringIO()):  # standard output is only for progress
        evaluation = COCOeval(
            _make_coco(_label_annotations(labels), len(labels), classes),
            _make_coco(_detection_annotations(detections), len(labels), classes),
            "bbox",
        )
        evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e10]], ["all"]
        evaluation.params.maxDets = [_MAX_DETECTIONS]
        evaluation.evaluate()
        evaluation.accumulate()
    return evaluation.eval["precision"][..., 0, 0], _measures([entry for entry in evaluation.evalImgs if entry])


def _make_coco(annotations: Sequence[dict[str, Any]], pictures: int, classes: Sequence[int]) -> Any:  # noqa: ANN401 - untyped
    from pycocotools.coco import COCO  # noqa: PLC0415 - only for detection

    coco = COCO()
    coco.dataset = {
        "images": [{"id": number} for number in range(pictures)],
        "categories": [{"id": number} for number in classes],
        # pycocotools takes an id of 0 for no match.
        "annotations": [{"id": number, **annotation} for number, annotation in enumerate(annotations, start=1)],
    }
    coco.createIndex()
    return coco


def _label_annotations(labels: Sequence[Boxes]) -> list[dict[str, Any]]:
    return [
        {
            "image_id": number,
            "category_id": int(label.classes[index]),
            "bbox": _sides(label.xyxy[index]),
            "area": float(label.areas[index]),
            "iscrowd": int(label.crowd[index]),
        }
        for number, label in enumerate(labels)
        for index in range(len(label.classes))
    ]


def _detection_annotations(rows: NDArray[np.float64]) -> list[dict[str, Any]]:
    annotations = []
    for sample, label, score, *corners in rows.tolist():
        box = _sides(corners)
        annotation = {"image_id": int(sample), "category_id": int(label), "score": score, "bbox": box, "iscrowd": 0}
        annotations.append({**annotation, "area": box[2] * box[3]})
    return annotations


def _sides(corners: Sequence[float] | NDArray[np.float64]) -> list[float]:
    left, top, right, bottom = (float(value) for value in corners)
    return [left, top, right - left, bottom - top]


def _measures(image_results: Sequence[Mapping[str, Any]]) -> Tensors:
    scores: list[float] = []
    rows: list[tuple[int, int]] = []
    matches: list[NDArray[np.uint8]] = [np.zeros((0, 10), np.uint8)]
    labelled: list[tuple[int, int, int]] = []
    for image_result in image_results:
        sample, label = int(image_result["image_id"]), int(image_result["category_id"])
        scores += image_result["dtScores"]
        rows += [(sample, label)] * len(image_result["dtScores"])
        matched = np.where(image_result["dtMatches"] > 0, _TRUE, _FALSE)
        matches.append(np.where(image_result["dtIgnore"], _IGNORED, matched).T.astype(np.uint8))
        labelled.append((sample, label, int(np.count_nonzero(image_result["gtIgnore"] == 0))))
    return {
        "map.scores": np.asarray(scores, np.float64),
        "map.rows": np.asarray(rows, np.int64).reshape(-1, 2),
        "map.matches": np.concatenate(matches),
        "map.labelled": np.asarray(labelled, np.int64).reshape(-1, 3),
    }
