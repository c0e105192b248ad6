"""An image as a docker-archive, the form that every engine loads."""

import json
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from benchlock.artifacts.digest import Descriptor, chunks, digest_bytes, to_hex
from benchlock.artifacts.store import BlobStore
from benchlock.artifacts.tars import END, header, padding


def docker_archive(config: bytes, layers: Sequence[Descriptor], store: BlobStore) -> Iterator[bytes]:
    """The bytes of a docker-archive of one image; the engine's image id is the SHA-256 of ``config``.

    The engine compares each layer with the diff id that the config names. Nothing is held in memory but one piece.

    Raises:
        BlobNotFoundError: the store has no such layer.
    """
    name = f"{to_hex(digest_bytes(config))}.json"
    paths = [f"{to_hex(layer.digest)}.tar" for layer in layers]
    listing = json.dumps([{"Config": name, "RepoTags": None, "Layers": paths}]).encode()
    yield from _member("manifest.json", listing)
    yield from _member(name, config)
    for path, layer in zip(paths, layers, strict=True):
        yield header(path, layer.size)
        with store.open(layer.digest) as stream:
            yield from chunks(stream)
        yield padding(layer.size)
    yield END


def write_docker_archive(stream: BinaryIO, config: bytes, layers: Sequence[Descriptor], store: BlobStore) -> None:
    """Write that archive to ``stream``."""
    stream.writelines(docker_archive(config, layers, store))


def _member(path: str, content: bytes) -> Iterator[bytes]:
    yield header(path, len(content))
    yield content
    yield padding(len(content))
