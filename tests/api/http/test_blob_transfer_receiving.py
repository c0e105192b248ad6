"""A body on its way to the disk: what is kept of an upload is its beginning, whatever happens in the middle."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar, cast

import pytest
from litestar import Request

from benchlock.api.http.blob_transfer import append_body
from benchlock.api.http.thread_pools import FairThreadPool
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import BusyError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.uploads.resumable_uploads import Uploads
from benchlock.artifacts.uploads.upload_file import UploadFile

P = ParamSpec("P")
T = TypeVar("T")

CONTENT = random.Random(4).randbytes((5 << 20) + 3)
CHUNK = 256 << 10
OWNER = "somebody"


class Uploaded:
    """An upload, and what of it is on the disk."""

    def __init__(self, folder: Path) -> None:
        self.uploads = Uploads(folder, LocalStore(folder / "blobs"))
        self.id = self.uploads.begin(OWNER)

    def content(self) -> bytes:
        (path,) = self.uploads._open.iterdir()
        return path.read_bytes()

    async def send(self, start: int, work: FairThreadPool, piece: UploadFile | None = None) -> None:
        """Append ``CONTENT`` from ``start`` on."""
        piece = piece or self.uploads.open(OWNER, self.id, start)
        try:
            await append_body(_request(CONTENT[start:]), piece, None, work)
        finally:
            self.uploads.close(piece)

    def finish(self) -> str:
        piece = self.uploads.open(OWNER, self.id)
        try:
            return self.uploads.finish(piece, digest_bytes(CONTENT)).digest
        finally:
            self.uploads.close(piece)


def _request(body: bytes) -> Request[Any, Any, Any]:
    parts: Iterator[bytes] = (body[at : at + CHUNK] for at in range(0, len(body), CHUNK))

    async def receive() -> dict[str, Any]:
        part = next(parts, None)
        return {"type": "http.request", "body": part or b"", "more_body": part is not None}

    return cast("Request[Any, Any, Any]", SimpleNamespace(headers={}, receive=receive))


class Refusing(FairThreadPool):
    """It has too much to do once: at the ``turn``-th thing that it is asked."""

    def __init__(self, turn: int) -> None:
        super().__init__(2, 8, at_once=False)
        self._left = turn

    async def do(self, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._left -= 1
        if self._left == 0:
            raise BusyError("too much to do")
        return await super().do(act, *args, **kwargs)


@pytest.mark.parametrize("turn", range(1, 7))
def test_nothing_is_written_behind_what_could_not_be_written(tmp_path: Path, turn: int) -> None:
    upload = Uploaded(tmp_path)

    async def sent() -> None:
        work = Refusing(turn)
        with pytest.raises(BusyError):
            await upload.send(0, work)
        assert upload.content() == CONTENT[: (turn - 1) << 20]
        await upload.send((turn - 1) << 20, work)
        await work.end(60)

    asyncio.run(sent())
    assert upload.finish() == digest_bytes(CONTENT)


def test_who_is_cancelled_ends_once_nothing_is_being_written_and_all_is_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload, gate, begun = Uploaded(tmp_path), threading.Event(), threading.Event()
    write = UploadFile.write

    def held(piece: UploadFile, chunk: bytes) -> None:
        if not begun.is_set():
            begun.set()
            assert gate.wait(60)
        write(piece, chunk)

    async def cut() -> None:
        work = FairThreadPool(4, 8, at_once=False)
        task = asyncio.create_task(upload.send(0, work))
        assert await asyncio.to_thread(begun.wait, 60)
        await asyncio.sleep(0.05)  # the next lot is gathered meanwhile
        task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done()
        gate.set()
        with suppress(asyncio.CancelledError):
            await task
        await work.end(60)

    monkeypatch.setattr(UploadFile, "write", held)
    asyncio.run(cut())
    kept = upload.content()
    assert len(kept) >= 1 << 20
    assert CONTENT.startswith(kept)
