"""Terminal output: results as tables and JSON, progress bars, messages and errors."""

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchlock.api.error_codes import error_document
from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.artifacts.user_output import Advance, escape_json, escape_line

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_WIDTH = 150

_GUTTER: Final = "  | "
"""The prefix of foreign lines, so that they cannot be mistaken for benchlock's own output."""


STEP_COMMANDS: Final[Mapping[str, str]] = {
    "free the local copy": "benchlock gc --local",
    "delete unreferenced blobs": "benchlock gc",
    "upgrade the database": "benchlock db upgrade",
    "downgrade the database": "benchlock db downgrade --to REVISION",
    "verify the registry": "benchlock verify",
    "create the manifest from the model file": "benchlock init model",
    "create golden tensors": "benchlock golden MANIFEST",
    "with golden tensors": "benchlock golden MANIFEST",
    "take the samples from it": "--from",
    "an image that provides": "benchlock image build NAME==VERSION",
    "build an image": "benchlock image build NAME==VERSION",
    "the import of the bundle": "benchlock bundle import FILE",
    "another base": "--base",
    "omit the base": "--base",
    "build with layers": "without --no-layers",
    "without layers": "--no-layers",
    "another source of wheels": "--find-links or --index-url",
    "run in a container": "--isolation container",
    "run as a process": "--isolation process",
    "allow its code to run": "--allow-code",
    "allow processes": "--processes",
    "may not run processes": "--processes",
    "may not run model code": "--allow-code",
    "another machine name": "--machine",
    "start a worker": "benchlock worker",
    "choose the run to compare with": "--against RUN",
    "lock the request again": "benchlock lock REQUEST",
    "lock the request first": "benchlock lock REQUEST",
    "lock the request again and upgrade": "benchlock lock REQUEST --upgrade KIND/NAME",
    "run the lock": "benchlock run LOCK",
    "run the lock first": "benchlock run LOCK",
    "rerun the lock": "benchlock rerun LOCK",
    "rerun it": "benchlock rerun LOCK --repeat N",
    "rounds would decide": "benchlock gate --rounds N",
    "of both locks": "benchlock compare --interleave LOCK LOCK --rounds N",
    "a wider margin": "--margin METRIC=SHARE",
    "runs are needed": "benchlock run LOCK --repeat N",
    "several runs": "benchlock run LOCK --repeat N",
    "list its runs": "benchlock runs",
    "list its jobs": "benchlock jobs",
    "list the tokens": "benchlock token list",
    "create another token": "benchlock token create",
}
"""The command or option for a phrase in an advice; the packages below the API name neither."""


def append_commands(text: str) -> str:
    """Add to each phrase of ``STEP_COMMANDS`` in ``text`` its command, in parentheses."""
    longest_first = sorted(STEP_COMMANDS, key=len, reverse=True)
    pattern = "|".join(rf"\b{re.escape(phrase)}\b" for phrase in longest_first)
    return re.sub(pattern, lambda phrase: f"{phrase[0]} ({STEP_COMMANDS[phrase[0]]})", text)


def with_commands(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document of an error with the commands for its next step."""
    step = document["next"]
    return document | {"next": step and append_commands(step)}


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
        document = with_commands(error_document(error))
        if error.problems:
            document["problems"] = list(map(with_commands, document["problems"]))
        print_json({"error": document})
        return
    for problem in error.problems or (error,):
        say_error(problem)
    if error.problems:
        say(f"{len(error.problems)} problems")


def say_error(error: BenchlockError, severity: str = "error") -> None:
    """Print an error's message, location and next step on a line each. A conflict has several lines of message."""
    if hasattr(error, "conflict"):
        say_lines(f"{severity}: {error.what}")
    else:
        say(f"{severity}: {error.what}")
    for name, text in (("where", error.where), ("next", error.next_step and append_commands(error.next_step))):
        if text:
            say(f"  {name}: {text}")


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
