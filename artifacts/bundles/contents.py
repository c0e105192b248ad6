"""What a bundle says of itself: an OCI index, and manifests that list the blobs of each root.

A root is a document (the ``config`` of its manifests) and the blobs that it names (their ``layers``). A manifest lists
so many blobs that it stays below the 4 MiB that registries take: more blobs make further manifests of the same root.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET, structs

from benchlock.artifacts.digest import Descriptor
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.oci.documents import (
    MANIFEST,
    TITLE,
    OciDescriptor,
    OciIndex,
    OciLayout,
    OciManifest,
    decode,
    describe_bytes,
    encode,
    in_batches,
)

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
class Part:
    """A blob of a bundle, and what people call it."""

    blob: Descriptor
    name: str


@dataclass(frozen=True, slots=True)
class Root:
    """A document, of what media type it is, and the blobs that it names, each once."""

    media_type: str
    content: bytes
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """What a manifest lists: a root's document, and blobs that it names."""

    media_type: str
    root: Descriptor
    blobs: tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """The manifests that an index lists, in its order; and what a newer schema may mean."""

    manifests: tuple[Descriptor, ...]
    warnings: tuple[str, ...]


def encode_roots(roots: Sequence[Root]) -> tuple[bytes, tuple[bytes, ...]]:
    """The index, and the manifests that it lists."""
    manifests = [(root.media_type, manifest) for root in roots for manifest in _manifests(root)]
    listed = tuple(
        structs.replace(describe_bytes(manifest, MANIFEST), artifact_type=media_type)
        for media_type, manifest in manifests
    )
    index = OciIndex(manifests=listed, annotations={_SCHEMA_KEY: ".".join(map(str, SCHEMA))})
    return encode(index), tuple(manifest for _, manifest in manifests)


def _manifests(root: Root) -> Iterator[bytes]:
    config = describe_bytes(root.content, root.media_type)
    for layers in in_batches(map(_layer, root.parts)):
        yield encode(OciManifest(artifact_type=root.media_type, config=config, layers=layers))


def _layer(part: Part) -> OciDescriptor:
    blob = part.blob
    return OciDescriptor(media_type=_BLOB_TYPE, digest=blob.digest, size=blob.size, annotations={TITLE: part.name})


def decode_index(content: bytes) -> Index:
    """The index that ``content`` is.

    Raises:
        InvalidInputError: it is none, of a bundle of a newer major schema, or lists what is no manifest.
    """
    index = decode(content, OciIndex, INDEX_FILE)
    if any(one.media_type != MANIFEST for one in index.manifests):
        raise malformed(INDEX_FILE, "it lists something else than manifests")
    schema = "" if index.annotations is UNSET else index.annotations.get(_SCHEMA_KEY, "")
    return Index(tuple(one.blob for one in index.manifests), _check_schema(schema))


def decode_manifest(content: bytes, name: str) -> Listed:
    """What the manifest lists; ``name`` is what errors call it.

    Raises:
        InvalidInputError: it is no manifest.
    """
    manifest = decode(content, OciManifest, name)
    return Listed(manifest.config.media_type, manifest.config.blob, tuple(one.blob for one in manifest.layers))


def decode_layout(content: bytes, name: str) -> None:
    """Nothing, where ``content`` says that this is a layout of a version that is understood.

    Raises:
        InvalidInputError: it does not.
    """
    decode(content, OciLayout, name)


def malformed(name: str, reason: str) -> BundleError:
    """The error of a file that is no bundle, for what is the matter with ``name`` in it."""
    return BundleError(
        f"this is no bundle: {name}: {reason}",
        where=name,
        next_step="name a file that `benchlock bundle create` wrote",
    )


def _check_schema(schema: str) -> tuple[str, ...]:
    major, dot, minor = schema.partition(".")
    if not (dot and _is_number(major) and _is_number(minor)):
        raise malformed(INDEX_FILE, f"it has no annotation {_SCHEMA_KEY} such as 1.0")
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
