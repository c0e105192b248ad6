"""A blob on its way out: by the server itself from the file where it can, else piece by piece."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from api.http.ranges import Part
from api.http.work import Work

_PIECE: Final = 1 << 20
_BY_PATH: Final = "http.response.pathsend"


class BlobResponse(ASGIResponse):
    """A file, or a part of it."""

    __slots__ = ("_part", "_path", "_whole", "_work")

    def __init__(self, path: Path, whole: int, part: Part | None, headers: Mapping[str, str], work: Work) -> None:
        self._path, self._whole, self._part, self._work = path, whole, part, work
        size = whole if part is None else part.size
        ranges = {} if part is None else {"content-range": part.of(whole)}
        super().__init__(
            headers={**headers, **ranges, "content-length": str(size)},
            media_type="application/octet-stream",
            status_code=200 if part is None else 206,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        if self._part is None and _BY_PATH in (scope.get("extensions") or {}):
            await self.start_response(send)
            await send({"type": _BY_PATH, "path": str(self._path)})  # type: ignore[arg-type]
        else:
            await self._send_pieces(send)

    async def _send_pieces(self, send: Send) -> None:
        file = await self._work.do(os.open, self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            await self.start_response(send)
            part = self._part or Part(0, self._whole)
            at, end = part.start, part.start + part.size
            while at < end:
                piece = await self._work.do(os.pread, file, min(_PIECE, end - at), at)
                if not piece:
                    raise EOFError(f"{self._path} ends at {at}, before its end")
                at += len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            os.close(file)
