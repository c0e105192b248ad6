"""Bodies for bundle import, verification and garbage collection."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from benchlock.api.registry_protocol import GcReport, ImportReport, VerificationReport
from benchlock.api.schemas.artifact_schemas import (
    Name,
    PublishedVersion,
    Version,
    decode_published_version,
    encode_published_version,
)
from benchlock.artifacts import size_limits
from benchlock.artifacts.atomic_files import RemovedFiles
from benchlock.artifacts.digest import Digest, DigestText
from benchlock.evaluator.records.run_types import RunId, RunText
from benchlock.registry.names import Kind, Reference, parse_name
from benchlock.registry.versions.semantic_version import parse_version


class BundleSent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The digest of a bundle that was uploaded as a blob."""

    blob: DigestText


class KeptOut(Struct, frozen=True, kw_only=True):
    """An artifact of a bundle that was not added to the catalogue, and the reason; its lock can be run anyway."""

    kind: Kind
    name: Name
    version: Version
    reason: str


class RunBrought(Struct, frozen=True, kw_only=True):
    """A run of a bundle; ``changed`` is false if the registry already had it."""

    run: RunText
    changed: bool


class BundleTold(Struct, frozen=True, kw_only=True):
    """The content of an imported bundle; ``changed`` is false if the registry already had all of it."""

    lock: DigestText
    changed: bool
    runs: tuple[RunBrought, ...]
    platforms: tuple[str, ...]
    artifacts: tuple[PublishedVersion, ...]
    kept_out: tuple[KeptOut, ...]
    blobs: int
    warnings: tuple[str, ...]


class ToVerify(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to verify: ``KIND/NAME[@CONSTRAINT]``, ``run/ID``, or the id or text of a lock; if empty, everything.

    With ``remote``, blobs are read from the OCI repository behind the registry. ``head`` is a head of the chain of
    records that was noted before, and must still be part of the chain.
    """

    targets: Annotated[tuple[Annotated[str, size_limits.limit_text(size_limits.LOCK)], ...], Meta(max_length=1000)] = ()
    remote: bool = False
    head: Annotated[str, Meta(max_length=100)] | None = None


class VerifiedTold(Struct, frozen=True, kw_only=True):
    """The number of verified blobs, and an error (code, message, where, next) for each damaged one.

    If everything was verified, ``records`` is the number of records and ``head`` the last link of their chain. ``runs``
    is how many ended runs were compared with their evidence; ``contradictions`` are those that differ from it.
    """

    blobs: int
    damaged: tuple[dict[str, Any], ...]
    records: int | None = None
    head: str | None = None
    runs: int = 0
    contradictions: tuple[dict[str, Any], ...] = ()


class ToCollect(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a garbage collection; ``local`` also deletes cached copies of blobs that an OCI repository has."""

    dry_run: bool = False
    local: bool = False


class Leftovers(Struct, frozen=True, kw_only=True):
    """Number and bytes of files left by killed writers and by transfers that nobody resumed."""

    files: int
    bytes: int


class CollectedTold(Struct, frozen=True, kw_only=True):
    """Number and bytes of the unreferenced blobs; ``leftovers`` are unfinished files, which are deleted too."""

    blobs: int
    bytes: int
    dry_run: bool
    local: dict[str, Any] | None
    leftovers: Leftovers = Leftovers(files=0, bytes=0)


def encode_import_report(report: ImportReport) -> BundleTold:
    """Encode the result of a bundle import."""
    return BundleTold(
        lock=Digest(report.lock),
        changed=report.changed,
        runs=tuple(RunBrought(run=run, changed=is_new) for run, is_new in report.runs.items()),
        platforms=report.platforms,
        artifacts=tuple(map(encode_published_version, report.artifacts)),
        kept_out=tuple(
            KeptOut(kind=reference.kind, name=reference.name, version=str(reference.version), reason=reason)
            for reference, reason in report.kept_out.items()
        ),
        blobs=report.blobs,
        warnings=report.warnings,
    )


def decode_import_report(document: BundleTold) -> ImportReport:
    """Decode the result of a bundle import."""
    return ImportReport(
        document.lock,
        document.changed,
        {RunId(entry.run): entry.changed for entry in document.runs},
        document.platforms,
        tuple(map(decode_published_version, document.artifacts)),
        {
            Reference(entry.kind, parse_name(entry.name), parse_version(entry.version)): entry.reason
            for entry in document.kept_out
        },
        document.blobs,
        document.warnings,
    )


def encode_verification(report: VerificationReport) -> VerifiedTold:
    """Encode the result of a verification."""
    return VerifiedTold(
        blobs=report.blobs,
        damaged=tuple(map(dict, report.damaged)),
        records=report.records,
        head=report.head,
        runs=report.runs,
        contradictions=tuple(map(dict, report.contradictions)),
    )


def decode_verification(document: VerifiedTold) -> VerificationReport:
    """Decode the result of a verification."""
    return VerificationReport(
        document.blobs, document.damaged, document.records, document.head, document.runs, document.contradictions
    )


def encode_gc_report(report: GcReport, *, dry_run: bool) -> CollectedTold:
    """Encode the result of a garbage collection."""
    local = None if report.local is None else dict(report.local)
    leftovers = Leftovers(files=report.leftovers.files, bytes=report.leftovers.size)
    return CollectedTold(blobs=report.blobs, bytes=report.size, dry_run=dry_run, local=local, leftovers=leftovers)


def decode_gc_report(document: CollectedTold) -> GcReport:
    """Decode the result of a garbage collection."""
    return GcReport(
        document.blobs, document.bytes, document.local, RemovedFiles(document.leftovers.files, document.leftovers.bytes)
    )
