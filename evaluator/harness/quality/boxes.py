"""Detections of every sample, and map and map_50 of them, as the library of the COCO data set computes them."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datasets import Boxes, Label
from ..detections import COLUMNS, detect
from ..failures import Failure
from ..job import Model
from ..libraries import needed_by
from ..pipeline import Prepared
from ..predictors import Tensors

# Of COCOeval's 10 thresholds of IoU, 0.5 to 0.95: those that a metric is the mean over.
_THRESHOLDS = {"map": slice(None), "map_50": slice(0, 1)}
_MOST = 100
_FALSE, _TRUE, _IGNORED = 0, 1, 2


UNTOLD = "its steps do not tell where its pixels came from"


def first_picture(model: Model) -> str | None:
    """The input over whose original boxes and masks are laid; None where none is a picture."""
    return next((port.name for port in model.inputs if port.type == "image"), None)


class Detected:
    """The detections of each sample and, where a metric is asked, what was labelled."""

    def __init__(self, model: Model, metrics: tuple[str, ...]) -> None:
        """Raises ``Failure`` (``load``): no input is a picture."""
        assert model.detections is not None
        self._terms = model.detections
        picture = first_picture(model)
        if picture is None:
            raise Failure("load", "model: boxes are in pixels of a picture, and no input is of type image")
        self._picture = picture
        self._metrics = metrics
        self._found: list[NDArray[np.float64]] = []
        self._labels: list[Boxes] = []
        self._judged: tuple[dict[str, Any], Tensors] | None = None

    def add(self, prediction: Mapping[str, NDArray[Any]], label: Label | None, sample: Prepared) -> None:
        """Raises ``Failure`` (``predict``): the outputs make no boxes, or nothing says where the picture came from."""
        geometry = sample.geometry.get(self._picture)
        if geometry is None:
            what = f"{UNTOLD}: code (python) changes the size or the order of the axes, or pad a length"
            raise Failure("predict", f"input {self._picture}: {what}; resize, pad and center_crop are followed")
        self._found.append(detect(self._terms, prediction, geometry))
        if self._metrics:
            assert isinstance(label, Boxes)
            self._labels.append(label)

    def document(self) -> dict[str, Any]:
        return self._judge()[0]

    def measures(self) -> Tensors:
        """What matched what, if a metric is asked.

        ``map.scores`` float64 [D] and ``map.rows`` int64 [D, 2], sample and label, are the detections that were
        compared, by label and sample, best first; ``map.matches`` uint8 [D, 10] is 1 where one matches a labelled box
        at a threshold, 2 where it is not counted, else 0. ``map.labelled`` int64 [R, 3] is sample, label, and how many
        boxes are to be found.
        """
        return self._judge()[1]

    def tensors(self) -> Tensors:
        """``detections``: float64 [K, 7], sample, class index, score, x1, y1, x2, y2 in pixels of the original."""
        return {"detections": self._all()}

    def _all(self) -> NDArray[np.float64]:
        rows = [np.column_stack([np.full(len(found), number), found]) for number, found in enumerate(self._found)]
        return np.concatenate(rows) if rows else np.zeros((0, 1 + COLUMNS))

    def _judge(self) -> tuple[dict[str, Any], Tensors]:
        if not self._metrics:
            return {}, {}
        if self._judged is None:
            rows = self._all()
            rows[:, 1] -= self._terms.label_offset
            precision, measures = evaluate(rows, self._labels)
            if not (precision > -1).any():
                raise Failure("load", f"dataset: no sample has a box, and {self._metrics[0]} is asked")
            values = {metric: precision[_THRESHOLDS[metric]] for metric in self._metrics}
            n = len(self._labels)
            document = {name: {"value": float(found[found > -1].mean()), "n": n} for name, found in values.items()}
            self._judged = document, measures
        return self._judged


def demand(metric: str) -> None:
    """Raises ``Failure`` (``load``) where the library that computes ``metric`` is missing."""
    with needed_by(f"the metric {metric}"):
        import pycocotools.cocoeval  # noqa: F401, PLC0415 - for detection alone


def evaluate(detections: NDArray[np.float64], labels: Sequence[Boxes]) -> tuple[NDArray[np.float64], Tensors]:
    """COCO's evaluation of boxes of all sizes, at most 100 of a class a picture.

    ``detections`` is [K, 7] with labels in place of class indices. The result is the precision [10 thresholds of IoU,
    101 of recall, classes], -1 where a class has no box to find; and what is said of :meth:`Detected.measures`.
    """
    from pycocotools.cocoeval import COCOeval  # noqa: PLC0415 - for detection alone

    classes = sorted({int(one) for label in labels for one in label.classes} | {int(one) for one in detections[:, 1]})
    with contextlib.redirect_stdout(io.StringIO()):  # standard output is for progress alone
        evaluation = COCOeval(
            _indexed(_labelled(labels), len(labels), classes),
            _indexed(_detected(detections), len(labels), classes),
            "bbox",
        )
        evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e10]], ["all"]
        evaluation.params.maxDets = [_MOST]
        evaluation.evaluate()
        evaluation.accumulate()
    return evaluation.eval["precision"][..., 0, 0], _measures([one for one in evaluation.evalImgs if one])


def _indexed(annotations: Sequence[dict[str, Any]], pictures: int, classes: Sequence[int]) -> Any:  # noqa: ANN401 - untyped
    from pycocotools.coco import COCO  # noqa: PLC0415 - for detection alone

    found = COCO()
    found.dataset = {
        "images": [{"id": number} for number in range(pictures)],
        "categories": [{"id": number} for number in classes],
        # A number of 0 would mean that nothing matched.
        "annotations": [{"id": number, **one} for number, one in enumerate(annotations, start=1)],
    }
    found.createIndex()
    return found


def _labelled(labels: Sequence[Boxes]) -> list[dict[str, Any]]:
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


def _detected(rows: NDArray[np.float64]) -> list[dict[str, Any]]:
    found = []
    for sample, label, score, *corners in rows.tolist():
        box = _sides(corners)
        one = {"image_id": int(sample), "category_id": int(label), "score": score, "bbox": box, "iscrowd": 0}
        found.append({**one, "area": box[2] * box[3]})
    return found


def _sides(corners: Sequence[float] | NDArray[np.float64]) -> list[float]:
    left, top, right, bottom = (float(place) for place in corners)
    return [left, top, right - left, bottom - top]


def _measures(evaluated: Sequence[Mapping[str, Any]]) -> Tensors:
    scores: list[float] = []
    rows: list[tuple[int, int]] = []
    matches: list[NDArray[np.uint8]] = [np.zeros((0, 10), np.uint8)]
    labelled: list[tuple[int, int, int]] = []
    for one in evaluated:
        sample, label = int(one["image_id"]), int(one["category_id"])
        scores += one["dtScores"]
        rows += [(sample, label)] * len(one["dtScores"])
        found = np.where(one["dtMatches"] > 0, _TRUE, _FALSE)
        matches.append(np.where(one["dtIgnore"], _IGNORED, found).T.astype(np.uint8))
        labelled.append((sample, label, int(np.count_nonzero(one["gtIgnore"] == 0))))
    return {
        "map.scores": np.asarray(scores, np.float64),
        "map.rows": np.asarray(rows, np.int64).reshape(-1, 2),
        "map.matches": np.concatenate(matches),
        "map.labelled": np.asarray(labelled, np.int64).reshape(-1, 3),
    }
