"""Results of each class and the confusion matrix, as a part of a run's details."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from benchlock.evaluator.harness.core.job import UNDECIDED
from benchlock.evaluator.runner.run_stages import harness_version
from benchlock.registry.lock.lockfile import Lock

if TYPE_CHECKING:  # numpy
    import numpy as np
    import numpy.typing as npt

CLASSES: Final = "classes"
"""The key of a record's details."""
FIRST_COUNTED: Final = (1, 4)
"""The first harness whose records have results of classes; older ones stay as recorded."""
MOST_CELLS: Final = 2_500
"""The greatest number of cells other than 0, and of classes, that a record keeps."""


class ClassResult(NamedTuple):
    """The results of one class: ``samples`` have the label, ``predicted`` were decided so, and ``right`` are both."""

    label: int
    samples: int
    predicted: int
    right: int

    @property
    def recall(self) -> float | None:
        """The share of the samples with the label that were decided so; None without samples."""
        return self.right / self.samples if self.samples else None

    @property
    def precision(self) -> float | None:
        """The share of the samples that were decided so that have the label; None without any."""
        return self.right / self.predicted if self.predicted else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall."""
        return 2 * self.right / (self.samples + self.predicted) if self.samples or self.predicted else None


class ClassDetails(msgspec.Struct, frozen=True):
    """The results of each class by label, and the cells of the confusion matrix that are not 0.

    A cell has the label, the predicted label (None without a decision) and the number of samples. ``unavailable`` says
    which part is too large to record.
    """

    per_class: tuple[ClassResult, ...] = ()
    confusion: tuple[tuple[int, int | None, int], ...] = ()
    unavailable: str = ""


def describe_classes(lock: Lock, decided: "npt.NDArray[np.int64] | None") -> dict[str, Any]:
    """Return the part of the details; empty where samples have no single class.

    Args:
        lock: The lock of the run.
        decided: int64 [samples, 2]: label and predicted label.
    """
    if decided is None or harness_version(lock) < FIRST_COUNTED:
        return {}
    labels, predictions = decided.T.tolist()
    cells = sorted(Counter(zip(labels, predictions, strict=True)).items())
    samples, predicted = Counter(labels), Counter(predictions)
    right = Counter(label for label, prediction in zip(labels, predictions, strict=True) if label == prediction)
    classes = sorted({*samples, *predicted} - {UNDECIDED})
    part: dict[str, Any] = {}
    if len(classes) <= MOST_CELLS:
        part["per_class"] = [[each, samples[each], predicted[each], right[each]] for each in classes]
    if len(cells) <= MOST_CELLS:
        part["confusion"] = [[label, None if other == UNDECIDED else other, n] for (label, other), n in cells]
    if len(part) < 2:  # noqa: PLR2004 - results of classes, and the matrix
        sizes = f"there are {len(classes)} classes and {len(cells)} cells of the confusion matrix"
        part["unavailable"] = f"{sizes}; the maximum of each is {MOST_CELLS}"
    return {CLASSES: part}


def read_classes(details: Mapping[str, Any]) -> ClassDetails:
    """Return the part of the details of a record; empty where they have none that is valid."""
    try:
        return msgspec.convert(details.get(CLASSES, {}), ClassDetails)
    except msgspec.ValidationError:
        return ClassDetails()
