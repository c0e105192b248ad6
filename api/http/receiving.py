"""The body of a request on its way to the disk: in bounded memory, written while the next bytes come."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from litestar import Request

from benchlock.api.http.patience import BrokenOffError, IncompleteBodyError
from benchlock.api.http.ranges import Part
from benchlock.api.http.work import Work
from benchlock.artifacts.pieces import Piece, TooLargeError

_GATHERED: Final = 1 << 20  # bytes that are written at once


def length_of(request: Request[Any, Any, Any]) -> int | None:
    """The bytes that the request says it has; ``None`` where it says nothing."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdecimal() else None


async def append(request: Request[Any, Any, Any], piece: Piece, part: Part | None, work: Work) -> None:
    """Append the body to an upload; what came is kept, however it ends.

    Raises:
        TooLargeError: there is more than may be.
        BrokenOffError: there is more or less than the request says.
    """
    announced, size = length_of(request), 0
    if announced is not None:
        if part is not None and part.size != announced:
            raise BrokenOffError(f"Content-Range says {part.size} bytes, and Content-Length {announced}")
        if piece.size + announced > piece.largest:
            raise TooLargeError(f"the upload would have more than {piece.largest} bytes")
    most = announced if announced is not None else part.size if part is not None else None
    async with _written(piece, work) as pieces:
        async for chunk in _chunks(request):
            size += len(chunk)
            if most is not None and size > most:
                raise BrokenOffError(f"more than the {most} bytes came that the request says")
            await pieces.add(chunk)
    if most is not None and size < most:
        raise BrokenOffError(f"{size} bytes came of the {most} that the request says")


class _Pieces:
    """Gathers chunks, and writes one lot while the next is gathered; in their order, and none after one that failed."""

    def __init__(self, piece: Piece, work: Work) -> None:
        self._piece, self._work = piece, work
        self._gathered: list[bytes] = []
        self._size = 0
        self._writing: asyncio.Task[None] | None = None

    async def add(self, chunk: bytes) -> None:
        self._gathered.append(chunk)
        self._size += len(chunk)
        if self._size >= _GATHERED:
            await self.flush()

    async def flush(self) -> None:
        """Begin to write what was gathered, once the lot before is written."""
        await self.wait()
        gathered, self._gathered, self._size = self._gathered, [], 0
        if gathered:
            self._writing = asyncio.create_task(self._work.do(lambda: self._piece.write(b"".join(gathered))))

    async def wait(self) -> None:
        """Until nothing is being written; a wait that is cancelled leaves the lot to the next one.

        Raises:
            BenchlockError: the lot is not written. What was gathered behind it is dropped: it would make a hole.
        """
        if self._writing is None:
            return
        await asyncio.wait([self._writing])
        writing, self._writing = self._writing, None
        try:
            writing.result()
        except BaseException:
            self._gathered, self._size = [], 0
            raise


@asynccontextmanager
async def _written(piece: Piece, work: Work) -> AsyncIterator[_Pieces]:
    """All that was added is written when the context is left, with an error too; and nothing is being written then."""
    pieces = _Pieces(piece, work)
    try:
        yield pieces
    finally:
        try:
            await pieces.flush()
        finally:
            await pieces.wait()


async def _chunks(request: Request[Any, Any, Any]) -> AsyncIterator[bytes]:
    """The body as it comes; Litestar's own stream makes a fault of the server of a client that goes away."""
    while True:
        event = await request.receive()
        if event["type"] != "http.request":
            raise IncompleteBodyError("the client went away in the middle of its request")
        if event["body"]:
            yield event["body"]
        if not event.get("more_body", False):
            return
