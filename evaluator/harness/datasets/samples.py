"""An open split: its samples, their names, labels and file paths."""

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.tensor import Source


def choose_spread(count: int, wanted: int) -> list[int]:
    """Return ``wanted`` of ``count`` numbers, or all of them, as far apart as they can be."""
    return [number * count // min(wanted, count) for number in range(min(wanted, count))]


_GZIP = b"\x1f\x8b"


def resolve_inside(folder: Path, path: str) -> Path:
    """``path`` in ``folder``, never outside it."""
    found = folder / path
    if not found.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path}: leads out of the dataset")
    return found


def read_unpacked(path: Path) -> bytes:
    """The content of a file, with gzip undone where it begins like it."""
    content = path.read_bytes()
    return gzip.decompress(content) if content.startswith(_GZIP) else content


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
"""A class, a number, a mask [H, W] or the classes of several calls, or boxes."""


@dataclass(frozen=True, slots=True)
class Samples:
    """A split: ``read`` gives the fields of a sample by its index, ``names`` what messages call it.

    ``fields`` are the same in every sample; no ``labels``, unlabelled. Labels that are arrays are read one by one.
    ``files`` are the paths of the samples where each is a file of its own.
    """

    read: Callable[[int], Mapping[str, Source]]
    names: Sequence[str]
    labels: Sequence[Label] | None
    fields: frozenset[str]
    files: Sequence[Path] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def subset(self, numbers: Sequence[int]) -> "Samples":
        """Return the samples of these numbers alone, in their order."""
        kept = tuple(numbers)
        return Samples(
            lambda number: self.read(kept[number]),
            [self.names[number] for number in kept],
            None if self.labels is None else [self.labels[number] for number in kept],
            self.fields,
            None if self.files is None else [self.files[number] for number in kept],
        )


@dataclass(frozen=True, slots=True)
class Names:
    """The classes of a labels file: ``places`` has the index of each name, the first where it stands twice."""

    places: Mapping[str, int]
    count: int


@dataclass(frozen=True, slots=True)
class Opening:
    """What a format opens: the manifest's ``split`` in ``folder``, ``names`` None if the dataset has none.

    ``masks`` says that pixels are compared, where samples have labels of several kinds.
    """

    format: str
    split: Mapping[str, Any]
    folder: Path
    names: Names | None
    masks: bool

    @property
    def keys(self) -> Mapping[str, str]:
        """The key of each field that feeds a model, of formats whose fields have names."""
        return {field: key for field, key in self.split["fields"].items() if field != "label"}

    @property
    def label_key(self) -> str | None:
        """The key of the label, None where the split is unlabelled."""
        found: str | None = self.split["fields"].get("label")
        return found
