"""The bundle format: reproducible tar entries, the OCI index with its manifests, and the writer.

A root is a document (the ``config`` of its manifests) and the blobs that it names (their ``layers``). A manifest lists
so many blobs that it stays below the 4 MiB that registries take: more blobs make further manifests of the same root.
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
from benchlock.artifacts.display import Advance, Progress
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

TAR_BLOCK: Final = tarfile.BLOCKSIZE
TAR_END: Final = bytes(2 * TAR_BLOCK)
"""What ends an archive."""

_OCTAL_SIZES = 8**11
"""From here on a size does not fit into the octal digits of a header; GNU's form holds it."""


def make_tar_header(path: str, size: int) -> bytes:
    """The block before a file of ``size`` bytes; ``path`` has at most 100."""
    entry = tarfile.TarInfo(path)
    entry.size = size
    return entry.tobuf(tarfile.USTAR_FORMAT if size < _OCTAL_SIZES else tarfile.GNU_FORMAT)


def make_tar_padding(size: int) -> bytes:
    """What follows a file of ``size`` bytes, up to the next block."""
    return bytes(-size % TAR_BLOCK)


SCHEMA: Final = (1, 0)
"""Major and minor version of the bundles that are written here."""
LAYOUT: Final = encode(OciLayout())
INDEX_FILE: Final = "index.json"

_SCHEMA_KEY = "vnd.benchlock.bundle.schema"
_BLOB_TYPE = "application/octet-stream"


class BundleError(InvalidInputError):
    """The file is no bundle, or holds what no bundle holds."""

    code = "invalid-bundle"


@dataclass(frozen=True, slots=True)
class BundlePart:
    """A blob of a bundle, and what people call it."""

    blob: Descriptor
    name: str


@dataclass(frozen=True, slots=True)
class BundleRoot:
    """A document, of what media type it is, and the blobs that it names, each once."""

    media_type: str
    content: bytes
    parts: tuple[BundlePart, ...]


@dataclass(frozen=True, slots=True)
class ManifestContents:
    """What a manifest lists: a root's document, and blobs that it names."""

    media_type: str
    root: Descriptor
    blobs: tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True)
class BundleIndex:
    """The manifests that an index lists, in its order; and what a newer schema may mean."""

    manifests: tuple[Descriptor, ...]
    warnings: tuple[str, ...]


def encode_roots(roots: Sequence[BundleRoot]) -> tuple[bytes, tuple[bytes, ...]]:
    """The index, and the manifests that it lists."""
    manifests = [(root.media_type, manifest) for root in roots for manifest in _manifests(root)]
    listed = tuple(
        structs.replace(describe_bytes(manifest, MANIFEST), artifact_type=media_type)
        for media_type, manifest in manifests
    )
    index = OciIndex(manifests=listed, annotations={_SCHEMA_KEY: ".".join(map(str, SCHEMA))})
    return encode(index), tuple(manifest for _, manifest in manifests)


def _manifests(root: BundleRoot) -> Iterator[bytes]:
    config = describe_bytes(root.content, root.media_type)
    for layers in split_layers(map(_layer, root.parts)):
        yield encode(OciManifest(artifact_type=root.media_type, config=config, layers=layers))


def _layer(part: BundlePart) -> OciDescriptor:
    blob = part.blob
    return OciDescriptor(media_type=_BLOB_TYPE, digest=blob.digest, size=blob.size, annotations={TITLE: part.name})


def decode_index(content: bytes) -> BundleIndex:
    """The index that ``content`` is.

    Raises:
        InvalidInputError: it is none, of a bundle of a newer major schema, or lists what is no manifest.
    """
    index = decode(content, OciIndex, INDEX_FILE)
    if any(one.media_type != MANIFEST for one in index.manifests):
        raise make_bundle_error(INDEX_FILE, "it lists something else than manifests")
    schema = "" if index.annotations is UNSET else index.annotations.get(_SCHEMA_KEY, "")
    return BundleIndex(tuple(one.blob for one in index.manifests), _check_schema(schema))


def decode_manifest(content: bytes, name: str) -> ManifestContents:
    """What the manifest lists; ``name`` is what errors call it.

    Raises:
        InvalidInputError: it is no manifest.
    """
    manifest = decode(content, OciManifest, name)
    return ManifestContents(
        manifest.config.media_type, manifest.config.blob, tuple(one.blob for one in manifest.layers)
    )


def decode_layout(content: bytes, name: str) -> None:
    """Nothing, where ``content`` says that this is a layout of a version that is understood.

    Raises:
        InvalidInputError: it does not.
    """
    decode(content, OciLayout, name)


def make_bundle_error(name: str, reason: str) -> BundleError:
    """The error of a file that is no bundle, for what is the matter with ``name`` in it."""
    return BundleError(
        f"this is no bundle: {name}: {reason}",
        where=name,
        next_step="name a file that `benchlock bundle create` wrote",
    )


def _check_schema(schema: str) -> tuple[str, ...]:
    major, dot, minor = schema.partition(".")
    if not (dot and _is_number(major) and _is_number(minor)):
        raise make_bundle_error(INDEX_FILE, f"it has no annotation {_SCHEMA_KEY} such as 1.0")
    if int(major) != SCHEMA[0]:
        raise BundleError(
            f"the bundle has schema {schema}, and only {SCHEMA[0]}.x is understood",
            where=INDEX_FILE,
            next_step="use the version of benchlock that wrote it",
        )
    if int(minor) > SCHEMA[1]:
        return (f"the bundle has schema {schema}, newer than {SCHEMA[0]}.{SCHEMA[1]}: what is new in it is not used",)
    return ()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10  # noqa: PLR2004 - no number of a version is longer


BLOBS_PATH = "blobs/sha256/"


def write_bundle(path: Path, roots: Sequence[BundleRoot], store: BlobStore, progress: Progress) -> Descriptor:
    """Write ``roots`` with their blobs, each verified, to the file ``path``; digest and size of the file.

    It appears whole or not at all. First come the documents, then the blobs in the order of their digests.

    Raises:
        IntegrityError: a blob is missing in the store, or not what its digest says.
        UnavailableError: a blob cannot be read, or the file not written.
    """
    index, manifests = encode_roots(roots)
    documents = {digest_bytes(one): one for one in (*manifests, *(root.content for root in roots))}
    parts = {part.blob.digest: part for root in reversed(roots) for part in reversed(root.parts)}
    blobs = [parts[digest] for digest in sorted(parts.keys() - documents.keys())]
    with _draft(path) as file, progress.task(f"writing {path.name}", sum(part.blob.size for part in blobs)) as advance:
        tar = _Tar(file)
        tar.add(LAYOUT_FILE, LAYOUT)
        tar.add(INDEX_FILE, index)
        for digest, content in documents.items():
            tar.add(BLOBS_PATH + to_hex(digest), content)
        for part in blobs:
            tar.copy(part, store, advance)
        return tar.end()


class _Tar:
    """Entries one after another, and the digest of it all."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._state = hashlib.sha256()
        self._size = 0

    def add(self, name: str, content: bytes) -> None:
        self._write(make_tar_header(name, len(content)))
        self._write(content)
        self._write(make_tar_padding(len(content)))

    def copy(self, part: BundlePart, store: BlobStore, advance: Advance) -> None:
        """Add a blob of the store, verified as it is read."""
        self._write(make_tar_header(BLOBS_PATH + to_hex(part.blob.digest), part.blob.size))
        stream_blob(store, part.blob, self._write, name=part.name, advance=advance)
        self._write(make_tar_padding(part.blob.size))

    def end(self) -> Descriptor:
        self._write(TAR_END)
        return Descriptor(Digest(f"sha256:{self._state.hexdigest()}"), self._size)

    def _write(self, piece: bytes) -> None:
        self._state.update(piece)
        self._size += self._file.write(piece)


@contextmanager
def _draft(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the name ``path`` at the end, durably; gone where something failed."""
    try:
        with create_file(path, durably=True) as file:
            yield file
    except OSError as error:
        raise UnavailableError(
            f"{path} cannot be written: {error.strerror or error}",
            where=str(path),
            next_step="name a file in a folder that exists and that you may write in, on a disk with space",
        ) from error
