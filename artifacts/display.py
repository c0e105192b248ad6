"""What users see: progress of long tasks, untrusted text escaped to one line, and counts with their noun.

Everything that is not printable is escaped visibly: controls, DEL, newlines and separators of lines, marks that turn
the direction of text, lone surrogates. A text can then neither forge a line nor hide a part of one.
"""

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


def ignore_progress(_step: int) -> None:
    """The advance of a task that nobody watches."""


def serialize_advance(advance: Advance) -> Advance:
    """``advance`` for several threads: it is called by one at a time."""
    turn = Lock()

    def advance_in_turn(step: int) -> None:
        with turn:
            advance(step)

    return advance_in_turn


class SilentProgress:
    """Shows nothing."""

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Advance]:  # noqa: ARG002 - the protocol's
        yield ignore_progress


SILENT: Final = SilentProgress()


def escape_line(text: str) -> str:
    r"""Return the text on one line, with an escape such as ``\n`` for each character that is not printable."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def escape_json(text: str) -> str:
    r"""Return JSON text as the same document, with ``\u`` escapes for what is not printable but newlines.

    JSON has newlines between its values alone: inside of its strings they are escaped already.
    """
    return "\n".join(line if line.isprintable() else _escape_units(line) for line in text.split("\n"))


def _escape_units(line: str) -> str:
    return "".join(one if one.isprintable() else "".join(map(_unit, _units(one))) for one in line)


def _units(character: str) -> tuple[int, ...]:
    content = character.encode("utf-16-be", "surrogatepass")
    return tuple(int.from_bytes(content[start : start + 2], "big") for start in range(0, len(content), 2))


def _unit(code: int) -> str:
    return f"\\u{code:04x}"


def format_count(number: object, noun: str) -> str:
    """Return a number with its noun: ``1 sample``, ``2 samples``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
