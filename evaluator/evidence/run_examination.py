"""Comparison of recorded runs with their blobs; contradicted metrics are withheld.

A result is cached under a digest of the whole record, so that it never survives a change of the
record. It is cached in this process, and for a record that agrees also in a folder of the registry.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock as Mutex
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace
from sqlalchemy import Engine

from benchlock.artifacts.blob_store import BlobStore, read
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes, to_hex
from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError
from benchlock.artifacts.isolation.resource_limits import IsolatedFaultError, LimitExceededError
from benchlock.evaluator.harness.core.job import PEAK
from benchlock.evaluator.harness_releases import is_released
from benchlock.evaluator.records.evidence_status import (
    FAILURE_FIELDS,
    FOLDER,
    OUTCOME_FIELD,
    PEAK_FIELDS,
    PEAK_LOGS,
    REPORTED_FIELDS,
    SCRATCH,
    EvidenceStatus,
    refuse_unverified,
)
from benchlock.evaluator.records.run_document import check_fit
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import SELF_REPORTED, Run, RunId, check_consistency
from benchlock.evaluator.runner.lock_verification import check_agreement, find_evaluated, read_manifests
from benchlock.registry.lock.lockfile import Lock, LockedHarness, load

if TYPE_CHECKING:
    from benchlock.evaluator.evidence.recomputation import Recomputation, Subject


_VERIFIED: Final = "verified-8"
"""The folder of cached results. Its number increases when the comparison finds more."""
_REMEMBERED: Final = 32
_BYTES_A_LIST: Final = 256 << 20
"""The maximum number of bytes of evidence that are read for one list; further records count as not verified."""
_LARGEST_LOG: Final = 1 << 20
_encode_record: Final = msgspec.msgpack.Encoder(order="deterministic").encode
"""Encodes different records as different bytes, ten times as fast as their document."""


class _CacheEntry(msgspec.Struct, frozen=True):
    """The cached result for a record that agrees.

    Whether the harness is a released one is decided by the build that reads the cache.
    """

    harness: LockedHarness
    reported_by_model: tuple[str, ...]
    measurement: Digest | None


class Examiner:
    """The comparison of the runs of one registry with their blobs."""

    def __init__(self, store: BlobStore, home: Path, lock_text: Callable[[Digest], str]) -> None:
        """Open the examiner of a registry.

        Args:
            store: The registry's blob store.
            home: The registry's folder.
            lock_text: Returns the text of a lock by its id.
        """
        self._store = store
        self._folder = home / FOLDER
        self._scratch = home / SCRATCH
        self._lock_text = lock_text
        self._unverified: OrderedDict[Path, EvidenceStatus] = OrderedDict()

    def examine(self, run: Run) -> Run:
        """Return the run with the state of its evidence; metrics that are not verified are withheld.

        A run without an end, and a run whose state is known already, is returned as it is.
        """
        return self.examine_list((run,))[0]

    def examine_list(self, runs: Iterable[Run]) -> tuple[Run, ...]:
        """Examine several runs; past a bound on the bytes read for one list, they count as not verified."""
        return tuple(self.examine_each(runs))

    def examine_each(self, runs: Iterable[Run]) -> Iterator[Run]:
        """Examine the runs of one list, one after another, as ``examine_list`` does."""
        remaining = _BYTES_A_LIST
        for run in runs:
            if (cached := self.recall(run)) is not None:
                yield cached
                continue
            assert run.end is not None
            size = sum(blob.size for blob in run.end.blobs.values())
            if size > remaining < _BYTES_A_LIST:
                reason = f"not yet compared with its {size} bytes of evidence; show this run alone to compare it"
                status = EvidenceStatus("unverified", (reason,))
            else:
                remaining -= size
                status = self._compare_once(run)
            yield _mark(run, status)

    def recall(self, run: Run) -> Run | None:
        """Return the run as ``examine`` does if that needs no comparison with its blobs, else None."""
        if run.end is None or run.evidence is not None:
            return run
        status = self._recall(run)
        return None if status is None else _mark(run, status)

    def _compare_once(self, run: Run) -> EvidenceStatus:
        """Compare, and cache in this process a run that could not be compared though nothing is damaged."""
        status = self.compare(run)
        if status.state == "unverified" and not status.damaged:
            with _mutex:
                self._unverified[self._cache_path(run)] = status
                while len(self._unverified) > _REMEMBERED:
                    self._unverified.popitem(last=False)
        return status

    def compare(self, run: Run, lock: Lock | None = None, *, again: bool = False) -> EvidenceStatus:
        """Compare an ended run with its blobs now; cache agreement, and drop a cached one that no longer holds.

        Args:
            run: The run as recorded, with its metrics.
            lock: Its lock, if that is not stored yet.
            again: Whether to read every byte again, whatever this process has cached.
        """
        status = self._compare(run, lock, again=again)
        if status.state != "verified":
            with suppress(OSError):
                self._cache_path(run).unlink(missing_ok=True)
        return status

    def _compare(self, run: Run, lock: Lock | None, *, again: bool) -> EvidenceStatus:
        reported = reported_fields(run)
        if _left_nothing(run):
            return EvidenceStatus("verified", (), reported)
        try:
            lock = self._lock_of(run) if lock is None else lock
            reasons, measurement = compare_blobs(run, lock, self._store, self._scratch, again=again)
            names = () if reasons else _marks(run, lock, self._store)
        except ContradictionError as error:
            return EvidenceStatus("contradicted", (error.what,), reported)
        except BenchlockError as error:
            return EvidenceStatus("unverified", (error.what,), reported, damaged=isinstance(error, IntegrityError))
        if reasons:
            return EvidenceStatus("contradicted", reasons, reported)
        remembered = _CacheEntry(lock.harness, names, measurement)
        self._remember(run, remembered)
        return _verified(run, remembered)

    def require(self, run: Run, lock: Lock | None = None) -> None:
        """Raise unless an ended run agrees with its evidence now.

        Raises:
            IntegrityError: It contradicts its evidence, or the evidence is missing or damaged.
            UnverifiedError: It could not be compared here.
        """
        refuse_unverified(run.id, self.compare(run, lock))

    def _lock_of(self, run: Run) -> Lock:
        lock = load(self._lock_text(run.start.lock), run.start.lock)
        with _as_contradiction():
            check_fit(run, lock)
        return lock

    def _recall(self, run: Run) -> EvidenceStatus | None:
        path = self._cache_path(run)
        with _mutex:
            if (status := self._unverified.get(path)) is not None:
                return status
        try:
            return _verified(run, msgspec.json.decode(path.read_bytes(), type=_CacheEntry))
        except (OSError, msgspec.DecodeError):
            return None

    def _remember(self, run: Run, remembered: _CacheEntry) -> None:
        """Cache that a record agrees; if the folder cannot be written, the next call compares again."""
        path = self._cache_path(run)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.encode(remembered))

    def _cache_path(self, run: Run) -> Path:
        assert run.end is not None
        metrics = sorted(run.end.metrics, key=lambda metric: (metric.name, metric.batch or 0, metric.key))
        record = msgspec.to_builtins((run.start, replace(run.end, metrics=tuple(metrics))))
        digest = to_hex(digest_bytes(_encode_record(record)))
        return self._folder / _VERIFIED / digest[:2] / digest[2:]


class ContradictionError(IntegrityError):
    """A record that contradicts itself, its lock or its evidence."""


@contextmanager
def _as_contradiction() -> Iterator[None]:
    """Raise an ``IntegrityError`` of a comparison as ``ContradictionError``, because nothing is damaged."""
    try:
        yield
    except IntegrityError as error:
        raise ContradictionError(error.what, where=error.where, next_step=error.next_step) from error


def compare_blobs(
    run: Run, lock: Lock, store: BlobStore, scratch: Path | None, *, again: bool = False
) -> tuple[tuple[str, ...], Digest | None]:
    """Compare an ended run with its blobs.

    Args:
        run: The run as recorded.
        lock: Its lock.
        store: The blob store.
        scratch: A folder on the store's file system for temporary files; None for any folder.
        again: Whether to recompute, whatever this process has cached.

    Returns:
        The differences, empty if the run agrees; and the digest of its timed calls (see ``EvidenceStatus``).

    Raises:
        IntegrityError: A blob is missing or damaged.
        InvalidInputError: This version cannot recompute the metrics.
    """
    from benchlock.evaluator.evidence.discrepancies import find_discrepancies  # noqa: PLC0415 - numpy and scipy
    from benchlock.evaluator.evidence.recomputation import Recomputation  # noqa: PLC0415

    assert run.end is not None
    try:
        check_consistency(run.start, run.end)
    except InvalidInputError as error:
        return (error.what,), None
    subject = _subject(run, lock, store)
    recomputed = Recomputation()
    if run.end.blobs:
        try:
            recomputed = recompute_once(subject, run.end.blobs, store, scratch, again=again)
        except (LimitExceededError, IsolatedFaultError):
            if run.end.failure_class != "output":  # such a run was recorded as failed for the same reason
                raise
    differences = find_discrepancies(run, subject, recomputed, _log(run.end.blobs.get("log"), store))
    return tuple(map(str, differences)), recomputed.measurement


def _subject(run: Run, lock: Lock, store: BlobStore) -> "Subject":
    from benchlock.evaluator.evidence.recomputation import Subject  # noqa: PLC0415 - as above

    facts = ("os", "arch", "device", "python")
    platform_facts = [run.start.platform.get(fact) for fact in facts]
    for platform in lock.image.platforms:
        if [getattr(platform, fact) for fact in facts] == platform_facts:
            if run.end is None or not run.end.blobs:
                return Subject(lock, platform, {})
            manifests = read_manifests(lock, store)
            with _as_contradiction():
                check_agreement(lock, platform, manifests)
            return Subject(lock, platform, manifests)
    raise ContradictionError(f"{run.id} ran on a platform that is not in its lock", where=run.id)


def _log(blob: Descriptor | None, store: BlobStore) -> bytes:
    if blob is None:
        return b""
    if blob.size > _LARGEST_LOG:
        raise InvalidInputError(f"the log is larger than {_LARGEST_LOG} bytes, the maximum that is read")
    return read(store, blob.digest, name="the log")


_Key = tuple[str, str, tuple[tuple[str, Descriptor], ...]]
recent_recomputations: "OrderedDict[_Key, Recomputation]" = OrderedDict()
_mutex = Mutex()


def recompute_once(
    subject: "Subject", blobs: Mapping[str, Descriptor], store: BlobStore, scratch: Path | None, *, again: bool = False
) -> "Recomputation":
    """Recompute, or return the cached recomputation of the same lock, platform and blobs.

    Raises:
        As ``evaluator.evidence.recomputation.recompute``.
    """
    from benchlock.evaluator.evidence.recomputation import recompute  # noqa: PLC0415 - as above

    key = (subject.lock.id, str(subject.platform), tuple(sorted(blobs.items())))
    with _mutex:
        recomputed = recent_recomputations.pop(key, None)  # inserted again below unless its blobs are damaged
    if recomputed is None or again:
        recomputed = recompute(subject, blobs, store, scratch)
    with _mutex:
        recent_recomputations[key] = recomputed
        recent_recomputations.move_to_end(key)
        while len(recent_recomputations) > _REMEMBERED:
            recent_recomputations.popitem(last=False)
    return recomputed


def _verified(run: Run, remembered: _CacheEntry) -> EvidenceStatus:
    """Return the state of a record that agrees; all metrics of an unreleased harness are self-reported."""
    assert run.end is not None
    names = remembered.reported_by_model
    if not is_released(remembered.harness):
        names = tuple(dict.fromkeys(metric.name for metric in run.end.metrics))
    return EvidenceStatus("verified", (), reported_fields(run), self_reported=names, measurement=remembered.measurement)


def _marks(run: Run, lock: Lock, store: BlobStore) -> tuple[str, ...]:
    """Return the metrics that the model could have forged, for a record that is older than such marks."""
    from benchlock.evaluator.runner.self_reported_times import list_reported_by_model  # noqa: PLC0415 - as above

    assert run.end is not None
    if SELF_REPORTED in run.end.details or not run.end.metrics:
        return ()
    model = find_evaluated(read_manifests(lock, store))
    names = list_reported_by_model(lock, model, run.start.isolation)
    return tuple(metric.name for metric in run.end.metrics if metric.name in names)


def _left_nothing(run: Run) -> bool:
    """Return whether a run ended before anything but its start was recorded."""
    assert run.end is not None
    end = run.end
    ended_early = end.outcome in ("abandoned", "cancelled")
    return ended_early and not (end.metrics or end.blobs or end.packages or end.timings or end.details)


def reported_fields(run: Run) -> tuple[str, ...]:
    """Return the fields of an ended run that nothing can recompute."""
    assert run.end is not None
    if run.end.outcome in ("abandoned", "cancelled"):
        return (*REPORTED_FIELDS, OUTCOME_FIELD)
    if run.end.outcome == "failed":
        return (*REPORTED_FIELDS, *FAILURE_FIELDS)
    has_peak = any(metric.name == PEAK for metric in run.end.metrics)
    return (*REPORTED_FIELDS, *PEAK_FIELDS) if has_peak and PEAK_LOGS not in run.end.blobs else REPORTED_FIELDS


def _mark(run: Run, status: EvidenceStatus) -> Run:
    assert run.end is not None
    if status.state == "verified" and not status.self_reported:
        return replace(run, evidence=status)
    if status.state == "verified":
        metrics = tuple(
            replace(metric, self_reported=metric.self_reported or metric.name in status.self_reported)
            for metric in run.end.metrics
        )
        return replace(run, end=replace(run.end, metrics=metrics), evidence=status)
    return replace(run, end=replace(run.end, metrics=(), details={}), evidence=status)


class ExaminedRecords(Records):
    """Records whose runs carry the state of their evidence; metrics that are not verified are withheld."""

    def __init__(self, engine: Engine, examiner: Examiner) -> None:
        """Open the runs in a database, with the examiner of their registry."""
        super().__init__(engine)
        self._examiner = examiner

    def get(self, run: RunId) -> Run:
        """Return the run with the state of its evidence."""
        return self._examiner.examine(super().get(run))

    def recall(self, run: RunId) -> Run | None:
        """Return the run with the state of its evidence if that is cached, else None."""
        return self._examiner.recall(super().get(run))

    def _examine(self, runs: Iterable[Run]) -> Iterable[Run]:
        return self._examiner.examine_each(runs)
