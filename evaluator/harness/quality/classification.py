"""Tally of top1 and top5."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.failures import Failure
from ..core.job import Output
from ..datasets import Label
from ..predictors import Tensors
from ..steps.numeric import ranking
from ..steps.step_tensor import Geometry

RANKS = {"top1": 1, "top5": 5}
"""The number of best classes among which the label must be, by metric."""
_FEWEST_CLASSES = 2
_ROWS = 4096


class ClassificationTally:
    """Counts of correct decisions by metric: one decision per sample, or per call if not reduced."""

    def __init__(
        self, output: Output, metrics: tuple[str, ...], *, several_calls: bool = False, ranks_nan: bool = False
    ) -> None:
        """Start at zero.

        Args:
            output: The output that holds the classes.
            metrics: ``top1``, ``top5`` or both.
            several_calls: Whether a sample takes several calls, which are the first axis of an output that is not
                reduced.
            ranks_nan: Whether NaN ranks below all numbers. Otherwise a decision with NaN is wrong.
        """
        self._output = output
        self._several_calls = several_calls
        self._ranks_nan = ranks_nan
        self._rows: dict[str, list[tuple[int, int]]] = {metric: [] for metric in metrics}

    def add(self, prediction: Mapping[str, NDArray[Any]], label: Label, geometry: Geometry | None) -> None:  # noqa: ARG002
        """Add one sample.

        Raises:
            Failure: ``predict``: there are no classes, fewer classes than a metric needs, or not one label per call.
        """
        output, values = self._output, prediction[self._output.name]
        answers = [values]
        if output.reduce == "none":
            answers = list(values.reshape(len(values) if self._several_calls else 1, -1))
        labels = _labels(label, len(answers), output.name)
        for metric, rows in self._rows.items():
            predictions = [decisions(output, answer, RANKS[metric]) - output.label_offset for answer in answers]
            pairs = zip(answers, predictions, labels, strict=True)
            right = sum(
                bool(np.any(predicted == expected)) and self._decides(answer) for answer, predicted, expected in pairs
            )
            rows.append((right, len(answers)))

    def add_all(self, values: NDArray[Any], labels: Sequence[Label]) -> bool:
        """Add all samples at once, with the same result as ``add``; return False where that is not possible.

        A sample is correct where fewer than ``k`` classes rank before its label: those with a greater score, and those
        with an equal score and a lower index.

        Args:
            values: The scores [samples, ..., classes] of an output with one decision per sample.
            labels: The class of each sample.
        """
        output = self._output
        width = values[0].size if len(values) else 0
        if output.type != "class-scores" or output.reduce == "none" or width < _FEWEST_CLASSES:
            return False
        if max(values.shape[1:]) != width or any(not isinstance(label, int) for label in labels):
            return False
        classes = np.asarray(labels, np.int64) + output.label_offset
        ranks = np.concatenate(
            [
                _ranks(values[start : start + _ROWS].reshape(-1, width), classes[start : start + _ROWS])
                for start in range(0, len(values), _ROWS)
            ]
        )
        if not self._ranks_nan and values.dtype.kind == "f":
            ranks[np.isnan(values.reshape(len(values), -1)).any(axis=1)] = width + max(RANKS.values())
        for metric, rows in self._rows.items():
            rows += [(int(right), 1) for right in ranks < RANKS[metric]]
        return True

    def _decides(self, answer: NDArray[Any]) -> bool:
        return self._ranks_nan or answer.dtype.kind != "f" or not np.isnan(answer).any()

    def document(self) -> dict[str, Any]:
        """Implement ``Tally.document``: ``value`` for an output that is not reduced, else ``correct``."""
        counts = {metric: np.asarray(rows, np.int64).sum(axis=0) for metric, rows in self._rows.items()}
        if self._output.reduce == "none":
            return {metric: {"value": right / n, "n": int(n)} for metric, (right, n) in counts.items()}
        return {metric: {"correct": int(right), "n": int(n)} for metric, (right, n) in counts.items()}

    def measures(self) -> Tensors:
        """Return ``counts`` where each call is a decision; else nothing."""
        return self.counts() if self._output.reduce == "none" else {}

    def counts(self) -> Tensors:
        """Return int64 [samples, 2] by metric: the correct decisions of each sample, and all its decisions."""
        return {metric: np.asarray(rows, np.int64) for metric, rows in self._rows.items()}


def _ranks(scores: NDArray[Any], classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many classes rank before ``classes`` [samples], the class of each row; more than all for no class."""
    if scores.dtype.kind != "f":  # as in the comparison of single samples
        scores = scores.astype(np.float64)
    width = scores.shape[1]
    is_class = (classes >= 0) & (classes < width)
    column = np.where(is_class, classes, 0)[:, np.newaxis]
    own_scores = np.take_along_axis(scores, column, axis=1)
    counts: NDArray[np.int64] = np.count_nonzero(scores > own_scores, axis=1)
    ties = scores == own_scores
    if np.count_nonzero(ties) > len(scores):
        counts += np.count_nonzero(ties & (np.arange(width) < column), axis=1)
    unknown = np.flatnonzero(np.isnan(own_scores[:, 0]))  # NaN ranks after every number
    earlier = ~np.isnan(scores[unknown]) | (np.arange(width) < column[unknown])
    counts[unknown] = np.count_nonzero(earlier, axis=1)
    counts[~is_class] = width + max(RANKS.values())
    return counts


def decisions(output: Output, values: NDArray[Any], ranks: int) -> NDArray[np.int64]:
    """Return the first ``ranks`` classes of a sample's values, best first; all classes where there are fewer.

    Args:
        output: The output that holds the classes.
        values: The value of the output for one sample.
        ranks: The number of classes.

    Raises:
        Failure: ``predict``: the values are not a list of scores, or name fewer than ``ranks`` classes.
    """
    flat = values.reshape(-1)
    if values.size != max(values.shape, default=1):
        raise Failure("predict", f"output {output.name}: {list(values.shape)} are not classes of one sample")
    if output.type == "class-index":
        if flat.size < ranks:
            raise Failure(
                "predict", f"output {output.name}: {flat.size} classes per sample, but top{ranks} needs {ranks}"
            )
        return flat[:ranks].astype(np.int64)
    if flat.size == 1:
        if output.threshold is None:
            raise Failure("predict", f"output {output.name}: one score per sample needs a threshold")
        first = int(flat[0] >= output.threshold)
        return np.asarray([first, 1 - first][:ranks], np.int64)
    return ranking(flat, ranks)


def _labels(label: Label, decided: int, name: str) -> NDArray[np.int64]:
    """Return one label per decision: the sample's label for all of its calls, or one for each."""
    labels = np.asarray(label).reshape(-1)
    if labels.size == 1:
        return np.repeat(labels, decided)
    if labels.size != decided:
        raise Failure("predict", f"output {name}: {decided} decisions, but the sample has {labels.size} labels")
    return labels
