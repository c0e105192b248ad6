"""Atomic JSON files, progress lines and timings of a phase."""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_SECONDS_BETWEEN_LINES = 0.5


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write ``document`` atomically: readers see the complete file or none.

    A lone surrogate, as in messages of foreign code, is written as a question mark, because JSON readers may reject
    half a character.
    """
    draft = path.with_name(path.name + ".draft")
    with draft.open("w", encoding="utf-8", errors="replace") as stream:
        json.dump(document, stream, indent=1, sort_keys=True, ensure_ascii=False)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)


class Progress:
    """Progress lines ``{"phase", "done", "total"}`` on standard output.

    At most two lines a second are written, except that the first and the last are written immediately.
    """

    def __init__(self, phase: str, total: int) -> None:
        """Start the progress of ``phase``; ``total`` may be an estimate."""
        self._phase = phase
        self._total = total
        self._next = 0.0

    def at(self, done: int) -> None:
        """Report ``done`` units of work, unless the last line is too recent."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _SECONDS_BETWEEN_LINES
            self._line(min(done, self._total))

    def finish(self) -> None:
        """Report that all work is done, even where ``total`` was an estimate."""
        self._line(self._total)

    def _line(self, done: int) -> None:
        sys.stdout.write(json.dumps({"phase": self._phase, "done": done, "total": self._total}) + "\n")
        sys.stdout.flush()


class Timings:
    """Elapsed seconds by name."""

    def __init__(self) -> None:
        """Start without any entry."""
        self.seconds: dict[str, float] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Add the elapsed seconds of the context to the entry ``name``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
