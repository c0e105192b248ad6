"""What somebody else wrote is shown, never obeyed: a terminal gets no control character of it."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from benchlock import api
from benchlock.api.cli import output
from benchlock.artifacts.errors import InvalidInputError

HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\x7f\x9b\u202eCPU\n\tä"
SHOWN = r"\x1b[2J\x1b]0;owned\x07\r\x7f\x9b\u202eCPU"
ANSWERS: dict[str, tuple[Callable[[], None], str]] = {
    "a line": (lambda: output.echo(HOSTILE), rf"{SHOWN}\n\tä" + "\n"),
    "a long line": (lambda: output.echo_wrapped(HOSTILE), rf"{SHOWN}\n\tä" + "\n"),
    "a quoted line": (lambda: output.echo_quoted([HOSTILE]), rf"  | {SHOWN}\n\tä" + "\n"),
    "a message": (lambda: output.say(HOSTILE), rf"{SHOWN}" + "\n" + r"  | \tä" + "\n"),
    "an error": (
        lambda: output.show_error(InvalidInputError(HOSTILE), as_json=False),
        rf"error: {SHOWN}" + "\n" + r"  | \tä" + "\n",
    ),
    "a field": (lambda: output.print_fields({HOSTILE: HOSTILE}), rf"{SHOWN}\n\tä  {SHOWN}\n\tä" + "\n"),
    "a cell": (lambda: output.print_table(("a",), [(HOSTILE,)]), rf"{SHOWN}\n\tä" + "\n"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_control_characters_are_escaped(answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    write, expected = ANSWERS[answer]
    write()
    written = "".join(capsys.readouterr())
    assert written.endswith(expected)
    assert not set(HOSTILE) & set(written) & set("\x1b\x07\r\x7f\x9b\u202e")


def test_json_is_the_same_document_without_them(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({HOSTILE: [HOSTILE]})
    written = capsys.readouterr().out
    assert json.loads(written) == {HOSTILE: [HOSTILE]}
    assert r"\u001b[2J\u001b]0;owned\u0007\r\u007f\u009b\u202eCPU\n\tä" in written


def test_every_command_writes_in_this_way() -> None:
    own = ("output.py", "main.py", "service_log.py")
    modules = [path for path in Path(api.__file__).parent.rglob("*.py") if path.name not in own]
    assert modules
    for path in modules:
        assert not re.search(r"click\.echo|(?<![\w.])print\(|sys\.std(out|err)", path.read_text()), path


def test_a_task_is_a_line_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for bars in (output.Bars(), output.Bars(lines=True)):
        with bars.task("fetching"):
            pass
    assert capsys.readouterr().err == "fetching\n"
