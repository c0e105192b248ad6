"""Layers as registries keep them, plain or compressed, and the tar that they hold."""

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

from benchlock.artifacts.digest import chunks
from benchlock.artifacts.errors import InvalidInputError

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


class _Behind(io.RawIOBase):
    """``head``, then the rest of ``stream``."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head = head
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._head[: len(buffer)] or self._stream.read(len(buffer))
        self._head = self._head[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


def uncompressed(stream: BinaryIO, name: str, limit: int) -> Iterator[bytes]:
    """The tar that a layer holds, piece by piece, with gzip or zstd undone where its bytes begin like it.

    All of ``stream`` is read. ``name`` is what errors call it.

    Raises:
        InvalidInputError: it is damaged, whatever its digest says, or holds more than ``limit`` bytes.
    """
    from zstandard import ZstdDecompressor, ZstdError  # noqa: PLC0415 - only pulling layers needs it

    left, head = limit, stream.read(len(_ZSTD))
    whole = cast("BinaryIO", io.BufferedReader(_Behind(head, stream)))
    opened = whole
    if head.startswith(_GZIP):
        opened = cast("BinaryIO", gzip.GzipFile(fileobj=whole))
    elif head == _ZSTD:
        opened = cast("BinaryIO", ZstdDecompressor().stream_reader(whole, read_across_frames=True))
    try:
        for piece in chunks(opened):
            left -= len(piece)
            if left < 0:
                raise InvalidInputError(
                    f"{name} unpacks to more than {limit} bytes",
                    where=name,
                    next_step="if it is no attack, unpack it yourself and name the tarball",
                )
            yield piece
        for _ in chunks(whole):
            pass
    except (gzip.BadGzipFile, EOFError, zlib.error, ZstdError) as error:
        raise InvalidInputError(f"{name} cannot be uncompressed: {error}", where=name) from error
