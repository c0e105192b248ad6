"""A blob on its way out: all of it, in its order, and nothing stays open however it ends."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.http.ranges import Part
from api.http.sending import _PIECE, BlobResponse
from api.http.work import Work

Message = dict[str, Any]


def sent(path: Path, part: Part | None = None, whole: int | None = None, take: Callable[[bytes], None] = len) -> bytes:  # type: ignore[assignment]
    """What comes of a blob, over the whole way; ``take`` is called with each piece."""
    messages: list[Message] = []
    size = path.stat().st_size if whole is None else whole

    async def send(message: Any) -> None:  # noqa: ANN401 - ASGI's
        await asyncio.sleep(0)
        if message["type"] == "http.response.body":
            take(message["body"])
        messages.append(message)

    async def receive() -> Any:  # noqa: ANN401 - ASGI's
        raise AssertionError("nobody asks")

    async def answer() -> None:
        work = Work(2, 8, at_once=True)
        try:
            await BlobResponse(path, size, part, {}, work)({}, receive, send)  # type: ignore[arg-type]
        finally:
            await work.end(10)

    before = open_files()
    try:
        asyncio.run(answer())
    finally:
        assert open_files() == before
    assert [one["more_body"] for one in messages[1:]] == [True] * (len(messages) - 2) + [False]
    content = b"".join(one["body"] for one in messages[1:])
    assert dict(messages[0]["headers"])[b"content-length"] == str(len(content)).encode()
    return content


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone


@pytest.mark.parametrize("size", [0, 1, _PIECE - 1, _PIECE, _PIECE + 1, 3 * _PIECE + 7])
def test_all_of_it_comes_in_its_order(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "blob").write_bytes(content)
    assert sent(tmp_path / "blob") == content


@pytest.mark.parametrize("part", [Part(0, 1), Part(5, 2 * _PIECE), Part(2 * _PIECE, _PIECE + 3)])
def test_a_part_is_what_lies_there(tmp_path: Path, part: Part) -> None:
    content = os.urandom(3 * _PIECE + 7)
    (tmp_path / "blob").write_bytes(content)
    assert sent(tmp_path / "blob", part) == content[part.start : part.start + part.size]


def test_a_file_that_is_cut_meanwhile_is_no_whole_answer(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"x" * _PIECE)
    with pytest.raises(EOFError, match="before its end"):
        sent(tmp_path / "blob", whole=_PIECE + 1)


def test_nothing_stays_open_where_the_client_goes(tmp_path: Path) -> None:
    def go(_: bytes) -> None:
        raise ConnectionResetError

    (tmp_path / "blob").write_bytes(b"x" * 3 * _PIECE)
    with pytest.raises(ConnectionResetError):
        sent(tmp_path / "blob", take=go)
