"""A blob on its way out: each piece is read while the one before it is sent, and slow readers get small pieces."""

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from litestar.response.base import ASGIResponse
from litestar.types import Message, Receive, Scope, Send

from api.http.patience import ClientLeftError
from api.http.ranges import Part
from api.http.windows import LEAST_PIECE, PIECES_HELD, SendMemory, Window
from api.http.work import Work

_WATCHED: Final = 4 << 20
"""Bytes of an answer for which it is noticed that the client leaves: the server's core drops what it is sent then."""


class BlobResponse(ASGIResponse):
    """A file or its bytes, or a part of them. ``work`` has a thread for the next piece of every answer that began."""

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
        window = Window(self._memory)
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

    async def _send_file(self, path: Path, start: int, end: int, window: Window, send: Send) -> None:
        file, piece = await self._work.do(_open, path, start, min(window.size, end - start))
        ahead: asyncio.Task[bytes] | None = None
        try:
            await self.start_response(send)
            while start < end:
                if not piece:
                    raise EOFError(f"{path} ends at {start}, before its end")
                start += len(piece)
                ahead = self._read(file, start, _next_size(window, end - start)) if start < end else None
                began = time.monotonic()
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                window.adapt(time.monotonic() - began)
                piece = b"" if ahead is None else await ahead
        finally:
            try:
                await asyncio.gather(*([] if ahead is None else [ahead]), return_exceptions=True)
            finally:
                os.close(file)  # nobody reads from it any more: it may be another file's number next

    def _read(self, file: int, start: int, size: int) -> "asyncio.Task[bytes]":
        return asyncio.create_task(self._work.do(os.pread, file, size, start))


def _next_size(window: Window, left: int) -> int:
    """The size of the next piece, of ``left`` bytes.

    The last pieces are small: the server's core holds some of them when the answer is over and its memory given back.
    """
    return min(left, window.size, max(LEAST_PIECE, left // PIECES_HELD))


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _open(path: Path, start: int, size: int) -> tuple[int, bytes]:
    """Return a descriptor of the file, and its first piece."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return file, os.pread(file, size, start)
    except OSError:
        os.close(file)
        raise
