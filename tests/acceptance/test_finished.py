"""Images that others made: named by reference, locked by their layers, pulled through the engine, run and run again."""

import json
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.images.wheels import host_target, running_python
from tests.support.api.commands import Commands
from tests.support.api.warm import Warm
from tests.support.artifacts.pushing import push_image
from tests.support.registry import tiny
from tests.support.registry.digits import locked, request, written
from tests.support.servers.registry_server import RegistryServer, serving

pytestmark = [pytest.mark.engine, pytest.mark.image]
ARCH = host_target().arch
OTHER = "arm64" if ARCH == "amd64" else "amd64"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with serving(tmp_path_factory.mktemp("images-of-others")) as running:
        yield running


@pytest.fixture(scope="module")
def references(small_images: Commands, server: RegistryServer) -> dict[str, str]:
    """Images by name: ``whole`` has all that the harness needs, ``bare`` has Python alone, ``empty`` nothing."""
    store = LocalStore(small_images.registry / "blobs")
    platform = small_images.done("show", "image/onnxruntime-cpu")["manifest"]["platforms"][0]
    config = json.loads(store.path(platform["config"]).read_bytes())
    config["config"]["Labels"] = {"made-by": "others"}  # an id of its own: the engine cannot have it yet

    def push(name: str, layers: list[Digest]) -> str:
        config["rootfs"]["diff_ids"] = layers
        text = json.dumps(config, indent=1).encode()
        return push_image(server.repository(name), text, [store.path(layer) for layer in layers])

    empty = store.put_file(written_bytes(small_images.registry / "empty.tar", tiny.LAYER)).digest
    return {
        "whole": push("whole", platform["layers"]),
        "bare": push("bare", platform["layers"][:1]),
        "empty": push("empty", [empty]),
    }


def written_bytes(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.fixture(scope="module")
def commands(small_images: Commands, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """A registry with the digits, the framework, and no image of ours."""
    folder = tmp_path_factory.mktemp("finished")
    made = Warm(folder / "registry", small_images.engine)
    framework, _, dataset, model = tiny.author(folder / "manifests")
    made.done("publish", framework, dataset, model)
    return made


def manifest(reference: str, **changes: str) -> dict[str, Any]:
    platform = {"os": "linux", "arch": ARCH, "device": "cpu", "python": running_python(), "reference": reference}
    return {
        "schema": 1,
        "kind": "image",
        "name": f"others/{reference.partition('@')[0].rpartition('/')[2]}",
        "version": "1.0.0",
        "license": "various",
        "provides": {"framework": "onnxruntime", "version": "1.31.1"},
        "platforms": [platform | changes],
    }


def lock_of(commands: Commands, folder: Path, reference: str, **changes: str) -> Path:
    image = manifest(reference, **changes)
    commands.done("publish", written(folder / "image.yaml", image))
    asked = request("digits-onnx") | {"image": {"name": image["name"], "version": "*"}, "hardware": {"device": "cpu"}}
    return locked(commands, folder, asked)


def test_it_is_pulled_run_and_run_again(
    commands: Commands, references: dict[str, str], tmp_path: Path, small_images: Commands
) -> None:
    lock = lock_of(commands, tmp_path, references["whole"])
    (platform,) = commands.done("show", "image/others/whole")["manifest"]["platforms"]
    assert platform["reference"] == references["whole"]
    assert 'schema = "1.1"' in lock.read_text()
    commands.done("lock", tmp_path / "digits-onnx.request.yaml", "-o", lock, "--check")
    commands.done("verify", lock)
    run = commands.done("run", lock)
    assert (run["end"]["outcome"], run["start"]["isolation"]) == ("done", "container"), run
    top1 = next(metric for metric in run["end"]["metrics"] if metric["name"] == "top1")
    assert (top1["n"], top1["value"] > 0.9) == (359, True)
    inspected = ["docker", "--host", small_images.engine, "image", "inspect", references["whole"]]
    (found,) = json.loads(subprocess.run(inspected, check=True, capture_output=True).stdout)
    assert found["RootFS"]["Layers"] == [*map(str, _locked_platform(lock)["diff_ids"])]
    commands.done("gc")
    verdict = commands.done("rerun", lock)
    assert (verdict["verdict"], verdict["predictions"]) == ("reproduced", "bit-equal")


def _locked_platform(lock: Path) -> dict[str, Any]:
    (platform,) = tomllib.loads(lock.read_text())["image"]["platforms"]
    assert isinstance(platform, dict)
    return platform


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("bare", 1, "missing packages that the harness imports: numpy, PIL, safetensors, mlperf_loadgen"),
        ("empty", 5, f"the image has no python{running_python()} on its PATH"),
    ],
)
def test_what_it_lacks_is_said(
    commands: Commands, references: dict[str, str], tmp_path: Path, name: str, code: int, says: str
) -> None:
    answer = commands.call("run", lock_of(commands, tmp_path, references[name]))
    assert answer.code == code, answer
    message = answer.document["end"]["failure_message"] if code == 1 else answer.document["error"]["message"]
    assert says in message


def test_it_never_runs_as_a_process(commands: Commands, references: dict[str, str], tmp_path: Path) -> None:
    lock = lock_of(commands, tmp_path, references["bare"])
    error = commands.error(5, "run", lock, "--isolation", "process")
    assert "runs only in a container" in error["message"]
    error = replace(commands, engine="").error(5, "run", lock)
    assert "no container engine responds" in error["message"]


def test_one_of_another_architecture_is_refused_at_publish(
    commands: Commands, references: dict[str, str], tmp_path: Path
) -> None:
    error = commands.error(2, "publish", written(tmp_path / "x.yaml", manifest(references["bare"], arch=OTHER)))
    assert f"is built for {ARCH}, not {OTHER}" in error["message"]
    assert error["where"].startswith("platforms[0].arch")


def test_without_its_registry_the_next_step_is_said(commands: Commands, tmp_path: Path) -> None:
    """Published with a warning, not locked; and a lock whose image is nowhere any more is not run."""
    folder = tmp_path / "registry"
    folder.mkdir()
    with serving(folder) as running:
        config = b'{"os":"linux","architecture":"%s","rootfs":{"type":"layers","diff_ids":[]}}' % ARCH.encode()
        gone = push_image(running.repository("gone"), config, [])
        lock = lock_of(commands, tmp_path, gone)
    error = commands.error(5, "run", lock)
    assert "while pulling" in error["message"]
    assert "docker pull" in error["next"]
    never = gone.replace("/gone@", "/never@")[:-1] + ("0" if gone[-1] != "0" else "1")
    answer = commands.call("publish", written(tmp_path / "never.yaml", manifest(never)))
    assert answer.code == 0
    assert f"warning: {never} could not be looked up" in answer.stderr
    asked = request("digits-onnx") | {"image": {"name": "others/never", "version": "*"}}
    error = commands.error(5, "lock", written(tmp_path / "never.request.yaml", asked))
    assert "cannot be reached" in error["message"]
