"""A blob on its way out: all of it, in its order, and nothing stays open however it ends."""

import asyncio
import gc
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from benchlock.api.http.blob_transfer import BlobResponse, ByteRange
from benchlock.api.http.middleware import RequestMiddleware
from benchlock.api.http.routes.app import create_app
from benchlock.api.http.slow_client_flow_control import (
    CHUNKS_IN_MEMORY,
    MAX_CHUNK,
    MIN_CHUNK,
    ClientLeftError,
    SendMemory,
    SendWindow,
)
from benchlock.api.http.thread_pools import FairThreadPool
from benchlock.api.local.local_registry import LocalRegistry, now
from benchlock.registry.auth.audit_log import DenialLog

Message = dict[str, Any]


MEMORY = 16 << 20


def sent(
    path: Path,
    part: ByteRange | None = None,
    whole: int | None = None,
    take: Callable[[bytes], object] = len,
) -> bytes:
    """What comes of a blob, over the whole way; ``take`` is called with each piece."""
    messages: list[Message] = []
    memory = SendMemory(MEMORY)
    size = path.stat().st_size if whole is None else whole

    async def send(message: Any) -> None:  # noqa: ANN401 - ASGI's
        await asyncio.sleep(0)
        if message["type"] == "http.response.body":
            take(message["body"])
        messages.append(message)

    async def receive() -> Any:  # noqa: ANN401 - ASGI's
        await asyncio.Event().wait()  # the client stays

    async def answer() -> None:
        work = FairThreadPool(2, 8, at_once=True)
        try:
            await BlobResponse(path, size, part, {}, work=work, memory=memory)({}, receive, send)  # type: ignore[arg-type]
        finally:
            await work.end(10)

    before = open_files()
    try:
        asyncio.run(answer())
    finally:
        assert open_files() == before
        assert memory.left == MEMORY
    assert [one["more_body"] for one in messages[1:]] == [True] * (len(messages) - 2) + [False]
    content = b"".join(one["body"] for one in messages[1:])
    assert dict(messages[0]["headers"])[b"content-length"] == str(len(content)).encode()
    return content


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone


@pytest.mark.parametrize("size", [0, 1, MAX_CHUNK - 1, MAX_CHUNK, MAX_CHUNK + 1, 3 * MAX_CHUNK + 7])
def test_all_of_it_comes_in_its_order(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "blob").write_bytes(content)
    assert sent(tmp_path / "blob") == content


@pytest.mark.parametrize(
    "part", [ByteRange(0, 1), ByteRange(5, 2 * MAX_CHUNK), ByteRange(2 * MAX_CHUNK, MAX_CHUNK + 3)]
)
def test_a_part_is_what_lies_there(tmp_path: Path, part: ByteRange) -> None:
    content = os.urandom(3 * MAX_CHUNK + 7)
    (tmp_path / "blob").write_bytes(content)
    assert sent(tmp_path / "blob", part) == content[part.start : part.start + part.size]


def test_a_file_that_is_cut_meanwhile_is_no_whole_answer(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"x" * MAX_CHUNK)
    with pytest.raises(EOFError, match="before its end"):
        sent(tmp_path / "blob", whole=MAX_CHUNK + 1)


def test_nothing_stays_open_where_the_client_goes(tmp_path: Path) -> None:
    def go(_: bytes) -> None:
        raise ConnectionResetError

    (tmp_path / "blob").write_bytes(b"x" * 3 * MAX_CHUNK)
    with pytest.raises(ConnectionResetError):
        sent(tmp_path / "blob", take=go)


def test_pieces_grow_while_the_client_takes_them_and_shrink_while_it_does_not() -> None:
    memory = SendMemory(MEMORY)
    window = SendWindow(memory)
    assert window.size == MIN_CHUNK
    for _ in range(100):
        window.adapt(0)
    assert window.size == MAX_CHUNK
    for _ in range(5):
        window.adapt(1)
    assert window.size == MIN_CHUNK
    window.close()
    assert memory.left == MEMORY


def test_all_windows_together_have_no_more_than_their_memory() -> None:
    memory = SendMemory(MEMORY)
    windows = [SendWindow(memory) for _ in range(100)]
    for _ in range(100):
        for window in windows:
            window.adapt(0)
    assert sum(window.size * CHUNKS_IN_MEMORY for window in windows) <= MEMORY + 100 * MIN_CHUNK * CHUNKS_IN_MEMORY
    assert memory.left >= 0


def test_the_last_pieces_are_small(tmp_path: Path) -> None:
    pieces: list[int] = []
    (tmp_path / "blob").write_bytes(bytes(40 * MAX_CHUNK))
    sent(tmp_path / "blob", take=lambda piece: pieces.append(len(piece)))
    assert max(pieces) == MAX_CHUNK
    assert sum(pieces[-CHUNKS_IN_MEMORY - 1 :]) <= CHUNKS_IN_MEMORY * MIN_CHUNK


def test_a_client_that_leaves_is_sent_no_more(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(bytes(20 * MAX_CHUNK))
    messages: list[Message] = []

    async def send(message: Any) -> None:  # noqa: ANN401 - ASGI's
        await asyncio.sleep(0)
        messages.append(message)

    async def receive() -> Any:  # noqa: ANN401 - ASGI's
        return {"type": "http.disconnect"}

    async def answer() -> None:
        work = FairThreadPool(2, 8, at_once=True)
        try:
            size = 20 * MAX_CHUNK
            response = BlobResponse(tmp_path / "blob", size, None, {}, work=work, memory=SendMemory(0))
            await response({}, receive, send)  # type: ignore[arg-type]
        finally:
            await work.end(10)

    with pytest.raises(ClientLeftError):
        asyncio.run(answer())
    assert len(messages) < 5


class Held:
    """Stands for what is being sent."""


def test_an_answer_that_was_cut_leaves_nothing_in_memory(registry: LocalRegistry) -> None:
    """No cycle of errors and frames keeps what was being sent until the interpreter looks for cycles."""
    service = create_app(registry).state.service
    held = list[weakref.ref[Held]]()

    async def answering(*_: object) -> None:
        sending = Held()
        held.append(weakref.ref(sending))
        try:
            raise ClientLeftError("the client closed the connection")  # noqa: TRY301 - as a send does it
        except ClientLeftError as error:
            raise RuntimeError("the answer had begun") from error

    scope: Any = {"type": "http", "method": "GET", "path": "/v1/health", "raw_path": b"/v1/health", "headers": []}
    scope |= {"query_string": b"", "client": ("127.0.0.1", 1)}

    async def observe() -> bool:
        observed = RequestMiddleware(answering, service, DenialLog(registry.database, now))
        with suppress(ClientLeftError):
            await observed(scope, AsyncMock(), AsyncMock())
        return held[0]() is None

    gc.disable()
    try:
        assert asyncio.run(observe())
    finally:
        gc.enable()
