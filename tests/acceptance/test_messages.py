"""Whatever is wrong with what a user gives: one message that says what, where and the next step; no traceback."""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
import pytest

from benchlock.api.cli.command_group import benchlock
from benchlock.api.cli.main import run
from tests.support.api.commands import BENCHLOCK, Answer, Commands
from tests.support.registry import tiny
from tests.support.registry.digits import GRAPH, locked, model, request

NO_RUN = f"run/{'0' * 26}"
NO_LOCK = f"sha256:{'0' * 64}"
MODEL = json.dumps(model("digits-onnx"), indent=1)
REQUEST = json.dumps(request("digits-onnx"), indent=1)


@dataclass(frozen=True, slots=True)
class Fault:
    """A command on the files below, its exit code, the error's code, and what its parts must say."""

    words: str
    exit: int
    code: str
    says: tuple[str, ...]


FILES: dict[str, str | bytes] = {
    "unknown-key.yaml": MODEL.replace('"layout": "NCHW"\n', '"layuot": "NCHW"\n'),
    "duplicate-key.yaml": MODEL.replace('"format": "onnx"', '"format": "onnx", "format": "onnx"'),
    "wrong-type.yaml": MODEL.replace('"float32"', "32", 1),
    "missing-file.yaml": MODEL.replace(str(GRAPH), "gone.onnx"),
    "missing-key.yaml": MODEL.replace('"license": "Apache-2.0",', ""),
    "syntax.yaml": "schema: 1\nkind: [model\nname: x\n",
    "latin.yaml": "schema: 1\nlicense: caf\xe9\n".encode("latin-1"),
    "empty.yaml": "",
    "good.yaml": REQUEST,
    "no-candidates.yaml": REQUEST.replace('"version": "*"', '"version": "^9.0"', 1),
    "no-constraint.yaml": REQUEST.replace('"version": "*"', '"version": ">=1 <"', 1),
    "unknown-name.yaml": REQUEST.replace('"name": "digits-onnx",\n  "version"', '"name": "digits-onxn",\n  "version"'),
    "unknown-split.yaml": REQUEST.replace('"test"', '"tset"'),
    "unknown-metric.yaml": REQUEST.replace('"top1"', '"top2"'),
    "metric-of-another-scenario.yaml": json.dumps(
        request("digits-onnx") | {"scenario": {"name": "accuracy", "warmup": 0, "batch": 1}}
    ),
    "untimed-trace.yaml": json.dumps(
        request("digits-onnx")
        | {"scenario": {"name": "accuracy", "warmup": 0, "batch": 1}, "metrics": ["top1"], "trace": "full"}
    ),
    "other-limits.yaml": REQUEST.replace('"time": "5m"', '"time": "9m"'),
    "edited.lock": "schema = ",
}

FAULTS = {
    "unknown key": Fault(
        "publish unknown-key.yaml", 2, "invalid-input", ("layuot", "inputs[0].steps[2].transpose", "line", "layout")
    ),
    "duplicate key": Fault("publish duplicate-key.yaml", 2, "invalid-input", ("duplicate key 'format'", "line")),
    "wrong type": Fault("publish wrong-type.yaml", 2, "invalid-input", ("inputs[0].dtype", "found a whole number: 32")),
    "missing key": Fault("publish missing-key.yaml", 2, "invalid-input", ("'license' is missing",)),
    "missing file": Fault("publish missing-file.yaml", 2, "invalid-input", ("gone.onnx not found", "files[0]")),
    "YAML syntax": Fault("publish syntax.yaml", 2, "invalid-input", ("syntax.yaml, line 3", "not YAML")),
    "no UTF-8": Fault("publish latin.yaml", 2, "invalid-input", ("latin.yaml is not UTF-8", "byte 22")),
    "model for its manifest": Fault("publish latin.yaml", 2, "invalid-input", ("run benchlock init model latin.yaml",)),
    "request for a manifest": Fault(
        "publish good.yaml", 2, "invalid-input", ("good.yaml is a request", "lock the request")
    ),
    "lock for a request": Fault(
        "lock good.lock", 2, "invalid-input", ("good.lock is a lockfile", "benchlock run good.lock")
    ),
    "lock for an artifact": Fault(
        "show good.lock", 2, "invalid-input", ("good.lock is a lock, not an artifact", "runs --lock good.lock")
    ),
    "lock id for an artifact": Fault(f"show {NO_LOCK}", 2, "invalid-input", ("is a lock", f"runs --lock {NO_LOCK}")),
    "no framework version": Fault(
        "image build onnxruntime== --no-layers",
        2,
        "invalid-input",
        ("invalid requirement 'onnxruntime=='", "NAME==VERSION"),
    ),
    "empty manifest": Fault("publish empty.yaml", 2, "invalid-input", ("empty.yaml", "no YAML document")),
    "no manifest": Fault("publish nothing.yaml", 2, "invalid-input", ("nothing.yaml", "No such file")),
    "folder without manifest": Fault("publish .", 2, "invalid-input", ("manifest.yaml",)),
    "no candidates": Fault(
        "lock no-candidates.yaml", 3, "conflict", ("model/digits-onnx", "^9.0", "1.0.0", "model.version")
    ),
    "no candidates, resolved": Fault("resolve no-candidates.yaml", 3, "conflict", ("model/digits-onnx", "^9.0")),
    "no constraint": Fault("lock no-constraint.yaml", 2, "invalid-input", (">=1 <", "model.version")),
    "unknown name": Fault("lock unknown-name.yaml", 2, "unknown-name", ("digits-onxn", "did you mean digits-onnx")),
    "unknown split": Fault("lock unknown-split.yaml", 2, "invalid-input", ("tset", "test")),
    "unknown metric": Fault("lock unknown-metric.yaml", 2, "invalid-input", ("top2", "metrics[0]")),
    "metric of another scenario": Fault(
        "lock metric-of-another-scenario.yaml", 2, "invalid-input", ("accuracy", "latency_p50", "single_stream")
    ),
    "trace of an untimed scenario": Fault(
        "lock untimed-trace.yaml",
        2,
        "invalid-input",
        ("trace: full needs a scenario that times calls", "single_stream"),
    ),
    "lock in no folder": Fault("lock good.yaml -o gone/x.lock", 5, "unavailable", ("gone/x.lock",)),
    "check of no lock": Fault("lock good.yaml -o gone.lock --check", 2, "invalid-input", ("gone.lock",)),
    "no isolation": Fault("run good.lock --isolation vm", 2, "invalid-input", ("'vm'", "container or process")),
    "no lock": Fault("run gone.lock", 2, "invalid-input", ("cannot read gone.lock",)),
    "lock that is a folder": Fault("run .", 2, "invalid-input", ("Is a directory",)),
    "lock that is none": Fault("run edited.lock", 2, "invalid-input", ("edited.lock is not a lockfile: invalid TOML",)),
    "lock id that is none": Fault("run sha256:00", 2, "invalid-input", ("64 lower-case hex digits",)),
    "unknown lock id": Fault(f"run {NO_LOCK}", 2, "unknown-name", (NO_LOCK,)),
    "unknown run": Fault(f"show {NO_RUN}", 2, "unknown-name", (NO_RUN,)),
    "run id that is none": Fault("get run/7", 2, "invalid-input", ("invalid run id 'run/7'",)),
    "rerun of unknown run": Fault(f"rerun {NO_RUN}", 2, "unknown-name", (NO_RUN,)),
    "rerun before a run": Fault("rerun good.lock", 2, "invalid-input", ("to compare with", "run the lock first")),
    "compare unknown runs": Fault(f"compare {NO_RUN} {NO_RUN}", 2, "unknown-name", (NO_RUN,)),
    "unknown artifact": Fault("show model/gone", 2, "unknown-name", ("'gone'", "list the models")),
    "unknown version": Fault("get model/digits-onnx@^9", 2, "unknown-name", ("^9", "available: 1.0.0")),
    "unknown kind": Fault("list modles", 2, "invalid-input", ("'modles'", "model, framework, dataset, image")),
    "yank without reason": Fault("yank model/digits-onnx@1.0.0", 2, "invalid-input", ("needs a reason",)),
    "yank without version": Fault("yank model/digits-onnx --reason x", 2, "invalid-input", ("missing version in",)),
    "unknown framework": Fault("image build onnx==1.31.1 --no-layers", 2, "unknown-name", ("'onnx'", "onnxruntime")),
    "verify unknown": Fault("verify dataset/gone", 2, "unknown-name", ("'gone'", "list the datasets")),
    "unknown command": Fault("pubish good.yaml", 2, "invalid-input", ("pubish", "--help")),
    "unknown option": Fault("lock good.yaml --chekc", 2, "invalid-input", ("--chekc", "--help")),
    "missing argument": Fault("run", 2, "invalid-input", ("LOCK", "--help")),
    "option's value": Fault("runs --limit many", 2, "invalid-input", ("--limit", "integer")),
    "missing command": Fault("image", 2, "invalid-input", ("Missing command", "--help")),
    "server without TLS": Fault("--registry http://bench.example/x list", 2, "invalid-input", ("is not encrypted",)),
    "no registry": Fault(
        "--registry gone list", 2, "unknown-name", ("no registry found", "gone", "benchlock db create")
    ),
    "registry in a file": Fault("--registry good.yaml/x db create", 5, "unavailable", ("good.yaml/x", "--registry")),
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """A tiny registry; beside it the files above and a lock, which no command here may change."""
    folder = tmp_path_factory.mktemp("desk")
    commands = tiny.publish(folder)
    for name, content in FILES.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    locked(commands, folder, request("digits-onnx")).rename(folder / "good.lock")
    before = sorted(folder.iterdir()), commands.done("list"), commands.done("runs")
    yield commands
    assert (sorted(folder.iterdir()), commands.done("list"), commands.done("runs")) == before


@pytest.fixture
def at_desk(desk: Commands, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """The same, with this process in the folder of the files and on its registry."""
    monkeypatch.chdir(desk.registry.parent)
    for name, value in desk.environment().items():
        monkeypatch.setenv(name, value)
    return desk


def answered(words: str, capsys: pytest.CaptureFixture[str]) -> Answer:
    """What the command leaves with ``--json``."""
    code = run(["--json", *words.split()])
    said = capsys.readouterr()
    return Answer(code, json.loads(said.out), said.err)


def test_the_files_have_the_faults() -> None:
    """No replacement above missed its text."""
    assert len(set(FILES.values())) == len(FILES)
    assert MODEL not in FILES.values()
    assert {name for name in FILES if FILES[name] == REQUEST} == {"good.yaml"}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.usefixtures("at_desk")
def test_one_clear_message(fault: Fault, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answered(fault.words, capsys)
    assert (answer.code, answer.stderr, [*answer.document]) == (fault.exit, "", ["error"]), answer
    error = answer.document["error"]
    assert error["code"] == fault.code
    assert error.keys() - {"conflict"} == {"code", "message", "where", "next"}
    assert ("conflict" in error) == (fault.exit == 3)
    assert error["message"]
    assert error["next"]

    assert run(fault.words.split()) == fault.exit  # without --json, for a person
    said = capsys.readouterr()
    parts = ("error: " + error["message"], *filter(None, (error["where"], error["next"])))
    assert said.out == ""
    assert said.err.startswith(parts[0])
    assert [part for part in (*parts, *fault.says) if part not in said.err] == [], said.err
    assert said.err.count("error: ") == 1


@pytest.mark.parametrize("code", sorted({fault.exit for fault in FAULTS.values()}))
def test_the_installed_command_says_the_same(at_desk: Commands, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Of one fault for each exit code: the tests above call what it calls, in this process."""
    words = next(fault.words for fault in FAULTS.values() if fault.exit == code)
    assert at_desk.call(*words.split()) == answered(words, capsys)


def test_without_an_engine_no_container_is_promised(at_desk: Commands) -> None:
    words = ("run", "good.lock", "--isolation", "container")
    error = at_desk.error(5, *words)
    assert (error["code"], "no container engine responds" in error["message"]) == ("unavailable", True)
    assert "DOCKER_HOST" in error["next"]
    said = subprocess.run([BENCHLOCK, *words], env=at_desk.environment(), capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (5, "")
    assert said.stderr == f"error: {error['message']}\n  where: {error['where']}\n  next: {error['next']}\n"


def test_a_fresh_lock_answers_its_request(at_desk: Commands) -> None:
    answer = at_desk.done("lock", "good.yaml", "-o", "good.lock", "--check")
    assert (answer["fresh"], answer["reasons"]) == (True, [])


def test_a_stale_lock_is_an_answer_and_no_error(at_desk: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("lock", "other-limits.yaml", "-o", "good.lock", "--check")
    answer = at_desk.call(*words)
    assert (answer.code, answer.stderr) == (1, "")
    assert (answer.document["fresh"], len(answer.document["reasons"])) == (False, 1)
    assert run([*words]) == 1
    assert capsys.readouterr() == (f"stale: {answer.document['reasons'][0]}\n", "")


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with the words that call it."""
    context = click.Context(benchlock)
    for name in benchlock.list_commands(context):
        command = benchlock.get_command(context, name)
        inner = getattr(command, "commands", {})
        yield from ((f"{name} {word}", below) for word, below in inner.items())
        if not inner:
            yield name, command


def test_without_a_command_there_is_help(desk: Commands) -> None:
    answer = subprocess.run([BENCHLOCK], env=desk.environment(), capture_output=True, text=True, check=False)
    listed = re.findall(r"^  (\w+) ", answer.stdout.partition("Artifacts:\n")[2], re.MULTILINE)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert set(listed) == {name.split()[0] for name, _ in commands()}
