"""An open split: its samples, their names, labels and file paths."""

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.step_tensor import Source


def choose_spread(count: int, limit: int) -> list[int]:
    """Return ``limit`` of ``count`` indices, or all of them, spread evenly."""
    return [number * count // min(limit, count) for number in range(min(limit, count))]


_GZIP = b"\x1f\x8b"


def resolve_inside(folder: Path, path: str) -> Path:
    """Return the path of ``path`` in ``folder``; raise ``ValueError`` for a path outside the folder."""
    target = folder / path
    if not target.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path}: outside the dataset")
    return target


def read_unpacked(path: Path) -> bytes:
    """Return the content of a file, decompressed if it is gzip."""
    content = path.read_bytes()
    return gzip.decompress(content) if content.startswith(_GZIP) else content


@dataclass(frozen=True, slots=True)
class Boxes:
    """The objects in an image: ``classes`` int64 [N], ``xyxy`` float64 [N, 4] in pixels, ``areas`` float64 [N].

    ``crowd`` bool [N] marks boxes around a group of objects of the class.
    """

    classes: NDArray[np.int64]
    xyxy: NDArray[np.float64]
    areas: NDArray[np.float64]
    crowd: NDArray[np.bool_]


Label = int | float | NDArray[Any] | Boxes
"""A class, a number, a mask [H, W] or the classes of several calls, or boxes."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of a split.

    ``read`` returns the fields of a sample by its index; ``names`` are the names for messages. Every sample has the
    same ``fields``. ``labels`` is None for an unlabelled split; label arrays are read on access. ``files`` are the
    paths of the samples where each sample is a file.
    """

    read: Callable[[int], Mapping[str, Source]]
    names: Sequence[str]
    labels: Sequence[Label] | None
    fields: frozenset[str]
    files: Sequence[Path] | None = None

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.names)

    def subset(self, numbers: Sequence[int]) -> "Samples":
        """Return a split of only these samples, in the given order."""
        indices = tuple(numbers)
        return Samples(
            lambda number: self.read(indices[number]),
            [self.names[number] for number in indices],
            None if self.labels is None else [self.labels[number] for number in indices],
            self.fields,
            None if self.files is None else [self.files[number] for number in indices],
        )


@dataclass(frozen=True, slots=True)
class Names:
    """The classes of a labels file: ``places`` maps a name to its index, or its first index if repeated."""

    places: Mapping[str, int]
    count: int


@dataclass(frozen=True, slots=True)
class Opening:
    """The arguments of a function that opens a split.

    ``split`` is the manifest's, ``folder`` has its files, and ``names`` are the classes of a labels file, if any.
    ``masks`` prefers masks where samples have several kinds of labels.
    """

    format: str
    split: Mapping[str, Any]
    folder: Path
    names: Names | None
    masks: bool

    @property
    def keys(self) -> Mapping[str, str]:
        """The key of each field that feeds a model, for formats with named fields."""
        return {field: key for field, key in self.split["fields"].items() if field != "label"}

    @property
    def label_key(self) -> str | None:
        """The key of the label; None for an unlabelled split."""
        key: str | None = self.split["fields"].get("label")
        return key
