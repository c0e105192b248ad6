"""The repeats of a training with their curves, from its stored samples and predictions, in a child process."""

import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from benchlock.artifacts.blob_store import BlobStore, verify
from benchlock.artifacts.digest import Descriptor
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.isolation.child_process import CallerBlobs
from benchlock.artifacts.isolation.isolated_calls import run_isolated
from benchlock.artifacts.isolation.resource_limits import IsolatedFaultError, Limits
from benchlock.evaluator.evidence.prediction_scores import LARGEST_PREDICTIONS, lay_labels, lay_out, open_workspace
from benchlock.evaluator.evidence.timed_phases import LARGEST_SAMPLES
from benchlock.evaluator.evidence.training_evidence import RepeatResult, read_repeats
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.registry.lock.lockfile import Lock, dump, load

LIMITS: Final = Limits(memory=4 << 30, cpu_seconds=120, seconds=60.0, files=64, result=4 << 20)
_LARGEST: Final = {"samples": LARGEST_SAMPLES, "predictions": LARGEST_PREDICTIONS}
_TASK: Final = "the curves of the training"
_NEXT: Final = "read the samples and the labels on your own machine"


class Repeat(msgspec.Struct, frozen=True):
    """A repeat of a training.

    Attributes:
        seed: Its seed.
        weights: The digest of its final weights.
        epochs: The epoch that reached the target; None if none did. The same holds for both times.
        seconds: The seconds until then.
        cpu_seconds: The CPU seconds until then.
        quality: The quality of the final weights.
        curve: The epoch and the quality of each evaluation.
    """

    seed: int
    weights: str
    epochs: float | None
    seconds: float | None
    cpu_seconds: float | None
    quality: float
    curve: tuple[tuple[int, float], ...]


def read_curves(lock: Lock, run: Run, store: BlobStore) -> tuple[Repeat, ...]:
    """Return the repeats of a training with their curves.

    Args:
        lock: The lock of the run, of a recipe.
        run: A verified run.
        store: The store with the samples, the predictions, the manifests and the labels.

    Raises:
        IntegrityError: A file is missing or damaged.
        InvalidInputError: A file is too large or malformed, or the labels cannot be read here.
        IsolatedFaultError: The child process failed in an unexpected way.
    """
    assert run.end is not None
    blobs = [run.end.blobs.get(role) for role in _LARGEST]
    stated = run.end.details.get("training", {}).get("repeats", [])
    for (role, largest), blob in zip(_LARGEST.items(), blobs, strict=True):
        if blob is None or blob.size > largest:
            raise InvalidInputError(
                f"the run has no {role} of at most {largest} bytes", where=run.id, next_step="choose another run"
            )
    measured = _read(_Source(lock, store), *(blob for blob in blobs if blob is not None))
    try:
        facts = [{"seed": each["seed"], "weights": each["weights"]} for each in stated]
        return msgspec.convert([{**a, **b} for a, b in zip(facts, measured, strict=True)], tuple[Repeat, ...])
    except (KeyError, TypeError, ValueError) as error:
        raise IsolatedFaultError(f"{_TASK} have malformed values: {error}", next_step=_NEXT) from error


class _Source:
    """A lock with the store of its files; two of one lock are equal, as equal digests name equal bytes."""

    def __init__(self, lock: Lock, store: BlobStore) -> None:
        self.lock, self.store = lock, store

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Source) and self.lock.id == other.lock.id

    def __hash__(self) -> int:
        return hash(self.lock.id)


@lru_cache(32)
def _read(source: _Source, samples: Descriptor, predictions: Descriptor) -> Any:  # noqa: ANN401 - plain values
    with open_workspace(None) as folder:
        for role, blob in (("samples", samples), ("predictions", predictions)):
            verify(source.store, blob.digest, name=f"the {role} of the run", size=blob.size)
            lay_out(source.store, blob, folder / role)
        lay_labels(source.lock, read_manifests(source.lock, source.store), source.store, folder / "dataset")
        arguments = {"lock": dump(source.lock), "folder": str(folder.absolute())}
        return run_isolated(f"{__name__}:read_laid_out", arguments, limits=LIMITS, subject=_TASK, blobs=source.store)


def read_laid_out(arguments: Mapping[str, Any], blobs: CallerBlobs) -> Any:  # noqa: ANN401 - plain values
    """Read the repeats from laid-out files in a child process; return them as plain values."""
    lock, folder = load(arguments["lock"], "the lock of the run"), Path(arguments["folder"])
    files = {role: folder / role for role in _LARGEST}
    return [_encode(result) for result in read_repeats(lock, read_manifests(lock, blobs), files, folder / "dataset")]


def _encode(result: RepeatResult) -> dict[str, Any]:
    """Return a repeat as plain values; what a missed target leaves infinite is None."""
    values = {name: getattr(result, name) for name in ("epochs", "seconds", "cpu_seconds")}
    reached = {name: value if math.isfinite(value) else None for name, value in values.items()}
    return {**reached, "quality": result.quality, "curve": result.curve}
