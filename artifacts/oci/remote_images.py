"""Container images in an OCI registry: lookup by digest, tag and platform."""

import io
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
from msgspec import UNSET

from benchlock.artifacts.blob_store import BlobStore, read
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.net.urls import is_loopback, split_url
from benchlock.artifacts.oci.oci_client import RegistryClient
from benchlock.artifacts.oci.oci_documents import OciDescriptor, OciIndex, OciManifest, decode
from benchlock.artifacts.oci.oci_reference import Reference, Repository, parse_reference

Connect = Callable[[Repository], RegistryClient]
"""Return a client of a repository with the user's credentials for it."""

_LARGEST_CONFIG = 16 << 20
"""Largest configuration, in bytes; the largest real ones have some hundred kilobytes."""


@dataclass(frozen=True, slots=True)
class RemoteImage:
    """The image of one platform; ``layers`` as stored in the registry, lowest first, mostly compressed."""

    config: bytes
    layers: tuple[OciDescriptor, ...]


def parse_image(text: str) -> Reference:
    """Parse an image reference with a digest, as container engines write it: ``HOST[:PORT]/NAME@sha256:…``.

    Raises:
        InvalidInputError: The text is malformed, or has a tag or no digest.
    """
    reference = parse_reference(text)
    if reference.digest is None:
        raise InvalidInputError(f"{text} does not reference an image by digest", where=text, next_step="add @sha256:…")
    return replace(reference, repository=_as_engines(text, reference.repository))


def find_tag(text: str, connect: Connect) -> str:
    """Replace the tag in an image reference (``latest`` if absent) by the digest that it has now.

    Raises:
        InvalidInputError: The text is malformed, or the image does not exist.
        UnavailableError: The registry does not answer.
    """
    before, slash, last = text.rpartition("/")
    last, _, tag = last.partition(":")
    repository = parse_reference(f"{before}{slash}{last}").repository
    content = connect(_as_engines(text, repository)).manifest(tag or "latest")
    return f"{before}{slash}{last}@{digest_bytes(content)}"


def _as_engines(text: str, repository: Repository) -> Repository:
    """Use plain HTTP for a registry on this machine if the text has no scheme, as engines do."""
    local = is_loopback(split_url(repository.url).hostname or "")
    return replace(repository, plain=True) if "://" not in text and local else repository


def find_image(reference: Reference, os: str, arch: str, connect: Connect, store: BlobStore) -> RemoteImage:
    """Find the image for ``os`` and ``arch``: the one that ``reference`` names, or the one in its index.

    Documents are read from ``store`` and added to it, so that each digest is requested from the registry once.

    Args:
        reference: The image, with a digest.
        os: The operating system, such as ``linux``.
        arch: The architecture, such as ``amd64``.
        connect: Returns the client of a repository.
        store: The store of the documents.

    Raises:
        InvalidInputError: The reference is not an image, or has none for that platform.
        IntegrityError: The registry sent other bytes.
        UnavailableError: The registry does not answer.
    """
    assert reference.digest is not None
    name = str(reference)
    documents = _Documents(reference.repository, connect, store)
    content = documents.manifest(reference.digest)
    if _is_index(content):
        chosen = _choose(decode(content, OciIndex, name), os, arch, name)
        content = documents.manifest(chosen.digest)
    manifest = decode(content, OciManifest, name)
    return RemoteImage(documents.config(manifest.config, name), manifest.layers)


@dataclass(frozen=True, slots=True)
class _Documents:
    repository: Repository
    connect: Connect
    store: BlobStore

    def manifest(self, digest: Digest) -> bytes:
        if not self.store.exists(digest):
            self.store.put(io.BytesIO(self.connect(self.repository).manifest(digest)), digest)
        return read(self.store, digest, name=f"{self.repository}@{digest}")

    def config(self, descriptor: OciDescriptor, name: str) -> bytes:
        if descriptor.size > _LARGEST_CONFIG:
            raise InvalidInputError(
                f"the configuration of {name} has {descriptor.size} bytes, too many for a configuration", where=name
            )
        blob = Descriptor(descriptor.digest, descriptor.size)
        if not self.store.exists(blob.digest):
            with self.connect(self.repository).open_blob(blob) as stream:
                self.store.put(stream, blob.digest)
        return read(self.store, blob.digest, name=f"the configuration of {name}")


def _is_index(content: bytes) -> bool:
    try:
        document = msgspec.json.decode(content)
    except msgspec.MsgspecError:
        return False
    return isinstance(document, dict) and "manifests" in document


def _choose(index: OciIndex, os: str, arch: str, name: str) -> OciDescriptor:
    """Choose the manifest of a platform, if possible one without a variant of the processor."""
    candidates = [(manifest, manifest.platform) for manifest in index.manifests if manifest.platform is not UNSET]
    fitting = [
        (manifest, platform) for manifest, platform in candidates if (platform.os, platform.architecture) == (os, arch)
    ]
    if not fitting:
        has = ", ".join(f"{platform.os}/{platform.architecture}" for _, platform in candidates) or "none"
        raise InvalidInputError(
            f"{name} has no image for {os}/{arch}; it has {has}", where=name, next_step="choose another image"
        )
    return min(fitting, key=lambda found: found[1].variant is not UNSET)[0]
