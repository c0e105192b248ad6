"""The agreement of two trainings: weights and losses bit by bit, or the numbers of epochs as distributions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from benchlock.evaluator.statistics.convergence import SIGNIFICANCE, Equivalence, compare_failures, judge_equivalence


@dataclass(frozen=True, slots=True)
class Training:
    """The repeats of a finished training: digests of weights, losses, and epochs; None where the target was missed."""

    weights: tuple[str, ...]
    losses: tuple[NDArray[np.float64], ...]
    epochs: tuple[float | None, ...]


def read_training(details: Any, samples: Path) -> Training:  # noqa: ANN401 - the details of a record
    """Read a training from the verified details of its record and the blob ``samples``.

    Raises:
        ValueError: They are malformed.
    """
    try:
        repeats, columns = details["training"]["repeats"], load_file(samples)
        return Training(
            tuple(str(repeat["weights"]) for repeat in repeats),
            tuple(columns[f"{number}/loss"] for number in range(len(repeats))),
            tuple(
                float(columns[f"{number}/evaluation"][-1][0]) if repeat["reached"] else None
                for number, repeat in enumerate(repeats)
            ),
        )
    except (SafetensorError, OSError, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"cannot read the training: {error}") from error


def find_different_bits(original: Training, again: Training) -> str | None:
    """Return the first repeat whose weights or losses differ, with the first different step; None if all are equal."""
    for number, losses in enumerate(zip(original.losses, again.losses, strict=True)):
        step = _find_different_step(losses)
        if step is not None:
            values = ", ".join(f"{loss[step]!r}" if step < len(loss) else "none" for loss in losses)
            return f"repeat {number}: the losses differ from step {step} on ({values})"
        if original.weights[number] != again.weights[number]:
            return f"repeat {number}: the weights differ, although all losses are equal"
    return None


def _find_different_step(losses: Sequence[NDArray[np.float64]]) -> int | None:
    first, second = (loss.view(np.int64) for loss in losses)
    shared = min(len(first), len(second))
    different = np.flatnonzero(first[:shared] != second[:shared])
    if different.size:
        return int(different[0])
    return None if len(first) == len(second) else shared


@dataclass(frozen=True, slots=True)
class DistributionAgreement:
    """The agreement of the numbers of epochs; ``reason`` is a sentence."""

    answer: str
    reason: str


def compare_distributions(original: Training, again: Training, margin: float) -> DistributionAgreement:
    """Compare the numbers of epochs of two trainings.

    Args:
        original: The original training.
        again: The new one.
        margin: The relative difference of the numbers of epochs that counts as none.

    Returns:
        ``equivalent``, ``different`` or ``inconclusive``, with the number of repeats that would decide. It is never
        ``equivalent`` if a repeat missed the target, because its number of epochs is unknown.
    """
    reached = [[epochs for epochs in side.epochs if epochs is not None] for side in (original, again)]
    failed = [len(side.epochs) - len(values) for side, values in zip((original, again), reached, strict=True)]
    counts = f"{failed[0]} of {len(original.epochs)} and {failed[1]} of {len(again.epochs)} repeats missed the target"
    p = compare_failures((failed[0], len(original.epochs)), (failed[1], len(again.epochs)))
    if p < SIGNIFICANCE:
        return DistributionAgreement("different", f"{counts} (Fisher's test, p = {p:.2g})")
    result = judge_equivalence(reached[0], reached[1], margin)
    if result.answer == "equivalent" and any(failed):
        reason = f"{counts}, so their epochs_to_quality are unknown; of the others {_describe(result, margin)}"
        return DistributionAgreement("inconclusive", reason)
    return DistributionAgreement(result.answer, _describe(result, margin))


def _describe(result: Equivalence, margin: float) -> str:
    if result.ratio is None or result.ratio.value is None or result.ratio.narrow.low is None:
        return "too few repeats reached the target: at least 2 a side are needed"
    low, high = result.ratio.narrow.low, result.ratio.narrow.high
    ends = f"{result.ratio.value:.3g}, 90 % interval [{low:.3g}, {high:.3g}]"
    allowed = f"{1 / (1 + margin):.3g} to {1 + margin:.3g}"
    text = f"the ratio of epochs_to_quality is {ends}; the margin allows {allowed}"
    if result.answer != "inconclusive":
        return text
    needed = "more than 1000" if result.needed is None else f"about {result.needed}"
    return f"{text}: {needed} repeats a side would decide"
