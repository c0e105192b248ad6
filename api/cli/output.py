"""What a person or a script sees: tables and JSON on standard output, progress and messages on standard error."""

import json
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from artifacts.errors import BenchlockError
from artifacts.progress import Advance

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_WIDTH = 150

_OBEYED: Final = (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that a terminal may obey instead of showing them: controls, and those that turn the direction of text."""
_ESCAPED: Final = {code: chr(code).encode("unicode_escape").decode() for code in _OBEYED}
_ESCAPED_BUT_LAYOUT: Final = {code: text for code, text in _ESCAPED.items() if chr(code) not in "\n\t"}
_ESCAPED_IN_JSON: Final = {code: f"\\u{code:04x}" for code in _OBEYED if chr(code) != "\n"}


def print_json(document: object) -> None:
    """One JSON document on standard output."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(text.translate(_ESCAPED_IN_JSON) + "\n")


def echo(text: str = "") -> None:
    """Lines of an answer, on standard output; whatever somebody else wrote into them, a terminal only shows it."""
    sys.stdout.write(text.translate(_ESCAPED_BUT_LAYOUT) + "\n")
    sys.stdout.flush()


def echo_wrapped(text: str) -> None:
    """A sentence that may be long, on lines that a terminal shows whole; what follows the first is indented."""
    echo(textwrap.fill(text, _WIDTH, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False))


def say(message: str) -> None:
    """A message for a person, on standard error, so that standard output stays what was asked for."""
    sys.stderr.write(message.translate(_ESCAPED_BUT_LAYOUT) + "\n")


def show_error(error: BenchlockError, *, as_json: bool) -> None:
    """What, where and the next step, of all the problems that were found; as JSON on standard output on request."""
    if as_json:
        print_json({"error": error_document(error)})
        return
    for one in error.problems or (error,):
        say(f"error: {one}")
    if error.problems:
        say(f"{len(error.problems)} problems")


def error_document(error: BenchlockError) -> dict[str, Any]:
    """The error, and under ``problems`` all that were found with it, itself among them, in their order."""
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
            {"code": one.code, "message": one.what, "where": one.where, "next": one.next_step} for one in error.problems
        ]
    return document


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain table, as wide as its content, so that it can be read, copied and cut."""
    shown = [[cell.translate(_ESCAPED) for cell in row] for row in [columns, *rows]]
    widths = [max(len(row[i]) for row in shown) for i in range(len(columns))]
    for row in [shown[0], ["-" * width for width in widths], *shown[1:]]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def print_fields(fields: Mapping[str, object]) -> None:
    """Names and values, one a line."""
    shown = {name.translate(_ESCAPED): str(value).translate(_ESCAPED) for name, value in fields.items()}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        sys.stdout.write(f"{name.ljust(width)}  {value}\n")


def byte_count(size: float) -> str:
    """A size in binary units: 1536 is ``1.5 KiB``."""
    for unit in _BYTES[:-1]:
        if size < _STEP:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    return f"{size:.1f} {_BYTES[-1]}"


class Bars:
    """Progress bars on standard error; nothing where that is no terminal."""

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Advance]:
        """Show a bar that disappears when its task is done."""
        if not sys.stderr.isatty():
            yield lambda _step: None
            return
        from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
        from rich.markup import escape  # noqa: PLC0415
        from rich.progress import Progress  # noqa: PLC0415

        with Progress(console=Console(stderr=True), transient=True) as bars:
            shown = bars.add_task(escape(label.translate(_ESCAPED)), total=total)
            yield lambda step: bars.advance(shown, step)
