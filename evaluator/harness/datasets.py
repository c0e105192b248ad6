"""Labelled samples, read one by one as the dataset holds them: encoded files, texts, or arrays."""

import csv
import gzip
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .failures import Failure, failing
from .job import Dataset
from .steps import Source

_GZIP = b"\x1f\x8b"
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_UNLABELLED = ""
_PICTURE = frozenset(("image",))


@dataclass(frozen=True, slots=True)
class Boxes:
    """What is in a picture: ``classes`` int64 [N], ``xyxy`` float64 [N, 4] in pixels, ``areas`` float64 [N].

    ``crowd`` bool [N] says which box is around many of its class.
    """

    classes: NDArray[np.int64]
    xyxy: NDArray[np.float64]
    areas: NDArray[np.float64]
    crowd: NDArray[np.bool_]


Label = int | float | NDArray[Any] | Boxes
"""A class, a number, a mask [H, W] or classes of several calls, or boxes."""


@dataclass(frozen=True, slots=True)
class Samples:
    """A split: ``read`` gives the fields of a sample by its index, ``names`` what messages call it.

    ``fields`` are the same in every sample; no ``labels``, unlabelled.
    """

    read: Callable[[int], Mapping[str, Source]]
    names: Sequence[str]
    labels: Sequence[Label] | None
    fields: frozenset[str]

    def __len__(self) -> int:
        return len(self.names)


def open_samples(dataset: Dataset, folder: Path) -> Samples:
    """The split of ``dataset``, whose files are in ``folder``.

    Raises:
        Failure: ``load``: a file is missing or malformed, or ``samples`` is not the number of samples.
    """
    if dataset.format not in _FORMATS:
        raise Failure("load", f"dataset: the format {dataset.format!r} is not built")
    with failing("load", "dataset"):
        labels = _read_labels(_inside(folder, dataset.labels)) if dataset.labels else {}
        samples = _FORMATS[dataset.format](dataset.split, folder, labels)
    declared = dataset.split.get("samples")
    if not samples.names:
        raise Failure("load", "dataset: the split has no samples")
    if len(samples) != declared:
        raise Failure("load", f"dataset: the split has {len(samples)} samples, its manifest says {declared}")
    return samples


def _read_labels(path: Path) -> dict[str, int]:
    """Line i names class i; of equal names the first counts."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {line.strip(): index for index, line in reversed(list(enumerate(lines)))}


def _image_index(split: Mapping[str, Any], folder: Path, labels: Mapping[str, int]) -> Samples:
    """A CSV with the columns ``path`` and ``label``, paths relative to it."""
    index = _inside(folder, split["index"])
    with index.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    if rows and "path" not in rows[0]:
        raise ValueError(f"{split['index']}: no column 'path'")
    names = [str(row["path"]) for row in rows]
    texts = [(row.get("label") or _UNLABELLED).strip() for row in rows]
    parent = index.parent.relative_to(folder)
    paths = [_inside(folder, str(parent / name)) for name in names]
    found = _labels(texts, labels, split["index"])
    return Samples(lambda number: {"image": paths[number].read_bytes()}, names, found, _PICTURE)


def _labels(texts: Sequence[str], labels: Mapping[str, int], where: str) -> tuple[int, ...] | None:
    """None if no sample has a label; else each must be digits or a name out of ``labels``."""
    if all(text == _UNLABELLED for text in texts):
        return None
    found = []
    for number, text in enumerate(texts):
        if text.isascii() and text.isdigit():
            found.append(int(text))
        elif text in labels:
            found.append(labels[text])
        else:
            raise ValueError(f"{where} line {number + 2}: {text!r} is neither an index nor a name out of the labels")
    return tuple(found)


def _idx(split: Mapping[str, Any], folder: Path, labels: Mapping[str, int]) -> Samples:  # noqa: ARG001 - labels are numbers
    pictures = _read_idx(_inside(folder, split["images"]))
    if pictures.dtype != np.uint8 or pictures.ndim not in (3, 4):
        raise ValueError(f"{split['images']}: {pictures.dtype} {list(pictures.shape)} are no 8-bit pictures")
    names = [f"{split['images']}[{number}]" for number in range(len(pictures))]
    if "labels" not in split:
        return Samples(lambda number: {"image": pictures[number]}, names, None, _PICTURE)
    classes = _read_idx(_inside(folder, split["labels"]))
    if classes.shape != (len(pictures),) or classes.dtype.kind not in "iu":
        raise ValueError(f"{split['labels']}: {classes.dtype} {list(classes.shape)} for {len(pictures)} pictures")
    found = tuple(int(label) for label in classes)
    return Samples(lambda number: {"image": pictures[number]}, names, found, _PICTURE)


def _read_idx(path: Path) -> NDArray[Any]:
    """The array of an idx file, gzip or not: two zero bytes, type, number of sizes, big-endian sizes, values."""
    content = path.read_bytes()
    if content.startswith(_GZIP):
        content = gzip.decompress(content)
    if content[:2] != b"\0\0" or len(content) < 4 or content[2] not in _IDX_TYPES:  # noqa: PLR2004 - the header's size
        raise ValueError(f"{path.name}: no idx file")
    dtype, start = np.dtype(_IDX_TYPES[content[2]]), 4 + 4 * content[3]
    shape = [int(size) for size in np.frombuffer(content[4:start], ">u4")]
    if len(shape) != content[3] or len(content) != start + dtype.itemsize * math.prod(shape):
        raise ValueError(f"{path.name}: {len(content)} bytes are not the {shape} values of {dtype} that it announces")
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def _inside(folder: Path, path: str) -> Path:
    """``path`` in ``folder``, never outside it."""
    found = folder / path
    if not found.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path}: leads out of the dataset")
    return found


_FORMATS: Mapping[str, Callable[[Mapping[str, Any], Path, Mapping[str, int]], Samples]] = {
    "image-index": _image_index,
    "idx": _idx,
}
