"""What a split is once it is open: its samples, what messages call them, and their labels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..steps.tensor import Source


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
