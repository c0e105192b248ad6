"""The protocol of catalogues, their entries, and a blob store that reads manifests from a catalogue."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol

from benchlock.artifacts.atomic_files import StoreLock
from benchlock.artifacts.blob_store import BlobNotFoundError
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.artifact_names import Kind, Name, Reference
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests import Manifest
from benchlock.registry.manifests.manifest_types import Task
from benchlock.registry.versions.semantic_version import Version
from benchlock.registry.versions.version_ranges import Constraint

Key = tuple[str, str, str]


class VersionTakenError(InvalidInputError):
    """A version that is published already with other content, which it keeps permanently."""

    code = "version-taken"


@dataclass(frozen=True, slots=True)
class Entry:
    """A published version; ``yanked`` is the reason if the version is yanked."""

    reference: Reference
    digest: Digest
    published_at: datetime
    yanked: str | None


class ListedVersion(NamedTuple):
    """A version on a page, as the texts of its row; a page does not need parsed versions.

    ``yanked`` is the reason if the version is yanked.
    """

    kind: Kind
    name: Name
    precedence: str
    version: str
    digest: Digest
    published_at: datetime
    yanked: str | None

    @property
    def key(self) -> Key:
        """The key behind which the next page starts."""
        return (self.kind, self.name, self.precedence)


@dataclass(frozen=True, slots=True)
class ContentFilter:
    """A filter of versions by their manifests: all conditions that are set must be met.

    Attributes:
        task: The task of a model.
        framework: The framework that a model needs or an image provides; also a version of the framework itself.
        search: A part of the name, of the description or of a tag, in upper or lower case.
        tag: A tag.
        license: The license as it is written, in upper or lower case.
        platform: The operating system of an environment of an image; after slashes, its architecture and device.
    """

    task: Task | None = None
    framework: Name | None = None
    search: str | None = None
    tag: str | None = None
    license: str | None = None
    platform: str | None = None


ANY_CONTENT: Final = ContentFilter()


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a version: the author's text, and each file's source as written. The digest excludes both."""

    authored: str
    sources: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The result of publishing; ``changed`` is false if the same content was published before."""

    reference: Reference
    digest: Digest
    changed: bool


def version_taken_error(
    reference: Reference, version: str, published_digest: str, new_digest: str
) -> VersionTakenError:
    """Return the error for a version that is published with other content.

    Args:
        reference: The version that was to be published.
        version: The published version, which may differ in its build metadata.
        published_digest: The digest of the published content.
        new_digest: The digest of the content that was to be published.
    """
    return VersionTakenError(
        f"{reference.kind}/{reference.name}@{version} is already published with different content: "
        f"{published_digest}, not {new_digest}",
        where=str(reference),
        next_step="publish the new content under a new version",
    )


class CatalogueProtocol(Protocol):
    """The catalogue as publishing and locking need it, in a database or behind a server.

    The methods of ``Catalogue`` document arguments and errors.
    """

    def publish(self, manifest: Manifest, provenance: Provenance) -> PublishResult:
        """Publish a version; publishing the same content again changes nothing."""
        ...

    def would_change(self, manifest: Manifest) -> PublishResult:
        """Return the result that ``publish`` would have, and change nothing."""
        ...

    def get(self, reference: Reference) -> Entry:
        """Return the entry of a version."""
        ...

    def manifest(self, reference: Reference) -> Manifest:
        """Return the manifest as published."""
        ...

    def content(self, reference: Reference) -> tuple[str, Mapping[str, str]]:
        """Return the text of a manifest as published, and the sources of its files."""
        ...

    def versions(self, kind: Kind, name: Name) -> tuple[Entry, ...]:
        """Return every version of a name in SemVer order, yanked versions included."""
        ...

    def newest(self, kind: Kind, name: Name, constraint: Constraint | None) -> Entry:
        """Return the newest version that ``constraint`` admits."""
        ...

    def list(self, kind: Kind | None = None, content: ContentFilter = ANY_CONTENT) -> tuple[Entry, ...]:
        """Return every published version, or those of one ``kind``, whose manifests match ``content``."""
        ...

    def yank(self, reference: Reference, reason: str) -> bool:
        """Hide a version from new resolutions; return ``False`` if it is already yanked for the same reason."""
        ...

    def unyank(self, reference: Reference) -> bool:
        """Undo a yank; return ``False`` if the version is not yanked."""
        ...

    def put_lock(self, lock: Lock) -> object:
        """Store a lock under its id; storing it again changes nothing."""
        ...

    def get_lock(self, lock: Digest) -> str:
        """Return the text of a stored lock."""
        ...

    def find_lock(self, text: str) -> Digest:
        """Return the id of the only stored lock whose id is ``text`` or begins with it."""
        ...


def no_version_error(
    kind: Kind, name: Name, constraint: Constraint, existing: str, yanked: Version | None = None
) -> UnknownNameError:
    """Return the error for a name without a version that the constraint admits.

    Args:
        kind: The kind of the name.
        name: The name.
        constraint: The constraint.
        existing: The existing versions, as text for the message.
        yanked: The newest version that would be admitted if it were not yanked.
    """
    what = f"no version of {kind}/{name} satisfies {constraint}"
    if yanked is None:
        return UnknownNameError(what, next_step=f"available: {existing}")
    return UnknownNameError(
        f"{what}, except yanked ones (newest: {yanked})",
        next_step=f"to use it anyway, write {kind}/{name}@{yanked}; available: {existing}",
    )


TextOf = Callable[[Digest], str | None]
"""Returns the text of the published manifest with a digest, or ``None``."""


class CataloguedStore(LocalStore):
    """A folder of blobs that reads published manifests from the catalogue, which stores their text durably.

    A published manifest therefore needs no file, and publishing waits only for the commit of the catalogue. The file is
    written when ``path`` is called for it. An existing file takes precedence, even if it is damaged. ``list`` yields
    the files alone.

    Args:
        root: The folder of the blobs.
        text_of: Returns the text of the published manifest with a digest, or ``None``.
        beside: A further lock to take with the lock of the folder.
    """

    def __init__(self, root: Path, text_of: TextOf, beside: StoreLock | None = None) -> None:
        """Open the store in the folder ``root``."""
        super().__init__(root, beside)
        self._text_of = text_of

    def open(self, digest: Digest) -> BinaryIO:
        """Open a blob, or a published manifest without a file."""
        try:
            return super().open(digest)
        except BlobNotFoundError as absent:
            return io.BytesIO(self._read_manifest(digest, absent))

    def stat(self, digest: Digest) -> Descriptor:
        """Return digest and size of a blob, or of a published manifest without a file."""
        try:
            return super().stat(digest)
        except BlobNotFoundError as absent:
            return Descriptor(digest, len(self._read_manifest(digest, absent)))

    def path(self, digest: Digest) -> Path:
        """Return the path of a blob; write the file first if it is a published manifest without one."""
        try:
            super().stat(digest)
        except BlobNotFoundError as absent:
            self.put(io.BytesIO(self._read_manifest(digest, absent)), digest, name=f"the manifest {digest}")
        return super().path(digest)

    def _read_manifest(self, digest: Digest, error: BlobNotFoundError) -> bytes:
        """Return the bytes of the published manifest with this digest; raise ``error`` if there is none."""
        text = self._text_of(digest)
        if text is None:
            raise error
        return text.encode()
