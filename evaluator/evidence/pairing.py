"""Compares two runs in quality, sample by sample, from their stored predictions and the labels of the dataset."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from benchlock.artifacts.digest import Descriptor
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.isolation.calls import run_isolated
from benchlock.artifacts.isolation.limits import IsolatedFaultError, LimitExceededError, Limits
from benchlock.artifacts.isolation.server import CallerBlobs
from benchlock.artifacts.store import BlobStore, verify
from benchlock.evaluator.evidence.scores import LARGEST_PREDICTIONS, lay_labels, score_samples
from benchlock.evaluator.evidence.workspace import lay_out, open_workspace
from benchlock.evaluator.records.runs import Run
from benchlock.evaluator.runner.verification import read_manifests
from benchlock.evaluator.statistics.pairing import PairedTest, PairedTests, compare_measures
from benchlock.registry.lockfile import Lock, dump, load
from benchlock.registry.manifests import Dataset
from benchlock.registry.metrics import is_quality

LIMITS: Final = Limits(memory=4 << 30, cpu_seconds=600, seconds=300.0, files=64, result=1 << 20)
"""The limits of the comparison of two runs."""
_PREDICTIONS: Final = "predictions"
_SIDES: Final = ("first", "second")
_NEXT: Final = "compare fewer runs, or on a machine with more time and memory"


class PredictionPairs:
    """Compares pairs of runs until its time is used up."""

    def __init__(self, store: BlobStore, scratch: Path | None, seconds: float = LIMITS.seconds) -> None:
        """Take what is compared where; the time starts with the first comparison.

        Args:
            store: Has the predictions, the manifests and the labels.
            scratch: A folder on the store's file system for temporary files; None for any folder.
            seconds: How long all comparisons together may take.
        """
        self._store = store
        self._scratch = scratch
        self._seconds = seconds
        self._deadline: float | None = None

    def compare(self, first: tuple[Lock, Run], second: tuple[Lock, Run], comparisons: int = 1) -> PairedTests:
        """Compare two runs of the same samples in every metric of quality that both have.

        Args:
            first: A run with its lock.
            second: Another one.
            comparisons: The number of locks that are compared with the first one.

        Returns:
            The tests by metric, or the reason why the runs cannot be compared sample by sample.

        Raises:
            IntegrityError: A blob is not what its digest says.
        """
        if reason := self._find_obstacle(first, second):
            return PairedTests(reason=reason)
        try:
            return self._compare(first, second, comparisons)
        except InvalidInputError as error:  # limits, a library that is missing, a blob that was removed meanwhile
            return PairedTests(reason=error.what)

    def _find_obstacle(self, first: tuple[Lock, Run], second: tuple[Lock, Run]) -> str | None:
        """Return why two runs have no pairs of samples; None where they have."""
        if self._seconds_left() <= 0:
            return f"the {self._seconds:g} seconds for comparisons sample by sample are used up"
        locks = (first[0], second[0])
        datasets = {(lock.dataset.digest, lock.dataset.split) for lock in locks}
        if len(datasets) > 1:
            return "the runs are of different samples"
        if not _shared_metrics(*locks):
            return "the runs share no metric of quality"
        return next(filter(None, (self._find_gap(run) for _, run in (first, second))), None)

    def _find_gap(self, run: Run) -> str | None:
        """Return why the predictions of a run cannot be read; None where they can."""
        blob = _predictions(run)
        if blob is None:
            return f"{run.id} has no stored predictions"
        if blob.size > LARGEST_PREDICTIONS:
            return f"the predictions of {run.id} have {blob.size} bytes, and at most {LARGEST_PREDICTIONS} are read"
        return None if self._store.exists(blob.digest) else f"the predictions of {run.id} are missing"

    def _compare(self, first: tuple[Lock, Run], second: tuple[Lock, Run], comparisons: int) -> PairedTests:
        with open_workspace(self._scratch) as folder:
            for side, (_, run) in zip(_SIDES, (first, second), strict=True):
                blob = _predictions(run)
                assert blob is not None
                verify(self._store, blob.digest, name=f"the predictions of {run.id}", size=blob.size)
                lay_out(self._store, blob, folder / side)
            lay_labels(first[0], read_manifests(first[0], self._store), self._store, folder / "dataset")
            arguments = {
                "locks": [dump(lock) for lock, _ in (first, second)],
                "predictions": [str((folder / side).absolute()) for side in _SIDES],
                "labels": str((folder / "dataset").absolute()),
                "comparisons": comparisons,
            }
            return PairedTests(self._isolate(arguments))

    def _seconds_left(self) -> float:
        if self._deadline is None:
            self._deadline = time.monotonic() + self._seconds
        return self._deadline - time.monotonic()

    def _isolate(self, arguments: Mapping[str, Any]) -> dict[str, PairedTest]:
        what = "the comparison sample by sample"
        used_up = LimitExceededError(f"{what} needs more than {self._seconds:g} seconds", next_step=_NEXT)
        if (left := self._seconds_left()) <= 0:
            raise used_up
        limits = msgspec.structs.replace(LIMITS, seconds=min(left, LIMITS.seconds))
        function = f"{__name__}:compare_files"
        try:
            return msgspec.convert(
                run_isolated(function, arguments, limits=limits, what=what, blobs=self._store), dict[str, PairedTest]
            )
        except msgspec.ValidationError as error:
            raise IsolatedFaultError(f"{what} gave malformed values: {error}", next_step=_NEXT) from error


def compare_files(arguments: dict[str, Any], blobs: CallerBlobs) -> Any:  # noqa: ANN401 - plain values
    """Compare in a child process two files of predictions that lie there already; the tests as plain values."""
    locks = [load(text, "the lock of a run") for text in arguments["locks"]]
    scores = [
        score_samples(lock, read_manifests(lock, blobs), Path(path), Path(arguments["labels"]))
        for lock, path in zip(locks, arguments["predictions"], strict=True)
    ]
    first, second = scores
    tests: dict[str, PairedTest] = {}
    for metric in _shared_metrics(*locks):
        try:
            n = _count_samples(locks[0], blobs)
            tests[metric] = compare_measures(metric, first.samples, second.samples, n, arguments["comparisons"])
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise InvalidInputError(f"the measures of {metric} cannot be compared: {error}") from error
    return msgspec.to_builtins(tests)


def _count_samples(lock: Lock, blobs: CallerBlobs) -> int:
    dataset = read_manifests(lock, blobs)["dataset"]
    assert isinstance(dataset, Dataset)
    return dataset.splits[lock.dataset.split].samples


def _shared_metrics(first: Lock, second: Lock) -> tuple[str, ...]:
    return tuple(name for name in first.metrics if name in second.metrics and is_quality(name))


def _predictions(run: Run) -> Descriptor | None:
    return None if run.end is None else run.end.blobs.get(_PREDICTIONS)
