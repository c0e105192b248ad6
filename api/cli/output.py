"""Terminal output: results as tables and JSON, progress bars, messages and errors."""

import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.artifacts.user_text import Advance, escape_json, escape_line

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_WIDTH = 150

_GUTTER: Final = "  | "
"""The prefix of foreign lines, so that they cannot be mistaken for benchlock's own output."""


def print_json(document: object) -> None:
    """Print one JSON document on standard output; Structs in it are printed as over HTTP."""
    from msgspec import to_builtins  # noqa: PLC0415 - unused by --version

    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False, default=to_builtins)
    sys.stdout.write(escape_json(text) + "\n")


def echo(text: str = "") -> None:
    """Print one line of a result on standard output; control characters in it are escaped."""
    sys.stdout.write(escape_line(text) + "\n")
    sys.stdout.flush()


def echo_lines(text: str) -> None:
    """Print several lines that benchlock composed; foreign text in them was escaped before."""
    for line in text.split("\n"):
        echo(line)


def echo_quoted(lines: Iterable[str]) -> None:
    """Print foreign lines, each behind a gutter."""
    for line in lines:
        echo(f"{_GUTTER}{line}")


def echo_wrapped(text: str) -> None:
    """Print a long sentence, wrapped to the width of a terminal; further lines are indented."""
    indent = " " * (len(text) - len(text.lstrip(" ")))
    sentence = indent + " ".join(escape_line(text).split())
    wrapped = textwrap.wrap(sentence, _WIDTH, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)
    for line in wrapped or [""]:
        echo(line)


def say(message: str) -> None:
    """Print a message on standard error; its further lines stand behind a gutter."""
    first, *more = message.split("\n")
    for line in (first, *(f"{_GUTTER}{line}" for line in more)):
        sys.stderr.write(escape_line(line) + "\n")


def say_lines(text: str) -> None:
    """Print several lines that benchlock composed, on standard error."""
    for line in text.split("\n"):
        say(line)


def show_error(error: BenchlockError, *, as_json: bool) -> None:
    """Print an error with all of its problems on standard error, or as JSON on standard output."""
    if as_json:
        print_json({"error": error_document(error)})
        return
    for problem in error.problems or (error,):
        say_error(problem)
    if error.problems:
        say(f"{len(error.problems)} problems")


def say_error(error: BenchlockError) -> None:
    """Print an error's message, location and next step on a line each. A conflict has several lines of message."""
    if hasattr(error, "conflict"):
        say_lines(f"error: {error.what}")
    else:
        say(f"error: {error.what}")
    for name, text in (("where", error.where), ("next", error.next_step)):
        if text:
            say(f"  {name}: {text}")


def error_document(error: BenchlockError) -> dict[str, Any]:
    """Return the JSON document of an error; ``problems`` lists all errors that were found together, in order."""
    document: dict[str, Any] = {
        "code": error.code,
        "message": error.what,
        "where": error.where,
        "next": error.next_step,
    }
    conflict = getattr(error, "conflict", None)
    if conflict is not None:
        document["conflict"] = conflict
    if error.problems:
        document["problems"] = [
            {"code": problem.code, "message": problem.what, "where": problem.where, "next": problem.next_step}
            for problem in error.problems
        ]
    return document


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a plain table, as wide as its content, for reading, copying and cutting."""
    lines = [[escape_line(cell) for cell in row] for row in [columns, *rows]]
    widths = [max(len(row[i]) for row in lines) for i in range(len(columns))]
    for row in [lines[0], ["-" * width for width in widths], *lines[1:]]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values, one pair per line."""
    pairs = {escape_line(name): escape_line(str(value)) for name, value in fields.items()}
    width = max((len(name) for name in pairs), default=0)
    for name, value in pairs.items():
        sys.stdout.write(f"{name.ljust(width)}  {value}\n")


def byte_count(size: float) -> str:
    """Format a size in binary units: 1536 is ``1.5 KiB``."""
    for unit in _BYTES[:-1]:
        if size < _STEP:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    return f"{size:.1f} {_BYTES[-1]}"


@dataclass(frozen=True, slots=True)
class Bars:
    """Progress bars on standard error; without a terminal, one line per task if ``lines`` is true, else nothing."""

    lines: bool = False

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Advance]:
        """Show a bar that disappears when its task is done."""
        if not sys.stderr.isatty():
            if self.lines:
                say(label)
            yield lambda _step: None
            return
        from rich.console import Console  # noqa: PLC0415 - used on a terminal only
        from rich.markup import escape  # noqa: PLC0415 - as above
        from rich.progress import Progress  # noqa: PLC0415 - as above

        with Progress(console=Console(stderr=True), transient=True) as bars:
            task_id = bars.add_task(escape(escape_line(label)), total=total)
            yield lambda step: bars.advance(task_id, step)


def read_text(path: Path, *, next_step: str, recode: str = "save it as UTF-8") -> str:
    """Read a UTF-8 text file of the user.

    Args:
        path: The file.
        next_step: The next step of the error if it cannot be read.
        recode: The next step of the error if it is not UTF-8.

    Raises:
        InvalidInputError: It cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{path} is not UTF-8: {error.reason} at byte {error.start}",
            where=str(path),
            next_step=recode,
        ) from error
    except OSError as error:
        raise InvalidInputError(
            f"cannot read {path}: {error.strerror or error}", where=str(path), next_step=next_step
        ) from error


def todo_lines(count: int) -> str:
    """Format a number of TODO lines: ``1 TODO line``, ``8 TODO lines``."""
    return "1 TODO line" if count == 1 else f"{count} TODO lines"
