"""What a run prints: progress is shown, the rest is kept in bounds."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchlock.artifacts.user_output import SILENT, Advance
from benchlock.evaluator.runner.output_limits import ConsoleOutput


class Watcher:
    """A progress that remembers what it was told."""

    def __init__(self) -> None:
        self.events: list[object] = []

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Advance]:
        self.events.append((label, total))
        yield self.events.append
        self.events.append("end")


def test_progress_lines_become_tasks_and_are_not_kept() -> None:
    watcher = Watcher()
    output = ConsoleOutput(watcher)
    output.feed(b'{"phase": "accuracy", "done": 0, "total": 30}\n{"phase": "accur', b"")
    output.feed(b'acy", "done": 20, "total": 30}\nprinted\n', b"a warning\n")
    output.feed(
        b'{"phase": "accuracy", "done": 30, "total": 30}\n{"phase": "performance", "done": 5, "total": 9}\n', b""
    )
    output.close()
    assert watcher.events == [("accuracy", 30), 0, 20, 10, "end", ("performance", 9), 5, "end"]
    assert output.log == b"a warning\nprinted\n"


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"{",
        b'{"phase": "a", "done": "1", "total": 2}',
        b'{"phase": "a", "done": 1, "total": 2, "more": 3}',
        b'{"phase": ' + b"[" * 5000 + b"]" * 5000 + b', "done": 1, "total": 2}',
    ],
    ids=["empty", "cut", "text", "more", "deep"],
)
def test_what_is_no_progress_is_kept(line: bytes) -> None:
    watcher = Watcher()
    output = ConsoleOutput(watcher)
    output.feed(line + b"\n", b"")
    output.close()
    assert output.log == line + b"\n"
    assert watcher.events == []


def test_a_last_line_without_an_end_is_kept() -> None:
    output = ConsoleOutput(SILENT)
    output.feed(b"the last words", b"")
    assert output.log == b""
    output.close()
    assert output.log == b"the last words"


def test_a_flood_keeps_its_beginning_and_its_end() -> None:
    output = ConsoleOutput(SILENT)
    output.feed(b"", b"first")
    for _ in range(1000):
        output.feed(b"x" * 10_000, b"")
    output.feed(b"", b"last")
    output.close()
    assert output.log.startswith(b"firstx")
    assert output.log.endswith(b"xlast")
    assert b"bytes left out]" in output.log
    assert len(output.log) < 300_000
