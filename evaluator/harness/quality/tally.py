"""What every tally of predictions gives, and the one of a job that asks for none."""

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from ..datasets import Label
from ..pipeline import Prepared
from ..predictors import Tensors


class Tally(Protocol):
    """What is counted and kept of predictions, added in the order of the samples."""

    def add(self, prediction: Mapping[str, NDArray[Any]], label: Label | None, sample: Prepared) -> None:
        """``sample`` is what the prediction was made of. ``Failure`` (``predict``) if it cannot be judged."""
        ...

    def document(self) -> dict[str, Any]:
        """What ``result.json`` says under ``quality``: by metric ``n``, and ``correct`` or ``value``."""
        ...

    def measures(self) -> Tensors:
        """What each sample adds to a metric that is no count: intervals are made of it."""
        ...

    def tensors(self) -> Tensors:
        """Predictions that several outputs make together, stored beside those of each."""
        ...


class Nothing:
    """The tally of a job without quality metrics."""

    def add(self, prediction: Mapping[str, NDArray[Any]], label: Label | None, sample: Prepared) -> None:
        pass

    def document(self) -> dict[str, Any]:
        return {}

    def measures(self) -> Tensors:
        return {}

    def tensors(self) -> Tensors:
        return {}
