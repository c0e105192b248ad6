"""The interface of the tallies, which compare stored predictions with labels."""

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from ..datasets import Label
from ..predictors import Tensors
from ..steps.geometry import Geometry


class Tally(Protocol):
    """Counts predictions, which are added in the order of the samples."""

    def add(self, prediction: Mapping[str, NDArray[Any]], label: Label, geometry: Geometry | None) -> None:
        """Add one sample.

        Args:
            prediction: The stored tensors of the sample by output name, and ``detections`` of a detector.
            label: What the dataset says of the sample.
            geometry: How the model's first picture came from its original; None where that is not known.

        Raises:
            Failure: ``predict``: the prediction cannot be compared with the label.
        """
        ...

    def document(self) -> dict[str, Any]:
        """What ``result.json`` says under ``quality``: by metric ``n``, and ``correct`` or ``value``."""
        ...

    def measures(self) -> Tensors:
        """What each sample adds to a metric that is no count: intervals are made of it."""
        ...
