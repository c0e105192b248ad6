"""Quality of stored predictions, computed by the harness's own definition; no model is needed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET

from benchlock.artifacts.digest import Descriptor, from_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.store import BlobStore, bring
from benchlock.artifacts.trees import iterate_tree
from benchlock.evaluator.evidence.workspace import lay_out
from benchlock.evaluator.harness.failures import Failure
from benchlock.evaluator.harness.job import Job
from benchlock.evaluator.harness.reading import parse_job
from benchlock.evaluator.harness.scoring import Score, score
from benchlock.evaluator.runner.jobs import job_document
from benchlock.evaluator.runner.stages import harness_version
from benchlock.registry.lockfile import Lock
from benchlock.registry.manifests import Dataset, Manifest, Model, plain
from benchlock.registry.metrics import is_quality
from benchlock.registry.names import Kind

LARGEST_PREDICTIONS: Final = 2 << 30
_OF_FILES: Final = ("image-index", "wav-index", "coco")
"""Formats whose samples are files of their own, which labels do not need."""
FIRST_FINITE: Final = (1, 3)
"""The first version of the harness that refuses NaN and infinities. Older ones ranked NaN below all numbers."""
_SEGMENTATION: Final = "semantic-segmentation"


class NonFiniteError(InvalidInputError):
    """Predictions have NaN or infinities, which the manifest of the model does not allow."""


class UnreadableLabelsError(InvalidInputError):
    """The labels of a dataset cannot be read in this process: a library is missing, for example."""


_ERRORS: Final[Mapping[str, type[InvalidInputError]]] = {"load": UnreadableLabelsError, "non-finite": NonFiniteError}


def score_predictions(
    lock: Lock, manifests: Mapping[Kind, Manifest], files: Mapping[str, Path], folder: Path
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Compare the predictions of a run with the labels of the dataset.

    Args:
        lock: Says which metrics and which split.
        manifests: Those of the lock.
        files: The files of the run's blobs, by role.
        folder: Has the files of the dataset that have labels, as ``lay_labels`` lays them out.

    Returns:
        By metric ``n`` with ``correct`` or ``value``, and what each sample adds to a metric that is no count.

    Raises:
        InvalidInputError: The predictions are missing or malformed.
        NonFiniteError: They have NaN or infinities.
        MemoryError: They do not fit into the memory of this process.
        UnreadableLabelsError: The labels cannot be read here.
    """
    if not any(map(is_quality, lock.metrics)):
        return {}, {}
    if "predictions" not in files:
        raise InvalidInputError("the harness left no predictions")
    found = score_samples(lock, manifests, files["predictions"], folder)
    return found.quality, found.measures


def score_samples(lock: Lock, manifests: Mapping[Kind, Manifest], predictions: Path, folder: Path) -> Score:
    """Compare the predictions of a run with the labels of the dataset, sample by sample.

    Args:
        lock: Says which metrics and which split.
        manifests: Those of the lock.
        predictions: The file of the predictions.
        folder: Has the files of the dataset that have labels, as ``lay_labels`` lays them out.

    Raises:
        InvalidInputError, NonFiniteError, MemoryError, UnreadableLabelsError: As ``score_predictions``.
    """
    job: Job = parse_job(job_document(lock, "cpu", manifests))
    try:
        return score(job, folder, predictions, admits_non_finite=harness_version(lock) < FIRST_FINITE)
    except Failure as error:
        if error.kind == "out-of-memory":  # of this process: it says nothing of the predictions
            raise MemoryError from error
        raise _ERRORS.get(error.kind, InvalidInputError)(error.message) from error


def list_label_files(lock: Lock, manifests: Mapping[Kind, Manifest], store: BlobStore) -> list[tuple[str, Descriptor]]:
    """Return the path and the blob of each file of the dataset that has labels.

    Raises:
        IntegrityError: The listing of a tree is missing.
    """
    dataset, model = manifests["dataset"], manifests["model"]
    assert isinstance(dataset, Dataset)
    assert isinstance(model, Model)
    named = _named_files(dataset, lock.dataset.split) if _reads_one_file(dataset, model) else None
    return [entry for entry in _entries(lock, store) if named is None or entry[0] in named]


def lay_labels(lock: Lock, manifests: Mapping[Kind, Manifest], store: BlobStore, folder: Path) -> None:
    """Lay out the files of the dataset that have labels in ``folder``.

    Raises:
        IntegrityError: One is missing.
    """
    entries = list_label_files(lock, manifests, store)
    bring(store, (blob for _, blob in entries))
    for path, blob in entries:
        lay_out(store, blob, folder / path)


def _reads_one_file(dataset: Dataset, model: Model) -> bool:
    """Return whether the labels are in the files that the split names, and not in a file for each sample."""
    return dataset.format in _OF_FILES and model.task != _SEGMENTATION


def _named_files(dataset: Dataset, split: str) -> set[str]:
    named = {value for value in plain(dataset.splits[split]).values() if isinstance(value, str)}
    return named if dataset.labels is UNSET else {*named, dataset.labels}


def _entries(lock: Lock, store: BlobStore) -> Iterator[tuple[str, Descriptor]]:
    """Yield the path and the blob of every file of the dataset."""
    for file in lock.dataset.files:
        blob = Descriptor(from_hex(file.sha256), file.size)
        if not file.path.endswith("/"):
            yield file.path, blob
            continue
        for entry in iterate_tree(store, blob, name=f"the dataset's {file.path}"):
            yield f"{file.path}{entry.path}", Descriptor(entry.digest, entry.size)
