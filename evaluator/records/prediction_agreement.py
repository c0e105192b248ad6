"""Agreement of two runs' predictions: bit for bit, within tolerance, or by decision."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from benchlock.evaluator.records.comparison_types import Agreement

TOP = (1, 5)
CHUNK_BYTES = 16 << 20
_OVERLAP = 0.99
_STRONGEST_FIRST: tuple[Agreement | None, ...] = ("bit-equal", "within tolerance", "same decisions", None, "different")

Tensor = npt.NDArray[Any]


class _Slice(Protocol):
    """A tensor in a file, whose rows are read on access."""

    def get_shape(self) -> list[int]:
        """Return the shape of the tensor."""

    def get_dtype(self) -> str:
        """Return the name of the element type."""

    def __getitem__(self, rows: slice) -> Tensor:
        """Read these rows."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms by which an output is compared.

    Attributes:
        type: The type of the output, as in the model's manifest; ``operator`` for the output of an operator's case.
        tolerance: The absolute and the relative tolerance; None if the author declared none.
        threshold: The threshold of a score that alone decides between two classes.
        calls: Whether each call of a sample is a decision of its own.
        derived: Whether the prediction is made of outputs that may all differ, so that only its decisions can be
            compared.
    """

    type: str
    tolerance: tuple[float, float] | None = None
    threshold: float | None = None
    calls: bool = False
    derived: bool = False


_SHAPES = (".rows", ".shapes")
"""Suffixes of the tensors that hold the shape of each sample of an output whose samples differ in shape."""

_UNCOUNTED = ("detections", "operator")
"""Types whose first axis is not the sample."""
_UNNAMED = {"detections": Terms("detections")}
"""Predictions that several outputs make together, so that no output has their name."""


@dataclass(frozen=True, slots=True)
class PredictionAgreement:
    """The agreement of two sets of predictions.

    Attributes:
        agreement: The weakest agreement of an output; None if only the metrics can decide.
        reasons: A sentence on each output that is not bit-equal.
        samples: The number of samples; 0 if no output counts them.
        changed: For each k the number of samples whose k best classes differ, summed over the outputs with classes;
            a metric may move by as many samples.
    """

    agreement: Agreement | None
    reasons: tuple[str, ...]
    samples: int
    changed: Mapping[int, int]


@dataclass(slots=True)
class _Difference:
    """The differences of two tensors of one shape, summed up chunk by chunk.

    Attributes:
        values: The number of values.
        differing: The number of values whose bits differ.
        largest: The largest absolute difference.
        beyond: The number of values that differ by more than the tolerance.
        decisions: The number of samples, or of boxes, with another decision; None if the type has no decisions.
        undecided: The number of those samples with NaN.
        changed: For each k the number of samples whose k best classes differ.
    """

    values: int = 0
    differing: int = 0
    largest: float = 0.0
    beyond: int = 0
    decisions: int | None = 0
    undecided: int = 0
    changed: dict[int, int] = field(default_factory=lambda: dict.fromkeys(TOP, 0))

    def __str__(self) -> str:
        """Describe the number and the size of the differences."""
        largest = f"by {self.largest:.3g} at most" if math.isfinite(self.largest) else "some by a non-finite amount"
        return f"{self.differing} of {self.values} values differ, {largest}"


def compare_predictions(
    original: Path, again: Path, terms: Mapping[str, Terms], *, other_processor: bool
) -> PredictionAgreement:
    """Compare two safetensors files of predictions, one tensor per output with the sample as first axis.

    An output agrees bit for bit; or within its declared tolerance, ``|b - a| <= absolute + relative * |a|``; or, if
    none is declared and the processors differ, by its decisions: the class of a sample, or for detections the class and
    an overlap (IoU) of 0.99, in the order of the scores. Other outputs have no decisions. The weakest output decides.
    The files are read in chunks.

    Args:
        original: The predictions of the original run.
        again: The predictions of the new run.
        terms: The terms of each output.
        other_processor: Whether bits may differ because the processors do.
    """
    try:
        return _compare(original, again, terms, other_processor=other_processor)
    except SafetensorError as error:  # the file of an imported run is not trusted
        return PredictionAgreement("different", (f"cannot read the predictions: {error}",), 0, {})


def _compare(original: Path, again: Path, terms: Mapping[str, Terms], *, other_processor: bool) -> PredictionAgreement:
    agreement: Agreement | None = "bit-equal"
    reasons: list[str] = []
    changed = dict.fromkeys(TOP, 0)
    samples = 0
    with safe_open(original, "numpy") as left, safe_open(again, "numpy") as right:
        if set(left.keys()) != set(right.keys()):
            names = ", ".join(sorted(set(left.keys()) ^ set(right.keys())))
            return PredictionAgreement("different", (f"only one of the runs has the outputs {names}",), 0, changed)
        for name in sorted(left.keys()):
            a, b = left.get_slice(name), right.get_slice(name)
            output_terms = terms.get(name, _UNNAMED.get(name, Terms("tensor")))
            if output_terms.type not in _UNCOUNTED:
                samples = max(samples, *_find_sample_tensor(left, name).get_shape()[:1], 0)
            output_agreement, reason, changes = _judge(a, b, output_terms, other_processor=other_processor)
            agreement = max(agreement, output_agreement, key=_STRONGEST_FIRST.index)
            reasons += [f"output {name}: {reason}"] if reason else []
            changed = {k: count + changes.get(k, 0) for k, count in changed.items()}
    return PredictionAgreement(agreement, tuple(reasons), samples, changed)


def _find_sample_tensor(predictions: Any, name: str) -> _Slice:  # noqa: ANN401 - the library has no types
    """Return the tensor whose first axis is the sample; if samples differ in shape, the tensor of their shapes."""
    names = set(predictions.keys())
    tensor: _Slice = predictions.get_slice(next((f"{name}{end}" for end in _SHAPES if f"{name}{end}" in names), name))
    return tensor


def _judge(
    left: _Slice, right: _Slice, terms: Terms, *, other_processor: bool
) -> tuple[Agreement | None, str, Mapping[int, int]]:
    """Return the agreement of one output, the reason, and how many samples' best classes changed."""
    a, b = (f"{part.get_dtype()}{list(part.get_shape())}" for part in (left, right))
    if a != b:
        return "different", f"{a} became {b}", {}
    difference = _differences(left, right, terms)
    if not difference.differing:
        return "bit-equal", "", difference.changed
    if terms.tolerance is not None:
        if difference.beyond:
            return (
                "different",
                f"{difference}, {difference.beyond} of them beyond the declared tolerance",
                difference.changed,
            )
        return "within tolerance", f"{difference}, all within the declared tolerance", difference.changed
    if not other_processor and not terms.derived:
        return (
            "different",
            f"{difference}, on the same kind of processor, and no tolerance is declared",
            difference.changed,
        )
    return *_by_decisions(
        difference, "the processors differ" if other_processor else "the model's outputs may differ"
    ), difference.changed


def _by_decisions(difference: _Difference, why: str) -> tuple[Agreement | None, str]:
    if difference.decisions is None:
        advice = "no tolerance is declared, and it has no decisions to compare: the metrics decide"
        return None, f"{difference}; {why}, {advice}"
    if difference.decisions:
        suffix = "" if not difference.undecided else f" ({difference.undecided} cannot be compared, because of NaN)"
        return "different", f"{difference}, and {difference.decisions} decisions{suffix}"
    return "same decisions", f"{difference}; {why}, and every decision is the same"


def _differences(left: _Slice, right: _Slice, terms: Terms) -> _Difference:
    total = _Difference()
    for a, b in _read_chunks(left, right):
        total.values += a.size
        bits = [np.ascontiguousarray(piece).view(f"u{piece.itemsize}") for piece in (a, b)]
        differing = int(np.count_nonzero(bits[0] != bits[1]))
        if differing:
            total.differing += differing
            _add_amounts(total, a, b, terms)
            _add_decisions(total, a, b, terms)
    return total


def _read_chunks(left: _Slice, right: _Slice) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the same rows of both tensors, some megabytes at a time."""
    count, *rest = left.get_shape()
    rows = max(1, CHUNK_BYTES // max(1, 8 * math.prod(rest)))
    for start in range(0, count, rows):
        end = min(start + rows, count)
        yield left[start:end], right[start:end]


def _add_amounts(total: _Difference, a: Tensor, b: Tensor, terms: Terms) -> None:
    before, after = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.abs(after - before)
    gap[(before == after) | (np.isnan(before) & np.isnan(after))] = 0.0  # equal infinities, and pairs of NaN
    gap[np.isnan(gap)] = np.inf
    total.largest = max(total.largest, float(gap.max()))
    if terms.tolerance is not None:
        absolute, relative = terms.tolerance
        total.beyond += int(np.count_nonzero(np.isinf(gap) | (gap > absolute + relative * np.abs(before))))


def _add_decisions(total: _Difference, a: Tensor, b: Tensor, terms: Terms) -> None:
    if terms.type == "detections":
        assert total.decisions is not None
        total.decisions += int(np.count_nonzero(~_same_boxes(a, b)))
    elif terms.type in ("class-scores", "class-index"):
        undecided = np.isnan(_decided_rows(a, terms)).any(axis=1) | np.isnan(_decided_rows(b, terms)).any(axis=1)
        for k in TOP:
            left, right = (_best(tensor, k, terms) for tensor in (a, b))
            total.changed[k] += int(np.count_nonzero(np.any(left != right, axis=-1) | undecided))
        total.undecided += int(np.count_nonzero(undecided))
        total.decisions = total.changed[1]
    else:
        total.decisions = None


def _best(scores: Tensor, k: int, terms: Terms) -> Tensor:
    """Return the ``k`` best classes of each decision, sorted; ties go to the lowest index."""
    rows = _decided_rows(scores, terms)
    if terms.type == "class-index":
        return np.sort(rows[:, :k], axis=1)
    if rows.shape[1] == 1 and terms.threshold is not None:
        decisions: Tensor = rows >= terms.threshold
        return decisions
    best: Tensor = np.sort(np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :k], axis=1)
    return best


def _decided_rows(scores: Tensor, terms: Terms) -> Tensor:
    """Return the scores with one row for each decision."""
    if not terms.calls:
        return scores.reshape(len(scores), -1)
    return scores.reshape(-1, 1 if terms.threshold is not None or terms.type == "class-index" else scores.shape[-1])


def _same_boxes(a: Tensor, b: Tensor) -> Tensor:
    """Return for each row whether sample and class are equal and the boxes overlap by 0.99.

    Columns: sample, class, score, x1, y1, x2, y2.
    """
    left, right = a.astype(np.float64), b.astype(np.float64)
    corner, other = np.maximum(left[:, 3:5], right[:, 3:5]), np.minimum(left[:, 5:7], right[:, 5:7])
    common = np.prod(np.clip(other - corner, 0, None), axis=1)
    areas = [np.prod(box[:, 5:7] - box[:, 3:5], axis=1) for box in (left, right)]
    union = areas[0] + areas[1] - common
    overlapping = common >= _OVERLAP * union
    same: Tensor = np.all(left[:, :2] == right[:, :2], axis=1) & overlapping
    return same
