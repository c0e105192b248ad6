"""Only commands that write create a registry; the others refuse a folder without one, and leave it as it is."""

import json
from pathlib import Path

import pytest

from benchlock.api.cli.main import run
from tests.support.registry.digits import written
from tests.support.registry.tiny import tree_of_digits

READING = (
    "list",
    "show model/resnet@1.0.0",
    "runs",
    "yank model/resnet@1.0.0 --reason no",
    "jobs",
    "machines",
    "backup there",
    "verify",
    "gc",
    "token list",
    "log",
    "get model/resnet -o got",
    "db current",
    "db check",
    "db upgrade",
)


def absent(home: Path) -> None:
    """Leave no folder at all."""
    home.rmdir()


def empty(home: Path) -> None:
    """Leave an empty folder."""


def foreign(home: Path) -> None:
    """Put a file of others into the folder."""
    (home / "passwd").write_text("root")


def unfinished(home: Path) -> None:
    """Leave what a first command leaves that failed before it made a database."""
    (home / "store.json.lock").touch()
    (home / "blobs").mkdir()


def schemaless(home: Path) -> None:
    """Leave what a first command leaves that was killed before it made the schema."""
    (home / "registry.sqlite").touch()


@pytest.mark.parametrize("folder", [absent, empty, foreign, unfinished])
@pytest.mark.parametrize("words", READING)
def test_a_command_that_reads_creates_no_registry(
    words: str, folder: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(folder)
    home = tmp_path / "registry"
    home.mkdir()
    folder(home)
    before = sorted(tmp_path.rglob("*"))
    assert run(["--registry", str(home), *words.split()]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: no registry found",
        f"  where: {home}",
        "  next: set its folder with --registry or BENCHLOCK_REGISTRY; `benchlock db create` creates a new one",
    ]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("folder", [absent, empty, foreign, unfinished])
def test_a_doctor_describes_the_machine_without_a_registry(
    folder: object, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(folder)
    monkeypatch.setattr("benchlock.api.cli.maintenance_commands.connect_engine", lambda: None)
    home = tmp_path / "registry"
    home.mkdir()
    folder(home)
    before = sorted(tmp_path.rglob("*"))
    assert run(["--registry", str(home), "doctor"]) == 0
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    missing = f"none in {home}; create one with `benchlock db create`"
    assert lines["registry"].strip() == missing
    assert {"engine", "cpu", "memory", "accelerators"} <= lines.keys()
    assert run(["--registry", str(home), "--json", "doctor"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["registry"] == missing
    assert document["host"]["cores"] >= 1
    assert "database" not in document
    assert sorted(tmp_path.rglob("*")) == before


def test_a_database_without_a_schema_is_no_registry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schemaless(tmp_path)
    assert run(["--registry", str(tmp_path), "list"]) == 2
    assert "no registry found" in capsys.readouterr().err
    assert run(["--registry", str(tmp_path), "db", "create"]) == 0
    assert run(["--registry", str(tmp_path), "list"]) == 0


def test_a_variable_of_a_database_makes_none_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BENCHLOCK_DATABASE", "postgresql://nobody@localhost/none")
    assert run(["--registry", str(tmp_path / "registry"), "list"]) == 2
    assert "no registry found" in capsys.readouterr().err
    assert not (tmp_path / "registry").exists()


@pytest.mark.parametrize("folder", [absent, empty, foreign, unfinished, schemaless])
def test_a_command_that_writes_creates_one_and_says_so(
    folder: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(folder)
    home = tmp_path / "registry"
    home.mkdir()
    folder(home)
    assert run(["--registry", str(home), "--json", "token", "create", "ci", "--scope", "read"]) == 0
    said = capsys.readouterr()
    assert said.err.splitlines()[0] == f"created the registry in {home}"
    assert json.loads(said.out)["token"]
    assert run(["--registry", str(home), "list"]) == 0
    assert "created the registry" not in capsys.readouterr().err


def test_publish_creates_one_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = written(tmp_path / "digits.yaml", tree_of_digits("digits"))
    assert run(["--registry", str(tmp_path / "registry"), "--json", "publish", str(manifest)]) == 0
    said = capsys.readouterr()
    assert f"created the registry in {tmp_path / 'registry'}" in said.err.splitlines()
    assert json.loads(said.out)["published"][0]["changed"]


@pytest.mark.parametrize("folder", [absent, empty, foreign, unfinished])
def test_a_dry_run_rehearses_without_a_registry_and_creates_none(
    folder: object, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(folder)
    monkeypatch.setenv("BENCHLOCK_DATABASE", "postgresql://nobody@localhost/none")
    manifest = written(tmp_path / "digits.yaml", tree_of_digits("digits"))
    home = tmp_path / "registry"
    home.mkdir()
    folder(home)
    before = sorted(tmp_path.rglob("*"))
    assert run(["--registry", str(home), "publish", "--dry-run", str(manifest)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("would publish dataset/digits@1.0.0")
    assert f"no registry in {home} yet: checking against an empty one" in said.err.splitlines()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_makes_no_schema_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = written(tmp_path / "digits.yaml", tree_of_digits("digits"))
    home = tmp_path / "registry"
    home.mkdir()
    schemaless(home)
    assert run(["--registry", str(home), "publish", "--dry-run", str(manifest)]) == 0
    assert "created the registry" not in capsys.readouterr().err
    assert run(["--registry", str(home), "list"]) == 2


@pytest.mark.parametrize("words", ["publish", "publish --dry-run", "bundle import"])
@pytest.mark.parametrize("content", [None, "neither a manifest nor a bundle"])
def test_a_missing_or_malformed_file_creates_no_registry(
    words: str, content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, home = tmp_path / "none.bundle", tmp_path / "registry"
    if content is not None:
        file.write_text(content)
    assert run(["--registry", str(home), *words.split(), str(file)]) == 2
    said = capsys.readouterr().err
    assert str(file) in said
    assert "created the registry" not in said
    assert not home.exists()


def test_db_create_does_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--registry", str(tmp_path / "registry"), "--json", "db", "create"]
    assert run(words) == 0
    first = capsys.readouterr()
    assert run(words) == 0
    again = capsys.readouterr()
    assert json.loads(first.out) == json.loads(again.out)
    assert json.loads(first.out)["registry"] == str(tmp_path / "registry")
    assert (first.err, again.err) == (f"created the registry in {tmp_path / 'registry'}\n", "")


def test_an_address_without_its_scheme_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--registry", str(tmp_path / "127.0.0.1:18437"), "list"]) == 2
    assert "  next: for a service write http://127.0.0.1:18437 (" in capsys.readouterr().err
