"""Image layers: reproducible tars, decompression (gzip, zstd), the image configuration and the docker-archive."""

import gzip
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from stat import S_IXUSR
from typing import BinaryIO, cast

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.bundles.bundle_format import TAR_END, make_tar_header, make_tar_padding
from benchlock.artifacts.digest import CHUNK, Descriptor, Digest, describe, digest_bytes, read_chunks, to_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import encode_canonical

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


def list_files(folder: Path) -> list[tuple[str, Path]]:
    """List all entries except folders: relative path and location, sorted by the UTF-8 bytes of the path."""
    return sorted(_walk(str(folder), ""), key=lambda entry: entry[0].encode())


def _walk(folder: str, prefix: str) -> Iterator[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, f"{prefix}{entry.name}/")
            else:
                yield prefix + entry.name, Path(entry.path)


PREFIX = "/opt/benchlock"
PACKAGES = f"{PREFIX}/site-packages"
"""The folder of the wheels' modules in an image."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def encode_config(arch: str, layers: Sequence[Digest], settings: Sequence[str] = ()) -> bytes:
    """Encode the canonical JSON configuration of an image, without times, host or history.

    Args:
        arch: The architecture, such as amd64.
        layers: The diff ids of the layers, lowest first.
        settings: The variables that the base sets, as ``NAME=value``; the image's own variables take precedence.
    """
    inherited = dict(setting.partition("=")[::2] for setting in settings)
    variables = {
        "PATH": f"{PREFIX}/bin:{inherited.get('PATH', _PATH)}",
        "PYTHONPATH": PACKAGES,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "LANG": "C.UTF-8",
    }
    return encode_canonical(
        {
            "architecture": arch,
            "os": "linux",
            "config": {
                "Env": [f"{name}={value}" for name, value in (variables | {**inherited, **variables}).items()],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": list(layers)},
        }
    )


_TIME = 315_532_800
"""1980-01-01, the earliest time that a zip archive can store."""


def write_layer(tree: Path, layer: Path) -> Descriptor:
    """Write ``tree`` to the uncompressed tar ``layer``; its digest is the layer's diff id.

    Entries are sorted by the UTF-8 bytes of their paths, belong to user and group 0, have one fixed time, and have the
    mode 0644 or 0755.
    """
    files = dict(list_files(tree))
    folders = {str(folder) for path in files for folder in PurePosixPath(path).parents if folder.name}
    with tarfile.TarFile(layer, "w", format=tarfile.PAX_FORMAT, copybufsize=CHUNK) as archive:
        for path in sorted(folders | files.keys(), key=lambda path: path.encode()):
            if path in files:
                _add_file(archive, path, files[path])
            else:
                archive.addfile(_entry(path, tarfile.DIRTYPE, 0o755))
    with layer.open("rb") as stream:
        return describe(stream)


def _add_file(archive: tarfile.TarFile, path: str, source: Path) -> None:
    status = source.stat()
    entry = _entry(path, tarfile.REGTYPE, 0o755 if status.st_mode & S_IXUSR else 0o644)
    entry.size = status.st_size
    with source.open("rb") as stream:
        archive.addfile(entry, stream)


def _entry(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.mtime = kind, mode, _TIME
    return entry


def docker_archive(config: bytes, layers: Sequence[Descriptor], store: BlobStore) -> Iterator[bytes]:
    """Yield the bytes of a docker-archive of one image; the engine's image id is the SHA-256 of ``config``.

    The engine compares each layer with the diff id in the configuration. Only one chunk is in memory at a time.

    Args:
        config: The configuration.
        layers: The layers, lowest first.
        store: The store of the layers.

    Raises:
        BlobNotFoundError: A layer is not in the store.
    """
    name = f"{to_hex(digest_bytes(config))}.json"
    paths = [f"{to_hex(layer.digest)}.tar" for layer in layers]
    listing = json.dumps([{"Config": name, "RepoTags": None, "Layers": paths}]).encode()
    yield from _member("manifest.json", listing)
    yield from _member(name, config)
    for path, layer in zip(paths, layers, strict=True):
        yield make_tar_header(path, layer.size)
        with store.open(layer.digest) as stream:
            yield from read_chunks(stream)
        yield make_tar_padding(layer.size)
    yield TAR_END


def _member(path: str, content: bytes) -> Iterator[bytes]:
    yield make_tar_header(path, len(content))
    yield content
    yield make_tar_padding(len(content))


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
    from zstandard import ZstdDecompressor, ZstdError  # noqa: PLC0415 - only pulling layers needs it

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
