"""Blob bodies over HTTP: byte ranges, uploads written to disk, and streamed downloads."""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from litestar import Request
from litestar.response.base import ASGIResponse
from litestar.types import Message, Receive, Scope, Send

from benchlock.api.http.request_limits import reserve_share
from benchlock.api.http.service_state import Service
from benchlock.api.http.slow_client_flow_control import (
    CHUNKS_IN_MEMORY,
    MIN_CHUNK,
    BrokenOffError,
    ClientLeftError,
    IncompleteBodyError,
    SendMemory,
    SendWindow,
)
from benchlock.api.http.thread_pools import FairThreadPool
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.uploads.upload_file import TooLargeError, UploadFile
from benchlock.registry.auth.permissions import get_actor

_RANGE: Final = re.compile(r"bytes[ \t]*=[ \t]*(\d*)-(\d*)[ \t]*", re.ASCII)
_CONTENT_RANGE: Final = re.compile(r"(?:bytes[ =])?(\d+)-(\d+)(?:/(?:\d+|\*))?", re.ASCII)
_MAX_HEADER: Final = 64  # characters of a header with a range


class MalformedUploadError(InvalidInputError):
    """A malformed digest or range of an upload; 400, as the OCI distribution specification requires."""

    code = "malformed"


class NotInContentError(InvalidInputError):
    """A requested range outside of a blob of ``size`` bytes."""

    code = "range-not-satisfiable"

    def __init__(self, header: str, size: int) -> None:
        """Describe the requested range and the blob's size in bytes."""
        super().__init__(
            f"the range {header} is outside the {size} bytes of the blob",
            next_step="request a range that begins inside the blob",
        )
        self.size = size


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A range of ``size`` bytes from the offset ``start``."""

    start: int
    size: int

    def content_range(self, whole: int) -> str:
        """Return the value of Content-Range for this part of ``whole`` bytes."""
        return f"bytes {self.start}-{self.start + self.size - 1}/{whole}"


def parse_range(header: str | None, whole: int) -> ByteRange | None:
    """Parse a Range header for ``whole`` bytes; None for the whole, several ranges, or an unknown form.

    Raises:
        NotInContentError: The range is outside of the content.
    """
    match = _RANGE.fullmatch(header) if header and len(header) <= _MAX_HEADER else None
    if header is None or match is None or match[1] == match[2] == "":
        return None
    if not match[1]:
        start, end = max(0, whole - int(match[2])), whole - 1
    else:
        start, end = int(match[1]), int(match[2]) if match[2] else whole - 1
        if match[2] and end < start:
            return None
    if start >= whole:
        raise NotInContentError(header, whole)
    return ByteRange(start, min(end, whole - 1) - start + 1)


def parse_content_range(header: str) -> ByteRange:
    """Parse the Content-Range of a request: ``START-END``, with or without the unit and size of RFC 9110.

    Raises:
        MalformedUploadError: It has another form.
    """
    match = _CONTENT_RANGE.fullmatch(header) if len(header) <= _MAX_HEADER else None
    if match is None or int(match[2]) < int(match[1]):
        raise MalformedUploadError(
            f"invalid byte range {header[:_MAX_HEADER]!r}", where="Content-Range", next_step="write START-END"
        )
    return ByteRange(int(match[1]), int(match[2]) - int(match[1]) + 1)


_BATCH_BYTES: Final = 1 << 20  # bytes per write


def content_length(request: Request[Any, Any, Any]) -> int | None:
    """Return the Content-Length of the request, None if it is missing."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdecimal() else None


async def append_body(
    request: Request[Any, Any, Any], piece: UploadFile, part: ByteRange | None, work: FairThreadPool
) -> None:
    """Append the body to an upload; received bytes are kept, even after an error.

    Args:
        request: The request.
        piece: The file of the upload.
        part: The range in Content-Range, if the request has one.
        work: The threads that write the file.

    Raises:
        TooLargeError: The upload would exceed the largest size.
        BrokenOffError: The body is longer or shorter than announced.
    """
    announced, size = content_length(request), 0
    if announced is not None:
        if part is not None and part.size != announced:
            raise BrokenOffError(f"Content-Range states {part.size} bytes, but Content-Length {announced}")
        if piece.size + announced > piece.largest:
            raise TooLargeError(f"the upload would have more than {piece.largest} bytes")
    limit = announced if announced is not None else part.size if part is not None else None
    async with _open_chunk_writer(piece, work) as pieces:
        async for chunk in _read_body(request):
            size += len(chunk)
            if limit is not None and size > limit:
                raise BrokenOffError(f"the body has more than the announced {limit} bytes")
            await pieces.add(chunk)
    if limit is not None and size < limit:
        raise BrokenOffError(f"the body has {size} of the announced {limit} bytes")


class _ChunkWriter:
    """A writer that writes one batch of chunks while the next is buffered, in order, and none after a failed one."""

    def __init__(self, piece: UploadFile, work: FairThreadPool) -> None:
        self._piece, self._work = piece, work
        self._buffer: list[bytes] = []
        self._size = 0
        self._write_task: asyncio.Task[None] | None = None

    async def add(self, chunk: bytes) -> None:
        self._buffer.append(chunk)
        self._size += len(chunk)
        if self._size >= _BATCH_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Start writing the buffered chunks once the batch before is written."""
        await self.wait()
        batch, self._buffer, self._size = self._buffer, [], 0
        if batch:
            self._write_task = asyncio.create_task(self._work.do(lambda: self._piece.write(b"".join(batch))))

    async def wait(self) -> None:
        """Wait until nothing is being written; if the wait is cancelled, the next one waits for the same batch.

        Raises:
            BenchlockError: The batch was not written. Chunks after it are dropped, since they would leave a hole.
        """
        if self._write_task is None:
            return
        await asyncio.wait([self._write_task])
        task, self._write_task = self._write_task, None
        try:
            task.result()
        except BaseException:
            self._buffer, self._size = [], 0
            raise


@asynccontextmanager
async def _open_chunk_writer(piece: UploadFile, work: FairThreadPool) -> AsyncIterator[_ChunkWriter]:
    """Yield a writer; when the context is left, even with an error, all of its chunks have been written."""
    pieces = _ChunkWriter(piece, work)
    try:
        yield pieces
    finally:
        try:
            await pieces.flush()
        finally:
            await pieces.wait()


async def _read_body(request: Request[Any, Any, Any]) -> AsyncIterator[bytes]:
    """Iterate over the body; a disconnect raises, while Litestar's own stream would report it as an internal error."""
    while True:
        event = await request.receive()
        if event["type"] != "http.request":
            raise IncompleteBodyError("the client closed the connection during its request")
        if event["body"]:
            yield event["body"]
        if not event.get("more_body", False):
            return


_WATCH_BYTES: Final = 4 << 20
"""Responses with more bytes watch for a disconnect, after which granian silently drops what is sent."""


class BlobResponse(ASGIResponse):
    """A response with a file or bytes, or a part of them; ``work`` reads the chunks in its threads."""

    __slots__ = ("_memory", "_part", "_source", "_work")

    def __init__(
        self,
        source: Path | bytes,
        whole: int,
        part: ByteRange | None,
        headers: Mapping[str, str],
        *,
        work: FairThreadPool,
        memory: SendMemory,
    ) -> None:
        """Prepare a response.

        Args:
            source: The path of the blob, or its bytes.
            whole: The size of the blob in bytes.
            part: The range to send; None for the whole blob.
            headers: Further headers.
            work: The threads that read the file.
            memory: The memory for chunks that are being sent.
        """
        self._source, self._part, self._work, self._memory = source, part or ByteRange(0, whole), work, memory
        ranges = {} if part is None else {"content-range": part.content_range(whole)}
        super().__init__(
            headers={**headers, **ranges, "content-length": str(self._part.size)},
            media_type="application/octet-stream",
            status_code=200 if part is None else 206,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        """Send the response over ASGI."""
        start, end = self._part.start, self._part.start + self._part.size
        if isinstance(self._source, bytes):
            await self.start_response(send)
            await send({"type": "http.response.body", "body": self._source[start:end], "more_body": False})
            return
        window = SendWindow(self._memory)
        leaving = asyncio.create_task(_wait_for_disconnect(receive)) if end - start > _WATCH_BYTES else None

        async def send_while_there(message: Message) -> None:
            await send(message)
            if leaving is not None and leaving.done():
                raise ClientLeftError("the client closed the connection")

        try:
            await self._send_file(self._source, start, end, window, send_while_there)
        finally:
            window.close()
            if leaving is not None:
                leaving.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_file(self, path: Path, start: int, end: int, window: SendWindow, send: Send) -> None:
        file, chunk = await self._work.do(_open_blob, path, start, min(window.size, end - start))
        ahead: asyncio.Task[bytes] | None = None
        try:
            await self.start_response(send)
            while start < end:
                if not chunk:
                    raise EOFError(f"{path} ends at {start}, before its end")
                start += len(chunk)
                ahead = self._read(file, start, _next_size(window, end - start)) if start < end else None
                began = time.monotonic()
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                window.adapt(time.monotonic() - began)
                chunk = b"" if ahead is None else await ahead
        finally:
            try:
                await asyncio.gather(*([] if ahead is None else [ahead]), return_exceptions=True)
            finally:
                os.close(file)  # the read-ahead has ended: the number may be reused for another file

    def _read(self, file: int, start: int, size: int) -> "asyncio.Task[bytes]":
        return asyncio.create_task(self._work.do(os.pread, file, size, start))


def _next_size(window: SendWindow, left: int) -> int:
    """Return the size of the next chunk of ``left`` bytes.

    The last chunks are small, because granian holds some of them after the response has ended and its memory was freed.
    """
    return min(left, window.size, max(MIN_CHUNK, left // CHUNKS_IN_MEMORY))


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _open_blob(path: Path, start: int, size: int) -> tuple[int, bytes]:
    """Return a descriptor of the file, and its first chunk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return file, os.pread(file, size, start)
    except OSError:
        os.close(file)
        raise


class CallerUploads:
    """The uploads of one service; each is accessible only to the caller who started it."""

    def __init__(self, service: Service) -> None:
        """Use the uploads and threads of ``service``."""
        self._work = service.work
        self._uploads = service.uploads

    async def has(self, digest: Digest) -> bool:
        """Check whether the blob exists; if so, it is kept until the caller has had the time to refer to it."""
        return await self._work.do(self._uploads.has, digest, _caller_id())

    async def begin(self) -> str:
        """Start an upload and return its id."""
        return await self._work.do(self._uploads.begin, _caller_id(), reserve_share())

    async def offset(self, upload: str) -> int:
        """Return how many bytes of an upload were received."""
        return await self._work.do(self._uploads.offset, _caller_id(), upload)

    async def append(self, request: Request[Any, Any, Any], upload: str, place: str | None) -> int:
        """Append the body at its Content-Range; return how many bytes of the upload were received."""
        async with self._append_locked(request, upload, place) as piece:
            return piece.size

    async def append_last(
        self, request: Request[Any, Any, Any], upload: str, digest: Digest, place: str | None
    ) -> Digest:
        """Append the body and finish the upload as the blob ``digest``.

        Args:
            request: The request with the last part.
            upload: The id of the upload.
            digest: The digest of the whole blob.
            place: The Content-Range, if the request has one.
        """
        async with self._append_locked(request, upload, place) as piece:
            return (await self._work.do(self._uploads.finish, piece, digest)).digest

    async def take(self, request: Request[Any, Any, Any], digest: Digest) -> Digest:
        """Upload a blob in one request; nothing is kept after an error, since the client has no upload id."""
        upload = await self.begin()
        try:
            return await self.append_last(request, upload, digest, None)
        except BaseException:
            await self._work.do(self._uploads.delete, _caller_id(), upload)
            raise

    async def give_up(self, upload: str) -> None:
        """Cancel an upload and delete its bytes."""
        await self._work.do(self._uploads.offset, _caller_id(), upload)
        await self._work.do(self._uploads.delete, _caller_id(), upload)

    @asynccontextmanager
    async def _append_locked(
        self, request: Request[Any, Any, Any], upload: str, place: str | None
    ) -> AsyncIterator[UploadFile]:
        """Append the body and yield the upload, still locked for the caller."""
        await self.offset(upload)  # an unknown upload is reported before any other error
        part = None if place is None else parse_content_range(place)
        size = content_length(request) or 0 if part is None else part.size
        at = None if part is None else part.start
        piece = await self._work.do(self._uploads.open, _caller_id(), upload, at, size, reserve_share())
        try:
            await append_body(request, piece, part, self._work)
            yield piece
        finally:
            self._uploads.close(piece)


def _caller_id() -> str:
    return get_actor().id
