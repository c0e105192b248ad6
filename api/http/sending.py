"""A blob on its way out, piece by piece: each is read while the one before it is sent, waited for and counted."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from api.http.ranges import Part
from api.http.work import Work

_PIECE: Final = 2 << 20


class BlobResponse(ASGIResponse):
    """A file or its bytes, or a part of them. ``work`` has a thread for the next piece of every answer that began."""

    __slots__ = ("_part", "_source", "_work")

    def __init__(
        self, source: Path | bytes, whole: int, part: Part | None, headers: Mapping[str, str], work: Work
    ) -> None:
        self._source, self._part, self._work = source, part or Part(0, whole), work
        ranges = {} if part is None else {"content-range": part.of(whole)}
        super().__init__(
            headers={**headers, **ranges, "content-length": str(self._part.size)},
            media_type="application/octet-stream",
            status_code=200 if part is None else 206,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        at, end = self._part.start, self._part.start + self._part.size
        if isinstance(self._source, bytes):
            await self.start_response(send)
            await send({"type": "http.response.body", "body": self._source[at:end], "more_body": True})
        else:
            await self._send_file(self._source, at, end, send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_file(self, path: Path, at: int, end: int, send: Send) -> None:
        file, piece = await self._work.do(_opened, path, at, min(_PIECE, end - at))
        ahead: asyncio.Task[bytes] | None = None
        try:
            await self.start_response(send)
            while at < end:
                if not piece:
                    raise EOFError(f"{path} ends at {at}, before its end")
                at += len(piece)
                ahead = self._read(file, at, end) if at < end else None
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                piece = b"" if ahead is None else await ahead
        finally:
            try:
                await asyncio.gather(*([] if ahead is None else [ahead]), return_exceptions=True)
            finally:
                os.close(file)  # nobody reads from it any more: it may be another file's number next

    def _read(self, file: int, at: int, end: int) -> "asyncio.Task[bytes]":
        return asyncio.create_task(self._work.do(os.pread, file, min(_PIECE, end - at), at))


def _opened(path: Path, at: int, size: int) -> tuple[int, bytes]:
    """A descriptor of the file, and its first piece."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return file, os.pread(file, size, at)
    except OSError:
        os.close(file)
        raise
