"""`gate`, the action for GitHub and the shell recipe of its page, and `export`, on the digits' model."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchlock.registry.text.yaml import read_yaml
from tests.support.api.commands import Commands, copied
from tests.support.registry.digits import DIGITS, locked, model, request, written

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / "action"
PAGE = ROOT / "docs" / "how-to" / "ci.md"
STEPS = [
    {"decode": {"color": "L", "exif": "ignore"}},
    {"cast": {"dtype": "float32"}},
    {"scale": {"factor": 0.0625}},
    {"transpose": {"layout": "NCHW"}},
]
INVERTED = [*STEPS[:2], {"scale": {"factor": -0.0625}}, STEPS[3]]


@dataclass(frozen=True)
class Desk:
    """A registry with two models of the same graph, of which one sees inverted pictures, and their locks."""

    commands: Commands
    folder: Path
    baseline: Path
    worse: Path


@pytest.fixture(scope="module")
def desk(built_once: Commands, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    folder = tmp_path_factory.mktemp("gate")
    commands = copied(built_once, folder / "registry", "")
    manifests = [
        written(folder / f"{name}.yaml", model(name, steps=steps))
        for name, steps in (("good", STEPS), ("worse", INVERTED))
    ]
    commands.done("publish", DIGITS / "dataset.yaml", *manifests)
    return Desk(commands, folder, *(locked(commands, folder, request(name)) for name in ("good", "worse")))


@pytest.fixture(scope="module")
def run(desk: Desk) -> dict[str, Any]:
    """A run of the better model."""
    found: dict[str, Any] = desk.commands.done("run", desk.baseline)
    return found


def action() -> dict[str, Any]:
    document: dict[str, Any] = read_yaml((ACTION / "action.yml").read_text(), "action.yml").value
    return document


def step(inputs: Mapping[str, str], name: str = "Gate") -> tuple[str, dict[str, str]]:
    """The script of a step of the action as written, and its variables with the values of the inputs."""
    document = action()
    values = {key: str(entry.get("default", "")) for key, entry in document["inputs"].items()} | dict(inputs)
    assert all(values[key] for key, entry in document["inputs"].items() if entry.get("required"))
    chosen = next(entry for entry in document["runs"]["steps"] if entry["name"] == name)
    variables = {}
    for key, text in chosen["env"].items():
        expression = re.fullmatch(r"\$\{\{ inputs\.([a-z-]+) \}\}", text)
        variables[key] = values[expression[1]] if expression else ""
    return chosen["run"], variables


@dataclass(frozen=True)
class Job:
    """What a step of a job left: its exit code, its outputs, its summary and what was said to ``gh``."""

    code: int
    outputs: dict[str, str]
    summary: str
    log: str


def perform(
    script: str,
    variables: Mapping[str, str],
    folder: Path,
    commands: Commands,
    tools: str = "",
    folder_of_run: str = ".",
) -> Job:
    """Run a script as GitHub does: ``bash -e``, with a job's files; programs in ``tools`` go first."""
    folder.mkdir(exist_ok=True)
    output, summary = folder / "output", folder / "summary"
    output.touch()
    summary.touch()
    path = os.pathsep.join(filter(None, (tools, str(Path(sys.executable).parent), os.environ["PATH"])))
    environment = commands.environment() | {
        "PATH": path,
        "GITHUB_ACTION_PATH": str(ACTION),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_REPOSITORY": "acme/models",
        "RUNNER_TEMP": str(folder),
    }
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder_of_run,
        env=environment | dict(variables),
        capture_output=True,
        text=True,
        check=False,
    )
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    return Job(done.returncode, outputs, summary.read_text(), done.stdout + done.stderr)


def program(folder: Path, name: str, text: str) -> str:
    """A program that stands for another one; returns its folder."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return str(folder)


NO_RUNS = Commands(Path("/nonexistent"))


def test_the_action_has_the_structure_of_a_composite_action() -> None:
    document = action()
    assert set(document) == {"name", "description", "inputs", "outputs", "runs"}
    assert document["runs"]["using"] == "composite"
    for entry in document["runs"]["steps"]:
        assert entry["shell"] == "bash"
        # An expression in a script would execute the text of an input.
        assert "${{" not in entry["run"]
        names = re.findall(r"inputs\.([a-z-]+)", json.dumps(entry))
        assert set(names) <= set(document["inputs"])
    assert all(entry["description"] for entry in (*document["inputs"].values(), *document["outputs"].values()))
    assert {name for name, entry in document["inputs"].items() if entry.get("required")} == {"baseline", "candidate"}
    ids = {entry.get("id") for entry in document["runs"]["steps"]}
    for name, entry in document["outputs"].items():
        source = re.fullmatch(r"\$\{\{ steps\.([a-z]+)\.outputs\.([a-z-]+) \}\}", entry["value"])
        assert source is not None
        assert source[1] in ids
        assert source[2] == name


def test_the_page_lists_every_input_of_the_action() -> None:
    table = PAGE.read_text().partition("| input |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z-]+)`", "\n".join(row.split("|")[1] for row in table.splitlines() if row))) >= set(
        action()["inputs"]
    ) - {"METRIC"}


@pytest.mark.parametrize(
    ("code", "undecided", "expected", "verdict"),
    [
        (0, "fail", 0, "passed"),
        (1, "fail", 1, "failed"),
        (1, "warn", 1, "failed"),
        (7, "fail", 7, "undecided"),
        (7, "warn", 0, "undecided"),
        (4, "warn", 4, "error"),
    ],
)
def test_the_action_exits_as_the_gate_does(
    code: int, undecided: str, expected: int, verdict: str, tmp_path: Path
) -> None:
    tools = program(tmp_path / "tools", "benchlock", f'printf "%s\\n" "$@" >"{tmp_path}/words"; exit {code}')
    inputs = {
        "baseline": "a.lock",
        "candidate": "b $(touch x);.lock",
        "margins": "top1=1%\nlatency_p50=5% *",
        "undecided": undecided,
    }
    job = perform(*step(inputs), tmp_path / "job", NO_RUNS, tools)
    assert (job.code, job.outputs["verdict"], job.outputs["exit-code"]) == (expected, verdict, str(code))
    words = (tmp_path / "words").read_text().splitlines()
    assert words[:5] == ["gate", "--baseline", "a.lock", "--candidate", "b $(touch x);.lock"]
    assert words[7:] == ["--margin", "top1=1%", "--margin", "latency_p50=5%", "--margin", "*"]
    assert f"Exit code {code}" in job.summary
    assert not Path("x").exists()


def test_an_input_without_a_value_is_an_error_and_no_regression(tmp_path: Path) -> None:
    """Actions do not enforce required inputs, as when an output of an earlier step is empty."""
    tools = program(tmp_path / "tools", "benchlock", f'printf "%s\\n" "$@" >"{tmp_path}/words"; exit 2')
    script, variables = step({"baseline": "a.lock", "candidate": "b.lock"})
    job = perform(script, variables | {"GATE_BASELINE": ""}, tmp_path / "job", NO_RUNS, tools)
    assert (job.code, job.outputs["verdict"]) == (2, "error")
    assert (tmp_path / "words").read_text().splitlines()[:3] == ["gate", "--baseline", ""]


GH = """\
import json, os, sys
folder, arguments = sys.argv[1], sys.argv[2:]
assert arguments[0] == "api"
path = os.path.join(folder, "comments.json")
comments = json.load(open(path)) if os.path.exists(path) else []
if "--jq" in arguments:  # as in the script: the ids of an app's comments that begin with the marker
    assert arguments[1:3] == ["--paginate", "repos/acme/models/issues/17/comments"]
    marker = os.environ["MARKER"]
    assert arguments[-1] == '.[] | select(.user.type == "Bot" and (.body | startswith(env.MARKER))) | .id'
    own = [one for one in comments if one["user"]["type"] == "Bot" and one["body"].startswith(marker)]
    print(*(one["id"] for one in own), sep="\\n")
    sys.exit()
method, place, flag, field = arguments[2:]
assert flag == "--field" and field.startswith("body=@")
body = open(field.removeprefix("body=@")).read()
if method == "POST":
    assert place == "repos/acme/models/issues/17/comments"
    comments.append({"id": len(comments) + 1, "user": {"type": "Bot"}, "body": body})
else:
    assert method == "PATCH"
    (one,) = [one for one in comments if place == f"repos/acme/models/issues/comments/{one['id']}"]
    one["body"] = body
json.dump(comments, open(path, "w"))
"""


def test_the_action_updates_its_own_comment(tmp_path: Path) -> None:
    """``gh`` is a double that keeps the comments of one pull request in a file."""
    (tmp_path / "gh.py").write_text(GH)
    tools = program(tmp_path / "tools", "gh", f'exec "{sys.executable}" "{tmp_path}/gh.py" "{tmp_path}" "$@"')
    script, variables = step({"baseline": "a.lock", "candidate": "b.lock"})
    variables |= {"GATE_PULL_REQUEST": "17", "GITHUB_WORKFLOW": "ci", "GITHUB_JOB": "gate"}
    marker = "<!-- benchlock gate: ci/gate -->"
    of_others = [
        {"id": 1, "user": {"type": "User"}, "body": f"{marker}\nof a person"},
        {"id": 2, "user": {"type": "Bot"}, "body": f"quoted: {marker}"},
    ]
    (tmp_path / "comments.json").write_text(json.dumps(of_others))
    for code in (4, 5):
        program(tmp_path / "tools", "benchlock", f"exit {code}")
        job = perform(script, variables, tmp_path / "job", NO_RUNS, tools)
        assert (job.code, "::warning::" in job.log) == (code, False), job.log
        *others, own = json.loads((tmp_path / "comments.json").read_text())
        assert others == of_others
        assert own["body"].startswith(f"{marker}\n### benchlock gate: no verdict\n\nExit code {code};")
    perform(script, variables | {"GITHUB_JOB": "other"}, tmp_path / "job", NO_RUNS, tools)
    assert len(json.loads((tmp_path / "comments.json").read_text())) == 4


@pytest.mark.parametrize("works", [True, False])
def test_a_comment_changes_no_verdict(works: bool, tmp_path: Path) -> None:
    program(tmp_path / "tools", "benchlock", "exit 0")
    tools = program(tmp_path / "tools", "gh", f'echo "$@" >>"{tmp_path}/said"; exit {0 if works else 1}')
    script, variables = step({"baseline": "a.lock", "candidate": "b.lock"})
    job = perform(script, variables | {"GATE_PULL_REQUEST": "17"}, tmp_path / "job", NO_RUNS, tools)
    assert (job.code, job.outputs["verdict"]) == (0, "passed")
    assert ("::warning::" in job.log) is not works
    assert "repos/acme/models/issues/17/comments" in (tmp_path / "said").read_text()


@pytest.mark.image
def test_the_action_passes_a_run_of_the_same_lock(desk: Desk, run: dict[str, Any], tmp_path: Path) -> None:
    inputs = {
        "baseline": run["run"],
        "candidate": str(desk.baseline),
        "margins": "top1=1%",
        "rounds": "1",
        "registry": str(desk.commands.registry),
        "isolation": "process",
    }
    job = perform(*step(inputs), tmp_path / "job", desk.commands)
    assert (job.code, job.outputs["verdict"]) == (0, "passed"), job.log
    assert job.summary.startswith("### benchlock gate: passed")
    assert Path(job.outputs["report"]).read_text() == job.summary
    assert "runs again here" in job.log


@pytest.mark.image
def test_the_recipe_fails_a_model_that_is_worse(desk: Desk, tmp_path: Path) -> None:
    """The model answers inverted pictures; whatever its times are, its accuracy is a regression."""
    recipe = re.search(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert recipe is not None
    desk_files = {"model.yaml": "worse.yaml", "request.yaml": "worse.request.yaml", "main.lock": "good.lock"}
    folder = tmp_path / "work"
    folder.mkdir()
    for name, source in desk_files.items():
        (folder / name).write_bytes((desk.folder / source).read_bytes())
    script = recipe[1].replace("benchlock gate ", "benchlock gate --rounds 3 ")  # of 6: no round makes the model better
    job = perform(script, {}, tmp_path / "job", desk.commands, folder_of_run=str(folder))
    assert job.code == 1, job.log
    assert job.log.count("worse than main") == 1
    report = (folder / "gate.md").read_text()
    assert report.startswith("### benchlock gate: regression")
    assert re.search(
        r"`top1` \| 0\.9972 \| 0\.\d+ \| -\d+\.\d+% \| exact \| 1\.00% \| 100% \| \*\*regression\*\*", report
    )
    assert "false-positive rate: at most 5%" in report


@pytest.mark.image
def test_the_document_of_a_gate_has_its_rates(desk: Desk) -> None:
    words = ("--baseline", desk.baseline, "--candidate", desk.worse, "--margin", "top1=1%")
    answer = desk.commands.call("gate", *words)
    assert answer.code == 1, answer
    assert answer.document["verdict"] == "regression"
    assert (answer.document["tests"], answer.document["false_positive_rate"]) == (0, None)
    (metric,) = answer.document["metrics"]
    assert (metric["metric"], metric["is_exact"], metric["answer"]) == ("top1", False, "regression")
    assert len(answer.document["comparison"]["runs"]) == 2


@pytest.mark.image
@pytest.mark.parametrize("export_format", ["json", "csv", "markdown", "model-card", "badge"])
def test_a_run_is_exported(desk: Desk, run: dict[str, Any], export_format: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    words = ["export", run["run"], "--format", export_format, "--metric", "top1"]
    done = desk.commands.finished(*words, "-o", path)
    assert done.returncode == 0, done.stderr
    assert "1 metric of run/" in done.stderr
    text = path.read_text()
    assert run["run"] in text
    assert run["start"]["lock"] in text
    assert desk.commands.finished(*words).stdout == text


@pytest.mark.image
def test_a_run_with_damaged_evidence_is_not_exported(desk: Desk, run: dict[str, Any]) -> None:
    """Last: it damages a blob."""
    digest = run["end"]["blobs"]["predictions"]["digest"].removeprefix("sha256:")
    blob = next(desk.commands.registry.joinpath("blobs").rglob(digest))
    content = blob.read_bytes()
    blob.unlink()  # a link to a file of another registry
    blob.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for export_format in ("json", "badge", "model-card", "mlflow"):
        error = desk.commands.error(4, "export", run["run"], "--format", export_format, "--metric", "top1")
        assert "damaged" in error["message"]
