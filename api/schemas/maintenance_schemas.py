"""Bodies for bundle import, verification and garbage collection."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from benchlock.api.registry_protocol import GcReport, ImportReport, VerificationReport
from benchlock.api.schemas.artifact_schemas import (
    DigestText,
    Name,
    PublishedVersion,
    Version,
    decode_published_version,
    encode_published_version,
)
from benchlock.api.schemas.run_schemas import RunText
from benchlock.api.schemas.shared_fields import limit_text
from benchlock.artifacts import size_limits
from benchlock.artifacts.atomic_files import RemovedFiles
from benchlock.evaluator.records.run_model import RunId
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

    targets: Annotated[tuple[Annotated[str, limit_text(size_limits.LOCK)], ...], Meta(max_length=1000)] = ()
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


def encode_import_report(found: ImportReport) -> BundleTold:
    """Encode the result of a bundle import."""
    return BundleTold(
        lock=found.lock,
        changed=found.changed,
        runs=tuple(RunBrought(run=run, changed=is_new) for run, is_new in found.runs.items()),
        platforms=found.platforms,
        artifacts=tuple(map(encode_published_version, found.artifacts)),
        kept_out=tuple(
            KeptOut(kind=one.kind, name=one.name, version=str(one.version), reason=reason)
            for one, reason in found.kept_out.items()
        ),
        blobs=found.blobs,
        warnings=found.warnings,
    )


def decode_import_report(told: BundleTold) -> ImportReport:
    """Decode the result of a bundle import."""
    return ImportReport(
        told.lock,
        told.changed,
        {RunId(one.run): one.changed for one in told.runs},
        told.platforms,
        tuple(map(decode_published_version, told.artifacts)),
        {Reference(one.kind, parse_name(one.name), parse_version(one.version)): one.reason for one in told.kept_out},
        told.blobs,
        told.warnings,
    )


def encode_verification(found: VerificationReport) -> VerifiedTold:
    """Encode the result of a verification."""
    return VerifiedTold(
        blobs=found.blobs,
        damaged=tuple(map(dict, found.damaged)),
        records=found.records,
        head=found.head,
        runs=found.runs,
        contradictions=tuple(map(dict, found.contradictions)),
    )


def decode_verification(told: VerifiedTold) -> VerificationReport:
    """Decode the result of a verification."""
    return VerificationReport(told.blobs, told.damaged, told.records, told.head, told.runs, told.contradictions)


def encode_gc_report(found: GcReport, *, dry_run: bool) -> CollectedTold:
    """Encode the result of a garbage collection."""
    local = None if found.local is None else dict(found.local)
    leftovers = Leftovers(files=found.leftovers.files, bytes=found.leftovers.size)
    return CollectedTold(blobs=found.blobs, bytes=found.size, dry_run=dry_run, local=local, leftovers=leftovers)


def decode_gc_report(told: CollectedTold) -> GcReport:
    """Decode the result of a garbage collection."""
    return GcReport(told.blobs, told.bytes, told.local, RemovedFiles(told.leftovers.files, told.leftovers.bytes))
