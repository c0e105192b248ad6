"""Container images in an OCI registry: lookup by digest, tag and platform, and decompression of layers."""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO, cast

import msgspec
from msgspec import UNSET
from zstandard import ZstdDecompressor, ZstdError

from benchlock.artifacts.blob_store import BlobStore, read
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes, read_chunks
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.net.urls import is_loopback, split_url
from benchlock.artifacts.oci.oci_client import RegistryClient
from benchlock.artifacts.oci.oci_documents import OciDescriptor, OciIndex, OciManifest, decode
from benchlock.artifacts.oci.oci_reference import Reference, Repository, parse_reference

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


class _PrefixedStream(io.RawIOBase):
    """A stream of ``head`` followed by the rest of ``stream``."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head = head
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        chunk = self._head[: len(buffer)] or self._stream.read(len(buffer))
        self._head = self._head[len(buffer) :]
        buffer[: len(chunk)] = chunk
        return len(chunk)


def decompress_layer(stream: BinaryIO, name: str, limit: int) -> Iterator[bytes]:
    """Yield the tar of a layer in chunks, decompressed if its first bytes are those of gzip or zstd.

    All of ``stream`` is read.

    Args:
        stream: The layer.
        name: The name of the layer in error messages.
        limit: The largest size of the tar, in bytes.

    Raises:
        InvalidInputError: The compressed bytes are damaged, or the tar exceeds ``limit``.
    """
    remaining, head = limit, stream.read(len(_ZSTD))
    whole = cast("BinaryIO", io.BufferedReader(_PrefixedStream(head, stream)))
    decompressed = whole
    if head.startswith(_GZIP):
        decompressed = cast("BinaryIO", gzip.GzipFile(fileobj=whole))
    elif head == _ZSTD:
        decompressed = cast("BinaryIO", ZstdDecompressor().stream_reader(whole, read_across_frames=True))
    try:
        for chunk in read_chunks(decompressed):
            remaining -= len(chunk)
            if remaining < 0:
                raise InvalidInputError(
                    f"{name} unpacks to more than {limit} bytes",
                    where=name,
                    next_step="if you trust it, unpack it and use the tarball",
                )
            yield chunk
        for _ in read_chunks(whole):
            pass
    except (gzip.BadGzipFile, EOFError, zlib.error, ZstdError) as error:
        raise InvalidInputError(f"{name} cannot be decompressed: {error}", where=name) from error


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
