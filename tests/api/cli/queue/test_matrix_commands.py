"""The commands for matrices: what they print, as text, CSV and JSON, for a file or an id."""

import csv
import io
import json
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from benchlock.api.cli.main import run
from benchlock.api.cli.queue import job_commands
from benchlock.api.local.local_registry import open_registry
from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.matrices.matrix_schema import matrices
from benchlock.registry.database.engine import write_transaction
from benchlock.registry.requests.matrix_request import read_matrix
from tests.support.evaluator.evidence import IDX
from tests.support.registry.matrices import MATRIX
from tests.support.resolution.variants import variant

ID = read_matrix(MATRIX, "matrix.yaml").id


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a matrix, beside a registry with one of its two models."""
    opened = open_registry(str(tmp_path / "registry"), lambda _: None)
    variant({"files": IDX}).publish(opened.catalogue, opened.store)
    monkeypatch.setenv("BENCHLOCK_REGISTRY", str(tmp_path / "registry"))
    path = tmp_path / "matrix.yaml"
    path.write_text(MATRIX)
    return path


def call(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    assert run(list(words)) == code, capsys.readouterr()
    return capsys.readouterr()


def test_a_matrix_is_submitted_read_and_cancelled(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = call(capsys, "matrix", "submit", str(file))
    assert ID in out
    assert "2 blocked, 4 conflict" in out
    assert f"warning: cells without a lock; benchlock matrix table {file}" in err
    assert "warning: no machine can take the blocked runs" in err
    for target in (str(file), ID, ID.removeprefix("sha256:"), ID[:15], ID[7:11]):
        assert "2 blocked, 4 conflict" in call(capsys, "matrix", "status", target)[0]
    assert "2 cancelled, 4 conflict" in call(capsys, "matrix", "cancel", str(file))[0]


def test_an_ambiguous_or_unknown_beginning_of_an_id_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "matrix", "submit", str(file))
    database = open_registry(str(file.parent / "registry"), lambda _: None).database
    with write_transaction(database) as connection:
        row = connection.execute(select(matrices)).one()._asdict()
        connection.execute(insert(matrices), row | {"id": f"{ID[:-1]}{'0' if ID[-1] != '0' else '1'}"})
    assert "ambiguous id" in call(capsys, "matrix", "status", ID[:15], code=2)[1]
    assert "2 blocked" in call(capsys, "matrix", "status", ID)[0]
    other = "sha256:0000" if not ID.startswith("sha256:0000") else "sha256:1111"
    assert f"the registry has no matrix {other}" in call(capsys, "matrix", "status", other, code=2)[1]


def test_a_command_waits_until_the_runs_end(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call(capsys, "matrix", "submit", str(file))
    job = json.loads(call(capsys, "jobs", "--json")[0])["jobs"][0]["job"]
    pauses = []

    def cancel(seconds: float) -> None:
        pauses.append(seconds)
        run(["--json", "matrix", "cancel", str(file)])
        capsys.readouterr()

    monkeypatch.setattr("benchlock.api.cli.queue.job_commands.time.sleep", cancel)
    assert "2 cancelled, 4 conflict" in call(capsys, "matrix", "status", str(file), "--wait", code=1)[0]
    assert len(pauses) == 1
    assert "cancelled" in call(capsys, "jobs", job, "--wait", code=1)[0]
    assert "give the id" in call(capsys, "jobs", "--wait", code=2)[1]


def test_a_command_waits_for_a_registry_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["queued", "away", "away", "queued", "done"])

    def read() -> str:
        answer = next(answers)
        if answer == "away":
            raise UnavailableError("the server is away")
        return answer

    said: list[str] = []
    monkeypatch.setattr("benchlock.api.cli.queue.job_commands.time.sleep", lambda _: None)
    monkeypatch.setattr(job_commands, "say", said.append)
    assert job_commands.wait_until(read, lambda state: state == "done") == "done"
    assert said == ["warning: waiting for the registry: the server is away"]


def test_the_table_says_why_cells_are_empty(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "matrix", "submit", str(file))
    rows = list(csv.DictReader(io.StringIO(call(capsys, "matrix", "table", str(file), "--format", "csv")[0])))
    assert [row["cell"] for row in rows] == [cell.name for cell in read_matrix(MATRIX, "m").cells]
    assert rows[0]["missing"].startswith("conflict: ")
    assert "~1.1" in rows[0]["missing"]
    assert rows[2]["missing"].startswith("blocked: no machine can take it")
    document = json.loads(call(capsys, "matrix", "table", str(file), "--json")[0])
    assert [cell["missing"][:8] for cell in document["cells"]] == ["conflict", "conflict", "blocked:"]


def test_what_is_no_matrix_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(MATRIX.replace("repeat: 2", "repeat: 0"))
    assert "repeat (" in call(capsys, "matrix", "submit", str(file), code=2)[1]
    assert "give a matrix file" in call(capsys, "matrix", "status", "absent.yaml", code=2)[1]
    assert "no matrix" in call(capsys, "matrix", "status", "0" * 64, code=2)[1]
