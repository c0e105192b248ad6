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
    """Write ``document``; whoever sees the file sees all of it.

    A lone surrogate, which a message of foreign code may have in it, is written as a question mark: no reader of JSON
    needs to take half a character.
    """
    draft = path.with_name(path.name + ".draft")
    with draft.open("w", encoding="utf-8", errors="replace") as stream:
        json.dump(document, stream, indent=1, sort_keys=True, ensure_ascii=False)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)


class Progress:
    """Lines ``{"phase", "done", "total"}`` on standard output, at most two a second, the first and the last at once."""

    def __init__(self, phase: str, total: int) -> None:
        self._phase = phase
        self._total = total
        self._next = 0.0

    def at(self, done: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _SECONDS_BETWEEN_LINES
            self._line(min(done, self._total))

    def finish(self) -> None:
        """All is done, whatever ``total`` was estimated to be."""
        self._line(self._total)

    def _line(self, done: int) -> None:
        sys.stdout.write(json.dumps({"phase": self._phase, "done": done, "total": self._total}) + "\n")
        sys.stdout.flush()


class Timings:
    """Seconds by the name of what took them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Add what passes inside to ``name``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
