"""Comparison of recorded runs with their blobs; contradicted metrics are withheld.

A result is remembered under the digest of the record's canonical document, so that it never outlives a change of the
record: in this process, and of a record that agrees also in a folder of the registry.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock as Mutex
from typing import TYPE_CHECKING, Final

import msgspec
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
    PEAK_FIELDS,
    PEAK_LOGS,
    REPORTED_FIELDS,
    SCRATCH,
    EvidenceStatus,
    refuse_unverified,
)
from benchlock.evaluator.records.run_document import check_fit, encode_run
from benchlock.evaluator.records.run_model import SELF_REPORTED, Run, RunId, check_consistency
from benchlock.evaluator.records.run_store import Records
from benchlock.registry.lock.lockfile import Lock, LockedHarness
from benchlock.registry.manifests import Model

if TYPE_CHECKING:
    from benchlock.evaluator.evidence.recomputation import Recomputation, Subject


_VERIFIED: Final = "verified-7"
"""The number grows when the comparison finds more."""
_REMEMBERED: Final = 32
_BYTES_A_LIST: Final = 256 << 20
"""So many bytes of evidence are read for one list; records beyond them are shown as not verified yet."""
_LARGEST_LOG: Final = 1 << 20


class _Remembered(msgspec.Struct, frozen=True):
    """What is remembered of a record that agrees.

    Whether the harness is a released one is decided by the build that reads this.
    """

    harness: LockedHarness
    reported_by_model: tuple[str, ...]
    measurement: Digest | None


class Examiner:
    """Compares runs of one registry with their blobs."""

    def __init__(self, store: BlobStore, home: Path, lock_text: Callable[[Digest], str]) -> None:
        """Take the registry's store, its folder, and what returns the text of a lock by its id."""
        self._store = store
        self._folder = home / FOLDER
        self._scratch = home / SCRATCH
        self._lock_text = lock_text
        self._unverified: OrderedDict[Path, EvidenceStatus] = OrderedDict()

    def examine(self, run: Run) -> Run:
        """Return the run with the state of its evidence; figures that are not verified are withheld.

        A running run, and one whose state is known already, is returned as it is.
        """
        return self.examine_list((run,))[0]

    def examine_list(self, runs: Iterable[Run]) -> tuple[Run, ...]:
        """Examine several runs; past a bound on the bytes that are read for one list, they count as not verified."""
        return tuple(self.examine_each(runs))

    def examine_each(self, runs: Iterable[Run]) -> Iterator[Run]:
        """Examine the runs of one list, one after the other, as ``examine_list`` does."""
        left = _BYTES_A_LIST
        for run in runs:
            if (known := self.recall(run)) is not None:
                yield known
                continue
            assert run.end is not None
            size = sum(blob.size for blob in run.end.blobs.values())
            if size > left < _BYTES_A_LIST:
                reason = f"not compared with its {size} bytes of evidence yet: benchlock show {run.id} does that"
                status = EvidenceStatus("unverified", (reason,))
            else:
                left -= size
                status = self._compare_once(run)
            yield _mark(run, status)

    def recall(self, run: Run) -> Run | None:
        """Return the run as ``examine`` does if that needs no comparison with its blobs, else None."""
        if run.end is None or run.evidence is not None:
            return run
        status = self._recall(run)
        return None if status is None else _mark(run, status)

    def _compare_once(self, run: Run) -> EvidenceStatus:
        """Compare, and remember in this process what could not be compared though nothing is damaged."""
        status = self.compare(run)
        if status.state == "unverified" and not status.damaged:
            with _mutex:
                self._unverified[self._place(run)] = status
                while len(self._unverified) > _REMEMBERED:
                    self._unverified.popitem(last=False)
        return status

    def compare(self, run: Run, lock: Lock | None = None, *, again: bool = False) -> EvidenceStatus:
        """Compare an ended run with its blobs now; remember it if they agree, and forget it if they do not any more.

        Args:
            run: The run as recorded, figures and all.
            lock: Its lock, where that is not stored yet.
            again: Read every byte again, whatever this process remembers.
        """
        status = self._compare(run, lock, again=again)
        if status.state != "verified":
            with suppress(OSError):
                self._place(run).unlink(missing_ok=True)
        return status

    def _compare(self, run: Run, lock: Lock | None, *, again: bool) -> EvidenceStatus:
        reported = reported_fields(run)
        if _left_nothing(run):
            return EvidenceStatus("verified", (), reported)
        try:
            lock = self._lock_of(run) if lock is None else lock
            reasons, measurement = compare_blobs(run, lock, self._store, self._scratch, again=again)
            marked = () if reasons else _marks(run, lock, self._store)
        except ContradictionError as error:
            return EvidenceStatus("contradicted", (error.what,), reported)
        except BenchlockError as error:
            return EvidenceStatus("unverified", (error.what,), reported, damaged=isinstance(error, IntegrityError))
        if reasons:
            return EvidenceStatus("contradicted", reasons, reported)
        remembered = _Remembered(lock.harness, marked, measurement)
        self._remember(run, remembered)
        return _verified(run, remembered)

    def require(self, run: Run, lock: Lock | None = None) -> None:
        """Raise unless an ended run agrees with its evidence now.

        Raises:
            IntegrityError: It does not, or its evidence is missing or damaged.
            UnverifiedError: It could not be compared here.
        """
        refuse_unverified(run.id, self.compare(run, lock))

    def _lock_of(self, run: Run) -> Lock:
        from benchlock.registry.lock.lockfile import load  # noqa: PLC0415 - a remembered record needs no lock

        lock = load(self._lock_text(run.start.lock), run.start.lock)
        with _as_contradiction():
            check_fit(run, lock)
        return lock

    def _recall(self, run: Run) -> EvidenceStatus | None:
        place = self._place(run)
        with _mutex:
            if (status := self._unverified.get(place)) is not None:
                return status
        try:
            return _verified(run, msgspec.json.decode(place.read_bytes(), type=_Remembered))
        except (OSError, msgspec.DecodeError):
            return None

    def _remember(self, run: Run, remembered: _Remembered) -> None:
        """Remember that a record agrees; where the folder cannot be written, it is compared again next time."""
        place = self._place(run)
        with suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(msgspec.json.encode(remembered))

    def _place(self, run: Run) -> Path:
        digest = to_hex(digest_bytes(encode_run(run)))
        return self._folder / _VERIFIED / digest[:2] / digest[2:]


class ContradictionError(IntegrityError):
    """A record contradicts itself, its lock or its evidence."""


@contextmanager
def _as_contradiction() -> Iterator[None]:
    """Raise an ``IntegrityError`` of a comparison as ``ContradictionError``, which is no damage."""
    try:
        yield
    except IntegrityError as error:
        raise ContradictionError(error.what, where=error.where, next_step=error.next_step) from error


def compare_blobs(
    run: Run, lock: Lock, store: BlobStore, scratch: Path | None, *, again: bool = False
) -> tuple[tuple[str, ...], Digest | None]:
    """Compare an ended run with its blobs.

    Returns:
        How the run differs from them, nothing where it agrees; and the digest of its timed calls (``EvidenceStatus``).

    Raises:
        IntegrityError: A blob is missing or damaged.
        InvalidInputError: This version cannot recompute the figures.
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
            if run.end.failure_class != "output":  # such a run was recorded as failed, for that very reason
                raise
    found = find_discrepancies(run, subject, recomputed, _log(run.end.blobs.get("log"), store))
    return tuple(map(str, found)), recomputed.measurement


def _subject(run: Run, lock: Lock, store: BlobStore) -> "Subject":
    from benchlock.evaluator.evidence.recomputation import Subject  # noqa: PLC0415 - as above
    from benchlock.evaluator.runner.lock_verification import (  # noqa: PLC0415
        check_agreement,
        read_manifests,
    )

    facts = ("os", "arch", "device", "python")
    place = [run.start.platform.get(fact) for fact in facts]
    for platform in lock.image.platforms:
        if [getattr(platform, fact) for fact in facts] == place:
            if run.end is None or not run.end.blobs:
                return Subject(lock, platform, {})
            manifests = read_manifests(lock, store)
            with _as_contradiction():
                check_agreement(lock, platform, manifests)
            return Subject(lock, platform, manifests)
    raise ContradictionError(f"{run.id} ran on a platform that its lock does not have", where=run.id)


def _log(blob: Descriptor | None, store: BlobStore) -> bytes:
    if blob is None:
        return b""
    if blob.size > _LARGEST_LOG:
        raise InvalidInputError(f"the log is larger than {_LARGEST_LOG} bytes, which is the most that is read")
    return read(store, blob.digest, name="the log")


_Key = tuple[str, str, tuple[tuple[str, Descriptor], ...]]
_memory: "OrderedDict[_Key, Recomputation]" = OrderedDict()
_mutex = Mutex()


def recompute_once(
    subject: "Subject", blobs: Mapping[str, Descriptor], store: BlobStore, scratch: Path | None, *, again: bool = False
) -> "Recomputation":
    """Recompute, or return what this process recomputed of the same lock, platform and blobs.

    Raises:
        As ``evaluator.evidence.recomputation.recompute``.
    """
    from benchlock.evaluator.evidence.recomputation import recompute  # noqa: PLC0415 - as above

    key = (subject.lock.id, str(subject.platform), tuple(sorted(blobs.items())))
    with _mutex:
        found = _memory.pop(key, None)  # it comes back below, unless its blobs are damaged by now
    if found is None or again:
        found = recompute(subject, blobs, store, scratch)
    with _mutex:
        _memory[key] = found
        _memory.move_to_end(key)
        while len(_memory) > _REMEMBERED:
            _memory.popitem(last=False)
    return found


def _verified(run: Run, remembered: _Remembered) -> EvidenceStatus:
    """Return the state of a record that agrees; all figures of an unreleased harness are self-reported."""
    assert run.end is not None
    marked = remembered.reported_by_model
    if not is_released(remembered.harness):
        marked = tuple(dict.fromkeys(metric.name for metric in run.end.metrics))
    return EvidenceStatus(
        "verified", (), reported_fields(run), self_reported=marked, measurement=remembered.measurement
    )


def _marks(run: Run, lock: Lock, store: BlobStore) -> tuple[str, ...]:
    """Return the metrics that the model could have made, of a record that is older than such marks."""
    from benchlock.evaluator.runner.lock_verification import read_manifests  # noqa: PLC0415
    from benchlock.evaluator.runner.self_reported import list_reported_by_model  # noqa: PLC0415 - as above

    assert run.end is not None
    if SELF_REPORTED in run.end.details or not run.end.metrics:
        return ()
    model = read_manifests(lock, store)["model"]
    assert isinstance(model, Model)
    marked = list_reported_by_model(lock, model, run.start.isolation)
    return tuple(one.name for one in run.end.metrics if one.name in marked)


def _left_nothing(run: Run) -> bool:
    """Return whether a run ended before its host said anything of it but the start, which is the host's word."""
    assert run.end is not None
    end = run.end
    ended_early = end.outcome in ("abandoned", "cancelled")
    return ended_early and not (end.metrics or end.blobs or end.packages or end.timings or end.details)


def reported_fields(run: Run) -> tuple[str, ...]:
    """Return the fields of an ended run that nothing can recompute."""
    assert run.end is not None
    if run.end.outcome in ("abandoned", "cancelled"):
        return (*REPORTED_FIELDS, "outcome")
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
            replace(one, self_reported=one.self_reported or one.name in status.self_reported) for one in run.end.metrics
        )
        return replace(run, end=replace(run.end, metrics=metrics), evidence=status)
    return replace(run, end=replace(run.end, metrics=(), details={}), evidence=status)


class ExaminedRecords(Records):
    """Records whose runs carry the state of their evidence; figures that are not verified are withheld."""

    def __init__(self, engine: Engine, examiner: Examiner) -> None:
        super().__init__(engine)
        self._examiner = examiner

    def get(self, run: RunId) -> Run:
        return self._examiner.examine(super().get(run))

    def recall(self, run: RunId) -> Run | None:
        return self._examiner.recall(super().get(run))

    def _examine(self, runs: Iterable[Run]) -> Iterable[Run]:
        return self._examiner.examine_each(runs)
