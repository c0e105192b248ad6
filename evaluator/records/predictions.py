"""Holding the predictions of two runs against each other: bit for bit, within a tolerance, or by their decisions."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Agreement = Literal["bit-equal", "within tolerance", "same decisions", "different"]
ORDER: tuple[Agreement, ...] = ("bit-equal", "within tolerance", "same decisions", "different")
"""From the strongest to none."""

TOP = (1, 5)
Tensor = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Terms:
    """What an output is judged by. ``tolerance`` is (absolute, relative), None where the author declared none."""

    type: str
    tolerance: tuple[float, float] | None = None
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Agreed:
    """How far two sets of predictions agree; ``reasons`` names each output that is not bit-equal.

    ``changed`` maps k to the number of samples whose k best classes are others, summed over the outputs that have
    classes: by so many samples a quality metric may move.
    """

    agreement: Agreement
    reasons: tuple[str, ...]
    samples: int
    changed: Mapping[int, int]


def compare_predictions(original: Path, again: Path, terms: Mapping[str, Terms], *, other_processor: bool) -> Agreed:
    """Compare two safetensors files with a tensor an output, first axis the sample.

    An output agrees bit for bit; or within its declared tolerance, ``|b - a| <= absolute + relative * |a|``; or, where
    none is declared and ``other_processor`` says that bits may differ, by its decisions. The weakest output decides.
    """
    from safetensors import safe_open  # noqa: PLC0415 - only a verdict opens predictions

    agreement: Agreement = "bit-equal"
    reasons: list[str] = []
    changed = dict.fromkeys(TOP, 0)
    samples = 0
    with safe_open(original, "numpy") as left, safe_open(again, "numpy") as right:
        if set(left.keys()) != set(right.keys()):
            return Agreed("different", ("the runs have other outputs",), 0, changed)
        for name in sorted(left.keys()):
            a, b = left.get_tensor(name), right.get_tensor(name)
            judged = terms.get(name, Terms("tensor"))
            found, reason = _judge(a, b, judged, other_processor=other_processor)
            agreement = max(agreement, found, key=ORDER.index)
            samples = max(samples, len(a))
            if reason:
                reasons.append(f"output {name}: {reason}")
            if found != "different" and judged.type == "class-scores":
                changed = {k: count + _changed(a, b, k, judged) for k, count in changed.items()}
    return Agreed(agreement, tuple(reasons), samples, changed)


def _judge(a: Tensor, b: Tensor, terms: Terms, *, other_processor: bool) -> tuple[Agreement, str]:
    if a.shape != b.shape or a.dtype != b.dtype:
        return "different", f"{a.dtype}{list(a.shape)} became {b.dtype}{list(b.shape)}"
    if a.tobytes() == b.tobytes():
        return "bit-equal", ""
    largest = float(np.max(np.abs(b.astype(np.float64) - a.astype(np.float64))))
    apart = f"{int(np.count_nonzero(a != b))} of {a.size} values differ, by {largest:.3g} at most"
    if terms.tolerance is not None:
        absolute, relative = terms.tolerance
        within = np.allclose(b, a, rtol=relative, atol=absolute)
        agreement: Agreement = "within tolerance" if within else "different"
        return agreement, f"{apart}, {'within' if within else 'more than'} the declared tolerance"
    return _by_decisions(a, b, terms, apart, other_processor=other_processor)


def _by_decisions(a: Tensor, b: Tensor, terms: Terms, apart: str, *, other_processor: bool) -> tuple[Agreement, str]:
    """Where no tolerance is declared: other bits are forgiven to another processor that decides the same."""
    if not other_processor:
        return "different", f"{apart}, on the same kind of processor, and no tolerance is declared"
    if terms.type not in ("class-scores", "class-index"):
        return "different", f"{apart}, no tolerance is declared, and a {terms.type} has no decisions to compare"
    flipped = _changed(a, b, 1, terms)
    if flipped:
        return "different", f"{apart}, and {flipped} of {len(a)} decisions"
    return "same decisions", f"{apart}; the processors differ, and every decision is the same"


def _changed(a: Tensor, b: Tensor, k: int, terms: Terms) -> int:
    """Samples whose ``k`` best classes differ, ties to the lowest index."""
    left, right = (_best(tensor, k, terms) for tensor in (a, b))
    return int(np.count_nonzero(np.any(left != right, axis=-1)))


def _best(scores: Tensor, k: int, terms: Terms) -> Tensor:
    if terms.type == "class-index":
        return scores.reshape(len(scores), -1)
    rows = scores.reshape(len(scores), -1)
    if rows.shape[1] == 1 and terms.threshold is not None:
        decisions: Tensor = rows >= terms.threshold
        return decisions
    best: Tensor = np.sort(np.argsort(-rows.astype(np.float64), axis=1, kind="stable")[:, :k], axis=1)
    return best
