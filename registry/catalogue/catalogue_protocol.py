"""The protocol of catalogues, their entries, and a blob store that reads manifests from a catalogue."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Protocol

from benchlock.artifacts.atomic_files import StoreLock
from benchlock.artifacts.blob_store import BlobNotFoundError
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests import Manifest
from benchlock.registry.names import Kind, Name, Reference
from benchlock.registry.versions.semantic_version import Version, key
from benchlock.registry.versions.version_ranges import Constraint


class VersionTakenError(InvalidInputError):
    """The version is published already, with other content; it keeps that content for ever."""

    code = "version-taken"


@dataclass(frozen=True, slots=True)
class Entry:
    """A published version. ``yanked`` is the reason, where it is yanked."""

    reference: Reference
    digest: Digest
    published_at: datetime
    yanked: str | None


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a version came from: the author's own text, and each file's source as written. Outside the digest."""

    authored: str
    sources: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PublishResult:
    """What publishing did: ``changed`` is false where the same content was there already."""

    reference: Reference
    digest: Digest
    changed: bool


def version_taken_error(reference: Reference, version: str, there: str, wanted: str) -> VersionTakenError:
    """The error of a reference that is published, as ``version``, with the digest ``there``, not the one ``wanted``."""
    return VersionTakenError(
        f"{reference.kind}/{reference.name}@{version} is published with other content: {there}, not {wanted}",
        where=str(reference),
        next_step="give the new content a new version",
    )


class CatalogueProtocol(Protocol):
    """The manifests that are published, and the locks that are kept. ``Catalogue`` says what each verb promises."""

    def publish(self, manifest: Manifest, provenance: Provenance) -> PublishResult: ...

    def would_change(self, manifest: Manifest) -> PublishResult: ...

    def get(self, reference: Reference) -> Entry: ...

    def manifest(self, reference: Reference) -> Manifest: ...

    def content(self, reference: Reference) -> tuple[str, Mapping[str, str]]: ...

    def versions(self, kind: Kind, name: Name) -> tuple[Entry, ...]: ...

    def list(self, kind: Kind | None = None) -> tuple[Entry, ...]: ...

    def yank(self, reference: Reference, reason: str) -> bool: ...

    def unyank(self, reference: Reference) -> bool: ...

    def put_lock(self, lock: Lock) -> object: ...

    def get_lock(self, lock: Digest) -> str: ...

    def find_lock(self, text: str) -> Digest: ...


def find_newest(versions: Sequence[Entry], constraint: Constraint | None) -> Entry:
    """The newest version that ``constraint`` admits, oldest first in ``versions``.

    Without a constraint: the newest that is neither yanked nor a pre-release, else the newest of all. A constraint
    that pins a version exactly finds it yanked or not.

    Raises:
        UnknownNameError: none is admitted; the message lists what there is.
    """
    if constraint is None:
        plain = [entry for entry in versions if entry.yanked is None and not entry.reference.version.prerelease]
        return (plain or list(versions))[-1]
    pinned = constraint.pinned is not None
    admitted = [
        entry for entry in versions if constraint.admits(entry.reference.version) and (pinned or entry.yanked is None)
    ]
    if not admitted:
        reference = versions[-1].reference
        there = ", ".join(str(entry.reference.version) for entry in versions)
        fitting = [entry.reference.version for entry in versions if constraint.admits(entry.reference.version)]
        raise no_version_error(reference.kind, reference.name, constraint, there, max(fitting, key=key, default=None))
    return admitted[-1]


def no_version_error(
    kind: Kind, name: Name, constraint: Constraint, there: str, yanked: Version | None = None
) -> UnknownNameError:
    """The error of a name without a version that is admitted; ``there`` are the ones that it has.

    ``yanked`` is the newest of those that would be, were they not yanked.
    """
    what = f"{kind}/{name} has no version that fits {constraint}"
    if yanked is None:
        return UnknownNameError(what, next_step=f"there are: {there}")
    return UnknownNameError(
        f"{what} but yanked ones: {yanked} is the newest of them",
        next_step=f"name it exactly, {kind}/{name}@{yanked}, if you want it all the same; there are: {there}",
    )


TextOf = Callable[[Digest], str | None]
"""The text of the published manifest that has a digest, where one has."""


class CataloguedStore(LocalStore):
    """Blobs in a folder, beside a catalogue that has the bytes of every published manifest, durably and for ever.

    So a manifest needs no file, and publishing waits for the disk once, where the catalogue commits. It gets one as
    soon as somebody asks for its path; a file that is there is what is read, damaged or not. ``list`` lists the files.
    """

    def __init__(self, root: Path, text_of: TextOf, beside: StoreLock | None = None) -> None:
        super().__init__(root, beside)
        self._text_of = text_of

    def open(self, digest: Digest) -> BinaryIO:
        try:
            return super().open(digest)
        except BlobNotFoundError as absent:
            return io.BytesIO(self._written(digest, absent))

    def stat(self, digest: Digest) -> Descriptor:
        try:
            return super().stat(digest)
        except BlobNotFoundError as absent:
            return Descriptor(digest, len(self._written(digest, absent)))

    def path(self, digest: Digest) -> Path:
        try:
            super().stat(digest)
        except BlobNotFoundError as absent:
            self.put(io.BytesIO(self._written(digest, absent)), digest, name=f"the manifest {digest}")
        return super().path(digest)

    def _written(self, digest: Digest, absent: BlobNotFoundError) -> bytes:
        """The bytes of a published manifest; raises ``absent`` where there is none of that digest."""
        text = self._text_of(digest)
        if text is None:
            raise absent
        return text.encode()
