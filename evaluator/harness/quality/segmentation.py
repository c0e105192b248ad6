"""Tally of the mean intersection over union of classes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.failures import Failure
from ..core.job import Output
from ..datasets import Label
from ..predictors import Tensors
from ..steps.step_tensor import UNKNOWN_GEOMETRY, Geometry

_PLANE = 2
_DIGITS = 6
_FEW = 1 << 16


class SegmentationTally:
    """Intersections and unions in pixels, for each class in a sample's label or prediction."""

    def __init__(self, output: Output, picture: str | None, ignored: int | None) -> None:
        """Start without any sample.

        Args:
            output: The output that is the mask.
            picture: The input to whose original image a mask refers; None without an image input.
            ignored: The label of pixels that are not compared.
        """
        self._output = output
        self._picture = picture
        self._ignored = ignored
        self._rows: list[tuple[int, int, int, int]] = []
        self._n = 0

    def add(self, prediction: Mapping[str, NDArray[Any]], label: Label, geometry: Geometry | None) -> None:
        """Add one sample.

        Raises:
            Failure: ``predict``: the prediction is not a mask, or the label has the size of another image.
        """
        mask = self._mask(prediction[self._output.name])
        truth = np.asarray(label)
        predicted, seen = self._project_mask(mask, truth.shape, geometry)
        expected = truth[seen[0]][:, seen[1]].astype(np.int64)
        compared = np.ones(expected.shape, bool) if self._ignored is None else expected != self._ignored
        self._rows += [(self._n, *row) for row in self._count_classes(predicted[compared], expected[compared])]
        self._n += 1

    def document(self) -> dict[str, Any]:
        """Implement ``Tally.document``: the mean of intersection over union over all classes."""
        rows = self.measures()["miou"]
        classes, numbers = np.unique(rows[:, 1], return_inverse=True)
        if not len(classes):
            raise Failure("predict", f"output {self._output.name}: no pixel of any sample is compared")
        intersection, union = (np.bincount(numbers, weights=rows[:, column]) for column in (2, 3))
        return {"miou": {"value": float(np.mean(intersection / union)), "n": self._n}}

    def measures(self) -> Tensors:
        """Return ``miou`` int64 [rows, 4]: sample, class, and the pixels of its intersection and union."""
        return {"miou": np.asarray(self._rows, np.int64).reshape(-1, 4)}

    def _mask(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the mask as labels [H, W]: class indices minus the offset."""
        name = self._output.name
        long = [size for size in values.shape if size != 1]
        if values.ndim < _PLANE or len(long) > _PLANE:
            raise Failure("predict", f"output {name}: {list(values.shape)} per sample is not a mask [height, width]")
        shape = long if len(long) == _PLANE else values.shape[-_PLANE:]
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise Failure("non-finite", f"output {name}: a mask must contain class indices, but has NaN or infinities")
        integers = values.astype(np.int64)
        if values.dtype.kind == "f" and not np.array_equal(integers, values):
            raise Failure("predict", f"output {name}: a mask must contain class indices, but has fractions")
        return integers.reshape(shape) - self._output.label_offset

    def _project_mask(
        self, mask: NDArray[np.int64], shape: tuple[int, ...], geometry: Geometry | None
    ) -> tuple[NDArray[np.int64], tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """Return the predicted class of each label pixel that the network saw, and the rows and columns of them.

        A label of the original's size takes the class of the mask pixel that contains the centre of its pixel. Cropped
        pixels were not seen.
        """
        if geometry is None or shape != geometry.original:
            if shape != mask.shape:
                sizes = "" if geometry is None else f", the picture {list(geometry.original)}"
                lost = f"; input {self._picture}: {UNKNOWN_GEOMETRY}" if self._picture and geometry is None else ""
                message = f"a mask is {list(mask.shape)}{sizes}, but the label is {list(shape)}{lost}"
                raise Failure("predict", f"output {self._output.name}: {message}")
            return mask, (np.ones(shape[0], bool), np.ones(shape[1], bool))
        lines = []
        for axis, coordinate in enumerate((1, 0)):
            positions = (np.arange(shape[axis]) + 0.5) * geometry.scale[coordinate] + geometry.offset[coordinate]
            # A centre on the border of two pixels belongs to the second, despite rounding errors of the last bit.
            rounded = np.round(positions * mask.shape[axis] / geometry.size[axis], _DIGITS)
            lines.append(np.floor(rounded).astype(np.int64))
        rows, columns = ((line >= 0) & (line < size) for line, size in zip(lines, mask.shape, strict=True))
        return mask[lines[0][rows]][:, lines[1][columns]], (rows, columns)

    def _count_classes(
        self, predicted_classes: NDArray[np.int64], expected_classes: NDArray[np.int64]
    ) -> list[tuple[int, int, int]]:
        """Return class, intersection and union of each class that is neither negative nor ignored."""
        if not expected_classes.size:
            return []
        both = np.concatenate([predicted_classes, expected_classes])
        least, greatest = int(both.min()), int(both.max())
        if greatest - least < _FEW:
            classes, numbers = np.arange(least, greatest + 1), both - least
        else:  # counts of all values between them would need memory in proportion to the greatest
            classes, numbers = np.unique(both, return_inverse=True)
        predictions, labels = numbers[: predicted_classes.size], numbers[predicted_classes.size :]
        common, predicted, labelled = (
            np.bincount(values, minlength=len(classes))
            for values in (labels[predictions == labels], predictions, labels)
        )
        union = predicted + labelled - common
        return [
            (int(classes[at]), int(common[at]), int(union[at]))
            for at in np.flatnonzero(union)
            if classes[at] >= 0 and classes[at] != self._ignored
        ]
