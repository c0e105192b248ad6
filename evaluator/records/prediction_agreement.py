"""Agreement of two runs' predictions: bit for bit, within tolerance, or by decision."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

Agreement = Literal["bit-equal", "within tolerance", "same decisions", "different"]

TOP = (1, 5)
_PIECE = 16 << 20
_OVERLAP = 0.99
_FROM_STRONGEST: tuple[Agreement | None, ...] = ("bit-equal", "within tolerance", "same decisions", None, "different")

Tensor = npt.NDArray[Any]


class _Slice(Protocol):
    """A tensor in a file, of which rows are read when they are asked for."""

    def get_shape(self) -> list[int]: ...
    def get_dtype(self) -> str: ...
    def __getitem__(self, rows: slice) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Terms:
    """What an output is judged by. ``tolerance`` is (absolute, relative), None where the author declared none.

    ``calls`` says that each call of a sample is a decision of its own; ``derived`` that the prediction is made of
    outputs that may all differ, so that its decisions are what is left to compare.
    """

    type: str
    tolerance: tuple[float, float] | None = None
    threshold: float | None = None
    calls: bool = False
    derived: bool = False


_SHAPES = (".rows", ".shapes")
"""What the harness keeps beside outputs whose samples differ in shape: the shape of each."""

_UNNAMED = {"detections": Terms("detections")}
"""What several outputs make together, and none of them is called."""


@dataclass(frozen=True, slots=True)
class PredictionAgreement:
    """How far two sets of predictions agree; ``reasons`` names each output that is not bit-equal.

    ``agreement`` is None where nothing but the metrics can decide; ``samples`` is 0 where no output counts them.
    ``changed`` maps k to the number of samples whose k best classes are others, summed over the outputs that have
    classes: by so many samples a metric may move.
    """

    agreement: Agreement | None
    reasons: tuple[str, ...]
    samples: int
    changed: Mapping[int, int]


@dataclass(slots=True)
class _Difference:
    """What two tensors of one shape differ by, summed up piece by piece.

    ``beyond`` counts the values that differ by more than the tolerance, ``decisions`` the samples (of detections, the
    boxes) that were decided otherwise; None where the type has no decisions. ``undecided`` of them have NaN.
    """

    values: int = 0
    differing: int = 0
    largest: float = 0.0
    beyond: int = 0
    decisions: int | None = 0
    undecided: int = 0
    changed: dict[int, int] = field(default_factory=lambda: dict.fromkeys(TOP, 0))

    def __str__(self) -> str:
        largest = f"by {self.largest:.3g} at most" if math.isfinite(self.largest) else "some by no finite amount"
        return f"{self.differing} of {self.values} values differ, {largest}"


def compare_predictions(
    original: Path, again: Path, terms: Mapping[str, Terms], *, other_processor: bool
) -> PredictionAgreement:
    """Compare two safetensors files with a tensor an output, first axis the sample; in memory is a piece at a time.

    An output agrees bit for bit; or within its declared tolerance, ``|b - a| <= absolute + relative * |a|``; or, where
    none is declared and ``other_processor`` says that bits may differ, by its decisions: the class of a sample, for
    detections the class and an overlap (IoU) of 0.99, in the order of the scores. Other outputs have no decisions. The
    weakest output decides.
    """
    from safetensors import SafetensorError  # noqa: PLC0415 - only a verdict opens predictions

    try:
        return _compare(original, again, terms, other_processor=other_processor)
    except SafetensorError as error:  # of an imported run: whoever made the record says what they like
        return PredictionAgreement("different", (f"what is kept as predictions cannot be read: {error}",), 0, {})


def _compare(original: Path, again: Path, terms: Mapping[str, Terms], *, other_processor: bool) -> PredictionAgreement:
    from safetensors import safe_open  # noqa: PLC0415 - see above

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
            judged = terms.get(name, _UNNAMED.get(name, Terms("tensor")))
            if judged.type != "detections":  # whose first axis is not the sample
                samples = max(samples, *_counting(left, name).get_shape()[:1], 0)
            found, reason, moved = _judge(a, b, judged, other_processor=other_processor)
            agreement = max(agreement, found, key=_FROM_STRONGEST.index)
            reasons += [f"output {name}: {reason}"] if reason else []
            changed = {k: count + moved.get(k, 0) for k, count in changed.items()}
    return PredictionAgreement(agreement, tuple(reasons), samples, changed)


def _counting(predictions: Any, name: str) -> _Slice:  # noqa: ANN401 - the library has no types
    """The tensor whose first axis is the sample: where samples differ in shape, the one with their shapes."""
    names = set(predictions.keys())
    tensor: _Slice = predictions.get_slice(next((f"{name}{end}" for end in _SHAPES if f"{name}{end}" in names), name))
    return tensor


def _judge(
    left: _Slice, right: _Slice, terms: Terms, *, other_processor: bool
) -> tuple[Agreement | None, str, Mapping[int, int]]:
    """The agreement of one output, why it is no better, and how many samples' best classes changed."""
    a, b = (f"{part.get_dtype()}{list(part.get_shape())}" for part in (left, right))
    if a != b:
        return "different", f"{a} became {b}", {}
    found = _differences(left, right, terms)
    if not found.differing:
        return "bit-equal", "", found.changed
    if terms.tolerance is not None:
        if found.beyond:
            return "different", f"{found}, {found.beyond} of them beyond the declared tolerance", found.changed
        return "within tolerance", f"{found}, all within the declared tolerance", found.changed
    if not other_processor and not terms.derived:
        return "different", f"{found}, on the same kind of processor, and no tolerance is declared", found.changed
    return *_by_decisions(found, "the processors differ" if other_processor else "its outputs may"), found.changed


def _by_decisions(found: _Difference, why: str) -> tuple[Agreement | None, str]:
    if found.decisions is None:
        word = "no tolerance is declared, and it has no decisions to compare: the metrics decide"
        return None, f"{found}; {why}, {word}"
    if found.decisions:
        more = "" if not found.undecided else f" ({found.undecided} cannot be compared, because of NaN)"
        return "different", f"{found}, and {found.decisions} decisions{more}"
    return "same decisions", f"{found}; {why}, and every decision is the same"


def _differences(left: _Slice, right: _Slice, terms: Terms) -> _Difference:
    total = _Difference()
    for a, b in _pieces(left, right):
        total.values += a.size
        bits = [np.ascontiguousarray(piece).view(f"u{piece.itemsize}") for piece in (a, b)]
        differing = int(np.count_nonzero(bits[0] != bits[1]))
        if differing:
            total.differing += differing
            _add_amounts(total, a, b, terms)
            _add_decisions(total, a, b, terms)
    return total


def _pieces(left: _Slice, right: _Slice) -> Iterator[tuple[Tensor, Tensor]]:
    """The same rows of both, some megabytes at a time."""
    count, *rest = left.get_shape()
    rows = max(1, _PIECE // max(1, 8 * math.prod(rest)))
    for start in range(0, count, rows):
        end = min(start + rows, count)
        yield left[start:end], right[start:end]


def _add_amounts(total: _Difference, a: Tensor, b: Tensor, terms: Terms) -> None:
    before, after = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.abs(after - before)
    gap[(before == after) | (np.isnan(before) & np.isnan(after))] = 0.0  # equal infinities, and two that are no number
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
    """The ``k`` best classes of each sample, or of each call, as a set (sorted), ties to the lowest index."""
    rows = _decided_rows(scores, terms)
    if terms.type == "class-index":
        return np.sort(rows[:, :k], axis=1)
    if rows.shape[1] == 1 and terms.threshold is not None:
        decisions: Tensor = rows >= terms.threshold
        return decisions
    best: Tensor = np.sort(np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :k], axis=1)
    return best


def _decided_rows(scores: Tensor, terms: Terms) -> Tensor:
    """Return the scores with a row for each decision."""
    if not terms.calls:
        return scores.reshape(len(scores), -1)
    return scores.reshape(-1, 1 if terms.threshold is not None or terms.type == "class-index" else scores.shape[-1])


def _same_boxes(a: Tensor, b: Tensor) -> Tensor:
    """Row by row (sample, class, score, x1, y1, x2, y2): the same sample and class, and boxes that overlap by 0.99."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    corner, other = np.maximum(left[:, 3:5], right[:, 3:5]), np.minimum(left[:, 5:7], right[:, 5:7])
    common = np.prod(np.clip(other - corner, 0, None), axis=1)
    areas = [np.prod(box[:, 5:7] - box[:, 3:5], axis=1) for box in (left, right)]
    union = areas[0] + areas[1] - common
    overlapping = common >= _OVERLAP * union
    same: Tensor = np.all(left[:, :2] == right[:, :2], axis=1) & overlapping
    return same
