"""Text for users: progress of long tasks, untrusted text escaped to one line, and counts with their noun.

Every character that is not printable is escaped visibly: control characters, DEL, newlines and line separators, marks
that change the direction of text, lone surrogates. So a text can neither forge a line nor hide a part of one.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Final, Protocol

Advance = Callable[[int], None]
_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024


class Progress(Protocol):
    """A display of tasks; ``total`` and the steps are in the unit of the task (bytes, samples, files)."""

    def task(self, label: str, total: int | None = None) -> AbstractContextManager[Advance]:
        """Show ``label`` during the context; the yielded function is called with the size of each step."""
        ...


def ignore_progress(_step: int) -> None:
    """Ignore the step, for a task without a display."""


def serialize_advance(advance: Advance) -> Advance:
    """Wrap ``advance`` in a lock, so that one thread at a time calls it."""
    lock = Lock()

    def advance_locked(step: int) -> None:
        with lock:
            advance(step)

    return advance_locked


class SilentProgress:
    """A display that shows nothing."""

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Advance]:  # noqa: ARG002 - part of the protocol
        """Yield a function that ignores every step."""
        yield ignore_progress


SILENT: Final = SilentProgress()


def escape_line(text: str) -> str:
    r"""Return the text on one line, with an escape such as ``\n`` for each character that is not printable."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def escape_json(text: str) -> str:
    r"""Escape what is not printable in JSON text, newlines apart, as ``\u`` escapes; the document stays the same.

    Newlines in JSON text stand between values only: in strings they are escaped already.
    """
    return "\n".join(line if line.isprintable() else _escape_units(line) for line in text.split("\n"))


def _escape_units(line: str) -> str:
    return "".join(
        character if character.isprintable() else "".join(map(_unit, _units(character))) for character in line
    )


def _units(character: str) -> tuple[int, ...]:
    content = character.encode("utf-16-be", "surrogatepass")
    return tuple(int.from_bytes(content[start : start + 2], "big") for start in range(0, len(content), 2))


def _unit(code: int) -> str:
    return f"\\u{code:04x}"


def format_count(number: object, noun: str) -> str:
    """Return a number with its noun: ``1 sample``, ``2 samples``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_bytes(size: float) -> str:
    """Format a size in binary units: 1536 is ``1.5 KiB``."""
    for unit in _BYTES[:-1]:
        if size < _STEP:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    return f"{size:.1f} {_BYTES[-1]}"
