"""Versions that nobody has to think of: the same content keeps its version, other content gets the next MINOR one."""

from dataclasses import replace
from pathlib import Path

from msgspec import UNSET, structs

from benchlock.artifacts.digest import Descriptor, from_hex
from benchlock.artifacts.errors import UnknownNameError
from benchlock.artifacts.progress import SILENT, Progress
from benchlock.artifacts.store import BlobStore
from benchlock.registry.catalogue.contents import Contents
from benchlock.registry.catalogue.entries import Entry, Published
from benchlock.registry.drafts import Draft
from benchlock.registry.manifests import Image, manifest_digest
from benchlock.registry.manifests.identity import with_files
from benchlock.registry.names import parse_name
from benchlock.registry.publishing import publish
from benchlock.registry.versions import parse_version


def publish_successor(draft: Draft, store: BlobStore, catalogue: Contents, *, progress: Progress = SILENT) -> Published:
    """Publish an image whose manifest has any version and the ``sha256`` of every file: all are files beside it.

    A published version of the same content stays the only one. Otherwise it gets the version after the newest, one
    MINOR up; or, as the first of its name, the version it has.

    Raises:
        As ``registry.publishing.publish``.
    """
    image = draft.manifest
    assert isinstance(image, Image)
    known = _versions(image, catalogue)
    described = with_files(image, _described(image, draft.path.parent))
    for entry in reversed(known):
        named = structs.replace(described, version=str(entry.reference.version))
        if manifest_digest(named) == entry.digest:
            return publish(_renamed(draft, str(entry.reference.version)), store, catalogue, progress=progress)
    if known:
        draft = _renamed(draft, str(known[-1].reference.version.bump_minor()))
    return publish(draft, store, catalogue, progress=progress)


def publish_if_missing(draft: Draft, store: BlobStore, catalogue: Contents) -> Published | None:
    """Publish a manifest unless its name and version are published, with whatever content; then None."""
    manifest = draft.manifest
    try:
        known = catalogue.versions(manifest.kind, parse_name(manifest.name))
    except UnknownNameError:
        known = ()
    if parse_version(manifest.version) in [entry.reference.version for entry in known]:
        return None
    return publish(draft, store, catalogue)


def _versions(image: Image, catalogue: Contents) -> tuple[Entry, ...]:
    try:
        return catalogue.versions("image", parse_name(image.name))
    except UnknownNameError:
        return ()


def _described(image: Image, folder: Path) -> dict[str, Descriptor]:
    files = () if image.files is UNSET else image.files
    return {
        file.path: Descriptor(from_hex(file.sha256), (folder / file.path).stat().st_size)
        for file in files
        if file.sha256 is not UNSET
    }


def _renamed(draft: Draft, version: str) -> Draft:
    manifest = draft.manifest
    assert isinstance(manifest, Image)
    return replace(draft, manifest=structs.replace(manifest, version=version))
