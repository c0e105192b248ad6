"""The commands by name: each is there, listed with its help, and a misspelt one gets a suggestion."""

import subprocess
import sys

import click
import pytest

from benchlock.api.cli.command_group import COMMAND_GROUPS, COMMANDS, benchlock
from benchlock.api.cli.main import run


@pytest.mark.parametrize("name", COMMANDS)
def test_a_name_is_that_of_its_command(name: str) -> None:
    command = benchlock.get_command(click.Context(benchlock), name)
    assert command is not None
    assert command.name == name


@pytest.mark.parametrize(
    ("name", "summary"), [(name, summary) for group in COMMAND_GROUPS.values() for name, (_, summary) in group.items()]
)
def test_a_summary_is_the_first_line_of_its_commands_help(name: str, summary: str) -> None:
    command = benchlock.get_command(click.Context(benchlock), name)
    assert command is not None
    assert command.help is not None
    assert command.help.splitlines()[0] == summary


def test_the_help_text_has_a_line_for_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.partition("Artifacts:\n")[2].splitlines()]
    rows = [words for words in lines if words and not words[0].endswith(":")]
    assert [words[0] for words in rows] == list(COMMANDS)
    assert all(len(words) > 3 for words in rows)


@pytest.mark.parametrize(
    ("words", "suggested"), [("lst", "list"), ("dif", "diff"), ("image bild", "build"), ("lock --chek", "--check")]
)
def test_a_misspelt_word_gets_a_suggestion(words: str, suggested: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: No such ")
    assert f"'{suggested}'" in said


@pytest.mark.parametrize(
    ("words", "step"),
    [
        ("image", "benchlock image --help lists commands"),
        ("db", "benchlock db --help lists commands"),
        ("import", "benchlock import --help lists commands"),
        ("lock", "benchlock lock --help lists arguments and options"),
        ("lock --output", "benchlock --help lists commands and options"),
        ("token create x", "benchlock token create --help lists arguments and options"),
        ("--jsno", "benchlock --help lists commands and options"),
    ],
)
def test_a_command_that_lacks_a_word_names_its_help(words: str, step: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words.split()) == 2
    what, following = capsys.readouterr().err.splitlines()
    assert what.startswith("error: ")
    assert following == f"  next: {step}"


def test_a_worker_is_not_told_to_run_code_in_processes_without_being_told_to_run_any(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["worker", "--allow-code"]) == 2
    assert "use --processes as well" in capsys.readouterr().err


def test_the_module_runs_the_command_line() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "benchlock.api.cli.main", "lst"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "'list'" in ran.stderr
