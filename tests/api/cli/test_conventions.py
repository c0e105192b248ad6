"""The conventions of other tools that docs/explanation/conventions.md lists: one test for each row of its table."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from benchlock.api.cli.main import run
from benchlock.api.local.local_registry import open_registry
from tests.support.api.commands import BENCHLOCK
from tests.support.api.terminal import show_on_terminal
from tests.support.registry.digits import model, written
from tests.support.resolution.variants import variant

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "conventions.md"
ROWS = re.findall(r"^\| .* \| `(test_\w+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
ESCAPE = "\x1b"
REFUSED = "from benchlock.api.cli.main import run; run(['publsh'])"
"""A program that prints an error."""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry with a version of each kind, which commands find by the environment."""
    home = tmp_path / "registry"
    opened = open_registry(str(home), lambda _: None)
    variant({}).publish(opened.catalogue, opened.store)
    monkeypatch.setenv("BENCHLOCK_REGISTRY", str(home))
    monkeypatch.chdir(tmp_path)
    return home


def call(capsys: pytest.CaptureFixture[str], words: str, code: int = 0) -> tuple[str, str]:
    """Both outputs of a command that must exit with ``code``."""
    assert run(words.split()) == code, capsys.readouterr()
    return capsys.readouterr()


def test_every_row_of_the_table_has_a_test_and_every_test_a_row() -> None:
    tests = {name for name in globals() if name.startswith("test_")} - {
        "test_every_row_of_the_table_has_a_test_and_every_test_a_row"
    }
    assert len(ROWS) == len(set(ROWS))
    assert set(ROWS) == tests


def test_help_is_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("--help", "run --help", "token create --help"):
        out, err = call(capsys, words)
        assert out.startswith("Usage: benchlock ")
        assert err == ""


def test_no_command_prints_help() -> None:
    alone, asked = (
        subprocess.run([BENCHLOCK, *words], capture_output=True, text=True, check=True) for words in ([], ["--help"])
    )
    assert alone.stdout == asked.stdout


def test_version_in_one_line() -> None:
    for option in ("--version", "-V"):
        answer = subprocess.run([BENCHLOCK, option], capture_output=True, text=True, check=True)
        assert re.fullmatch(r"benchlock \d+\.\d+\.\d+ \(.*\)\n", answer.stdout)


@pytest.mark.usefixtures("registry")
def test_results_and_messages_are_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = written(tmp_path / "model.json", model("a"))
    out, err = call(capsys, f"--registry {tmp_path / 'new'} publish {manifest}")
    assert out.startswith("published model/a@1.0.0")
    assert "created the registry" in err
    out, err = call(capsys, "show model/none", code=2)
    assert (out, err.startswith("error: ")) == ("", True)


@pytest.mark.usefixtures("registry")
def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert "artifacts" in json.loads(call(capsys, "--json list")[0])
    assert json.loads(call(capsys, "--json show model/none", code=2)[0])["error"]["code"] == "unknown-name"


@pytest.mark.usefixtures("registry")
def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "list", code=0)
    call(capsys, "nonsense", code=2)
    call(capsys, "list --nonsense", code=2)
    call(capsys, f"run {tmp_path / 'none.lock'}", code=2)


@pytest.mark.usefixtures("registry")
def test_did_you_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert "publish" in call(capsys, "publsh", code=2)[1]
    assert "--dry-run" in call(capsys, "publish --dry-rn x", code=2)[1]
    assert "model" in call(capsys, "list modell", code=2)[1]


def test_an_error_has_a_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search(r"^error: .*\n(  where: .*\n)?  next: ", call(capsys, "publsh", code=2)[1])


@pytest.mark.usefixtures("registry")
def test_a_double_dash_ends_the_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "--dry-run.yaml", model("a"))
    assert "published model/a@1.0.0" in call(capsys, "publish -- --dry-run.yaml")[0]


@pytest.mark.usefixtures("registry")
def test_a_dry_run_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = written(tmp_path / "model.json", model("a"))
    before = call(capsys, "list")
    call(capsys, f"publish --dry-run {manifest}")
    assert call(capsys, "list") == before


@pytest.mark.usefixtures("registry")
def test_publishing_again_is_a_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = written(tmp_path / "model.json", model("a"))
    first, second = (json.loads(call(capsys, f"--json publish {manifest}")[0]) for _ in range(2))
    assert first["published"][0]["digest"] == second["published"][0]["digest"]
    assert first["published"][0]["digest"].startswith("sha256:")


@pytest.mark.usefixtures("registry")
def test_a_published_version_never_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, f"publish {written(tmp_path / 'model.json', model('a'))}")
    changed = model("a") | {"description": "changed"}
    call(capsys, f"publish {written(tmp_path / 'model.json', changed)}", code=2)


def test_init_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "manifest.yaml"
    target.write_text("mine")
    call(capsys, f"init dataset -o {target}", code=2)
    assert target.read_text() == "mine"


@pytest.mark.usefixtures("registry")
def test_an_option_overrides_a_variable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    call(capsys, f"--registry {other} db create")
    assert json.loads(call(capsys, f"--registry {other} --json list")[0])["artifacts"] == []
    assert json.loads(call(capsys, "--json list")[0])["artifacts"] != []


def test_user_folders_are_those_of_xdg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BENCHLOCK_REGISTRY", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    call(capsys, "db create")
    assert [path.name for path in tmp_path.iterdir()] == ["benchlock"]


@pytest.mark.usefixtures("registry")
def test_a_yanked_version_stays(capsys: pytest.CaptureFixture[str]) -> None:
    entry = json.loads(call(capsys, "--json list model")[0])["artifacts"][0]
    place = f"model/{entry['name']}@{entry['version']}"
    call(capsys, f"yank {place} --reason broken")
    assert json.loads(call(capsys, f"--json show {place}")[0])["manifest"]["name"] == entry["name"]
    assert json.loads(call(capsys, "--json list model")[0])["artifacts"][0]["yanked"]


@pytest.mark.usefixtures("registry")
def test_a_closed_pipe_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    answer = subprocess.run([BENCHLOCK, "list"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert answer.stderr == ""


@pytest.mark.usefixtures("registry")
def test_a_pipe_gets_no_colors() -> None:
    answer = subprocess.run([BENCHLOCK, "list"], capture_output=True, text=True, check=True)
    assert ESCAPE not in answer.stdout + answer.stderr


def test_a_terminal_gets_colors_unless_no_color() -> None:
    assert ESCAPE in show_on_terminal(REFUSED)
    assert ESCAPE not in show_on_terminal(REFUSED, NO_COLOR="1")
    assert ESCAPE not in show_on_terminal(REFUSED, TERM="dumb")


def test_a_short_option_for_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("", "run ", "token create "):
        assert call(capsys, f"{command}-h") == call(capsys, f"{command}--help")


@pytest.mark.usefixtures("registry")
def test_options_of_every_command_have_no_fixed_place(capsys: pytest.CaptureFixture[str]) -> None:
    documents = [call(capsys, words)[0] for words in ("--json list", "list --json", "list --format json")]
    assert json.loads(documents[0])["artifacts"]
    assert documents == documents[:1] * 3


def test_quiet_prints_results_and_errors_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = written(tmp_path / "model.json", model("a"))
    out, err = call(capsys, f"--registry {tmp_path / 'new'} publish -q {manifest}")
    assert (out.startswith("published model/a@1.0.0"), err) == (True, "")
    assert call(capsys, f"--registry {tmp_path / 'new'} show -q model/none", code=2)[1].startswith("error: ")


@pytest.mark.usefixtures("registry")
def test_tables_are_also_for_other_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "list --format csv")[0].startswith("artifact,version,")
    assert call(capsys, "list --format md")[0].startswith("| artifact | version |")


@pytest.mark.usefixtures("registry")
def test_the_beginning_of_an_id_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    ids = [json.loads(call(capsys, f"--json token create {name} --scope run")[0])["token"]["id"] for name in ("a", "b")]
    length = next(index for index, pair in enumerate(zip(*ids, strict=True)) if len(set(pair)) > 1)
    common = ids[0][:length]
    assert "ambiguous id" in call(capsys, f"token revoke {common}", code=2)[1]
    call(capsys, f"token revoke {ids[0][: length + 1]}")
    states = {one["id"]: one["state"] for one in json.loads(call(capsys, "--json token list")[0])["tokens"]}
    assert states == {ids[0]: "revoked", ids[1]: "valid"}


@pytest.mark.usefixtures("registry")
def test_lists_have_filters_and_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    every = json.loads(call(capsys, "--json list")[0])["artifacts"]
    models = json.loads(call(capsys, "--json list model --search onnx")[0])["artifacts"]
    assert len(every) > len(models)
    assert json.loads(call(capsys, "--json runs --outcome done --since 7d --limit 3")[0])["runs"] == []


def test_precedence_of_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def find(words: str = "list") -> str:
        """The folder in which the registry is missing."""
        return Path(call(capsys, words, code=2)[1].splitlines()[1].removeprefix("  where: ")).name

    monkeypatch.delenv("BENCHLOCK_REGISTRY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchlock").mkdir()
    (tmp_path / "benchlock" / "config.toml").write_text(f'registry = "user"\ntrusted_registries = ["{tmp_path}"]\n')
    assert find() == "user"
    (tmp_path / "benchlock.toml").write_text('registry = "project"\n')
    assert find() == "project"
    monkeypatch.setenv("BENCHLOCK_REGISTRY", "variable")
    assert find() == "variable"
    assert find("--registry option list") == "option"


def test_completion_is_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    for shell in ("bash", "zsh", "fish"):
        assert "benchlock" in call(capsys, f"completion {shell}")[0]
    call(capsys, "completion bash --install")
    assert [path.name for path in tmp_path.rglob("benchlock*") if path.is_file()]
