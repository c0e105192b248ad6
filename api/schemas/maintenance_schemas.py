"""Bodies for bundle import, verification and garbage collection."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from benchlock.api.schemas.artifact_schemas import Name, PublishedVersion, Version
from benchlock.artifacts import size_limits
from benchlock.artifacts.atomic_files import RemovedFiles
from benchlock.artifacts.digest import DigestText
from benchlock.evaluator.records.run_types import RunText
from benchlock.registry.artifact_names import Kind


class BundleImportRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The digest of a bundle that was uploaded as a blob."""

    blob: DigestText


class SkippedArtifact(Struct, frozen=True, kw_only=True):
    """An artifact of a bundle that was not added to the catalogue, and the reason; its lock can be run anyway."""

    kind: Kind
    name: Name
    version: Version
    reason: str


class ImportedRun(Struct, frozen=True, kw_only=True):
    """A run of a bundle; ``changed`` is false if the registry already had it."""

    run: RunText
    changed: bool


class ImportReport(Struct, frozen=True, kw_only=True):
    """The content of an imported bundle; ``changed`` is false if the registry already had all of it."""

    lock: DigestText
    changed: bool
    runs: tuple[ImportedRun, ...]
    platforms: tuple[str, ...]
    artifacts: tuple[PublishedVersion, ...]
    kept_out: tuple[SkippedArtifact, ...]
    blobs: int
    warnings: tuple[str, ...]


class VerificationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to verify: ``KIND/NAME[@CONSTRAINT]``, ``run/ID``, or the id or text of a lock; if empty, everything.

    With ``remote``, blobs are read from the OCI repository behind the registry. ``head`` is a head of the chain of
    records that was noted before, and must still be part of the chain.
    """

    targets: Annotated[tuple[Annotated[str, size_limits.limit_text(size_limits.LOCK)], ...], Meta(max_length=1000)] = ()
    remote: bool = False
    head: Annotated[str, Meta(max_length=100)] | None = None


class VerificationReport(Struct, frozen=True, kw_only=True):
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


class GcRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a garbage collection; ``local`` also deletes cached copies of blobs that an OCI repository has."""

    dry_run: bool = False
    local: bool = False


class GcReport(Struct, frozen=True, kw_only=True):
    """Number and bytes of the unreferenced blobs; ``leftovers`` are unfinished files, which are deleted too."""

    blobs: int
    bytes: int
    dry_run: bool
    local: dict[str, Any] | None
    leftovers: RemovedFiles = RemovedFiles(0, 0)
