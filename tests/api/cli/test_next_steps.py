"""Messages of commands and of the service name the right next step, once."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from benchlock.api.cli.main import run
from tests.support.api.serving import service
from tests.support.api.warm import Warm
from tests.support.registry import tiny
from tests.support.registry.digits import DIGITS, GRAPH, model, written
from tests.support.servers.registry_server import free_port

TFLITE = DIGITS / "models" / "digits.tflite"
RUN = "01kam1v3mz4w0q3d5g7h9j2k4m"


@pytest.fixture
def commands(tmp_path: Path) -> Warm:
    found = Warm(tmp_path / "registry")
    found.done("publish", *tiny.author(tmp_path / "manifests"))
    return found


def change(commands: Warm, *statements: str) -> None:
    """Change the database without its guards."""
    with closing(sqlite3.connect(commands.registry / "registry.sqlite")) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in names:
            connection.execute(f'DROP TRIGGER "{name}"')
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_verify_lists_each_fault_once_and_does_not_name_itself(commands: Warm) -> None:
    change(commands, "UPDATE record_chain SET link = 'sha256:0' WHERE seq = 2")
    damaged = commands.call("verify").document["damaged"]
    places = [(one["message"], one["where"]) for one in damaged]
    assert len(places) > 1
    assert len(places) == len(set(places))
    assert {one["next"] for one in damaged if one["code"] == "damaged-database"} == {
        "restore the registry from a backup"
    }


def test_a_check_of_the_schema_names_the_next_step(commands: Warm, capsys: pytest.CaptureFixture[str]) -> None:
    change(commands)
    answer = commands.call("db", "check")
    assert answer.code == 1
    assert "benchlock verify" in answer.document["next"]
    assert run(["--registry", str(commands.registry), "db", "check"]) == 1
    assert "next: run `benchlock verify`" in capsys.readouterr().err


def test_doctor_says_what_it_does_not_check(commands: Warm) -> None:
    assert "records and blobs not checked (run `benchlock verify`)" in commands.done("doctor")["integrity"]


def test_a_revision_error_names_the_registry(commands: Warm) -> None:
    change(commands, "UPDATE alembic_version SET version_num = '0001'")
    for words in (("list",), ("db", "check")):
        assert commands.error(5, *words)["where"] == str(commands.registry / "registry.sqlite")


@pytest.mark.parametrize("words", ["show", "verify", "get", "rerun", "hide --reason no", "compare run/" + RUN])
def test_the_id_of_a_run_needs_no_prefix(commands: Warm, words: str) -> None:
    error = commands.error(2, *words.split(), RUN)
    assert f"run/{RUN}" in error["message"]


def test_counts_of_one_are_singular(commands: Warm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "more.onnx").write_bytes(GRAPH.read_bytes() + b"\0")
    document = model("digits-onnx") | {"version": "1.0.0", "license": "MIT"}
    text = written(tmp_path / "model.yaml", document).read_text().replace(str(GRAPH), str(tmp_path / "more.onnx"))
    (tmp_path / "model.yaml").write_text(text)
    commands.error(2, "publish", tmp_path / "model.yaml")  # the version is taken, and its file is a blob by now
    assert run(["--registry", str(commands.registry), "gc", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("would delete 1 blob, ")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def halve(value):\n    return value\n", "steps.py defines no function 'double'"),
        ("import numpy\n", "steps.py defines no function 'double'"),
        ("def double(value):\n    return value\n", None),
        ("double = lambda value: value\n", None),
        ("from numpy import negative as double\n", None),
        ("from others import *\n", None),
        ("globals()['double'] = abs\n", None),
        ("a text of a later Python\n", None),
    ],
)
def test_a_step_names_a_function_of_its_file(tmp_path: Path, code: str, message: str | None) -> None:
    commands = Warm(tmp_path / "registry")
    (tmp_path / "steps.py").write_text(code)
    document = model("coded")
    document["inputs"][0]["steps"].append({"python": {"file": "steps.py", "function": "double"}})
    document["files"].append({"path": "steps.py", "role": "code", "source": str(tmp_path / "steps.py")})
    manifest = written(tmp_path / "model.yaml", document)
    if message is None:
        commands.done("publish", manifest)
        return
    error = commands.error(2, "publish", manifest)
    assert error["message"] == message
    assert error["where"].startswith("inputs[0].steps[3].python.function")
    assert error["next"]


def test_a_file_of_another_format_is_recognized(tmp_path: Path) -> None:
    commands = Warm(tmp_path / "registry")
    net = tmp_path / "net.onnx"
    net.write_bytes(TFLITE.read_bytes())
    document = model("odd", graph=net)
    error = commands.error(2, "publish", written(tmp_path / "model.yaml", document))
    assert error["message"] == "digits.onnx is not a valid ONNX model: it is a TFLite graph"
    assert "ONNX model" in error["next"]
    error = commands.error(2, "init", "model", net)
    assert error["message"] == "net.onnx is not a valid ONNX model: it is a TFLite graph"


@pytest.mark.parametrize(
    ("name", "file", "form"),
    [
        ("digits-onnx", "digits.onnx", "ONNX model"),
        ("digits-litert", "digits.tflite", "TFLite graph"),
        ("digits-savedmodel", "digits.savedmodel/saved_model.pb", "SavedModel"),
        ("digits-keras", "digits.keras", "zip archive"),
        ("digits-torchscript", "digits.torchscript.pt", "zip archive"),
        ("digits-torch-export", "digits.pt2", "zip archive"),
    ],
)
def test_a_page_in_place_of_a_model_is_called_a_page(tmp_path: Path, name: str, file: str, form: str) -> None:
    digits = shutil.copytree(DIGITS, tmp_path / "digits")
    (digits / "models" / file).write_bytes(b"<!DOCTYPE html><title>404</title>")
    error = Warm(tmp_path / "registry").error(2, "publish", digits / "models" / f"{name}.yaml")
    assert error["message"] == f"{file} is not a valid {form}: it is an HTML or XML page"
    assert "problems" not in error


def test_a_folder_without_a_manifest_yaml_names_the_manifests_that_it_has(tmp_path: Path) -> None:
    commands = Warm(tmp_path / "registry")
    error = commands.error(2, "publish", DIGITS)
    assert error["next"] == f"use {DIGITS / 'dataset.yaml'}"
    assert "a folder with a manifest.yaml" in commands.error(2, "publish", DIGITS / "data")["next"]


def test_an_address_with_the_prefix_of_the_protocol_is_explained(tmp_path: Path) -> None:
    with service(tmp_path / "registry") as served:
        error = Warm(tmp_path, variables={"BENCHLOCK_REGISTRY": f"{served.url}/v1"}).error(2, "list")
    assert error["next"] == f"remove /v1: {served.url}"


def test_a_server_that_is_not_there_is_looked_for(tmp_path: Path) -> None:
    error = Warm(tmp_path, variables={"BENCHLOCK_REGISTRY": f"http://127.0.0.1:{free_port()}"}).error(5, "list")
    assert error["next"] == "check the host and the port, and whether the server is running"


def test_a_manifest_that_is_not_wrapped_hears_of_the_wrapper(tmp_path: Path) -> None:
    with service(tmp_path / "registry") as served:
        answer = httpx.post(f"{served.url}/v1/artifacts", json={"schema": 1, "kind": "model"})
        asked = httpx.post(f"{served.url}/v1/locks", json={"schema": 1, "kind": "evaluation"})
    assert answer.status_code == asked.status_code == 400
    assert answer.json()["next"].startswith('send a JSON object {"manifest": …}; more keys: ')
    assert asked.json()["next"].startswith("send a JSON object with keys among request, ")


def test_a_refusal_without_a_token_speaks_to_other_clients(tmp_path: Path) -> None:
    with service(tmp_path / "registry", "--host", "127.0.0.1") as served:
        answer = httpx.get(f"{served.url}/v1/artifacts")
    assert answer.status_code == 401
    assert "Authorization: Bearer TOKEN" in answer.json()["next"]
    assert "BENCHLOCK_TOKEN" in answer.json()["next"]


def test_a_submitted_request_with_a_misspelled_kind_is_read_as_a_request(commands: Warm, tmp_path: Path) -> None:
    path = tmp_path / "request.yaml"
    path.write_text("schema: 1\nkid: evaluation\n")
    error = commands.call("run", "--submit", path).document["error"]
    assert (error["where"], error["next"]) == (f"kid ({path}, line 2)", "did you mean 'kind'?")
