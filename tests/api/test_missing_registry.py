"""A command that reads leaves a folder of others alone."""

from pathlib import Path

import pytest

from api.cli.main import run

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
    "doctor",
)


@pytest.mark.parametrize("words", READING)
def test_a_command_that_reads_creates_no_registry_among_other_files(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "passwd").write_text("root")
    assert run(["--registry", str(tmp_path), *words.split()]) == 2
    what, where, step = capsys.readouterr().err.splitlines()
    assert what == "error: no registry found: the folder has other files"
    assert where == f"  where: {tmp_path}"
    assert "--registry" in step
    assert [path.name for path in tmp_path.iterdir()] == ["passwd"]


def test_a_command_that_writes_creates_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("ours")
    assert run(["--registry", str(tmp_path), "token", "create", "ci", "--scope", "read"]) == 0
    assert run(["--registry", str(tmp_path), "list"]) == 0
    assert "error" not in capsys.readouterr().err
