"""Bundles of locks and of runs, written and imported."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from sqlalchemy import Engine

from benchlock.artifacts import size_limits
from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.bundles.bundle_format import BundleError, BundlePart, BundleRoot, write_bundle
from benchlock.artifacts.bundles.bundle_reader import Bundle, ReceivedRoot, open_bundle
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.evidence.run_examination import compare_blobs
from benchlock.evaluator.records.evidence_status import EvidenceStatus, refuse_unverified
from benchlock.evaluator.records.run_document import (
    check_fit,
    check_past,
    decode_run,
    encode_run,
    remove_marks_of_reading,
)
from benchlock.evaluator.records.run_store import keep_imported
from benchlock.evaluator.records.run_types import Run, RunId, check_end
from benchlock.evaluator.runner.lock_verification import check_agreement, find_evaluated, read_manifests
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.catalogue.version_rows import insert_imported_lock
from benchlock.registry.database.engine import write_transaction
from benchlock.registry.lock.lockfile import Lock, LockedPlatform, dump, load
from benchlock.registry.manifests import Model
from benchlock.registry.publishing.lock_bundle import (
    LOCK_TYPE,
    ArtifactImport,
    admit,
    check_parts,
    choose_platforms,
    find_objections,
    find_platforms,
    iterate_parts,
    list_lock_parts,
)
from benchlock.registry.publishing.oci_artifacts import name_version
from benchlock.registry.publishing.remote_publication import refuse_hidden_code

_ASK_AGAIN: Final = "request a new bundle from its author"
RUN_TYPE: Final = "application/vnd.benchlock.run.v1+json"


@dataclass(frozen=True, slots=True)
class BundleSummary:
    """A written bundle: its digest and size, its platforms, and the number of its blobs."""

    file: Descriptor
    platforms: tuple[LockedPlatform, ...]
    blobs: int


def _charge_nobody(_: Mapping[Digest, int]) -> None:
    """Accept any blobs."""


@dataclass(frozen=True, slots=True)
class BundleAdmission:
    """The limits of an imported bundle.

    Attributes:
        most_files: The maximum number of files, if it differs from the format's own.
        charge: Gets the sizes of all blobs before any is stored, and may refuse them. If the import fails later, the
            blobs are stored without a reference.
    """

    most_files: int | None = None
    charge: Callable[[Mapping[Digest, int]], None] = _charge_nobody


@dataclass(frozen=True, slots=True)
class BundleImport:
    """The result of an import.

    Attributes:
        lock: The lock.
        is_new: Whether the lock is new here.
        runs: The runs, each with whether it is new here.
        platforms: The platforms on which the lock can run now.
        artifacts: The imported entries of the catalogue.
        blobs: The number of blobs.
        warnings: Possible consequences of a newer schema.
    """

    lock: Lock
    is_new: bool
    runs: Mapping[RunId, bool]
    platforms: tuple[LockedPlatform, ...]
    artifacts: ArtifactImport
    blobs: int
    warnings: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether the registry has more content than before."""
        return self.is_new or any(self.runs.values()) or any(entry.changed for entry in self.artifacts.published)


@dataclass(frozen=True, slots=True)
class _BundleContent:
    """The claimed content of a bundle, none of which is in the registry yet."""

    lock: Lock
    platforms: tuple[LockedPlatform, ...]
    runs: tuple[Run, ...]


def create_bundle(
    path: Path, lock: Lock, run: Run | None, store: BlobStore, progress: Progress, *, platform: str = ""
) -> BundleSummary:
    """Write ``lock`` and ``run``, with every blob that they refer to, to the file ``path``.

    The same arguments give the same bytes.

    Args:
        path: The file to write.
        lock: The lock.
        run: A run of it; None writes the lock alone.
        store: The store of the blobs.
        progress: Shows the progress.
        platform: The only platform of the lock whose blobs are written; empty for all.

    Raises:
        InvalidInputError: The lock has no such platform, or the run has not ended.
        IntegrityError: A blob is missing or damaged, or the record contradicts its evidence; no file is left.
        UnavailableError: The file cannot be written.
    """
    platforms = choose_platforms(lock, platform)
    roots = [BundleRoot(LOCK_TYPE, dump(lock).encode(), list_lock_parts(lock, platforms, store))]
    if run is not None:
        refuse_unverified(run.id, run.evidence)
        content = encode_run(remove_marks_of_reading(run))
        parts = {part.blob.digest: part for part in _parts_of_run(run)}
        roots.append(BundleRoot(RUN_TYPE, content, tuple(parts.values())))
    file = write_bundle(path, roots, store, progress)
    return BundleSummary(file, platforms, len({part.blob.digest for root in roots for part in root.parts}))


def import_bundle(
    path: Path,
    store: BlobStore,
    database: Engine,
    now: Callable[[], datetime],
    progress: Progress,
    scratch: Path | None = None,
    admission: BundleAdmission | None = None,
) -> BundleImport:
    """Import a bundle completely or not at all; a second import changes nothing.

    Blobs are verified as they are stored. The database is written last, in one transaction: before that nothing is
    visible, and stored blobs are garbage that a collection deletes. Records of runs are compared with their evidence.

    Args:
        path: The file of the bundle.
        store: The store of the blobs.
        database: The database of the registry.
        now: The calendar clock.
        progress: Shows the progress.
        scratch: The folder for temporary files of the comparison with evidence; None for any folder.
        admission: The limits of the bundle.

    Raises:
        ForbiddenError: The actor may not store locks and record runs, or not publish the artifacts.
        InvalidInputError: The file is not a bundle, or has a newer version; nothing was changed.
        IntegrityError: Content does not match its digest or the lock; nothing was changed.
        UnavailableError: The file cannot be read, or the registry cannot be written.
    """
    get_actor().require("run")
    admission = admission or BundleAdmission()
    try:
        with open_bundle(path, admission.most_files) as bundle, store.writing():
            content = _read_roots(bundle, now())
            admission.charge(bundle.blob_sizes())
            with store.together():
                count = bundle.store_into(store, progress)
            for run in content.runs:
                _check_evidence(run, content.lock, store, scratch)
            return _store_content(bundle, content, count, store, database, now)
    except RecursionError as error:
        raise BundleError(
            f"a document in {path} is nested too deeply", where=str(path), next_step=_ASK_AGAIN
        ) from error


def _read_roots(bundle: Bundle, now: datetime) -> _BundleContent:
    """Return the lock and the runs, checked as far as that is possible without their blobs."""
    locks = [root for root in bundle.roots if root.media_type == LOCK_TYPE]
    records = [root for root in bundle.roots if root.media_type == RUN_TYPE]
    if len(locks) != 1 or len(locks) + len(records) != len(bundle.roots):
        raise BundleError(
            "the bundle must contain exactly one lock and runs of it",
            where=", ".join(root.media_type for root in bundle.roots),
            next_step="use the version of benchlock that wrote it",
        )
    if len(locks[0].content) > size_limits.LOCK:
        raise BundleError(
            f"the lock in the bundle has {len(locks[0].content)} bytes; the maximum is {size_limits.LOCK}",
            where=locks[0].digest,
            next_step=_ASK_AGAIN,
        )
    lock = load(_text(locks[0]), "the lock in the bundle")
    runs = tuple(_read_run(record, lock, now) for record in records)
    return _BundleContent(lock, find_platforms(lock, locks[0].blobs), runs)


def _read_run(record: ReceivedRoot, lock: Lock, now: datetime) -> Run:
    run = decode_run(record.content, f"the record {record.digest} in the bundle")
    check_past(run, now)
    check_fit(run, lock)
    check_parts(_parts_of_run(run), record.blobs)
    return run


def _check_evidence(run: Run, lock: Lock, store: BlobStore, scratch: Path | None) -> None:
    """Raise unless the record agrees with its blobs.

    Raises:
        IntegrityError: It contradicts them.
        InvalidInputError: This version cannot recompute its metrics.
    """
    if reasons := compare_blobs(run, lock, store, scratch)[0]:
        refuse_unverified(run.id, EvidenceStatus("contradicted", reasons))
    assert run.end is not None
    check_end(run.start, run.end)


def _text(root: ReceivedRoot) -> str:
    try:
        return root.content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"the lock in the bundle is not UTF-8: {error.reason}", where=root.digest, next_step=_ASK_AGAIN
        ) from error


def _parts_of_run(run: Run) -> tuple[BundlePart, ...]:
    assert run.end is not None
    return tuple(BundlePart(blob, f"{run.id} {role}") for role, blob in sorted(run.end.blobs.items()))


def _store_content(
    bundle: Bundle, content: _BundleContent, count: int, store: BlobStore, database: Engine, now: Callable[[], datetime]
) -> BundleImport:
    """Check everything that needs the blobs, then write the database in one transaction."""
    lock = content.lock
    listed = next(root.blobs for root in bundle.roots if root.media_type == LOCK_TYPE)
    check_parts(iterate_parts(lock, content.platforms, store), listed)
    manifests = read_manifests(lock, store)
    for platform in content.platforms:
        check_agreement(lock, platform, manifests)
    model = find_evaluated(manifests)
    if isinstance(model, Model):
        refuse_hidden_code(model, store)
    objections = find_objections(manifests, listed, store)
    with write_transaction(database) as connection:
        at = now()
        is_new = insert_imported_lock(connection, lock, content.platforms, at)
        admitted = admit(connection, manifests, lock, objections, at)
        runs = {run.id: keep_imported(connection, run, at) for run in content.runs}
    for published in admitted.published:
        name_version(store, manifests[published.reference.kind])
    warnings = (*bundle.warnings, *lock.warnings)
    return BundleImport(lock, is_new, runs, content.platforms, admitted, count, warnings)
