"""Tally of the mean absolute error and the root mean square error."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.failures import Failure
from ..core.job import Output
from ..datasets import Label
from ..predictors import Tensors
from ..steps.step_tensor import Geometry


class RegressionTally:
    """The errors of each sample; the mean over the label where it is a list of numbers."""

    def __init__(self, output: Output, metrics: tuple[str, ...]) -> None:
        """Start without any sample."""
        self._output = output
        self._metrics = metrics
        self._errors: dict[str, list[float]] = {"mae": [], "rmse": []}

    def add(self, prediction: Mapping[str, NDArray[Any]], label: Label, geometry: Geometry | None) -> None:  # noqa: ARG002
        """Add one sample.

        Raises:
            Failure: ``predict``: the label has another number of values. ``non-finite``: a value or its error is not
                finite.
        """
        values = np.asarray(prediction[self._output.name], np.float64).reshape(-1)
        expected = np.asarray(label, np.float64).reshape(-1)
        where = f"output {self._output.name}"
        if values.size != expected.size:
            raise Failure("predict", f"{where}: {values.size} values per sample, but the label has {expected.size}")
        if not np.isfinite(values).all():
            raise Failure("non-finite", f"{where}: the prediction {values.tolist()} is not finite")
        errors = values - expected
        if not np.isfinite(errors).all():
            message = f"{where}: the error of {values.tolist()} for the label {expected.tolist()} is not finite"
            raise Failure("non-finite", message)
        self._errors["mae"].append(float(np.abs(errors).mean()))
        self._errors["rmse"].append(float(np.square(errors).mean()))

    def document(self) -> dict[str, Any]:
        """Implement ``Tally.document``."""
        errors = {"mae": float(np.mean(self._errors["mae"])), "rmse": float(np.sqrt(np.mean(self._errors["rmse"])))}
        return {metric: {"value": errors[metric], "n": len(self._errors[metric])} for metric in self._metrics}

    def measures(self) -> Tensors:
        """Return float64 [samples] by metric: ``mae`` absolute errors, ``rmse`` squared errors."""
        return {metric: np.asarray(self._errors[metric]) for metric in self._metrics}
