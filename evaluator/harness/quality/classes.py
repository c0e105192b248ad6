"""top1 and top5: whether the label is the class, or among the five classes, that a model puts first."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datasets import Label
from ..failures import Failure
from ..job import Output
from ..predictors import Tensors
from ..steps.geometry import Geometry
from ..steps.outputs import ranking

_RANKS = {"top1": 1, "top5": 5}


class Classes:
    """Counts right decisions by metric: one a sample, or one a call where the output keeps its calls apart."""

    def __init__(self, output: Output, metrics: tuple[str, ...], *, several_calls: bool = False) -> None:
        """Start at zero.

        Args:
            output: The output that holds the classes.
            metrics: ``top1``, ``top5`` or both.
            several_calls: Whether a sample takes several calls, which are the first axis of an output that is not
                reduced.
        """
        self._output = output
        self._several_calls = several_calls
        self._rows: dict[str, list[tuple[int, int]]] = {metric: [] for metric in metrics}

    def add(self, prediction: Mapping[str, NDArray[Any]], label: Label, geometry: Geometry | None) -> None:  # noqa: ARG002
        """Raises ``Failure`` (``predict``): no classes, fewer than a metric looks at, or not a label a call."""
        output, values = self._output, prediction[self._output.name]
        answers = [values]
        if output.reduce == "none":
            answers = list(values.reshape(len(values) if self._several_calls else 1, -1))
        labels = _labels(label, len(answers), output.name)
        for metric, rows in self._rows.items():
            found = [decisions(output, answer, _RANKS[metric]) - output.label_offset for answer in answers]
            right = sum(bool(np.any(one == wanted)) for one, wanted in zip(found, labels, strict=True))
            rows.append((right, len(answers)))

    def document(self) -> dict[str, Any]:
        counts = {metric: np.asarray(rows, np.int64).sum(axis=0) for metric, rows in self._rows.items()}
        if self._output.reduce == "none":
            return {metric: {"value": right / n, "n": int(n)} for metric, (right, n) in counts.items()}
        return {metric: {"correct": int(right), "n": int(n)} for metric, (right, n) in counts.items()}

    def measures(self) -> Tensors:
        """Where calls are decided one by one: int64 [samples, 2] by metric, right decisions and all of them."""
        if self._output.reduce != "none":
            return {}
        return {metric: np.asarray(rows, np.int64) for metric, rows in self._rows.items()}


def decisions(output: Output, values: NDArray[Any], ranks: int) -> NDArray[np.int64]:
    """The ``ranks`` classes that a sample's values put first, the best first; all of them where there are fewer.

    Raises:
        Failure: ``predict``: the values are no list of scores, or name fewer than ``ranks`` classes.
    """
    flat = values.reshape(-1)
    if values.size != max(values.shape, default=1):
        raise Failure("predict", f"output {output.name}: {list(values.shape)} are no classes of one sample")
    if output.type == "class-index":
        if flat.size < ranks:
            raise Failure("predict", f"output {output.name}: {flat.size} classes a sample, top{ranks} needs {ranks}")
        return flat[:ranks].astype(np.int64)
    if flat.size == 1:
        if output.threshold is None:
            raise Failure("predict", f"output {output.name}: one score a sample needs a threshold")
        first = int(flat[0] >= output.threshold)
        return np.asarray([first, 1 - first][:ranks], np.int64)
    return ranking(flat, ranks)


def _labels(label: Label, decided: int, name: str) -> NDArray[np.int64]:
    """One label a decision: the sample's for all of its calls, or one for each."""
    labels = np.asarray(label).reshape(-1)
    if labels.size == 1:
        return np.repeat(labels, decided)
    if labels.size != decided:
        raise Failure("predict", f"output {name}: {decided} decisions, and the sample has {labels.size} labels")
    return labels
