"""Bodies for artifacts, their versions, publishing and yanking."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from benchlock.api.schemas.shared_fields import limit_document, limit_text
from benchlock.artifacts import size_limits
from benchlock.artifacts.digest import Digest, parse_digest
from benchlock.registry.catalogue.catalogue_protocol import Entry, PublishResult
from benchlock.registry.catalogue.version_lists import ListedVersion
from benchlock.registry.manifests.field_types import MOST_FILES
from benchlock.registry.names import Kind, Reference, parse_name
from benchlock.registry.versions.semantic_version import parse_version

Name = Annotated[str, limit_text(size_limits.NAME, "acme/resnet8")]
Version = Annotated[str, limit_text(size_limits.NAME, "1.0.0")]
DigestText = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
Path = Annotated[str, limit_text(size_limits.PATH)]
Source = Annotated[str, limit_text(size_limits.SOURCE)]


class VersionEntry(Struct, frozen=True, kw_only=True):
    """A published version. ``digest`` is its manifest's; ``yanked`` is the reason, where it is yanked."""

    kind: Kind
    name: Name
    version: Version
    digest: DigestText
    published_at: datetime
    yanked: str | None


class VersionPage(Struct, frozen=True, kw_only=True):
    """Versions by kind, name and version; ``next`` is the cursor of what follows, absent at the end."""

    artifacts: tuple[VersionEntry, ...]
    next: str | UnsetType = UNSET


class VersionDocument(VersionEntry, frozen=True, kw_only=True):
    """A version with its manifest, whose bytes are those of the digest, and where its files came from."""

    manifest: Raw
    sources: dict[str, str]


class Publication(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version to publish: every file with its digest and size, and none with a source; its blobs are sent before.

    ``digest`` is what the sender takes the manifest's to be. ``authored`` and ``sources`` are kept beside it.
    """

    manifest: Annotated[dict[str, Any], limit_document(size_limits.MANIFEST)]
    authored: Annotated[str, limit_text(size_limits.MANIFEST)] = ""
    sources: Annotated[dict[Path, Source], limit_document(size_limits.MANIFEST), Meta(max_length=MOST_FILES)] = {}
    digest: DigestText | UnsetType = UNSET
    dry_run: bool = False


class PublishedVersion(Struct, frozen=True, kw_only=True):
    """What publishing did, or with a dry run would do: ``changed`` is false where the same content was there already.

    ``warnings`` say what is odd, and no reason to refuse.
    """

    kind: Kind
    name: Name
    version: Version
    digest: DigestText
    changed: bool
    warnings: tuple[str, ...] = ()


class Yank(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """That nobody should choose a version any more, and why; or, with ``undo``, that it may be chosen again."""

    target: Annotated[str, limit_text(size_limits.TARGET, "model/acme/resnet8@1.0.0")]
    reason: Annotated[str, limit_text(size_limits.REASON)] = ""
    undo: bool = False


class Yanked(Struct, frozen=True, kw_only=True):
    """``changed`` is false where it was so already."""

    target: str
    yanked: bool
    changed: bool


def encode_version_entry(entry: Entry) -> VersionEntry:
    return VersionEntry(
        kind=entry.reference.kind,
        name=entry.reference.name,
        version=str(entry.reference.version),
        digest=entry.digest,
        published_at=entry.published_at,
        yanked=entry.yanked,
    )


def encode_version_page_entry(listed: ListedVersion) -> VersionEntry:
    return VersionEntry(
        kind=listed.kind,
        name=listed.name,
        version=listed.version,
        digest=listed.digest,
        published_at=listed.published_at,
        yanked=listed.yanked,
    )


def version_document(entry: Entry, manifest: str, sources: Mapping[str, str]) -> bytes:
    """A version with its manifest, as it is sent."""
    parts = msgspec.structs.asdict(encode_version_entry(entry))
    return msgspec.json.encode(VersionDocument(**parts, manifest=Raw(manifest.encode()), sources=dict(sources)))


def decode_version_entry(entry: VersionEntry) -> Entry:
    return Entry(_parse_reference(entry), parse_digest(entry.digest), entry.published_at, entry.yanked)


def encode_published_version(published: PublishResult, warnings: tuple[str, ...] = ()) -> PublishedVersion:
    return PublishedVersion(
        kind=published.reference.kind,
        name=published.reference.name,
        version=str(published.reference.version),
        digest=published.digest,
        changed=published.changed,
        warnings=warnings,
    )


def decode_published_version(published: PublishedVersion) -> PublishResult:
    return PublishResult(_parse_reference(published), Digest(published.digest), published.changed)


def _parse_reference(one: VersionEntry | PublishedVersion) -> Reference:
    return Reference(one.kind, parse_name(one.name), parse_version(one.version))
