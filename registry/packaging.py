"""A published version as an OCI artifact, which any OCI client pulls by digest.

The manifest as published is its configuration; each file, and each file of a tree, is a layer that is annotated with
its path. Models are ModelPack's (the CNCF model specification). It says nothing of time or place: the same version is
the same bytes, and so the same digest, in any repository.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, Protocol, runtime_checkable

from msgspec import UNSET

from artifacts.digest import Descriptor, Digest, digest_bytes, from_hex, to_hex
from artifacts.errors import UnavailableError
from artifacts.oci.documents import (
    MANIFEST,
    TITLE,
    OciDescriptor,
    OciIndex,
    OciManifest,
    empty_descriptor,
    encode,
    in_batches,
)
from artifacts.store import BlobStore
from artifacts.trees import read_tree
from registry.manifests import File, Manifest, files_of
from registry.manifests.identity import content, reference_of
from registry.names import Kind, Reference

CONFIG: Final = "application/vnd.benchlock.manifest.v1+json"
ARTIFACTS: Final[Mapping[Kind, str]] = {
    "model": "application/vnd.cncf.model.manifest.v1+json",
    "dataset": "application/vnd.benchlock.dataset.v1+json",
    "framework": "application/vnd.benchlock.framework.v1+json",
    "image": "application/vnd.benchlock.image.v1+json",
}
PATH: Final = "org.cncf.model.filepath"

_ROLES: Final = {
    "graph": "weight",
    "weights": "weight",
    "labels": "weight.config",
    "vocabulary": "weight.config",
    "code": "code",
    "golden": "dataset",
    "card": "doc",
}
_OTHER_FILE: Final = "application/vnd.benchlock.file.v1"
_LONGEST_TAG: Final = 128


@runtime_checkable
class NamingStore(Protocol):
    """A store that can name what it holds to other programs than this one."""

    def name_manifest(self, tag: str, document: OciManifest | OciIndex) -> Digest:
        """Keep a manifest of blobs that are there, under a tag; its digest."""
        ...


def name_version(store: BlobStore, manifest: Manifest) -> None:
    """Have the store name a published version to other programs, where it can. The same again changes nothing.

    Raises:
        UnavailableError: it cannot just now; the version is published all the same.
    """
    if not _names(type(store)) or not isinstance(store, NamingStore):
        return
    reference = reference_of(manifest)
    tag, parts = tag_of(reference), packaged(manifest, store)
    try:
        if len(parts) == 1:
            store.name_manifest(tag, parts[0])
            return
        named = [_part(store, f"{tag}_{number}", part) for number, part in enumerate(parts, 1)]
        store.name_manifest(tag, OciIndex(artifact_type=ARTIFACTS[reference.kind], manifests=tuple(named)))
    except UnavailableError as error:
        raise UnavailableError(
            f"{reference} is published, and other programs do not see it yet: {error.what}",
            where=error.where,
            next_step="publish it again: what is there stays, what is missing is written",
        ) from error


def packaged(manifest: Manifest, store: BlobStore) -> tuple[OciManifest, ...]:
    """The OCI manifests of a published version: one, or as many as its layers need."""
    kind, written = manifest.kind, content(manifest)
    layers = [layer for file in files_of(manifest) for layer in _layers(kind, file, store)] or [empty_descriptor()]
    annotations = {
        TITLE: manifest.name,
        "org.opencontainers.image.version": manifest.version,
        "org.opencontainers.image.licenses": manifest.license,
    }
    config = OciDescriptor(media_type=CONFIG, digest=digest_bytes(written), size=len(written))
    return tuple(
        OciManifest(artifact_type=ARTIFACTS[kind], config=config, layers=some, annotations=annotations)
        for some in in_batches(layers)
    )


def tag_of(reference: Reference) -> str:
    """The tag of a version: ``model-acme__resnet8_1.0.0``, one for each, in the grammar of tags.

    Names have no ``__``, versions no ``_``; build metadata, which tags cannot hold, tells no versions apart. What would
    be too long is ``model-`` and the SHA-256 of the name and version.
    """
    version = str(reference.version).partition("+")[0]
    tag = f"{reference.kind}-{reference.name.replace('/', '__')}_{version}"
    if len(tag) <= _LONGEST_TAG:
        return tag
    return f"{reference.kind}-{to_hex(digest_bytes(f'{reference.name}@{version}'.encode()))}"


@cache
def _names(kind: type) -> bool:
    """Whether stores of that type name what they hold: to look at each store for that takes long."""
    return issubclass(kind, NamingStore)


def _layers(kind: Kind, file: File, store: BlobStore) -> Iterator[OciDescriptor]:
    assert file.sha256 is not UNSET
    assert file.size is not UNSET
    blob, media_type = Descriptor(from_hex(file.sha256), file.size), _media_type(kind, file)
    if not file.path.endswith("/"):
        yield _layer(file.path, blob, media_type)
        return
    for entry in read_tree(store, blob, name=file.path):
        yield _layer(file.path + entry.path, Descriptor(entry.digest, entry.size), media_type)


def _layer(path: str, blob: Descriptor, media_type: str) -> OciDescriptor:
    annotations = {PATH: path, TITLE: path}
    return OciDescriptor(media_type=media_type, digest=blob.digest, size=blob.size, annotations=annotations)


def _media_type(kind: Kind, file: File) -> str:
    if kind == "dataset":
        part = "dataset"
    elif kind == "model" and file.role is not UNSET:
        part = _ROLES[file.role]
    else:
        return _OTHER_FILE
    return f"application/vnd.cncf.model.{part}.v1.raw"


def _part(store: NamingStore, tag: str, part: OciManifest) -> OciDescriptor:
    digest = store.name_manifest(tag, part)
    return OciDescriptor(media_type=MANIFEST, digest=digest, size=len(encode(part)))
