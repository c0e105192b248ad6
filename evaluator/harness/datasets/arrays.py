"""An npz file: a field is an array, whose first axis is the sample."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.tensor import Source
from .labels import Lazy, labels_of, whole_numbers
from .places import inside
from .samples import Opening, Samples

_NUMBERS = "biufc"
_TEXT, _BYTES = "U", "S"


def open_split(opening: Opening) -> Samples:
    """Its samples are rows of arrays; of an array of texts a text, of one of byte strings these. None is unpickled."""
    path: str = opening.split["file"]
    with np.load(inside(opening.folder, path), allow_pickle=False) as archive:
        arrays = {field: read_array(archive, key, path) for field, key in opening.keys.items()}
        label = None if opening.label_key is None else read_array(archive, opening.label_key, path)
    counts = {len(array) for array in (*arrays.values(), *(() if label is None else (label,)))}
    if len(counts) != 1:
        raise ValueError(f"{path}: its fields differ in their number of samples: {sorted(counts)}")

    def read(number: int) -> dict[str, Source]:
        return {field: _row(array, number) for field, array in arrays.items()}

    names = [f"{path}[{number}]" for number in range(counts.pop())]
    return Samples(read, names, None if label is None else _labels(label, opening, names), frozenset(arrays))


def read_array(archive: Any, key: str, path: str) -> NDArray[Any]:  # noqa: ANN401 - NumPy's NpzFile
    """The array called ``key``, in the byte order of this machine."""
    if key not in archive:
        raise ValueError(f"{path}: no array {key!r}; it has {', '.join(archive.files)}")
    array: NDArray[Any] = archive[key]
    if not array.ndim or array.dtype.kind not in _NUMBERS + _TEXT + _BYTES:
        raise ValueError(f"{path}: the array {key!r} is {array.dtype} {list(array.shape)}, no samples")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _row(array: NDArray[Any], number: int) -> Source:
    row = array[number]
    if isinstance(row, str):  # a scalar of NumPy's own
        return str(row)
    return bytes(row) if isinstance(row, bytes) else np.asarray(row)


def _labels(label: NDArray[Any], opening: Opening, names: list[str]) -> tuple[Any, ...] | Lazy | None:
    if label.ndim == 1:
        return labels_of(label.tolist(), opening.names, lambda number: names[number])
    if label.dtype.kind == "f":
        return Lazy(lambda number: label[number], names)
    whole = whole_numbers(label, opening.split["file"])
    return Lazy(lambda number: whole[number], names)
