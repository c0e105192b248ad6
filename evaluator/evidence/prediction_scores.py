"""Quality of stored predictions: scores of one run, and paired comparison of two runs."""

import os
import shutil
import tempfile
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock as Mutex
from typing import Any, Final

import msgspec
from msgspec import UNSET

from benchlock.artifacts.blob_store import BlobStore, copy_blob, prefetch, verify
from benchlock.artifacts.digest import Descriptor, from_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.file_trees import iterate_tree
from benchlock.artifacts.isolation.child_process import CallerBlobs
from benchlock.artifacts.isolation.isolated_calls import run_isolated
from benchlock.artifacts.isolation.resource_limits import IsolatedFaultError, LimitExceededError, Limits
from benchlock.evaluator.evidence.stored_results import StoredResults
from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job import Job
from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.harness.phases.scoring import Score, score
from benchlock.evaluator.records.evidence_status import FOLDER
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.runner.job_folder import job_document
from benchlock.evaluator.runner.lock_verification import find_evaluated, read_manifests
from benchlock.evaluator.runner.run_stages import harness_version
from benchlock.evaluator.statistics.metric_types import PairedTest
from benchlock.evaluator.statistics.paired_tests import PairedTests, compare_measures
from benchlock.registry.artifact_names import Kind
from benchlock.registry.lock.lockfile import Lock, dataset_of, dump, load
from benchlock.registry.manifests import Dataset, Manifest, Operator, plain
from benchlock.registry.manifests.metric_definitions import is_quality

_STALE: Final = 24 * 3600.0
"""The age in seconds after which a folder must be a leftover of a killed process."""


@contextmanager
def open_workspace(parent: Path | None) -> Iterator[Path]:
    """Create an empty folder in ``parent``, or in the temporary folder, for the time of the context."""
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(parent)
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield Path(folder)


def lay_out(store: BlobStore, blob: Descriptor, target: Path) -> None:
    """Create the file ``target`` with the content of a blob.

    Raises:
        IntegrityError: The blob is missing.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    find = getattr(store, "path", None)
    if find is not None and store.exists(blob.digest):
        with suppress(OSError):  # another file system, too many links, another owner
            os.link(find(blob.digest), target)
            return
    copy_blob(store, blob, target, name=target.name)


def _remove_stale(parent: Path) -> None:
    oldest = time.time() - _STALE
    for folder in parent.iterdir():
        with suppress(OSError):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)


LARGEST_PREDICTIONS: Final = 2 << 30
_OF_FILES: Final = ("image-index", "wav-index", "coco")
"""Formats with a file for each sample, which scoring does not need."""
FIRST_FINITE: Final = (1, 3)
"""The first version of the harness that rejects NaN and infinities. Older ones ranked NaN below all numbers."""
_SEGMENTATION: Final = "semantic-segmentation"


class NonFiniteError(InvalidInputError):
    """Predictions with NaN or infinities, which the manifest of the model does not allow."""


class UnreadableLabelsError(InvalidInputError):
    """Labels of a dataset that this process cannot read, for example without a library."""


_ERRORS: Final[Mapping[str, type[InvalidInputError]]] = {"load": UnreadableLabelsError, "non-finite": NonFiniteError}


def score_predictions(lock: Lock, manifests: Mapping[Kind, Manifest], files: Mapping[str, Path], folder: Path) -> Score:
    """Compare the predictions of a run with the labels of the dataset.

    Args:
        lock: The lock, which names metrics and split.
        manifests: The manifests of the lock.
        files: The files of the run's blobs, by role.
        folder: The files of the dataset that have labels, as ``lay_labels`` lays them out.

    Raises:
        InvalidInputError: The predictions are missing or malformed.
        NonFiniteError: They have NaN or infinities.
        MemoryError: They do not fit into the memory of this process.
        UnreadableLabelsError: The labels cannot be read here.
    """
    if not any(map(is_quality, lock.metrics)):
        return Score({}, {}, {})
    if "predictions" not in files:
        raise InvalidInputError("the harness wrote no predictions")
    return score_samples(lock, manifests, files["predictions"], folder)


def score_samples(lock: Lock, manifests: Mapping[Kind, Manifest], predictions: Path, folder: Path) -> Score:
    """Compare the predictions of a run with the labels of the dataset, sample by sample.

    Args:
        lock: The lock, which names metrics and split.
        manifests: The manifests of the lock.
        predictions: The file of the predictions.
        folder: The files of the dataset that have labels, as ``lay_labels`` lays them out.

    Raises:
        InvalidInputError, NonFiniteError, MemoryError, UnreadableLabelsError: As ``score_predictions``.
    """
    job: Job = parse_job(job_document(lock, "cpu", manifests))
    try:
        return score(job, folder, predictions, admits_non_finite=harness_version(lock) < FIRST_FINITE)
    except Failure as error:
        if error.kind == "out-of-memory":  # this process ran out of memory, which is not a fault of the predictions
            raise MemoryError from error
        raise _ERRORS.get(error.kind, InvalidInputError)(error.message) from error


def list_label_files(lock: Lock, manifests: Mapping[Kind, Manifest], store: BlobStore) -> list[tuple[str, Descriptor]]:
    """List the path and the blob of each file of the dataset that has labels.

    Raises:
        IntegrityError: The listing of a tree is missing.
    """
    dataset, model = manifests["dataset"], find_evaluated(manifests)
    assert isinstance(dataset, Dataset)
    assert not isinstance(model, Operator)
    split = dataset_of(lock).split if lock.target is UNSET else lock.target.split
    # The labels are in the files that the split names, or in a file for each sample.
    are_few = dataset.format in _OF_FILES and model.task != _SEGMENTATION
    named = _named_files(dataset, split) if are_few else None
    return [entry for entry in _entries(lock, store) if named is None or entry[0] in named]


def lay_labels(lock: Lock, manifests: Mapping[Kind, Manifest], store: BlobStore, folder: Path) -> None:
    """Lay out the files of the dataset that have labels in ``folder``.

    Raises:
        IntegrityError: A file is missing.
    """
    entries = list_label_files(lock, manifests, store)
    prefetch(store, (blob for _, blob in entries))
    for path, blob in entries:
        lay_out(store, blob, folder / path)


def _named_files(dataset: Dataset, split: str) -> set[str]:
    named = {value for value in plain(dataset.splits[split]).values() if isinstance(value, str)}
    return named if dataset.labels is UNSET else {*named, dataset.labels}


def _entries(lock: Lock, store: BlobStore) -> Iterator[tuple[str, Descriptor]]:
    """Yield the path and the blob of every file of the dataset."""
    for file in dataset_of(lock).files:
        blob = Descriptor(from_hex(file.sha256), file.size)
        if not file.path.endswith("/"):
            yield file.path, blob
            continue
        for entry in iterate_tree(store, blob, name=f"the dataset's {file.path}"):
            yield f"{file.path}{entry.path}", Descriptor(entry.digest, entry.size)


LIMITS: Final = Limits(memory=4 << 30, cpu_seconds=600, seconds=300.0, files=64, result=1 << 20)
"""The limits of the comparison of two runs."""
_PREDICTIONS: Final = "predictions"
_NEXT: Final = "compare fewer runs, or use a faster machine with more memory"


PAIRS: Final = f"{FOLDER}/pairs-1"
"""The folder in a registry's home for results. Its number increases when the tests or the scores change."""
_BATCH: Final = 64 << 20
"""The bytes of predictions that one child process compares with those of the first run."""
LockedRun = tuple[Lock, Run]
_REMEMBERED: Final = 256
_recent_tests: OrderedDict[Hashable, PairedTests] = OrderedDict()
_mutex: Final = Mutex()


class PredictionPairs:
    """Comparisons of pairs of runs, with a time limit for all of them together."""

    def __init__(
        self,
        store: BlobStore,
        scratch: Path | None,
        seconds: float = LIMITS.seconds,
        results: Path | None = None,
    ) -> None:
        """Prepare the comparisons; the time starts with the first one.

        Args:
            store: The store with the predictions, the manifests and the labels.
            scratch: A folder on the store's file system for temporary files; None for any folder.
            seconds: The time limit of all comparisons together.
            results: The folder where results are stored; None keeps them in this process alone.
        """
        self._store = store
        self._scratch = scratch
        self._seconds = seconds
        self._results = None if results is None else StoredResults(results)
        self._deadline: float | None = None

    def compare(self, first: LockedRun, second: LockedRun, comparisons: int = 1) -> PairedTests:
        """Compare two runs of the same samples in every metric of quality that both have.

        Args:
            first: A run with its lock.
            second: Another run with its lock.
            comparisons: The number of locks that are compared with the first one.

        Returns:
            The tests by metric, or the reason why the runs cannot be compared sample by sample.

        Raises:
            IntegrityError: A blob does not match its digest.
        """
        return self._compare_some(first, [second], comparisons)[0]

    def compare_all(self, first: LockedRun, others: Sequence[LockedRun]) -> list[PairedTests]:
        """Compare a run with others as ``compare`` does; small predictions share a child process.

        A child process takes longer to start than to compare predictions of a few thousand samples.
        """
        tests = [self._recall(first, other, len(others)) for other in others]
        batches = _split([place for place, found in enumerate(tests) if found is None], others)
        for places in batches:
            found = self._compare_some(first, [others[place] for place in places], len(others))
            for place, result in zip(places, found, strict=True):
                tests[place] = result
        return [found for found in tests if found is not None]

    def _compare_some(self, first: LockedRun, others: Sequence[LockedRun], comparisons: int) -> list[PairedTests]:
        """Compare a run with others in one child process; one by one if it fails, so that one fault has one victim."""
        found = [self._recall(first, other, comparisons) for other in others]
        missing = [other for other, tests in zip(others, found, strict=True) if tests is None]
        try:
            computed = self._compare(first, missing, comparisons) if missing else []
        except InvalidInputError as error:  # a limit, a missing library, or a blob that was removed meanwhile
            if len(missing) > 1:
                return [self.compare(first, other, comparisons) for other in others]
            computed = [PairedTests(reason=error.what)]
        for other, tests in zip(missing, computed, strict=True):
            if tests.reason is None:
                self._remember(_identify(first, other, comparisons), tests)
        fresh = iter(computed)
        return [next(fresh) if tests is None else tests for tests in found]

    def _recall(self, first: LockedRun, second: LockedRun, comparisons: int) -> PairedTests | None:
        """Return the tests if that needs no comparison: known ones, or the reason why there are none."""
        if reason := self._find_obstacle(first, second):
            return PairedTests(reason=reason)
        key = _identify(first, second, comparisons)
        with _mutex:
            tests = _recent_tests.get((self._scratch, key))
        if tests is None and self._results is not None:
            tests = self._results.read(key, PairedTests)
        return tests

    def _remember(self, key: tuple[Any, ...], tests: PairedTests) -> None:
        """Cache the result of a child process, which locks and predictions determine."""
        with _mutex:
            _recent_tests[self._scratch, key] = tests
            while len(_recent_tests) > _REMEMBERED:
                _recent_tests.popitem(last=False)
        if self._results is not None:
            self._results.write(key, tests)

    def _find_obstacle(self, first: tuple[Lock, Run], second: tuple[Lock, Run]) -> str | None:
        """Return why two runs have no pairs of samples; None if they have."""
        if self._seconds_left() <= 0:
            return f"time limit of {self._seconds:g} seconds for sample-by-sample comparisons exceeded"
        locks = (first[0], second[0])
        datasets = {lock.inputs for lock in locks}
        if len(datasets) > 1:
            return "the runs have different samples"
        if not _shared_metrics(*locks):
            return "the runs have no quality metric in common"
        return next(filter(None, (self._find_gap(run) for _, run in (first, second))), None)

    def _find_gap(self, run: Run) -> str | None:
        """Return why the predictions of a run cannot be read; None if they can."""
        blob = _predictions(run)
        if blob is None:
            return f"{run.id} has no stored predictions"
        if blob.size > LARGEST_PREDICTIONS:
            return f"the predictions of {run.id} have {blob.size} bytes; the maximum is {LARGEST_PREDICTIONS}"
        return None if self._store.exists(blob.digest) else f"the predictions of {run.id} are missing"

    def _compare(self, first: LockedRun, others: Sequence[LockedRun], comparisons: int) -> list[PairedTests]:
        runs = (first, *others)
        with open_workspace(self._scratch) as folder:
            paths = [folder / str(number) for number, _ in enumerate(runs)]
            for path, (_, run) in zip(paths, runs, strict=True):
                blob = _predictions(run)
                assert blob is not None
                verify(self._store, blob.digest, name=f"the predictions of {run.id}", size=blob.size)
                lay_out(self._store, blob, path)
            lay_labels(first[0], read_manifests(first[0], self._store), self._store, folder / "dataset")
            arguments = {
                "locks": [dump(lock) for lock, _ in runs],
                "predictions": [str(path.absolute()) for path in paths],
                "labels": str((folder / "dataset").absolute()),
                "comparisons": comparisons,
            }
            return [PairedTests(tests) for tests in self._isolate(arguments)]

    def _seconds_left(self) -> float:
        if self._deadline is None:
            self._deadline = time.monotonic() + self._seconds
        return self._deadline - time.monotonic()

    def _isolate(self, arguments: Mapping[str, Any]) -> list[dict[str, PairedTest]]:
        task = "the sample-by-sample comparison"
        used_up = LimitExceededError(f"{task} needs more than {self._seconds:g} seconds", next_step=_NEXT)
        if (remaining := self._seconds_left()) <= 0:
            raise used_up
        limits = msgspec.structs.replace(LIMITS, seconds=min(remaining, LIMITS.seconds))
        function = f"{__name__}:compare_files"
        try:
            return msgspec.convert(
                run_isolated(function, arguments, limits=limits, subject=task, blobs=self._store),
                list[dict[str, PairedTest]],
            )
        except msgspec.ValidationError as error:
            raise IsolatedFaultError(f"{task} returned malformed values: {error}", next_step=_NEXT) from error


def compare_files(arguments: dict[str, Any], blobs: CallerBlobs) -> Any:  # noqa: ANN401 - plain values
    """Compare a file of predictions with each further one in a child process; return the tests as plain values."""
    locks = [load(text, "the lock of a run") for text in arguments["locks"]]
    scores = (
        score_samples(lock, read_manifests(lock, blobs), Path(path), Path(arguments["labels"]))
        for lock, path in zip(locks, arguments["predictions"], strict=True)
    )
    first, n = next(scores), _count_samples(locks[0], blobs)
    return [
        msgspec.to_builtins(_compare_scores((locks[0], lock), (first, second), n, arguments["comparisons"]))
        for lock, second in zip(locks[1:], scores, strict=True)
    ]


def _compare_scores(
    locks: tuple[Lock, Lock], scores: tuple[Score, Score], n: int, comparisons: int
) -> dict[str, PairedTest]:
    tests: dict[str, PairedTest] = {}
    for metric in _shared_metrics(*locks):
        try:
            tests[metric] = compare_measures(metric, scores[0].samples, scores[1].samples, n, comparisons)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise InvalidInputError(f"cannot compare the measures of {metric}: {error}") from error
    return tests


def _split(places: Sequence[int], others: Sequence[LockedRun]) -> Iterator[list[int]]:
    """Yield the places of runs that share a child process; large predictions have one of their own."""
    batch, size = list[int](), 0
    for place in places:
        blob = _predictions(others[place][1])
        size += 0 if blob is None else blob.size
        if batch and size > _BATCH:
            yield batch
            batch, size = [], 0 if blob is None else blob.size
        batch.append(place)
    if batch:
        yield batch


def _identify(first: LockedRun, second: LockedRun, comparisons: int) -> tuple[Any, ...]:
    """Return what determines the tests of two runs."""
    blobs = [_predictions(run) for _, run in (first, second)]
    return (comparisons, *(lock.id for lock, _ in (first, second)), *(blob and blob.digest for blob in blobs))


def _count_samples(lock: Lock, blobs: CallerBlobs) -> int:
    dataset = read_manifests(lock, blobs)["dataset"]
    assert isinstance(dataset, Dataset)
    return dataset.splits[dataset_of(lock).split].samples


def _shared_metrics(first: Lock, second: Lock) -> tuple[str, ...]:
    return tuple(name for name in first.metrics if name in second.metrics and is_quality(name))


def _predictions(run: Run) -> Descriptor | None:
    return None if run.end is None else run.end.blobs.get(_PREDICTIONS)
