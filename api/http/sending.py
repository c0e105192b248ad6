"""Responses with a blob: each chunk is read while the one before it is sent, and slow clients get small chunks."""

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from litestar.response.base import ASGIResponse
from litestar.types import Message, Receive, Scope, Send

from benchlock.api.http.patience import ClientLeftError
from benchlock.api.http.ranges import Part
from benchlock.api.http.send_window import CHUNKS_IN_MEMORY, MIN_CHUNK, SendMemory, SendWindow
from benchlock.api.http.work import Work

_WATCHED: Final = 4 << 20
"""Bytes of a response from which on a disconnect is watched for: granian drops what is sent after it without a word."""


class BlobResponse(ASGIResponse):
    """A file or its bytes, or a part of them. ``work`` reads the chunks in its threads."""

    __slots__ = ("_memory", "_part", "_source", "_work")

    def __init__(
        self,
        source: Path | bytes,
        whole: int,
        part: Part | None,
        headers: Mapping[str, str],
        *,
        work: Work,
        memory: SendMemory,
    ) -> None:
        self._source, self._part, self._work, self._memory = source, part or Part(0, whole), work, memory
        ranges = {} if part is None else {"content-range": part.of(whole)}
        super().__init__(
            headers={**headers, **ranges, "content-length": str(self._part.size)},
            media_type="application/octet-stream",
            status_code=200 if part is None else 206,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        start, end = self._part.start, self._part.start + self._part.size
        if isinstance(self._source, bytes):
            await self.start_response(send)
            await send({"type": "http.response.body", "body": self._source[start:end], "more_body": False})
            return
        window = SendWindow(self._memory)
        leaving = asyncio.create_task(_wait_for_disconnect(receive)) if end - start > _WATCHED else None

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
        file, chunk = await self._work.do(_open, path, start, min(window.size, end - start))
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
                os.close(file)  # nobody reads from it any more: it may be another file's number next

    def _read(self, file: int, start: int, size: int) -> "asyncio.Task[bytes]":
        return asyncio.create_task(self._work.do(os.pread, file, size, start))


def _next_size(window: SendWindow, left: int) -> int:
    """Return the size of the next chunk of ``left`` bytes.

    The last chunks are small: granian holds some of them after the response has ended and its memory was freed.
    """
    return min(left, window.size, max(MIN_CHUNK, left // CHUNKS_IN_MEMORY))


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _open(path: Path, start: int, size: int) -> tuple[int, bytes]:
    """Return a descriptor of the file, and its first chunk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return file, os.pread(file, size, start)
    except OSError:
        os.close(file)
        raise
