"""The samples that a run predicted worst, from its stored predictions and the labels, in a child process."""

import math
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock as Mutex
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchlock.artifacts.blob_store import BlobStore, verify
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.isolation.child_process import CallerBlobs
from benchlock.artifacts.isolation.isolated_calls import run_isolated
from benchlock.artifacts.isolation.resource_limits import IsolatedFaultError, Limits
from benchlock.evaluator.evidence.prediction_scores import (
    LARGEST_PREDICTIONS,
    lay_labels,
    lay_out,
    open_workspace,
    score_samples,
)
from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job import UNDECIDED, Job, Output
from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.harness.datasets import Label, open_samples
from benchlock.evaluator.harness.datasets.samples import resolve_inside
from benchlock.evaluator.harness.inference.predictions import StoredPredictions
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.runner.job_folder import job_document
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.registry.lock.lockfile import Lock, dump, load
from benchlock.registry.manifests.metric_definitions import is_quality

MOST_LISTED: Final = 1_000
"""The greatest number of samples of a list."""
LONGEST_NAME: Final = 200
"""The greatest number of characters of a sample's or a class's name; longer ones are cut."""
LIMITS: Final = Limits(memory=4 << 30, cpu_seconds=120, seconds=60.0, files=64, result=2 << 20)
_CACHED: Final = 16
_OF_CLASSES: Final = ("class-scores", "class-index")
_NOT_SINGLE: Final = "A sample has no single class or number, so none is right or wrong as a whole."
_TASK: Final = "the list of wrong samples"
_NEXT: Final = "read the predictions and the labels on your own machine"
_RETRY: Final = 300.0
"""The seconds until a comparison that failed is tried again: each attempt may take a minute."""
_recent: "OrderedDict[tuple[Digest, Digest], tuple[WrongSamples, float]]" = OrderedDict()
_mutex: Final = Mutex()


class WrongSample(NamedTuple):
    """A sample whose prediction differs from its label.

    ``place`` is the index of the sample in its split. Classes are named where the dataset names them. ``predicted`` is
    None where the model decided nothing. ``score`` is the score of the predicted class, None without scores; of
    numbers it is the absolute error. ``label_score`` is the score of the label; None without a score of its own.
    """

    place: int
    name: str
    expected: int | float | str
    predicted: int | float | str | None
    score: float | None
    label_score: float | None = None


class WrongSamples(msgspec.Struct, frozen=True):
    """The samples that a run predicted worst.

    Attributes:
        samples: The worst samples first, at most ``MOST_LISTED``.
        wrong: The number of all of them.
        total: The number of samples of the split.
        has_classes: Whether predictions are classes; otherwise numbers.
        reason: Why they cannot be listed; empty if they are.
    """

    samples: tuple[WrongSample, ...] = ()
    wrong: int = 0
    total: int = 0
    has_classes: bool = True
    reason: str = ""


def find_wrong_samples(lock: Lock, run: Run, store: BlobStore, scratch: Path | None) -> WrongSamples:
    """Return the samples that a run predicted worst, or the reason why they cannot be listed.

    Args:
        lock: The lock of the run.
        run: A verified run.
        store: The store with the predictions, the manifests and the labels.
        scratch: A folder on the store's file system for temporary files; None for any folder.

    Raises:
        IsolatedFaultError: The comparison failed in an unexpected way.
    """
    blob = None if run.end is None else run.end.blobs.get("predictions")
    if blob is None or (reason := _find_obstacle(lock, blob, store)):
        return WrongSamples(reason="The run stored no predictions." if blob is None else reason)
    key = (lock.id, blob.digest)
    with _mutex:
        if (cached := _recent.get(key)) is not None and time.monotonic() < cached[1]:
            return cached[0]
    until = math.inf
    try:
        listed = _compare(lock, blob, store, scratch)
    except (IntegrityError, InvalidInputError) as error:  # no labels, a missing file, a limit, a missing library
        listed = WrongSamples(reason=f"The samples cannot be compared here: {error.what}.")
        until = time.monotonic() + _RETRY
    with _mutex:
        _recent[key] = (listed, until)
        while len(_recent) > _CACHED:
            _recent.popitem(last=False)
    return listed


def _find_obstacle(lock: Lock, blob: Descriptor, store: BlobStore) -> str:
    """Return why predictions cannot be compared with labels; empty if they can."""
    if not any(map(is_quality, lock.metrics)):
        return "The request has no quality metric, so no prediction was compared with a label."
    if blob.size > LARGEST_PREDICTIONS:
        return f"The predictions have {blob.size} bytes; the maximum is {LARGEST_PREDICTIONS}."
    return "" if store.exists(blob.digest) else "The predictions of the run are missing from the store."


def _compare(lock: Lock, blob: Descriptor, store: BlobStore, scratch: Path | None) -> WrongSamples:
    with open_workspace(scratch) as folder:
        verify(store, blob.digest, name="the predictions of the run", size=blob.size)
        lay_out(store, blob, folder / "predictions")
        lay_labels(lock, read_manifests(lock, store), store, folder / "dataset")
        arguments = {
            "lock": dump(lock),
            "predictions": str((folder / "predictions").absolute()),
            "labels": str((folder / "dataset").absolute()),
        }
        values = run_isolated(f"{__name__}:read_wrong_samples", arguments, limits=LIMITS, subject=_TASK, blobs=store)
    try:
        return msgspec.convert(values, WrongSamples)
    except msgspec.ValidationError as error:
        raise IsolatedFaultError(f"{_TASK} has malformed values: {error}", next_step=_NEXT) from error


def read_wrong_samples(arguments: Mapping[str, Any], blobs: CallerBlobs) -> Any:  # noqa: ANN401 - plain values
    """List the wrong samples from laid-out files in a child process; return them as plain values."""
    lock = load(arguments["lock"], "the lock of the run")
    manifests = read_manifests(lock, blobs)
    predictions, folder = Path(arguments["predictions"]), Path(arguments["labels"])
    decided = score_samples(lock, manifests, predictions, folder).decided
    job = parse_job(job_document(lock, "cpu", manifests))
    try:
        return msgspec.to_builtins(_list(job, predictions, folder, decided))
    except Failure as error:
        raise InvalidInputError(error.message) from error


def _list(job: Job, predictions: Path, folder: Path, decided: NDArray[np.int64] | None) -> WrongSamples:
    types = ("value",) if decided is None else _OF_CLASSES
    output = next((output for output in job.model.outputs if output.type in types), None)
    if output is None or job.model.detections is not None:
        return WrongSamples(reason=_NOT_SINGLE)
    samples = open_samples(job.dataset, folder, job.model.task)
    table = StoredPredictions(predictions, job.model, [output.name], len(samples)).table(output.name)
    if decided is None:
        return _list_errors(samples.names, samples.labels or (), table)
    wrong = np.flatnonzero(decided[:, 0] != decided[:, 1])
    scores, expected_scores, margins = _score_decisions(decided[wrong], wrong, table, output)
    chosen = np.argsort(-margins, kind="stable")[:MOST_LISTED]
    rows = zip(*(column[chosen].tolist() for column in (wrong, scores, expected_scores)), strict=True)
    classes = _read_class_names(job.dataset.labels, folder)
    listed = []
    for place, score, expected_score in rows:
        expected, predicted = decided[place].tolist()
        listed.append(
            WrongSample(
                place,
                samples.names[place][:LONGEST_NAME],
                classes.get(expected, expected),
                None if predicted == UNDECIDED else classes.get(predicted, predicted),
                score if np.isfinite(score) else None,
                expected_score if np.isfinite(expected_score) else None,
            )
        )
    return WrongSamples(tuple(listed), len(wrong), len(samples))


def _score_decisions(
    decided: NDArray[np.int64], places: NDArray[np.int64], table: NDArray[Any] | None, output: Output
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the scores of each decided class and of its label, NaN without one, and by how much each decision missed.

    Args:
        decided: int64 [wrong samples, 2]: label and predicted label.
        places: int64 [wrong samples]: the samples' places in the split.
        table: The output of all samples; None if its shapes differ.
        output: The output that holds the classes.

    Returns:
        Three float64 [wrong samples]. A sample without a decision missed by infinity, and all samples miss by 0 without
        scores, so that they keep their order.
    """
    undecided = decided[:, 1] == UNDECIDED
    unknown, margins = np.full(len(decided), np.nan), np.where(undecided, np.inf, 0.0)
    if table is None or output.type != "class-scores":
        return unknown, unknown, margins
    rows = table.reshape(len(table), -1)
    if rows.shape[1] == 1:  # one score, which a threshold judges
        scores = rows[places, 0].astype(np.float64)
        margins = np.where(undecided, np.inf, np.abs(scores - (output.threshold or 0.0)))
        return scores, unknown, margins
    columns = decided + output.label_offset
    known = (columns >= 0) & (columns < rows.shape[1])
    expected, scores = (
        np.where(known[:, side], rows[places, np.where(known[:, side], columns[:, side], 0)].astype(np.float64), np.nan)
        for side in (0, 1)
    )
    return scores, expected, np.where(undecided, np.inf, np.nan_to_num(scores - np.where(known[:, 0], expected, 0.0)))


def _list_errors(names: Sequence[str], labels: Sequence[Label], table: NDArray[Any] | None) -> WrongSamples:
    """List the samples of a regression by their absolute errors, the largest first."""
    if table is None or table.size != len(names) or not all(isinstance(label, int | float) for label in labels):
        return WrongSamples(reason=_NOT_SINGLE)
    predicted, expected = table.reshape(-1).astype(np.float64), np.asarray(labels, np.float64)
    errors = np.abs(predicted - expected)
    worst = np.argsort(-errors, kind="stable")[:MOST_LISTED].tolist()
    columns = [values.tolist() for values in (expected, predicted, errors)]
    rows = tuple(
        WrongSample(place, names[place][:LONGEST_NAME], *(column[place] for column in columns)) for place in worst
    )
    return WrongSamples(rows, int(np.count_nonzero(errors)), len(names), has_classes=False)


def _read_class_names(path: str | None, folder: Path) -> dict[int, str]:
    """Return the names of the dataset's classes by index; empty where it names none."""
    if path is None:
        return {}
    lines = resolve_inside(folder, path).read_text(encoding="utf-8").splitlines()
    return {index: line.strip()[:LONGEST_NAME] for index, line in enumerate(lines) if line.strip()}
