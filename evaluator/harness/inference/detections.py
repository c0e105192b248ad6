"""Bounding boxes from a detector's outputs: selection, suppression and original coordinates.

Each class of a box, except the background, is a candidate where its score exceeds the threshold. Candidates are sorted
by score; equal scores keep the order of boxes, then of classes. A candidate is removed when it overlaps a better
candidate that stays. The first ``max_detections`` of the rest are the detections.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.failures import Failure
from ..core.job import Detections
from ..steps.step_tensor import Geometry

COLUMNS = 6
"""Columns of a detection: class index, score, x1, y1, x2, y2."""

_SIDES = 4
_Floats = NDArray[np.float64]


def detect(terms: Detections, prediction: Mapping[str, NDArray[Any]], geometry: Geometry) -> _Floats:
    """Return the detections of one sample, best first, in pixels of the original image.

    Args:
        terms: How boxes are made.
        prediction: The outputs of the sample by name.
        geometry: How the image that the network sees was made from the original.

    Returns:
        [K, 6]: class index, score, x1, y1, x2, y2. Boxes are not clipped at the border of the image.

    Raises:
        Failure: ``predict``: the outputs do not match each other. ``non-finite``: a detection is not finite.
    """
    boxes = _boxes(terms, prediction[terms.boxes])
    count = len(boxes) if terms.count is None else _count(prediction[terms.count], len(boxes), terms.count)
    rows, classes, scores = _candidates(terms, prediction, len(boxes), count)
    order = np.argsort(-scores.astype(np.float64), kind="stable")
    rows, classes, scores = rows[order], classes[order], scores[order].astype(np.float64)
    corners = _CORNERS[terms.box_format.partition("-")[0]](boxes[rows])
    if terms.box_format.endswith("-relative"):
        corners = corners * np.tile(geometry.size[::-1], 2)
    if not np.isfinite(corners).all() or not np.isfinite(scores).all():
        raise Failure("non-finite", f"output {terms.boxes}: the score or the box of a detection is not finite")
    survivors = _find_survivors(terms, corners, classes)
    return np.column_stack([classes[survivors], scores[survivors], geometry.to_original(corners[survivors])])


def number_rows(samples: Sequence[_Floats]) -> _Floats:
    """Join the detections [K, 6] of all samples to [N, 7], with the sample's number in front."""
    rows = [
        np.column_stack([np.full(len(detections), number), detections]) for number, detections in enumerate(samples)
    ]
    return np.concatenate(rows) if rows else np.zeros((0, 1 + COLUMNS))


def suppress(boxes: _Floats, iou: float, most: int | None = None) -> NDArray[np.int64]:
    """Return the indices of the boxes [N, 4] (x1, y1, x2, y2; best first) that survive non-maximum suppression.

    A box survives unless its overlap with a better surviving box exceeds ``iou``. At most ``most`` boxes are returned.
    """
    remaining = np.arange(len(boxes))
    survivors: list[int] = []
    while len(remaining) and (most is None or len(survivors) < most):
        best, remaining = remaining[0], remaining[1:]
        survivors.append(best)
        remaining = remaining[overlaps(boxes[best], boxes[remaining]) <= iou]
    return np.asarray(survivors, np.int64)


def overlaps(box: _Floats, others: _Floats) -> _Floats:
    """Return the intersection over union of ``box`` with each of ``others`` [N, 4], in [0, 1]; 0 for empty boxes."""
    common = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    intersection = np.prod(np.maximum(common, 0), axis=1)
    areas = [np.prod(np.maximum(corners[:, 2:] - corners[:, :2], 0), axis=1) for corners in (box[np.newaxis], others)]
    union = areas[0] + areas[1] - intersection
    ratio: _Floats = np.divide(intersection, union, out=np.zeros(len(others)), where=union > 0)
    return ratio


def _boxes(terms: Detections, values: NDArray[Any]) -> _Floats:
    """Return the boxes as [N, 4] without extra axes of length one."""
    long = [size for size in values.shape[:-1] if size != 1]
    if values.ndim == 0 or values.shape[-1] != _SIDES or len(long) > 1:
        raise Failure("predict", f"output {terms.boxes}: {list(values.shape)} per sample, not a list of boxes [N, 4]")
    return values.reshape(-1, _SIDES).astype(np.float64)


def _count(values: NDArray[Any], most: int, name: str) -> int:
    """Return the number of valid boxes."""
    if values.size != 1 or not 0 <= values.reshape(-1)[0] <= most:
        raise Failure("predict", f"output {name}: {values.tolist()} is not a number of boxes up to {most}")
    return round(float(values.reshape(-1)[0]))


def _candidates(
    terms: Detections, prediction: Mapping[str, NDArray[Any]], boxes: int, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    """Return the box, class and score of each candidate, in the order of boxes, then of classes."""
    scores = _values_per_box(prediction[terms.scores], boxes, terms.scores)[:count]
    box_classes = None
    if terms.classes is not None:
        if scores.shape[1] > 1:
            reason = f"{scores.shape[1]} scores per box, but output {terms.classes} has a class for each box"
            raise Failure("predict", f"output {terms.scores}: {reason}")
        box_classes = _classes(_values_per_box(prediction[terms.classes], boxes, terms.classes)[:count], terms.classes)
    rows, columns = np.nonzero(scores > terms.score_threshold)
    classes = columns if box_classes is None else box_classes[rows]
    is_candidate = np.ones(len(rows), bool) if terms.background is None else classes != terms.background
    return rows[is_candidate], classes[is_candidate], scores[rows[is_candidate], columns[is_candidate]]


def _values_per_box(values: NDArray[Any], boxes: int, name: str) -> NDArray[Any]:
    """Return the values of each box as [boxes, width], without leading axes of length one."""
    shape = values.shape
    while len(shape) > 1 and shape[0] == 1 != boxes:
        shape = shape[1:]
    if not shape or shape[0] != boxes:
        raise Failure("predict", f"output {name}: {list(values.shape)} per sample for {boxes} boxes")
    return values.reshape(boxes, -1) if boxes else values.reshape(0, 1)


def _classes(values: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Return the class of each box; some networks return classes in a floating type."""
    if values.shape[1] != 1 and len(values):
        raise Failure("predict", f"output {name}: {values.shape[1]} classes per box")
    classes: NDArray[np.int64] = np.rint(values.reshape(-1)).astype(np.int64)
    if not np.array_equal(classes, values.reshape(-1)):
        raise Failure("predict", f"output {name}: a class is not an integer")
    return classes


def _find_survivors(terms: Detections, boxes: _Floats, classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices of the candidates, best first, that survive the suppression."""
    most = terms.max_detections
    if terms.nms is None:
        return np.arange(len(boxes))[:most]
    groups = [np.arange(len(boxes))]
    if terms.nms.per_class:
        groups = [np.flatnonzero(classes == number) for number in np.unique(classes)]
    survivors = [group[suppress(boxes[group], terms.nms.iou, most)] for group in groups]
    return np.sort(np.concatenate(survivors))[:most] if survivors else np.zeros(0, np.int64)


_CORNERS: Mapping[str, Callable[[_Floats], _Floats]] = {
    "xyxy": lambda boxes: boxes,
    "yxyx": lambda boxes: boxes[:, [1, 0, 3, 2]],
    "xywh": lambda boxes: np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]]),
    "cxcywh": lambda boxes: np.hstack([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2]),
}
