"""Images pushed to a registry as other tools push them."""

import gzip
import io
from collections.abc import Sequence
from pathlib import Path

import zstandard
from msgspec import structs

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.oci.oci_client import RegistryClient
from benchlock.artifacts.oci.oci_documents import (
    CONFIG,
    INDEX,
    LAYER,
    LAYER_GZIP,
    LAYER_ZSTD,
    MANIFEST,
    OciDescriptor,
    OciIndex,
    OciManifest,
    OciPlatform,
    describe_bytes,
    encode,
)
from benchlock.artifacts.oci.oci_reference import Repository

PACKINGS = {"plain": LAYER, "gzip": LAYER_GZIP, "zstd": LAYER_ZSTD}


def configuration(layers: Sequence[Digest], arch: str, *settings: str) -> bytes:
    """What an image of these diff ids says of itself."""
    rootfs = {"type": "layers", "diff_ids": list(layers)}
    return encode_canonical({"os": "linux", "architecture": arch, "config": {"Env": list(settings)}, "rootfs": rootfs})


def push_image(
    repository: Repository, config: bytes, layers: Sequence[Path], packing: str = "plain", tag: str | None = None
) -> str:
    """Push an image; what an engine calls it: ``HOST:PORT/NAME@sha256:…``."""
    client = RegistryClient(repository)
    packed = [_push(client, _packed(layer.read_bytes(), packing), PACKINGS[packing]) for layer in layers]
    manifest = encode(OciManifest(config=_push(client, config, CONFIG), layers=tuple(packed)))
    return f"{repository.host}/{repository.path}@{client.put_manifest(manifest, MANIFEST, tag)}"


def push_index(repository: Repository, references: Sequence[tuple[str, str]]) -> str:
    """Push an index of images, each as its architecture and reference."""
    client = RegistryClient(repository)
    manifests = []
    for arch, reference in references:
        content = client.manifest(Digest(reference.partition("@")[2]))
        described = describe_bytes(content, MANIFEST)
        manifests.append(structs.replace(described, platform=OciPlatform(os="linux", architecture=arch)))
    index = client.put_manifest(encode(OciIndex(manifests=tuple(manifests))), INDEX)
    return f"{repository.host}/{repository.path}@{index}"


def _push(client: RegistryClient, content: bytes, media_type: str) -> OciDescriptor:
    described = describe_bytes(content, media_type)
    client.put_blob(io.BytesIO(content), described.blob, name=media_type)
    return described


def _packed(content: bytes, packing: str) -> bytes:
    if packing == "gzip":
        return gzip.compress(content, 1, mtime=0)
    return zstandard.compress(content, 1) if packing == "zstd" else content
