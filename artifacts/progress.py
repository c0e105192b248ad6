"""How long work reports its progress: to whatever is handed in, never to a terminal by itself."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Final, Protocol

Advance = Callable[[int], None]


class Progress(Protocol):
    """Something that shows tasks. ``total`` and the advances are in the task's own unit (bytes, samples, files)."""

    def task(self, label: str, total: int | None = None) -> AbstractContextManager[Advance]:
        """Show ``label`` while the context is held; call the yielded function with each step's size."""
        ...


def unnoticed(_step: int) -> None:
    """The advance of a task that nobody watches."""


def in_turn(advance: Advance) -> Advance:
    """``advance`` for several threads: it is called by one at a time."""
    turn = Lock()

    def advance_in_turn(step: int) -> None:
        with turn:
            advance(step)

    return advance_in_turn


class Silent:
    """Shows nothing."""

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Advance]:  # noqa: ARG002 - the protocol's
        yield unnoticed


SILENT: Final = Silent()
