"""Terminal output: results as tables, CSV, Markdown and JSON, progress bars, messages and errors."""

import csv
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, TextIO

from benchlock.api.client.progress_bars import TerminalBars
from benchlock.api.error_codes import error_document
from benchlock.artifacts.errors import BenchlockError
from benchlock.artifacts.user_output import Advance, escape_json, escape_line

_WIDTH = 150

_GUTTER: Final = "  | "
"""The prefix of foreign lines, so that they cannot be mistaken for benchlock's own output."""

FORMATS: Final = ("table", "json", "csv", "md")
QUIET, VERBOSE = -1, 1


@dataclass(slots=True)
class OutputSettings:
    """How the current command prints: the format of its result, its verbosity, and the notices printed so far."""

    format: str = "table"
    verbosity: int = 0
    notices: set[str] = field(default_factory=set)


settings: Final = OutputSettings()

_RED, _GREEN, _YELLOW, _BLUE, _CYAN = "1;31", "32", "33", "34", "36"
_WORD_COLORS: Final = {
    **dict.fromkeys(("done", "reproduced", "equal", "equivalent", "holds", "valid", "free"), _GREEN),
    **dict.fromkeys(("failed", "damaged", "not reproduced", "different", "does not hold", "quarantined"), _RED),
    **dict.fromkeys(("refused", "revoked", "gone", "stale", "INVALID"), _RED),
    **dict.fromkeys(("undecided", "can't be said yet", "cancelled", "abandoned", "expired"), _YELLOW),
    **dict.fromkeys(("held back", "draining", "yanked", "withheld", "flagged"), _YELLOW),
    **dict.fromkeys(("running", "taken", "busy"), _BLUE),
}
"""The color of each verdict, outcome and state; the word itself is always printed, too."""
_PREFIX_COLORS: Final = {"error": _RED, "warning": _YELLOW, "  where": _CYAN, "  next": _CYAN}


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
    "show them anyway": "--force",
    "rerun the lock": "benchlock rerun LOCK",
    "rerun it": "benchlock rerun LOCK --repeat N",
    "rounds would decide": "benchlock gate --rounds N",
    "of both locks": "benchlock compare --interleave LOCK LOCK --rounds N",
    "a wider margin": "--margin METRIC=SHARE",
    "runs are needed": "benchlock run LOCK --repeat N",
    "several runs": "benchlock run LOCK --repeat N",
    "the report on the run": "benchlock report RUN",
    "measure the roofs of the host": "benchlock inspect RUN --roof",
    "compare the layers of two": "benchlock compare --layers RUN RUN",
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


def say_step(text: str) -> None:
    """Print a message of a worker or a launcher, with the commands for its next step."""
    say(append_commands(text), repeat=True)


def with_commands(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document of an error with the commands for its next step."""
    step = document["next"]
    return document | {"next": step and append_commands(step)}


def print_json(document: object) -> None:
    """Print one JSON document on standard output; Structs in it are printed as over HTTP."""
    from msgspec import to_builtins  # noqa: PLC0415 - unused by --version

    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False, default=to_builtins)
    sys.stdout.write(escape_json(text) + "\n")


def _has_color(stream: TextIO) -> bool:
    """Check whether to print colors: on a terminal, unless NO_COLOR, FORCE_COLOR or TERM=dumb decide otherwise."""
    if os.environ.get("NO_COLOR"):
        return False
    if forced := os.environ.get("FORCE_COLOR"):
        return forced != "0"
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _paint(text: str, color: str | None, stream: TextIO) -> str:
    return f"\x1b[{color}m{text}\x1b[0m" if color and text and _has_color(stream) else text


def print_text(text: str) -> None:
    """Print the text of a file as it is; its format has escaped what is foreign in it."""
    sys.stdout.write(text)


def echo(text: str = "", verdict: str = "") -> None:
    """Print one line of a result on standard output, with ``verdict`` in color; control characters are escaped."""
    line = escape_line(text)
    if verdict:
        line = line.replace(verdict, _paint(verdict, _WORD_COLORS.get(verdict), sys.stdout), 1)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def echo_lines(text: str) -> None:
    """Print several lines that benchlock composed; foreign text in them was escaped before."""
    for line in text.split("\n"):
        echo(line)


def echo_quoted(lines: Iterable[str]) -> None:
    """Print foreign lines, each behind a gutter."""
    for line in lines:
        echo(f"{_GUTTER}{line}")


def echo_wrapped(text: str, verdict: str = "") -> None:
    """Print a long sentence, wrapped to the width of a terminal; further lines are indented."""
    indent = " " * (len(text) - len(text.lstrip(" ")))
    sentence = indent + " ".join(escape_line(text).split())
    width = min(_WIDTH, _terminal_width() or _WIDTH)
    wrapped = textwrap.wrap(sentence, width, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)
    for line in wrapped or [""]:
        echo(line, verdict if line is wrapped[0] else "")


def _terminal_width() -> int | None:
    """Return the number of columns of the terminal on standard output; None if it is a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def list_flags() -> list[str]:
    """Return the options for the current verbosity, for a command that this one starts."""
    return {QUIET: ["--quiet"], VERBOSE: ["--verbose"]}.get(settings.verbosity, [])


def say(message: str, *, repeat: bool = False) -> None:
    """Print a notice on standard error, unless --quiet; its further lines stand behind a gutter.

    A notice that the command has printed already is not printed again, unless ``repeat``.
    """
    if settings.verbosity <= QUIET or (message in settings.notices and not repeat):
        return
    settings.notices.add(message)
    _write_message(message)


def _write_message(message: str) -> None:
    """Print a message on standard error, its prefix in color; its further lines stand behind a gutter."""
    first, *more = message.split("\n")
    for line in (first, *(f"{_GUTTER}{line}" for line in more)):
        prefix, colon, rest = escape_line(line).partition(":")
        painted = _paint(prefix + colon, _PREFIX_COLORS.get(prefix) if colon else None, sys.stderr)
        sys.stderr.write(f"{painted}{rest}\n")


def say_question(text: str) -> None:
    """Print what a question is about on standard error, also with --quiet."""
    _write_message(text)


def say_lines(text: str) -> None:
    """Print several lines that benchlock composed, on standard error, unless --quiet."""
    if settings.verbosity > QUIET:
        _write_lines(text)


def _write_lines(text: str) -> None:
    for line in text.split("\n"):
        _write_message(line)


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
        _write_message(f"{len(error.problems)} problems")


def say_error(error: BenchlockError, severity: str = "error") -> None:
    """Print an error's message, location and next step on a line each. A conflict has several lines of message."""
    write = _write_lines if hasattr(error, "conflict") else _write_message
    write(f"{severity}: {error.what}")
    for name, text in (("where", error.where), ("next", error.next_step and append_commands(error.next_step))):
        if text:
            _write_message(f"  {name}: {text}")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table in the requested format.

    A plain table is as wide as its content, for reading, copying and cutting. On a narrower terminal, the widest texts
    are shortened with an ellipsis; identifiers never are.
    """
    lines = [[escape_line(cell) for cell in row] for row in [columns, *rows]]
    if settings.format == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerows(lines)
        return
    if settings.format == "md":
        for row in [lines[0], ["---"] * len(columns), *lines[1:]]:
            cells = " | ".join(cell.replace("|", "\\|") for cell in row)
            sys.stdout.write(f"| {cells} |\n")
        return
    widths = _fit_columns(lines, _terminal_width())
    for row in [lines[0], ["-" * width for width in widths], *lines[1:]]:
        sys.stdout.write("  ".join(map(_format_cell, row, widths)).rstrip() + "\n")


_SHORTEST = 20
"""The number of characters to which a text is shortened at most."""


def _fit_columns(lines: Sequence[Sequence[str]], limit: int | None) -> list[int]:
    """Return the width of each column; the widest columns of texts are narrowed until all of them fit ``limit``."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    least = [
        max(min(len(cell), _SHORTEST) if " " in cell else len(cell) for cell in column)
        for column in zip(*lines, strict=True)
    ]
    excess = 0 if limit is None else sum(widths) + len("  ") * (len(widths) - 1) - limit
    for _ in range(min(excess, sum(widths) - sum(least))):
        widest = max(range(len(widths)), key=lambda i: widths[i] if widths[i] > least[i] else 0)
        widths[widest] -= 1
    return widths


def _format_cell(cell: str, width: int) -> str:
    text = cell if len(cell) <= width else cell[: width - 1] + "…"
    word = re.split(r" \(|:| by worker ", cell, maxsplit=1)[0]
    return _paint(text, _WORD_COLORS.get(word), sys.stdout) + " " * (width - len(text))


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values, one pair per line."""
    pairs = {escape_line(name): escape_line(str(value)) for name, value in fields.items()}
    width = max((len(name) for name in pairs), default=0)
    for name, value in pairs.items():
        sys.stdout.write(f"{name.ljust(width)}  {value}\n")


@dataclass(frozen=True, slots=True)
class Bars:
    """Progress bars on standard error, unless --quiet.

    Without a terminal, there is one line per task if ``lines`` is true, else nothing. A bar appears ``delay`` seconds
    after the start of its task. With --verbose, a line with its duration follows each task.
    """

    lines: bool = False
    delay: float = 0.5

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Advance]:
        """Show a bar that disappears when its task is done."""
        began = monotonic()
        if settings.verbosity <= QUIET:
            yield lambda _step: None
        elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            with TerminalBars(self.delay).task(label, total) as advance:
                yield advance
        else:
            if self.lines:
                say(label)
            yield lambda _step: None
        if settings.verbosity >= VERBOSE:
            say(f"{label}: {monotonic() - began:.1f} s", repeat=True)


def todo_lines(count: int) -> str:
    """Format a number of TODO lines: ``1 TODO line``, ``8 TODO lines``."""
    return "1 TODO line" if count == 1 else f"{count} TODO lines"


def print_version() -> None:
    """Print the version, the commit and the schema revision of this build."""
    from benchlock.api.build_info import this_build  # noqa: PLC0415 - only --version needs it

    build = this_build()
    sys.stdout.write(f"benchlock {build.version} (commit {build.commit}, schema {build.schema})\n")
