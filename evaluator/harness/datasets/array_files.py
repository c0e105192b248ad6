"""Datasets in array files: NumPy npz, and idx as MNIST uses it."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.step_tensor import Source
from .labels import Lazy, check_integers, parse_labels
from .samples import Opening, Samples, read_unpacked, resolve_inside

_NUMBERS = "biufc"
_TEXT, _BYTES = "U", "S"


def open_npz(opening: Opening) -> Samples:
    """Open a split of NumPy arrays, one row a sample; strings become texts, byte strings bytes.

    Nothing is unpickled.
    """
    path: str = opening.split["file"]
    with np.load(resolve_inside(opening.folder, path), allow_pickle=False) as archive:
        arrays = {field: read_npz_array(archive, key, path) for field, key in opening.keys.items()}
        label = None if opening.label_key is None else read_npz_array(archive, opening.label_key, path)
    counts = {len(array) for array in (*arrays.values(), *(() if label is None else (label,)))}
    if len(counts) != 1:
        raise ValueError(f"{path}: its fields have different numbers of samples: {sorted(counts)}")

    def read(number: int) -> dict[str, Source]:
        return {field: _row(array, number) for field, array in arrays.items()}

    names = [f"{path}[{number}]" for number in range(counts.pop())]
    return Samples(read, names, None if label is None else _labels(label, opening, names), frozenset(arrays))


def read_npz_array(archive: Any, key: str, path: str) -> NDArray[Any]:  # noqa: ANN401 - NumPy's NpzFile
    """Return the array ``key`` of the archive in native byte order."""
    if key not in archive:
        raise ValueError(f"{path}: no array {key!r}; it has {', '.join(archive.files)}")
    array: NDArray[Any] = archive[key]
    if not array.ndim or array.dtype.kind not in _NUMBERS + _TEXT + _BYTES:
        raise ValueError(f"{path}: array {key!r} is {array.dtype} {list(array.shape)}, which has no samples")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _row(array: NDArray[Any], number: int) -> Source:
    row = array[number]
    if isinstance(row, str):  # a scalar of NumPy
        return str(row)
    return bytes(row) if isinstance(row, bytes) else np.asarray(row)


def _labels(label: NDArray[Any], opening: Opening, names: list[str]) -> tuple[Any, ...] | Lazy | None:
    if label.ndim == 1:
        return parse_labels(label.tolist(), opening.names, lambda number: names[number])
    if label.dtype.kind == "f":
        return Lazy(lambda number: label[number], names)
    classes = check_integers(label, opening.split["file"])
    return Lazy(lambda number: classes[number], names)


_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_FIELDS = frozenset(("image",))


def open_idx(opening: Opening) -> Samples:
    """Open a split of 8-bit images [H, W] or [H, W, C] in idx files."""
    split = opening.split
    pictures = read_idx_array(resolve_inside(opening.folder, split["images"]))
    if pictures.dtype != np.uint8 or pictures.ndim not in (3, 4):
        raise ValueError(
            f"{split['images']}: {pictures.dtype} {list(pictures.shape)} is not an array of 8-bit pictures"
        )
    names = [f"{split['images']}[{number}]" for number in range(len(pictures))]
    labels = None
    if "labels" in split:
        classes = read_idx_array(resolve_inside(opening.folder, split["labels"]))
        if classes.shape != (len(pictures),):
            raise ValueError(f"{split['labels']}: {classes.dtype} {list(classes.shape)} for {len(pictures)} pictures")
        labels = parse_labels(classes.tolist(), opening.names, lambda number: f"{split['labels']}[{number}]")
    return Samples(lambda number: {"image": pictures[number]}, names, labels, _FIELDS)


def read_idx_array(path: Path) -> NDArray[Any]:
    """Return the array of an idx file, plain or gzip.

    The format is: two zero bytes, the type, the number of axes, big-endian sizes, values.
    """
    content = read_unpacked(path)
    if content[:2] != b"\0\0" or len(content) < 4 or content[2] not in _TYPES:  # noqa: PLR2004 - the header's size
        raise ValueError(f"{path.name}: not an idx file")
    dtype, start = np.dtype(_TYPES[content[2]]), 4 + 4 * content[3]
    shape = [int(size) for size in np.frombuffer(content[4:start], ">u4")]
    if len(shape) != content[3] or len(content) != start + dtype.itemsize * math.prod(shape):
        raise ValueError(f"{path.name}: {len(content)} bytes, but its header states {shape} values of {dtype}")
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def write_pictures(path: Path, pictures: NDArray[Any], order: Sequence[int]) -> None:
    """Write 8-bit images [N, H, W] or [N, H, W, C] in the given order as an idx file."""
    with path.open("wb") as stream:
        stream.write(bytes((0, 0, 0x08, pictures.ndim)) + np.asarray(pictures.shape, ">u4").tobytes())
        for number in order:
            stream.write(np.ascontiguousarray(pictures[number]).tobytes())
