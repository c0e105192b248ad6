"""The options that every command has, before and after its name: format and verbosity; and help and version."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from benchlock.api.cli import output
from benchlock.api.cli.command_group import SHARED_OPTIONS, TABLE_COMMANDS, benchlock
from benchlock.api.cli.main import run
from benchlock.api.local.local_registry import open_registry
from tests.support.resolution.variants import variant


def walk(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from walk(child, (*path, name))


ALL = dict(walk(benchlock))


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = tmp_path_factory.mktemp("shared") / "registry"
    opened = open_registry(str(home), print)
    variant({}).publish(opened.catalogue, opened.store)
    return str(home)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(list(words)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("path", ALL)
def test_every_command_has_the_shared_options_and_a_short_help(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(SHARED_OPTIONS) <= set(ALL[path].params)
    texts = [answer(capsys, *path.split(), option) for option in ("-h", "--help")]
    assert texts[0] == texts[1]
    for option in ("--format", "--json", "-q, --quiet", "-v, --verbose", "-h, --help"):
        assert option in texts[0]


def test_tables_are_printed_by_commands_that_exist() -> None:
    assert set(ALL) >= TABLE_COMMANDS


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_listed_and_printed_with_other_options_too(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "-V, --version" in answer(capsys, "--help")
    assert answer(capsys, "-q", option).startswith("benchlock ")


@pytest.mark.parametrize(
    "words",
    [
        "--json list",
        "list --json",
        "list --format json",
        "list --format=json model",
        "--format csv list --json",
        "--json list --json",
    ],
)
def test_json_is_chosen_before_or_after_the_command(
    words: str, registry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(answer(capsys, "--registry", registry, *words.split()))
    assert {entry["kind"] for entry in document["artifacts"]} >= {"model"}


def test_json_is_the_same_before_and_after_the_command(registry: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "--registry", registry, "--json", "list") == answer(
        capsys, "--registry", registry, "list", "--json"
    )


def test_a_command_within_a_group_takes_them_at_each_place(registry: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("--json token list", "token --json list", "token list --json"):
        assert json.loads(answer(capsys, "--registry", registry, *words.split())) == {"tokens": []}


def test_a_table_is_also_csv_and_markdown(registry: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(answer(capsys, "--registry", registry, "list", "--format", "csv").splitlines()))
    assert {"artifact", "version", "published", "remarks"} == set(rows[0])
    lines = answer(capsys, "--registry", registry, "list", "--format", "md").splitlines()
    assert lines[:2] == ["| artifact | version | published | remarks |", "| --- | --- | --- | --- |"]
    assert len(lines) == len(rows) + 2


def test_cells_are_quoted_in_csv_and_escaped_in_markdown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, expected in (("csv", 'a,b\n"1,2","x|""y"""\n'), ("md", '| a | b |\n| --- | --- |\n| 1,2 | x\\|"y" |\n')):
        monkeypatch.setattr(output.settings, "format", name)
        output.print_table(("a", "b"), [("1,2", 'x|"y"')])
        assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--format csv doctor", "`doctor` prints no table"),
        ("--format md token create x", "`token create` prints no table"),
        ("doctor --format md", "'md' is not one of 'table', 'json'"),
        ("token create x --format csv", "'csv' is not one of 'table', 'json'"),
    ],
)
def test_a_command_without_a_table_refuses_its_formats(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert message in captured.err


@pytest.mark.parametrize("words", ["lst --json", "lst --format json", "--format=json lst", "list --json --bogus"])
def test_an_error_is_json_where_the_result_would_be(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words.split()) == 2
    assert "No such" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_quiet_prints_results_and_errors_only(
    tmp_path: Path, registry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    new = ["--registry", str(tmp_path / "new"), "db", "create"]
    assert run([*new, "-q"]) == 0
    captured = capsys.readouterr()
    assert captured.out
    assert captured.err == ""
    assert run(["-q", "--registry", registry, "show", "model/missing"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_command_after_a_quiet_one_is_not_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, options in (("a", ["-q"]), ("b", [])):
        assert run(["--registry", str(tmp_path / name), "db", "create", *options]) == 0
    assert capsys.readouterr().err == f"created the registry in {tmp_path / 'b'}\n"


@pytest.mark.parametrize("debug", [False, True])
def test_verbose_prints_the_traceback_of_an_error(
    debug: bool,
    registry: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["--registry", registry, "show", "model/missing"]
    if debug:
        monkeypatch.setenv("BENCHLOCK_DEBUG", "1")
    assert run(words if debug else [*words, "-v"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):\n")
    assert "\nerror: " in said


def test_verbose_prints_the_duration_of_each_task(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output.settings, "verbosity", output.VERBOSE)
    for _ in range(2):
        with output.Bars().task("verifying"):
            pass
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("verifying: ") and line.endswith(" s") for line in lines)


def test_a_notice_is_printed_once_in_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    output.settings.notices.clear()
    for message in ("warning: old", "warning: new", "warning: old"):
        output.say(message)
    output.say("warning: old", repeat=True)
    assert capsys.readouterr().err == "warning: old\nwarning: new\nwarning: old\n"
    output.settings.notices.clear()
