"""The bundle format: reproducible tar entries, the OCI index with its manifests, and the writer.

A root is a document (the ``config`` of its manifests) and the blobs that it refers to (their ``layers``). A manifest
stays below the 4 MiB that registries accept; further blobs go into further manifests of the same root.
"""

import hashlib
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from msgspec import UNSET, structs

from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.blob_store import BlobStore, stream_blob
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes, to_hex
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.oci.oci_documents import (
    LAYOUT_FILE,
    MANIFEST,
    TITLE,
    OciDescriptor,
    OciIndex,
    OciLayout,
    OciManifest,
    decode,
    describe_bytes,
    encode,
    split_layers,
)
from benchlock.artifacts.user_output import Advance, Progress

TAR_BLOCK: Final = tarfile.BLOCKSIZE
TAR_END: Final = bytes(2 * TAR_BLOCK)
"""The end of every archive: two empty blocks."""

_OCTAL_SIZES = 8**11
"""The smallest size that does not fit into the octal digits of a header; the GNU format holds it."""


def make_tar_header(path: str, size: int) -> bytes:
    """Make the header block of a file of ``size`` bytes; ``path`` has at most 100 bytes."""
    entry = tarfile.TarInfo(path)
    entry.size = size
    return entry.tobuf(tarfile.USTAR_FORMAT if size < _OCTAL_SIZES else tarfile.GNU_FORMAT)


def make_tar_padding(size: int) -> bytes:
    """Make the padding after a file of ``size`` bytes, up to the next block."""
    return bytes(-size % TAR_BLOCK)


SCHEMA: Final = (1, 0)
"""Major and minor version of the bundle format that this module writes."""
LAYOUT: Final = encode(OciLayout())
INDEX_FILE: Final = "index.json"

_SCHEMA_KEY = "vnd.benchlock.bundle.schema"
_BLOB_TYPE = "application/octet-stream"


class BundleError(InvalidInputError):
    """The file is not a bundle, or holds an entry that bundles cannot have."""

    code = "invalid-bundle"


@dataclass(frozen=True, slots=True)
class BundlePart:
    """A blob of a bundle and its name for users."""

    blob: Descriptor
    name: str


@dataclass(frozen=True, slots=True)
class BundleRoot:
    """A document, its media type, and the blobs that it refers to, each once."""

    media_type: str
    content: bytes
    parts: tuple[BundlePart, ...]


@dataclass(frozen=True, slots=True)
class ManifestContents:
    """The contents of a manifest: the document of a root, and blobs that the document refers to."""

    media_type: str
    root: Descriptor
    blobs: tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True)
class BundleIndex:
    """The manifests of an index, in its order, and warnings about a newer schema."""

    manifests: tuple[Descriptor, ...]
    warnings: tuple[str, ...]


def encode_roots(roots: Sequence[BundleRoot]) -> tuple[bytes, tuple[bytes, ...]]:
    """Encode roots as an index and the manifests that it lists."""
    manifests = [(root.media_type, manifest) for root in roots for manifest in _encode_manifests(root)]
    descriptors = tuple(
        structs.replace(describe_bytes(manifest, MANIFEST), artifact_type=media_type)
        for media_type, manifest in manifests
    )
    index = OciIndex(manifests=descriptors, annotations={_SCHEMA_KEY: ".".join(map(str, SCHEMA))})
    return encode(index), tuple(manifest for _, manifest in manifests)


def _encode_manifests(root: BundleRoot) -> Iterator[bytes]:
    config = describe_bytes(root.content, root.media_type)
    for layers in split_layers(map(_describe_layer, root.parts)):
        yield encode(OciManifest(artifact_type=root.media_type, config=config, layers=layers))


def _describe_layer(part: BundlePart) -> OciDescriptor:
    blob = part.blob
    return OciDescriptor(media_type=_BLOB_TYPE, digest=blob.digest, size=blob.size, annotations={TITLE: part.name})


def decode_index(content: bytes) -> BundleIndex:
    """Decode the index of a bundle.

    Raises:
        InvalidInputError: The index is malformed, has a newer major schema, or lists entries other than manifests.
    """
    index = decode(content, OciIndex, INDEX_FILE)
    if any(descriptor.media_type != MANIFEST for descriptor in index.manifests):
        raise make_bundle_error(INDEX_FILE, "it lists entries that are not manifests")
    schema = "" if index.annotations is UNSET else index.annotations.get(_SCHEMA_KEY, "")
    return BundleIndex(tuple(descriptor.blob for descriptor in index.manifests), _check_schema(schema))


def decode_manifest(content: bytes, name: str) -> ManifestContents:
    """Decode a manifest of a bundle; ``name`` is its name in error messages.

    Raises:
        InvalidInputError: The manifest is malformed.
    """
    manifest = decode(content, OciManifest, name)
    return ManifestContents(
        manifest.config.media_type, manifest.config.blob, tuple(layer.blob for layer in manifest.layers)
    )


def decode_layout(content: bytes, name: str) -> None:
    """Raise unless ``content`` is the layout file of a known version.

    Raises:
        InvalidInputError: The layout file is malformed or has an unknown version.
    """
    decode(content, OciLayout, name)


def make_bundle_error(name: str, reason: str) -> BundleError:
    """Make the error of an invalid bundle: the entry ``name`` and what is wrong with it."""
    return BundleError(
        f"not a bundle: {name}: {reason}",
        where=name,
        next_step="choose a complete bundle that benchlock created",
    )


def _check_schema(schema: str) -> tuple[str, ...]:
    major, dot, minor = schema.partition(".")
    if not (dot and _is_number(major) and _is_number(minor)):
        raise make_bundle_error(INDEX_FILE, f"it has no annotation {_SCHEMA_KEY} such as 1.0")
    if int(major) != SCHEMA[0]:
        raise BundleError(
            f"the bundle has schema {schema}; only {SCHEMA[0]}.x is supported",
            where=INDEX_FILE,
            next_step="use the version of benchlock that wrote it",
        )
    if int(minor) > SCHEMA[1]:
        return (f"the bundle has schema {schema}, newer than {SCHEMA[0]}.{SCHEMA[1]}: new keys are not used",)
    return ()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10  # noqa: PLR2004 - no version number is longer


BLOBS_PATH = "blobs/sha256/"


def write_bundle(path: Path, roots: Sequence[BundleRoot], store: BlobStore, progress: Progress) -> Descriptor:
    """Write ``roots`` with their blobs, each verified, to the file ``path``; return its digest and size.

    The file appears whole or not at all. The documents come first, then the blobs in the order of their digests.

    Args:
        path: The path of the new file.
        roots: The roots, in the order of the index.
        store: The store of the blobs.
        progress: Shows the bytes of the blobs.

    Raises:
        IntegrityError: A blob is missing in the store, or damaged.
        UnavailableError: A blob cannot be read, or the file cannot be written.
    """
    index, manifests = encode_roots(roots)
    documents = {digest_bytes(document): document for document in (*manifests, *(root.content for root in roots))}
    parts = {part.blob.digest: part for root in reversed(roots) for part in reversed(root.parts)}
    blobs = [parts[digest] for digest in sorted(parts.keys() - documents.keys())]
    with (
        _create_bundle_file(path) as file,
        progress.task(f"writing {path.name}", sum(part.blob.size for part in blobs)) as advance,
    ):
        tar = _Tar(file)
        tar.add(LAYOUT_FILE, LAYOUT)
        tar.add(INDEX_FILE, index)
        for digest, content in documents.items():
            tar.add(BLOBS_PATH + to_hex(digest), content)
        for part in blobs:
            tar.copy(part, store, advance)
        return tar.end()


class _Tar:
    """A writer of tar entries that computes the digest of the whole archive."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._state = hashlib.sha256()
        self._size = 0

    def add(self, name: str, content: bytes) -> None:
        self._write(make_tar_header(name, len(content)))
        self._write(content)
        self._write(make_tar_padding(len(content)))

    def copy(self, part: BundlePart, store: BlobStore, advance: Advance) -> None:
        """Add a blob of the store, and verify it while reading."""
        self._write(make_tar_header(BLOBS_PATH + to_hex(part.blob.digest), part.blob.size))
        stream_blob(store, part.blob, self._write, name=part.name, advance=advance)
        self._write(make_tar_padding(part.blob.size))

    def end(self) -> Descriptor:
        self._write(TAR_END)
        return Descriptor(Digest(f"sha256:{self._state.hexdigest()}"), self._size)

    def _write(self, chunk: bytes) -> None:
        self._state.update(chunk)
        self._size += self._file.write(chunk)


@contextmanager
def _create_bundle_file(path: Path) -> Iterator[BinaryIO]:
    """Create the file ``path`` durably when the context ends without an error; remove it otherwise."""
    try:
        with create_file(path, durably=True) as file:
            yield file
    except OSError as error:
        raise UnavailableError(
            f"{path} cannot be written: {error.strerror or error}",
            where=str(path),
            next_step="choose a file in a writable folder on a disk with free space",
        ) from error
