"""The agreement of two trainings: weights and losses bit by bit, or the numbers of epochs as distributions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from benchlock.artifacts.blob_store import FileStore, verify
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.records.comparison_types import ConvergenceTest, MlperfCheck
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.statistics.convergence import (
    FEWEST_OLYMPIC,
    SIGNIFICANCE,
    Equivalence,
    compare_failures,
    find_convergence_point,
    find_permutation_p,
    find_welch_p,
    judge_equivalence,
    olympic_mean,
)
from benchlock.evaluator.statistics.equivalence import ratio

_SAMPLES = "samples"
_FEWEST = 2
_LARGEST = 256 << 20


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


def load_training(run: Run, store: FileStore) -> Training:
    """Return the training of a done run.

    Raises:
        IntegrityError: Its samples do not match their digest.
        InvalidInputError: They are missing or malformed.
    """
    assert run.end is not None
    try:
        blob = run.end.blobs[_SAMPLES]
        if blob.size <= _LARGEST:
            verify(store, blob.digest, name=f"{run.id} {_SAMPLES}", size=blob.size)
            return read_training(run.end.details, store.path(blob.digest))
    except (ValueError, KeyError) as error:
        raise InvalidInputError(f"{run.id}: {error}", where=run.id, next_step="choose another run") from error
    what = f"{run.id}: its samples have {blob.size} bytes; the maximum is {_LARGEST}"
    raise InvalidInputError(what, where=run.id, next_step="choose another run")


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


@dataclass(frozen=True, slots=True)
class TrainedLock:
    """A lock with the trainings of its runs."""

    lock: Digest
    trainings: tuple[Training, ...]

    @property
    def epochs(self) -> list[float | None]:
        """Return the epochs of the repeats; repeats with equal weights are one training and count once."""
        pairs = (pair for training in self.trainings for pair in zip(training.weights, training.epochs, strict=True))
        return list(dict(pairs).values())


def compare_speed(reference: TrainedLock, other: TrainedLock) -> ConvergenceTest:
    """Test whether the trainings of one lock need fewer epochs than those of another, over all repeats.

    Welch's test of the logarithms decides, at 5 % in either direction. A repeat that missed the target has no number of
    epochs, so with one of them only the shares that missed it are compared.
    """
    sides = [reference.epochs, other.epochs]
    first, second = ([epochs for epochs in side if epochs is not None] for side in sides)
    repeats = (len(sides[0]), len(sides[1]))
    missed = (repeats[0] - len(first), repeats[1] - len(second))
    speed = ConvergenceTest(
        lock=other.lock, against=reference.lock, answer="undecided", repeats=repeats, missed=missed, reason=""
    )
    if any(missed):
        p = compare_failures((missed[0], repeats[0]), (missed[1], repeats[1]))
        reason = (
            f"{missed[1]} of {repeats[1]} repeats missed the target, of the reference {missed[0]} of {repeats[0]} "
            f"(Fisher's test, p = {p:.2g}), so their epochs are unknown"
        )
        return replace(speed, reason=reason)
    if min(repeats) < _FEWEST:
        return replace(speed, reason="at least 2 different repeats a side are needed; equal weights count once")
    return _test_epochs(speed, first, second)


def _test_epochs(speed: ConvergenceTest, reference: Sequence[float], other: Sequence[float]) -> ConvergenceTest:
    logarithms = [[math.log(epochs) for epochs in side] for side in (reference, other)]
    welch, permutation = (find_p(logarithms[0], logarithms[1]) for find_p in (find_welch_p, find_permutation_p))
    quotient = ratio(reference, other, paired=False)
    assert quotient is not None  # epochs are positive
    assert quotient.value is not None
    ends = f"95 % interval [{quotient.ci.low:.3g}, {quotient.ci.high:.3g}]"
    reason = (
        f"{quotient.value:.3g} times the epochs, {ends}, {len(other)} repeats against {len(reference)}; "
        f"that it needs fewer: Welch's test p = {welch:.2g}, permutation test p = {permutation:.2g}"
    )
    return replace(
        speed,
        answer="fewer epochs" if welch < SIGNIFICANCE else "more epochs" if welch > 1 - SIGNIFICANCE else "undecided",
        ratio=quotient.value,
        interval=quotient.ci,
        welch_p=welch,
        permutation_p=permutation,
        mlperf=_check_by_mlperf(reference, other) if min(speed.repeats) >= FEWEST_OLYMPIC else None,
        reason=reason,
    )


def _check_by_mlperf(reference: Sequence[float], runs: Sequence[float]) -> MlperfCheck:
    mean, point = olympic_mean(runs), find_convergence_point(reference, len(runs))
    assert mean is not None
    return MlperfCheck(mean=mean, reference=point.mean, cut=point.cut, too_fast=mean < point.cut)


def describe_mlperf(speed: ConvergenceTest) -> str:
    """Describe MLPerf's check of a comparison in a sentence, with its true level."""
    check = speed.mlperf
    if check is None:
        return f"MLPerf's check needs {FEWEST_OLYMPIC} repeats a side that reach the target"
    answer = "converges too fast" if check.too_fast else "passes"
    return (
        f"MLPerf's check: {answer}: olympic mean {check.mean:.4g} epochs, least admitted {check.cut:.4g} for the "
        f"reference's {check.reference:.4g}; it rejects equal trainings in "
        "8 to 22 % of cases, by the numbers of repeats, not in its nominal 5 %"
    )
