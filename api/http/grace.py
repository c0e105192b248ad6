"""How long what has begun may go on once the service is told to end, and what becomes of it then."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchlock.artifacts.errors import UnavailableError

ENDED: Final = UnavailableError(
    "the service ended before it was done; whether it was done is unknown", next_step="ask again in a few seconds"
)


class Grace:
    """So many seconds from when it begins; the requests that are under way then are cut."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None
        self._under_way: set[asyncio.Task[Any]] = set()
        self.is_over = False
        self.cut = 0
        """Requests that were cut."""

    def begin(self) -> None:
        """The service was told to end."""
        if self._until is None:
            self._until = time.monotonic() + self._seconds
            asyncio.get_running_loop().call_later(self._seconds, self._cut)

    @property
    def left(self) -> float:
        """The seconds that are left: all of them, until it begins."""
        return self._seconds if self._until is None else max(0.0, self._until - time.monotonic())

    @contextmanager
    def over_this(self) -> Iterator[None]:
        """While held, the task that holds it is a request under way: it is cancelled when the grace is over."""
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            yield
        finally:
            self._under_way.discard(task)

    def _cut(self) -> None:
        self.is_over = True
        self.cut = len(self._under_way)
        for one in self._under_way:
            one.cancel()
