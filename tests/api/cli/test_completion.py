"""Completion in shells: what is suggested, at what cost, and where the scripts are installed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchlock.api.cli.main import run
from benchlock.api.local.local_registry import open_registry
from tests.support.evaluator.recorded import recorded
from tests.support.resolution.variants import variant

RUN = recorded(None, lock=variant({}).lock.id)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry with a version of each kind, and a run."""
    folder = tmp_path_factory.mktemp("completion") / "registry"
    registry, whole = open_registry(str(folder), print), variant({})
    whole.publish(registry.catalogue, registry.store)
    registry.catalogue.put_lock(whole.lock)
    registry.records.start(RUN.start)
    return folder


def suggested(
    words: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[tuple[str, str]]:
    """What a shell gets for the line ``words``, of which the last is incomplete: types and values."""
    line = f"benchlock {words}"
    monkeypatch.setenv("BENCHLOCK_REGISTRY", str(home))
    monkeypatch.setenv("_BENCHLOCK_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    with pytest.raises(SystemExit) as ended:
        run([])
    assert ended.value.code == 0
    answer = capsys.readouterr()
    assert answer.err == ""
    return [(kind, value) for kind, _, value in (one.partition(",") for one in answer.out.splitlines() if one)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ru", ["run", "runs"]),
        ("--js", ["--json"]),
        ("run --iso", ["--isolation"]),
        ("db up", ["upgrade"]),
        ("list mo", ["model"]),
        ("init d", ["dataset"]),
        ("show model/", ["model/digits"]),
        ("show model/digits@", ["model/digits@1.0.0"]),
        ("why model/d", ["model/digits"]),
        (f"rerun {RUN.id[:12]}", [RUN.id]),
        ("bundle create run/", [RUN.id]),
        ("completion z", ["zsh"]),
    ],
)
def test_words_are_completed(
    words: str, expected: list[str], home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suggested(words, home, monkeypatch, capsys) == [("plain", word) for word in expected]


@pytest.mark.parametrize("words", ["run digits", "diff a.lock b", "compare x", "publish mod", "runs --lock d"])
def test_files_are_left_to_the_shell(
    words: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [kind for kind, _ in suggested(words, home, monkeypatch, capsys)] == ["file"]


def test_a_missing_registry_and_a_server_are_no_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for registry in (tmp_path / "none", "https://bench.example.org"):
        assert suggested("show model/", Path(registry), monkeypatch, capsys) == [("file", "model/")]
    assert not (tmp_path / "none").exists()


def test_command_names_load_no_command_and_no_database(home: Path) -> None:
    line = {"_BENCHLOCK_COMPLETE": "bash_complete", "COMP_WORDS": "benchlock ", "COMP_CWORD": "1"}
    code = (
        "import sys\nfrom benchlock.api.cli.main import run\ntry:\n    run([])\nfinally:\n"
        "    import json; print(json.dumps(sorted(sys.modules)))"
    )
    environment = os.environ | line | {"BENCHLOCK_REGISTRY": str(home)}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert loaded.isdisjoint({"sqlalchemy", "msgspec", "httpx", "numpy", "rich"})
    assert {name for name in loaded if name.startswith("benchlock.api.cli.")} == {
        f"benchlock.api.cli.{name}" for name in ("command_group", "main", "output")
    }


@pytest.mark.parametrize(
    ("shell", "path"),
    [
        ("bash", "data/bash-completion/completions/benchlock"),
        ("zsh", ".zfunc/_benchlock"),
        ("fish", "config/fish/completions/benchlock.fish"),
    ],
)
def test_a_script_is_printed_or_installed(
    shell: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, folder in {"XDG_DATA_HOME": "data", "XDG_CONFIG_HOME": "config", "ZDOTDIR": "."}.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.delenv("BASH_COMPLETION_USER_DIR", raising=False)
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_BENCHLOCK_COMPLETE={shell}_complete" in script
    assert run(["completion", shell, "--install"]) == 0
    assert (tmp_path / path).read_text() == script
    assert capsys.readouterr().out.splitlines()[0] == f"wrote {tmp_path / path}"
    if shutil.which(shell):
        subprocess.run([shell, "-n", tmp_path / path], check=True)
