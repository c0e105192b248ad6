"""The JSON documents of the OCI image specification 1.1: descriptor, manifest, index, layout.

They are written as canonical JSON (RFC 8785), so that the same content has the same bytes. Known keys are checked
strictly; unknown keys are ignored, as the specification demands.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes, parse_digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import encode_canonical, prepare_decoder

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
LAYER_GZIP: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
LAYER_ZSTD: Final = "application/vnd.oci.image.layer.v1.tar+zstd"
DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
EMPTY: Final = "application/vnd.oci.empty.v1+json"

EMPTY_CONTENT: Final = b"{}"
"""The blob of every descriptor of the type ``EMPTY``."""

TITLE: Final = "org.opencontainers.image.title"
"""The annotation of a layer with the name of its file."""

LARGEST_MANIFEST: Final = 4 << 20
"""Largest manifest or index in bytes: every registry accepts this size, most accept no more."""

LAYOUT_FILE: Final = "oci-layout"
LAYOUT_VERSION: Final = "1.0.0"
_SCHEMA_VERSION = 2
LARGEST_BATCH = LARGEST_MANIFEST * 3 // 4  # bytes; the rest of a manifest is small


class OciPlatform(msgspec.Struct, frozen=True, kw_only=True):
    """The platform of a manifest in an index."""

    os: str
    architecture: str
    variant: str | UnsetType = UNSET


class OciDescriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A blob or manifest that a document refers to, and its media type."""

    media_type: str
    digest: Digest
    size: int
    annotations: Mapping[str, str] | UnsetType = UNSET
    artifact_type: str | UnsetType = UNSET
    platform: OciPlatform | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Reject an invalid digest and a negative size."""
        parse_digest(self.digest)
        if self.size < 0:
            raise InvalidInputError(f"{self.digest} has a negative size")

    @property
    def blob(self) -> Descriptor:
        """The digest and size."""
        return Descriptor(self.digest, self.size)


@prepare_decoder
class OciManifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One artifact or image: a configuration and layers."""

    schema_version: int = _SCHEMA_VERSION
    media_type: str | UnsetType = MANIFEST
    artifact_type: str | UnsetType = UNSET
    config: OciDescriptor
    layers: tuple[OciDescriptor, ...]
    annotations: Mapping[str, str] | UnsetType = UNSET


@prepare_decoder
class OciIndex(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Several manifests: of the platforms of one image, or of a layout."""

    schema_version: int = _SCHEMA_VERSION
    media_type: str | UnsetType = INDEX
    artifact_type: str | UnsetType = UNSET
    manifests: tuple[OciDescriptor, ...]
    annotations: Mapping[str, str] | UnsetType = UNSET


@prepare_decoder
class OciLayout(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The file ``oci-layout``."""

    image_layout_version: str = LAYOUT_VERSION


Document = TypeVar("Document", OciManifest, OciIndex, OciLayout)


def describe_bytes(content: bytes, media_type: str) -> OciDescriptor:
    """Make the descriptor of a small blob."""
    return OciDescriptor(media_type=media_type, digest=digest_bytes(content), size=len(content))


def empty_descriptor() -> OciDescriptor:
    """Make the placeholder descriptor for places where the specification demands one."""
    return describe_bytes(EMPTY_CONTENT, EMPTY)


def encode(document: OciManifest | OciIndex | OciLayout | OciDescriptor) -> bytes:
    """Encode a document as canonical JSON without absent keys."""
    return encode_canonical(msgspec.to_builtins(document))


def split_layers(layers: Iterable[OciDescriptor]) -> Iterator[tuple[OciDescriptor, ...]]:
    """Split ``layers`` into batches, in order, that each fit into a manifest; yield at least one batch."""
    batch: list[OciDescriptor] = []
    size = 0
    for layer in layers:
        length = len(encode(layer)) + 1
        if batch and size + length > LARGEST_BATCH:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(layer)
        size += length
    yield tuple(batch)


def decode(content: bytes, kind: type[Document], name: str) -> Document:
    """Decode a document of a ``kind``; ``name`` is its name in error messages.

    Raises:
        InvalidInputError: The document is malformed, or of another kind or version.
    """
    try:
        document = msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, InvalidInputError, UnicodeDecodeError) as error:
        raise _make_format_error(name, str(error).splitlines()[0]) from error
    _check(document, name)
    return document


def _check(document: OciManifest | OciIndex | OciLayout, name: str) -> None:
    if isinstance(document, OciLayout):
        if document.image_layout_version != LAYOUT_VERSION:
            raise _make_format_error(name, f"its version is {document.image_layout_version}, not {LAYOUT_VERSION}")
        return
    if document.schema_version != _SCHEMA_VERSION:
        raise _make_format_error(name, f"its schema version is {document.schema_version}, not {_SCHEMA_VERSION}")
    media_types = (MANIFEST, DOCKER_MANIFEST) if isinstance(document, OciManifest) else (INDEX, DOCKER_INDEX)
    if document.media_type is not UNSET and document.media_type not in media_types:
        raise _make_format_error(name, f"its media type is {document.media_type}")


def _make_format_error(name: str, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"{name} is not a valid OCI document: {reason}", where=name, next_step="ask its creator to create it again"
    )
