"""Uploads as the service takes them: whose they are, and each step in a thread."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Request

from benchlock.api.http.ranges import sent_part
from benchlock.api.http.receiving import append, length_of
from benchlock.api.http.service import Service
from benchlock.api.http.space import reserve_share
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.pieces import Piece
from benchlock.registry.access.actors import acting


class Uploading:
    """The uploads of one service, each for the caller alone who began it."""

    def __init__(self, service: Service) -> None:
        self._work = service.work
        self._uploads = service.uploads

    async def has(self, digest: Digest) -> bool:
        """Whether the blob is there; it will stay until the caller has had the time to name it."""
        return await self._work.do(self._uploads.has, digest, _caller())

    async def begin(self) -> str:
        return await self._work.do(self._uploads.begin, _caller(), reserve_share())

    async def offset(self, upload: str) -> int:
        return await self._work.do(self._uploads.offset, _caller(), upload)

    async def append(self, request: Request[Any, Any, Any], upload: str, place: str | None) -> int:
        """Append the body where it belongs, by its Content-Range; how far the upload came."""
        async with self._appended(request, upload, place) as piece:
            return piece.size

    async def append_last(
        self, request: Request[Any, Any, Any], upload: str, digest: Digest, place: str | None
    ) -> Digest:
        """Append the body, and finish."""
        async with self._appended(request, upload, place) as piece:
            return (await self._work.do(self._uploads.finish, piece, digest)).digest

    async def take(self, request: Request[Any, Any, Any], digest: Digest) -> Digest:
        """A blob in one request. What broke off is not kept: nobody knows its upload."""
        upload = await self.begin()
        try:
            return await self.append_last(request, upload, digest, None)
        except BaseException:
            await self._work.do(self._uploads.give_up, _caller(), upload)
            raise

    async def give_up(self, upload: str) -> None:
        await self._work.do(self._uploads.offset, _caller(), upload)
        await self._work.do(self._uploads.give_up, _caller(), upload)

    @asynccontextmanager
    async def _appended(self, request: Request[Any, Any, Any], upload: str, place: str | None) -> AsyncIterator[Piece]:
        """The upload after the body was appended to it, still the caller's alone."""
        await self.offset(upload)  # where there is none, that is what is told, whatever else is wrong
        part = None if place is None else sent_part(place)
        size = length_of(request) or 0 if part is None else part.size
        at = None if part is None else part.start
        piece = await self._work.do(self._uploads.opened, _caller(), upload, at, size, reserve_share())
        try:
            await append(request, piece, part, self._work)
            yield piece
        finally:
            self._uploads.close(piece)


def _caller() -> str:
    return acting().id
