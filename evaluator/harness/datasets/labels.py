"""Labels of every type: class indices and names, numbers, arrays and segmentation masks."""

import math
import re
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from ..core.failures import classify_errors
from ..core.phase_environment import POSTSCRIPT, explain_missing_library
from .samples import Boxes, Label, Names

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile


_MASK_TYPES = {"1": np.uint8, "L": np.uint8, "P": np.uint8, "I;16": np.uint16, "I": np.int32}
"""Pillow modes whose pixels are a single integer, with the NumPy type of that integer."""
_ORIENTATION = 0x0112
_TURNED = range(2, 9)
_SCALED = {"L;2": 2, "L;2I": 2, "L;4": 4, "L;4I": 4}
"""Gray modes below 8 bits, which Pillow scales to 8 bits: a 4-bit 1 becomes 17."""


def read_mask(file: Path | BytesIO, name: str) -> NDArray[Any]:
    """Return the class of each pixel of a mask, [H, W]: gray values, or indices into the palette.

    Raises:
        ValueError: The image has colors, has an orientation tag, or has fewer than 8 bits, which readers scale
            differently.
    """
    with explain_missing_library("a mask"):
        from PIL import Image  # noqa: PLC0415 - most datasets have no masks

    with Image.open(file) as picture:
        if picture.format == POSTSCRIPT:
            raise ValueError(f"{name}: a mask must not be PostScript, which is a program")
        mode = "I;16" if picture.mode.startswith("I;16") else picture.mode
        if mode not in _MASK_TYPES:
            raise ValueError(f"{name}: a mask has mode {mode}, expected one integer per pixel (L, P, I;16)")
        _check_as_stored(picture, name)
        return np.asarray(picture).astype(_MASK_TYPES[mode])


def _check_as_stored(picture: "ImageFile", name: str) -> None:
    """Raise unless pixels are read as stored; Pillow forgets bit depth and orientation with the pixels."""
    arguments = picture.tile[0].args if picture.tile else None
    bits = _SCALED.get(str(arguments[0] if isinstance(arguments, tuple) else arguments))
    if bits is not None:
        raise ValueError(f"{name}: a mask has {bits} bits of gray, which readers interpret differently: store 8 bits")
    orientation = picture.getexif().get(_ORIENTATION, 1)
    if orientation in _TURNED:
        raise ValueError(
            f"{name}: a mask has EXIF orientation {orientation}, but the model's decode step decides if the picture "
            "is rotated: store the mask aligned with the picture's pixels, without that tag"
        )


_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_KINDS = {
    "image-classification": "classes",
    "audio-classification": "classes",
    "text-classification": "classes",
    "regression": "numbers",
    "semantic-segmentation": "masks",
    "object-detection": "boxes",
}
"""The kind of labels that a task compares its predictions with."""
_MASK_AXES = 2


class Lazy(Sequence[NDArray[Any]]):
    """Label arrays that are read on access.

    Args:
        read: Reads the array of a sample by its index.
        names: The names of the samples, for messages.

    Raises:
        Failure: ``load``: an array cannot be read.
    """

    def __init__(self, read: Callable[[int], NDArray[Any]], names: Sequence[str]) -> None:
        """Create the sequence; nothing is read yet."""
        self._read = read
        self._names = names

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[NDArray[Any]]: ...
    def __getitem__(self, index: int | slice) -> NDArray[Any] | Sequence[NDArray[Any]]:
        """Read the array of a sample, or the arrays of a slice."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        with classify_errors("load", f"the label of {self._names[number]}"):
            return self._read(number)


def read_names(path: Path) -> Names:
    """Read a labels file, whose line i names class i."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return Names({line.strip(): index for index, line in reversed(list(enumerate(lines)))}, len(lines))


def parse_label(value: object, names: Names | None, where: str) -> int | float | None:
    """Return the class or number that ``value`` states; None where it is empty.

    An integer, or a text of digits, is an index. Another text is a class name, or a number without ``names``.

    Raises:
        ValueError: The value is neither, or it is an index without a name.
    """
    value = value.item() if isinstance(value, np.generic) else value
    text = value.strip() if isinstance(value, str) else None
    if value is None or text == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if text is not None and _WHOLE.fullmatch(text):
        value = int(text)
    if isinstance(value, int):
        index = int(value)
        if names is not None and not 0 <= index < names.count:
            raise ValueError(f"{where}: label {index} is out of range: the labels file has {names.count}")
        return index
    if names is not None and text in names.places:
        return names.places[cast(str, text)]
    if names is None and (number := _number(value)) is not None:
        return number
    raise ValueError(f"{where}: {value!r} is neither a label index nor a label name" + _or_number(names))


def _number(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, str | float) else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _or_number(names: Names | None) -> str:
    return ", nor a number" if names is None else ""


def parse_labels(
    values: Sequence[object], names: Names | None, where: Callable[[int], str]
) -> tuple[Label, ...] | None:
    """Return the labels of all samples; None if no sample has a label.

    Raises:
        ValueError: As ``parse_label``; or only some samples have a label.
    """
    labels = [parse_label(value, names, where(number)) for number, value in enumerate(values)]
    if all(label is None for label in labels):
        return None
    if None in labels:
        raise ValueError(f"{where(labels.index(None))}: label missing, but other samples have one")
    return tuple(label for label in labels if label is not None)


def check_integers(values: NDArray[Any], where: str) -> NDArray[Any]:
    """Return the integer labels ``values``, a mask or the classes of several calls; raise for another type."""
    if values.dtype.kind == "b":
        return values.astype(np.uint8)
    if values.dtype.kind not in "iu":
        raise ValueError(f"{where}: labels are {values.dtype}, but classes must be integers")
    return values


def check_labels(labels: Sequence[Label], task: str, names: Sequence[str]) -> None:
    """Raise unless the labels suit ``task``; of label arrays, only the first is checked.

    Raises:
        ValueError: A label does not suit the task; the message names its sample.
    """
    kind = _KINDS.get(task)
    if kind is None:
        return
    lazy = isinstance(labels, Lazy)
    for number, label in enumerate(labels[:1] if lazy else labels):
        if not _is(label, kind):
            raise ValueError(f"{names[number]}: its label is {_shown(label)}, but task {task} needs {kind}")


def _is(label: Label, kind: str) -> bool:
    if isinstance(label, Boxes):
        return kind == "boxes"
    if isinstance(label, np.ndarray):
        is_integer = label.dtype.kind in "iu"
        return {"masks": is_integer and label.ndim == _MASK_AXES, "classes": is_integer, "numbers": True}.get(
            kind, False
        )
    return kind == "numbers" or (kind == "classes" and isinstance(label, int))


def _shown(label: Label) -> str:
    if isinstance(label, Boxes):
        return "boxes"
    return f"{label.dtype} {list(label.shape)}" if isinstance(label, np.ndarray) else f"the number {label}"
