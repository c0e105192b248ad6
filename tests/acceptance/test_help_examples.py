"""The example in the help of each command works: run with names that exist here, and with fewer or shorter runs."""

import re
import shlex
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.house.reference_pages import find_commands, split_help
from tests.support.api.commands import BENCHLOCK, Commands, copied
from tests.support.api.warm import Printed
from tests.support.registry.digits import GRAPH, model, request, written
from tests.support.registry.tiny import tree_of_digits
from tests.support.servers.registry_server import free_port

pytestmark = pytest.mark.image

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {name: split_help(command)[1] for _, name, command in find_commands()}
ADDED = {
    "worker": "--processes --once",
    "image build": "--no-layers",
    "run": "--isolation process",
    "eval": "--set request.scenario.min_duration=100ms",
}
"""Options that an example does without where an engine, a network and time are at hand."""
FEWER = {"run": ("--repeat 20", "--repeat 6"), "gate": ("latency_p50=5%", "top1=5%")}
"""What limits an example to fewer runs than printed; ``test_gate.py`` has a gate with a margin of a time."""
ELSEWHERE = {"compare": ROOT / "docs" / "tutorials" / "compare-frameworks.md"}
"""The tutorial that has the example of a command with other locks; ``test_tutorials.py`` runs it."""
REFUSALS = {"doctor": {1}, "run": {1}, "promote": {2}}
"""Exit codes besides 0 of commands that may find something missing here, or times too noisy to decide.

``promote`` refuses a run that trained nothing; ``test_training.py`` promotes one that did.
"""
NO_CLUSTER = "the nodes of a cluster reach only a registry on a server"
"""The refusal of the commands of clusters here; ``test_ray.py`` and ``test_kubernetes.py`` run them on clusters."""
NEW = {"db create", "restore"}
"""Commands that create the registry."""
SERVER = {"serve"}
TRACED = {"inspect", "trace export"}
"""Commands whose run has a trace."""
TIMED = {"run"}
"""Commands whose lock has no quality: a run takes less without its evaluation."""


@dataclass(frozen=True)
class Desk:
    """A registry and files with the names in the examples."""

    commands: Commands
    files: Path
    backup: Path
    names: dict[str, str]


@pytest.fixture(scope="module")
def desk(built_once: Commands, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    folder = tmp_path_factory.mktemp("examples")
    files = folder / "files"
    (files / "models" / "digits").mkdir(parents=True)
    shutil.copy(GRAPH, files / "digits.onnx")
    shutil.copy(GRAPH, files / "models" / "digits" / "digits.onnx")
    commands = copied(built_once, folder / "registry", "")
    manifest = written(files / "models" / "digits" / "manifest.yaml", model("digits"))
    dataset = written(folder / "dataset.yaml", tree_of_digits("digits"))
    commands.done("publish", dataset, manifest, written(folder / "new.yaml", model("digits-new")))
    written(files / "digits.yaml", request("digits"))
    written(files / "new.yaml", request("digits-new"))
    written(files / "traced.yaml", request("digits") | {"trace": "framework"})
    written(files / "timed.yaml", request("digits") | {"metrics": ["latency"]})
    sources = {"traced": "traced", "timed": "timed", "new": "new", "branch": "new"}
    sources |= dict.fromkeys(("digits", "old", "main"), "digits")
    for target, source in sources.items():
        commands.done("lock", files / f"{source}.yaml", "-o", files / f"{target}.lock")
    run, traced = (
        commands.done("run", files / f"{name}.lock", "--isolation", "process")["run"] for name in ("digits", "traced")
    )
    commands.done("bundle", "create", run, "-o", files / "digits.bundle")
    commands.done("worker", "--machine", "m1", "--processes", "--until-idle")
    job = commands.done("run", "--submit", files / "digits.lock")["job"]["job"]
    token = commands.done("token", "create", "worker", "--scope", "run")["token"]
    commands.done("backup", folder / "backup")
    shared = {key: value for key, value in request("digits").items() if key not in ("schema", "kind", "name", "model")}
    axes = {"model": {name: request(name)["model"] for name in ("digits", "digits-new")}}
    matrix = {"schema": 1, "kind": "matrix", "name": "digits", "request": shared, "axes": axes, "seed": 7}
    commands.done("matrix", "submit", written(files / "digits-matrix.yaml", matrix))
    names = {"run": run, "traced run": traced, "job": job, "token": token["id"]}
    return Desk(commands, files, folder / "backup", names)


def test_every_command_has_an_example() -> None:
    assert [name for name, example in EXAMPLES.items() if not example.startswith("benchlock ")] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_command_works(desk: Desk, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in ELSEWHERE:
        pattern = re.sub(r"\w+\\\.lock", r"\\S+\\.lock", re.escape(EXAMPLES[name]))
        assert re.search(f"^{pattern}", ELSEWHERE[name].read_text(), re.MULTILINE), pattern
        return
    files, words = tmp_path / "files", shlex.split(EXAMPLES[name])
    shutil.copytree(desk.files, files)
    if "-o" in words and (target := files / words[words.index("-o") + 1]).is_file():
        target.unlink()
    if name == "import mlmodelscope":
        shutil.rmtree(files / "models")
        shutil.copytree(ROOT / "tests" / "cases" / "mlmodelscope", files / "models")
    if name in TIMED:
        shutil.copy(files / "timed.lock", files / "digits.lock")
    commands = copied(desk.commands, tmp_path / "registry", "")
    places = {
        "/srv/registry": str(tmp_path / "new" if name in NEW else commands.registry),
        "/backup/registry": str(desk.backup if name == "restore" else tmp_path / "backup"),
        "https://bench.example": str(commands.registry),
        "8080": str(free_port()),
    }
    kind = "traced " if name in TRACED else ""
    line = re.sub(r"(run|job|token)/[0-9a-z]{26}", lambda match: desk.names[kind + match[1]], EXAMPLES[name])
    for printed, place in (*places.items(), FEWER.get(name, ("", ""))):
        line = line.replace(printed, place)
    assert name not in FEWER or FEWER[name][1] in line
    line = line.replace("benchlock", str(BENCHLOCK), 1) + f" {ADDED.get(name, '')}"
    variables = {"HOME": str(tmp_path), "BENCHLOCK_HOST_LOCK": str(tmp_path / "lock")}
    example_commands = Printed(commands.registry, variables=variables)
    if name in SERVER:
        serve(line, example_commands.environment(), places["8080"])
        return
    monkeypatch.chdir(files)
    if ">" in line:  # by a shell
        environment = example_commands.environment()
        done = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, check=False)
    else:
        done = example_commands.finished(*shlex.split(line)[1:])
    if name.startswith("cluster "):
        assert NO_CLUSTER in done.stderr, done.stderr
        return
    assert done.returncode in {0} | REFUSALS.get(name, set()), (line, done.stdout, done.stderr)
    assert done.stdout or done.stderr or ">" in line


def serve(line: str, environment: dict[str, str], port: str) -> None:
    """Run a server until it is ready, then end it."""
    process = subprocess.Popen(shlex.split(line), env=environment, stderr=subprocess.PIPE, text=True)
    try:
        with httpx.Client() as client:
            for _ in range(300):
                try:
                    answer = client.get(f"http://127.0.0.1:{port}/v1/ready")
                except httpx.TransportError:
                    time.sleep(0.1)
                else:
                    assert answer.json()["status"] == "ok"
                    break
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
