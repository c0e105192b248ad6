"""Labels of every sort: a class by its index or name, a number, an array, and whether they are what a task needs."""

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from ..failures import failing
from .samples import Boxes, Label, Names

_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_KINDS = {
    "image-classification": "classes",
    "audio-classification": "classes",
    "text-classification": "classes",
    "regression": "numbers",
    "semantic-segmentation": "masks",
    "object-detection": "boxes",
}
"""What the labels must be whose predictions a task compares with them."""
_MASK_AXES = 2


class Lazy(Sequence[NDArray[Any]]):
    """Arrays that are read when they are asked for, by their index; ``names`` are those of the samples.

    ``Failure`` (``load``) where one cannot be read.
    """

    def __init__(self, read: Callable[[int], NDArray[Any]], names: Sequence[str]) -> None:
        self._read = read
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[NDArray[Any]]: ...
    def __getitem__(self, index: int | slice) -> NDArray[Any] | Sequence[NDArray[Any]]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        with failing("load", f"the label of {self._names[number]}"):
            return self._read(number)


def read_names(path: Path) -> Names:
    """Line i of the file names class i."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return Names({line.strip(): index for index, line in reversed(list(enumerate(lines)))}, len(lines))


def label_of(value: object, names: Names | None, where: str) -> int | float | None:
    """The class or number that ``value`` says; None where it says nothing.

    An integer, or a text of digits, is an index; another text is a name, or without ``names`` a number.

    Raises:
        ValueError: it is neither, or an index that has no name.
    """
    value = value.item() if isinstance(value, np.generic) else value
    text = value.strip() if isinstance(value, str) else None
    if value is None or text == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if text is not None and _WHOLE.fullmatch(text):
        value = int(text)
    if isinstance(value, int):
        found = int(value)
        if names is not None and not 0 <= found < names.count:
            raise ValueError(f"{where}: the label {found} is none of the {names.count} that the labels file names")
        return found
    if names is not None and text in names.places:
        return names.places[cast(str, text)]
    if names is None and (number := _number(value)) is not None:
        return number
    raise ValueError(f"{where}: {value!r} is neither an index nor a name out of the labels" + _or_number(names))


def _number(value: object) -> float | None:
    try:
        found = float(value) if isinstance(value, str | float) else math.nan
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _or_number(names: Names | None) -> str:
    return ", nor a number" if names is None else ""


def labels_of(values: Sequence[object], names: Names | None, where: Callable[[int], str]) -> tuple[Label, ...] | None:
    """The labels of all samples; None if no sample has one.

    Raises:
        ValueError: as ``label_of``; or some samples have a label, and some have none.
    """
    found = [label_of(value, names, where(number)) for number, value in enumerate(values)]
    if all(label is None for label in found):
        return None
    if None in found:
        raise ValueError(f"{where(found.index(None))}: no label, and other samples have one")
    return tuple(label for label in found if label is not None)


def whole_numbers(values: NDArray[Any], where: str) -> NDArray[Any]:
    """``values``, which must be a mask or classes of several calls: of an integer type."""
    if values.dtype.kind == "b":
        return values.astype(np.uint8)
    if values.dtype.kind not in "iu":
        raise ValueError(f"{where}: labels of {values.dtype}, where classes are whole numbers")
    return values


def check_labels(labels: Sequence[Label], task: str, names: Sequence[str]) -> None:
    """The labels are what ``task`` compares its predictions with. Arrays are looked at in the first sample alone.

    Raises:
        ValueError: they are not; says which.
    """
    kind = _KINDS.get(task)
    if kind is None:
        return
    lazy = isinstance(labels, Lazy)
    for number, label in enumerate(labels[:1] if lazy else labels):
        if not _is(label, kind):
            raise ValueError(f"{names[number]}: its label is {_shown(label)}, and the task {task} needs {kind}")


def _is(label: Label, kind: str) -> bool:
    if isinstance(label, Boxes):
        return kind == "boxes"
    if isinstance(label, np.ndarray):
        whole = label.dtype.kind in "iu"
        return {"masks": whole and label.ndim == _MASK_AXES, "classes": whole, "numbers": True}.get(kind, False)
    return kind == "numbers" or (kind == "classes" and isinstance(label, int))


def _shown(label: Label) -> str:
    if isinstance(label, Boxes):
        return "boxes"
    return f"{label.dtype} {list(label.shape)}" if isinstance(label, np.ndarray) else f"the number {label}"
