"""Metrics of decided classes and of class probabilities: F1, AUROC, average precision, calibration.

``parts`` of a metric are float64 [samples, 2]: the first column adds up to the value; the second is the influence, the
derivative of the value by the weight of the sample, which adds up to 0.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.failures import Failure
from ..core.job import CALIBRATION_BINS, CLASS_METRICS, SCORE_METRICS, UNDECIDED, Output
from ..datasets import Label
from ..predictors import Tensors
from ..steps.step_tensor import Geometry
from .classification import RANKS, ClassificationTally, decisions

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_TWO = 2
_DISTRIBUTED = ("ece_15", "brier")
_UPPER_ENDS = np.arange(1, CALIBRATION_BINS) / CALIBRATION_BINS
"""The upper ends of the bins but the last, which has no sample above it."""
_MOST_OFF = 0.05
"""How far the sum of a sample's probabilities may be from 1, for probabilities of 8 or 16 bits."""


def f1(decided: Integers, *, by_samples: bool) -> Floats:
    """Return the parts of the mean of F1, 2 TP / (2 TP + FP + FN), over classes.

    Args:
        decided: int64 [samples, 2]: label and predicted label.
        by_samples: Whether classes weigh as many samples as have the label, or alike if they are a label or a
            prediction.
    """
    classes, number = np.unique(decided, return_inverse=True)
    own, other = number.reshape(-1, 2).T
    right, width = own == other, len(classes)
    mentions, hits = np.bincount(number.reshape(-1)), np.bincount(own, weights=right, minlength=width)
    chosen = np.bincount(own, minlength=width) if by_samples else classes != UNDECIDED
    weights, quotients = chosen / chosen.sum(), 2 * hits / mentions
    parts = 2 * right * (weights / mentions)[own]
    influence = parts - (weights * quotients / mentions)[number.reshape(-1, 2)].sum(axis=1)
    if by_samples:
        influence += (quotients[own] - parts.sum()) / len(decided)
    return np.column_stack([parts, influence])


def auroc(positive: NDArray[np.bool_], scores: NDArray[Any]) -> Floats:
    """Return the parts of the area under the ROC curve: the chance that a positive scores above a negative.

    Ties count half. The influence has the components of DeLong, DeLong and Clarke-Pearson (Biometrics 44, 1988).

    Args:
        positive: Whether each sample is of the class; some are, some are not.
        scores: The score of the class of each sample.
    """
    parts = np.zeros((len(scores), 2))
    for group, others, is_positive in ((positive, ~positive, True), (~positive, positive, False)):
        rivals, own = np.sort(scores[others]), scores[group]
        below = (np.searchsorted(rivals, own, "left") + np.searchsorted(rivals, own, "right")) / 2 / len(rivals)
        won = below if is_positive else 1 - below
        parts[group] = np.column_stack([won * is_positive, won - won.mean()]) / len(own)
    return parts


def average_precision(positive: NDArray[np.bool_], scores: NDArray[Any]) -> Floats:
    """Return the parts of average precision: the mean over positives of the precision at their score.

    It is not interpolated: the sum over thresholds of the gain of recall times the precision there. Arguments as for
    ``auroc``.
    """
    _, tie, count = np.unique(-scores.astype(np.float64), return_inverse=True, return_counts=True)
    hits, listed = np.bincount(tie, weights=positive), np.cumsum(count)
    precision, total = np.cumsum(hits) / listed, positive.sum()
    gain, loss = (np.cumsum(terms[::-1])[::-1][tie] for terms in (hits / listed, hits * precision / listed))
    parts = positive * precision[tie] / total
    return np.column_stack([parts, (positive * (precision[tie] - parts.sum() + gain) - loss) / total])


def mean_over_classes(
    metric: Callable[[NDArray[np.bool_], NDArray[Any]], Floats], columns: Integers, scores: NDArray[Any]
) -> Floats:
    """Return the parts of the mean of a metric of one class against the rest, over the classes of the samples.

    With two classes it is the metric of the second one.

    Args:
        metric: ``auroc`` or ``average_precision``.
        columns: The column of each sample's label.
        scores: The scores [samples, classes].
    """
    present = np.unique(columns)
    chosen = [1] if scores.shape[1] == _TWO else present.tolist()
    parts = np.zeros((len(columns), 2))
    for column in chosen:
        parts += metric(columns == column, scores[:, column])
    return parts / len(chosen)


def calibration_error(confidence: Floats, right: NDArray[Any]) -> float:
    """Return the expected calibration error of 15 bins of equal width (Guo et al., ICML 2017, equation 3).

    A bin contains its upper end, and the first one 0 as well. The error is the mean over samples of the distance
    between the mean confidence and the share of right decisions in their bin.

    Args:
        confidence: The probability of the decided class, by sample.
        right: 1 where the decision is right, else 0.
    """
    return float(np.abs(np.bincount(bin_of(confidence), weights=confidence - right)).sum() / len(confidence))


def bin_of(confidence: Floats) -> Integers:
    """Return the number of the bin of each confidence, from 0."""
    return np.searchsorted(_UPPER_ENDS, confidence)


def brier(columns: Integers, scores: NDArray[Any]) -> Floats:
    """Return the parts of the mean over samples of the summed squared errors of probabilities (Brier, 1950): 0 to 2.

    Arguments as for ``mean_over_classes``.
    """
    rows = np.arange(len(scores))
    squares = np.einsum("ij,ij->i", scores, scores, dtype=np.float64)  # without a copy of all scores
    errors = (squares - 2.0 * scores[rows, columns] + 1).clip(0, 2)  # a sum of up to 1.05 would exceed 2
    return np.column_stack([errors, errors - errors.mean()]) / len(errors)


_RANKING: Mapping[str, Callable[[NDArray[np.bool_], NDArray[Any]], Floats]] = {
    "auroc": auroc,
    "average_precision": average_precision,
}
"""Metrics of the order of samples by the score of one class."""


class ClassTally(ClassificationTally):
    """The decisions of samples with one class each, and the metrics of decisions and of class probabilities."""

    def __init__(
        self, output: Output, metrics: tuple[str, ...], *, several_calls: bool = False, ranks_nan: bool = False
    ) -> None:
        """Start at zero; arguments as for ``ClassificationTally``.

        Raises:
            Failure: ``load``: the output is not reduced, or has no scores, which a metric needs.
        """
        ranked = tuple(name for name in metrics if name in RANKS)
        super().__init__(output, ranked, several_calls=several_calls, ranks_nan=ranks_nan)
        self._judged = tuple(name for name in metrics if name in CLASS_METRICS)
        self._scoring = tuple(name for name in metrics if name in SCORE_METRICS)
        if self._judged and output.reduce == "none":
            raise Failure("load", f"output {output.name}: {self._judged[0]} needs one decision per sample, not calls")
        if self._scoring and output.type != "class-scores":
            raise Failure("load", f"output {output.name}: {output.type} has no scores of classes")
        self._decided: list[Integers] = []
        self._scores: list[NDArray[Any]] = []

    def add(self, prediction: Mapping[str, NDArray[Any]], label: Label, geometry: Geometry | None) -> None:
        """Implement ``Tally.add``."""
        super().add(prediction, label, geometry)
        if self._output.reduce != "none":
            values = prediction[self._output.name]
            self._collect(values.reshape(1, -1), label, decisions(self._output, values, 1))

    def add_all(self, values: NDArray[Any], labels: Sequence[Label]) -> bool:
        """Implement ``ClassificationTally.add_all``."""
        if not super().add_all(values, labels):
            return False
        scores = values.reshape(len(values), -1)
        self._collect(scores, labels, np.argmax(scores, axis=1))
        return True

    def _collect(self, values: NDArray[Any], labels: object, best: NDArray[np.int64]) -> None:
        predicted = best.astype(np.int64) - self._output.label_offset
        if values.dtype.kind == "f" and not self._ranks_nan:
            predicted[np.isnan(values).any(axis=1)] = UNDECIDED
        self._decided.append(np.column_stack([np.asarray(labels, np.int64).reshape(-1), predicted]))
        if self._scoring:
            self._scores.append(values)

    def document(self) -> dict[str, Any]:
        """Implement ``Tally.document``."""
        n = sum(map(len, self._decided))
        return super().document() | {name: {"value": self._value(name), "n": n} for name in self._judged}

    def measures(self) -> Tensors:
        """Implement ``Tally.measures``: the parts of each metric, but of ``ece_15`` confidence and rightness."""
        return super().measures() | self._measures

    def samples(self) -> Tensors:
        """Return the contribution of each sample to all metrics, including counts."""
        return {**self.counts(), **self._measures}

    def decided(self) -> Integers | None:
        """Return int64 [samples, 2], label and predicted label; None where samples have several decisions."""
        return np.concatenate(self._decided) if self._decided else None

    def _value(self, name: str) -> float:
        measure = self._measures[name]
        return calibration_error(*measure.T) if name == "ece_15" else float(measure[:, 0].sum())

    @cached_property
    def _measures(self) -> Tensors:
        return {name: self._measure(name, np.concatenate(self._decided)) for name in self._judged}

    def _measure(self, name: str, decided: Integers) -> Floats:
        if name not in SCORE_METRICS:
            return f1(decided, by_samples=name == "f1_weighted")
        columns, scores = self._probabilities
        if name in _RANKING:
            return mean_over_classes(_RANKING[name], columns, scores)
        if name == "brier":
            return brier(columns, scores)
        column = decided[:, 1] + self._output.label_offset
        confidence = scores[np.arange(len(scores)), column].astype(np.float64)
        return np.column_stack([confidence, decided[:, 0] == decided[:, 1]])

    @cached_property
    def _probabilities(self) -> tuple[Integers, NDArray[Any]]:
        """The column of each label, and the scores [samples, classes].

        Raises:
            Failure: ``predict``: the scores are not probabilities, or lack a class.
        """
        labels, first = np.concatenate(self._decided)[:, 0], self._scoring[0]
        if len(widths := {scores.shape[1] for scores in self._scores}) > 1:
            raise self._fail(f"samples differ in their number of classes: {sorted(widths)}")
        scores = np.concatenate(self._scores)
        is_single = scores.shape[1] == 1
        if is_single:
            scores = np.column_stack([1 - scores.astype(np.float64), scores])
        distributed = next((name for name in self._scoring if name in _DISTRIBUTED), None)
        low, high = float(scores.min()), float(scores.max())
        is_bounded = (low >= 0 and high <= 1) or (is_single and distributed is None)
        if not np.isfinite([low, high]).all() or not is_bounded:
            reason = f"{distributed or first} needs probabilities, but the scores are from {low:.4g} to {high:.4g}"
            raise self._fail(f"{reason}; add the step softmax to the output, or remove the metric")
        off = float(np.abs(scores.sum(axis=1, dtype=np.float64) - 1).max())
        if distributed is not None and off > _MOST_OFF:
            reason = f"{distributed} needs probabilities of all classes, but those of a sample miss the sum 1 by"
            raise self._fail(f"{reason} {off:.4g}; remove the metric")
        columns = labels + self._output.label_offset
        if len(unknown := labels[(columns < 0) | (columns >= scores.shape[1])]):
            raise self._fail(f"no score for the label {unknown[0]}, which {first} needs")
        if (columns == columns[0]).all() and any(name in _RANKING for name in self._scoring):
            raise self._fail(f"{first} needs samples of at least two classes, but all have label {labels[0]}")
        return columns, scores

    def _fail(self, reason: str) -> Failure:
        return Failure("predict", f"output {self._output.name}: {reason}")
