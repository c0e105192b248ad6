"""Bodies for artifacts, their versions, publishing and yanking."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from benchlock.artifacts import size_limits
from benchlock.artifacts.digest import Digest, DigestText, parse_digest
from benchlock.registry.artifact_names import Kind, Reference, parse_name
from benchlock.registry.catalogue.catalogue_protocol import Entry, ListedVersion, PublishResult
from benchlock.registry.manifests.field_types import MAX_FILES
from benchlock.registry.versions.semantic_version import parse_version

Name = Annotated[str, size_limits.limit_text(size_limits.NAME, "acme/resnet8")]
Version = Annotated[str, size_limits.limit_text(size_limits.NAME, "1.0.0")]
Path = Annotated[str, size_limits.limit_text(size_limits.PATH)]
Source = Annotated[str, size_limits.limit_text(size_limits.SOURCE)]


class VersionEntry(Struct, frozen=True, kw_only=True):
    """A published version; ``digest`` is that of its manifest, ``yanked`` the reason if the version is yanked."""

    kind: Kind
    name: Name
    version: Version
    digest: DigestText
    published_at: datetime
    yanked: str | None


class VersionPage(Struct, frozen=True, kw_only=True):
    """Versions by kind, name and version; ``next`` is the cursor of the next page, absent on the last."""

    artifacts: tuple[VersionEntry, ...]
    next: str | UnsetType = UNSET


class VersionDocument(VersionEntry, frozen=True, kw_only=True):
    """A version with its manifest, byte for byte as it was digested, and the sources of its files."""

    manifest: Raw
    sources: dict[str, str]


class Publication(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version to publish; its blobs are uploaded before.

    The manifest lists every file with digest and size, and without a source. ``digest`` is the sender's digest of the
    manifest. ``authored`` and ``sources`` are stored with the manifest.
    """

    manifest: Annotated[dict[str, Any], size_limits.limit_document(size_limits.MANIFEST)]
    authored: Annotated[str, size_limits.limit_text(size_limits.MANIFEST)] = ""
    sources: Annotated[
        dict[Path, Source], size_limits.limit_document(size_limits.MANIFEST), Meta(max_length=MAX_FILES)
    ] = {}
    digest: DigestText | UnsetType = UNSET
    dry_run: bool = False


class PublishedVersion(Struct, frozen=True, kw_only=True):
    """The result of a publication or dry run; ``changed`` is false if the same content was already published.

    ``warnings`` describe irregularities that do not prevent publication.
    """

    kind: Kind
    name: Name
    version: Version
    digest: DigestText
    changed: bool
    warnings: tuple[str, ...] = ()


class YankRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version that new locks must not choose, and the reason; with ``undo``, a version that may be chosen again."""

    target: Annotated[str, size_limits.limit_text(size_limits.TARGET, "model/acme/resnet8@1.0.0")]
    reason: Annotated[str, size_limits.limit_text(size_limits.REASON)] = ""
    undo: bool = False


class YankResult(Struct, frozen=True, kw_only=True):
    """The state of a version after a yank; ``changed`` is false if it was already in that state."""

    target: str
    yanked: bool
    changed: bool


def encode_version_entry(entry: Entry) -> VersionEntry:
    """Encode an entry of the catalogue."""
    return VersionEntry(
        kind=entry.reference.kind,
        name=entry.reference.name,
        version=str(entry.reference.version),
        digest=entry.digest,
        published_at=entry.published_at,
        yanked=entry.yanked,
    )


def encode_version_page_entry(version: ListedVersion) -> VersionEntry:
    """Encode an entry of a page of versions."""
    return VersionEntry(
        kind=version.kind,
        name=version.name,
        version=version.version,
        digest=version.digest,
        published_at=version.published_at,
        yanked=version.yanked,
    )


def version_document(entry: Entry, manifest: str, sources: Mapping[str, str]) -> bytes:
    """Encode a version with its manifest as the JSON of ``VersionDocument``."""
    parts = msgspec.structs.asdict(encode_version_entry(entry))
    return msgspec.json.encode(VersionDocument(**parts, manifest=Raw(manifest.encode()), sources=dict(sources)))


def decode_version_entry(entry: VersionEntry) -> Entry:
    """Decode an entry of the catalogue."""
    return Entry(_parse_reference(entry), parse_digest(entry.digest), entry.published_at, entry.yanked)


def encode_published_version(published: PublishResult, warnings: tuple[str, ...] = ()) -> PublishedVersion:
    """Encode the result of a publication."""
    return PublishedVersion(
        kind=published.reference.kind,
        name=published.reference.name,
        version=str(published.reference.version),
        digest=published.digest,
        changed=published.changed,
        warnings=warnings,
    )


def decode_published_version(published: PublishedVersion) -> PublishResult:
    """Decode the result of a publication."""
    return PublishResult(_parse_reference(published), Digest(published.digest), published.changed)


def _parse_reference(entry: VersionEntry | PublishedVersion) -> Reference:
    return Reference(entry.kind, parse_name(entry.name), parse_version(entry.version))
