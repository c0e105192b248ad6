"""``benchlock init`` and ``publish --dry-run`` as an author uses them: a manifest beside a file, and every problem."""

import json
import subprocess
from pathlib import Path

import pytest

from benchlock.api.cli.output import todo_lines
from tests.support.api.commands import BENCHLOCK, Commands
from tests.support.api.warm import Warm
from tests.support.registry.digits import GRAPH, model, written


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Warm(tmp_path / "registry")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(GRAPH.read_bytes())
    return path


def test_a_manifest_is_written_beside_its_file_and_never_over_another(commands: Commands, net: Path) -> None:
    document = commands.done("init", "model", net)
    target = net.parent / "manifest.yaml"
    assert (document["manifest"], document["kind"]) == (str(target), "model")
    assert document["todos"] == sum(one["todo"] for one in document["findings"]) == target.read_text().count("# TODO")
    target.write_text("my work")
    error = commands.error(2, "init", "model", net)
    assert error["message"] == f"{target} already exists; nothing was written"
    assert target.read_text() == "my work"
    commands.done("init", "model", net, "-o", net.parent / "other.yaml")
    assert "source: " in (net.parent / "other.yaml").read_text()


@pytest.mark.parametrize(("count", "said"), [(1, "1 TODO line"), (8, "8 TODO lines")])
def test_lines_are_counted_as_one_says_it(count: int, said: str) -> None:
    assert todo_lines(count) == said


def test_a_person_reads_what_is_open(net: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [BENCHLOCK, "--registry", tmp_path / "registry", "init", "model", net],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[0] == f"wrote {tmp_path}/manifest.yaml"
    assert any(line.startswith("  TODO inputs[0].steps: ") for line in lines)
    assert lines[-1] == f"5 TODO lines to complete; then run benchlock publish --dry-run {tmp_path}/manifest.yaml"
    assert not (tmp_path / "registry").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("init modle net.onnx", "unknown kind 'modle'"),
        ("init model gone.onnx", "gone.onnx not found"),
        ("init dataset net.onnx", "unknown file type: net.onnx"),
        ("init model net.onnx -o gone/x.yaml", "cannot write"),
    ],
)
def test_what_cannot_be_outlined_is_refused(commands: Commands, net: Path, words: str, message: str) -> None:
    places = {"net.onnx": net, "gone.onnx": net.parent / "gone.onnx", "gone/x.yaml": net.parent / "gone" / "x.yaml"}
    answer = commands.call(*(places.get(word, word) for word in words.split()))
    assert answer.code in (2, 5)
    assert message in answer.document["error"]["message"]


def test_every_problem_of_every_path_is_told_in_prose_and_as_json(commands: Commands, tmp_path: Path) -> None:
    wrong = written(tmp_path / "wrong.yaml", model("wrong", name="picture", dtype="float16") | {"license": "none"})
    broken = written(tmp_path / "broken.yaml", model("broken", graph=tmp_path / "gone.onnx") | {"taks": 1})
    well = written(tmp_path / "well.yaml", model("well"))
    for options in ((), ("--dry-run",)):
        error = commands.error(2, "publish", well, wrong, broken, *options)
        told = [problem["message"] for problem in error["problems"]]
        assert error["message"] == told[0] == "unknown key 'taks'"
        assert f"{tmp_path}/gone.onnx not found" in told
        assert "the graph has no input 'picture'" in told
        assert "the steps give float32, not float16" in told
        assert "invalid license 'none'" in told
        assert set(error["problems"][0]) == {"code", "message", "where", "next"}
    assert commands.error(2, "list")["message"] == "no registry found"
    done = subprocess.run(
        [BENCHLOCK, "--registry", commands.registry, "publish", well, wrong, broken],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == f"{done.stderr.count('error: ')} problems"


def test_what_is_odd_is_a_warning(commands: Commands, tmp_path: Path) -> None:
    odd = written(tmp_path / "odd.yaml", model("odd") | {"license": "Apache 2"})
    commands.done("db", "create")
    answer = commands.call("publish", odd)
    assert answer.code == 0
    assert answer.stderr.startswith("warning: the license 'Apache 2' is not an SPDX expression")
    assert json.dumps(answer.document["warnings"]).count("SPDX") == 1
