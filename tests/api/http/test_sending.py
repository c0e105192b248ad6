"""A blob on its way out: all of it, in its order, and nothing stays open however it ends."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.http.patience import ClientLeftError
from api.http.ranges import Part
from api.http.sending import BlobResponse
from api.http.windows import LARGEST_PIECE, LEAST_PIECE, PIECES_HELD, SendMemory, Window
from api.http.work import Work

Message = dict[str, Any]


MEMORY = 16 << 20


def sent(path: Path, part: Part | None = None, whole: int | None = None, take: Callable[[bytes], None] = len) -> bytes:  # type: ignore[assignment]
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
        work = Work(2, 8, at_once=True)
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


@pytest.mark.parametrize("size", [0, 1, LARGEST_PIECE - 1, LARGEST_PIECE, LARGEST_PIECE + 1, 3 * LARGEST_PIECE + 7])
def test_all_of_it_comes_in_its_order(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "blob").write_bytes(content)
    assert sent(tmp_path / "blob") == content


@pytest.mark.parametrize("part", [Part(0, 1), Part(5, 2 * LARGEST_PIECE), Part(2 * LARGEST_PIECE, LARGEST_PIECE + 3)])
def test_a_part_is_what_lies_there(tmp_path: Path, part: Part) -> None:
    content = os.urandom(3 * LARGEST_PIECE + 7)
    (tmp_path / "blob").write_bytes(content)
    assert sent(tmp_path / "blob", part) == content[part.start : part.start + part.size]


def test_a_file_that_is_cut_meanwhile_is_no_whole_answer(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"x" * LARGEST_PIECE)
    with pytest.raises(EOFError, match="before its end"):
        sent(tmp_path / "blob", whole=LARGEST_PIECE + 1)


def test_nothing_stays_open_where_the_client_goes(tmp_path: Path) -> None:
    def go(_: bytes) -> None:
        raise ConnectionResetError

    (tmp_path / "blob").write_bytes(b"x" * 3 * LARGEST_PIECE)
    with pytest.raises(ConnectionResetError):
        sent(tmp_path / "blob", take=go)


def test_pieces_grow_while_the_client_takes_them_and_shrink_while_it_does_not() -> None:
    memory = SendMemory(MEMORY)
    window = Window(memory)
    assert window.size == LEAST_PIECE
    for _ in range(100):
        window.adapt(0)
    assert window.size == LARGEST_PIECE
    for _ in range(5):
        window.adapt(1)
    assert window.size == LEAST_PIECE
    window.close()
    assert memory.left == MEMORY


def test_all_windows_together_have_no_more_than_their_memory() -> None:
    memory = SendMemory(MEMORY)
    windows = [Window(memory) for _ in range(100)]
    for _ in range(100):
        for window in windows:
            window.adapt(0)
    assert sum(window.size * PIECES_HELD for window in windows) <= MEMORY + 100 * LEAST_PIECE * PIECES_HELD
    assert memory.left >= 0


def test_the_last_pieces_are_small(tmp_path: Path) -> None:
    pieces: list[int] = []
    (tmp_path / "blob").write_bytes(bytes(40 * LARGEST_PIECE))
    sent(tmp_path / "blob", take=lambda piece: pieces.append(len(piece)))
    assert max(pieces) == LARGEST_PIECE
    assert sum(pieces[-PIECES_HELD - 1 :]) <= PIECES_HELD * LEAST_PIECE


def test_a_client_that_leaves_is_sent_no_more(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(bytes(20 * LARGEST_PIECE))
    messages: list[Message] = []

    async def send(message: Any) -> None:  # noqa: ANN401 - ASGI's
        await asyncio.sleep(0)
        messages.append(message)

    async def receive() -> Any:  # noqa: ANN401 - ASGI's
        return {"type": "http.disconnect"}

    async def answer() -> None:
        work = Work(2, 8, at_once=True)
        try:
            size = 20 * LARGEST_PIECE
            response = BlobResponse(tmp_path / "blob", size, None, {}, work=work, memory=SendMemory(0))
            await response({}, receive, send)  # type: ignore[arg-type]
        finally:
            await work.end(10)

    with pytest.raises(ClientLeftError):
        asyncio.run(answer())
    assert len(messages) < 5
