"""What somebody else wrote is shown, never obeyed: a terminal gets no control character of it."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from benchlock import api
from benchlock.api.cli import output
from benchlock.api.cli.command_group import benchlock
from benchlock.artifacts.errors import InvalidInputError, UnavailableError

ROOT = Path(__file__).resolve().parents[3]
LOWER_PACKAGES = ("artifacts", "registry", "evaluator", "migrations")
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
        assert not re.search(r"click\.echo|(?<![\w.])print\(|sys\.std(out|err)(?!\.isatty)", path.read_text()), path


def test_a_task_is_a_line_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for bars in (output.Bars(), output.Bars(lines=True)):
        with bars.task("fetching"):
            pass
    assert capsys.readouterr().err == "fetching\n"


def test_an_error_names_the_commands_for_its_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    error = UnavailableError("no engine", next_step="start Docker; or run as a process")
    expected = "start Docker; or run as a process (--isolation process)"
    output.show_error(error, as_json=False)
    assert capsys.readouterr().err == f"error: no engine\n  next: {expected}\n"
    error.problems = (error, InvalidInputError("x"))
    output.show_error(error, as_json=True)
    document = json.loads(capsys.readouterr().out)["error"]
    assert document["next"] == document["problems"][0]["next"] == expected
    assert (document["problems"][1]["next"], error.next_step) == (None, "start Docker; or run as a process")


@pytest.mark.parametrize(("phrase", "command"), output.STEP_COMMANDS.items())
def test_a_phrase_with_a_command_is_said_and_its_command_exists(phrase: str, command: str) -> None:
    sources = (path for name in (*LOWER_PACKAGES, "api/client") for path in (ROOT / name).rglob("*.py"))
    joined = (re.sub(r'"\s+f?"', "", path.read_text(encoding="utf-8")) for path in sources)
    assert any(phrase in text for text in joined)
    assert output.append_commands(f"first {phrase}, then") == f"first {phrase} ({command}), then"
    words = command.split()
    if words[0] == "benchlock":
        found: click.Command | None = benchlock
        for word in words[1:]:
            if isinstance(found, click.Group) and word.islower():
                found = found.get_command(click.Context(found), word)
        assert found not in (None, benchlock)
        words = [word for word in words if word.startswith("--")]
        options = list_options(found)
    else:
        options = set[str]().union(*map(list_options, list_commands(benchlock)))
    assert {word for word in words if word.startswith("--")} <= options


def list_commands(command: click.Command | None) -> Iterator[click.Command]:
    assert command is not None
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from list_commands(command.get_command(context, name))


def list_options(command: click.Command | None) -> set[str]:
    assert command is not None
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
