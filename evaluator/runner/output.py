"""What a run prints while it runs: progress, which is shown, and all else, which is kept in bounds."""

import json
from collections import deque
from contextlib import ExitStack
from threading import Lock
from typing import Any

from benchlock.artifacts.progress import Advance, Progress

_HEAD = 64 << 10
_TAIL = 192 << 10
_LONGEST_LINE = 4096


class Output:
    """Takes standard output and standard error as they come.

    A line of standard output that is ``{"phase", "done", "total"}`` moves a progress task. The rest makes the log, of
    which the first 64 KiB and the last 192 KiB are kept.
    """

    def __init__(self, progress: Progress) -> None:
        self._mutex = Lock()
        self._progress = progress
        self._tasks = ExitStack()
        self._phase: str | None = None
        self._advance: Advance = lambda _step: None
        self._done = 0
        self._line = b""
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._dropped = 0

    def feed(self, output: bytes, error: bytes) -> None:
        """Take a piece of either; several threads may."""
        with self._mutex:
            self._keep(error)
            *lines, self._line = (self._line + output).split(b"\n")
            for line in lines:
                if not self._is_progress(line):
                    self._keep(line + b"\n")
            if len(self._line) > _LONGEST_LINE:
                self._keep(self._line)
                self._line = b""

    def close(self) -> None:
        """End the task that is shown; keep a last line without its end."""
        with self._mutex:
            self._keep(self._line)
            self._line = b""
            self._tasks.close()

    @property
    def log(self) -> bytes:
        gap = b"\n[%d bytes left out]\n" % self._dropped if self._dropped else b""
        return bytes(self._head) + gap + b"".join(self._tail)

    def _keep(self, piece: bytes) -> None:
        room = _HEAD - len(self._head)
        if room > 0:
            self._head += piece[:room]
            piece = piece[room:]
        if not piece:
            return
        self._tail.append(piece)
        self._tail_size += len(piece)
        while self._tail_size > _TAIL:
            excess = min(len(self._tail[0]), self._tail_size - _TAIL)
            first = self._tail.popleft()[excess:]
            if first:
                self._tail.appendleft(first)
            self._tail_size -= excess
            self._dropped += excess

    def _is_progress(self, line: bytes) -> bool:
        if not line.startswith(b"{") or len(line) > _LONGEST_LINE:
            return False
        try:
            found: Any = json.loads(line)
        except (ValueError, RecursionError):
            return False
        if set(found) != {"phase", "done", "total"} or not all(
            isinstance(found[key], int) for key in ("done", "total")
        ):
            return False
        self._show(str(found["phase"]), found["done"], found["total"])
        return True

    def _show(self, phase: str, done: int, total: int) -> None:
        if phase != self._phase:
            self._tasks.close()
            self._advance = self._tasks.enter_context(self._progress.task(phase, total))
            self._phase, self._done = phase, 0
        self._advance(done - self._done)
        self._done = done
