"""From a model and a dataset in a folder to metrics, in one command: image built, published, locked and run."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.api.commands import Commands, copied, link_environments
from tests.support.api.serving import at, service, share_environments
from tests.support.api.warm import Warm
from tests.support.registry.digits import DIGITS

SAMPLES, RIGHT = 359, 358
ANSWERS = """\
model.task: image-classification
model.framework.version: ">=1.20 <2"
model.inputs[0].type: image
model.inputs[0].layout: NCHW
model.inputs[0].steps:
  - decode: {color: L, exif: ignore}
  - cast: {dtype: float32}
  - scale: {factor: 0.0625}
  - transpose: {layout: NCHW}
model.outputs[0].type: class-scores
model.outputs[0].label_offset: 0
request.scenario: {name: single_stream, min_queries: 64, min_duration: 100ms, warmup: 4}
"""
WRITTEN = ["digits.onnx.model.yaml", "test-images.idx.dataset.yaml", "digits-on-test-images.yaml"]

pytestmark = pytest.mark.image


@dataclass(frozen=True)
class Evaluated:
    """A folder with a model, a dataset and answers; the command that was run there; and its result."""

    commands: Commands
    folder: Path
    words: tuple[str | Path, ...]
    result: dict[str, Any]


@pytest.fixture(scope="module", params=["process", pytest.param("container", marks=pytest.mark.engine)])
def evaluated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    folder = tmp_path_factory.mktemp(f"eval-{request.param}")
    words, commands = copy_files(folder), Warm(folder / "registry")
    if request.param == "container":
        commands = Warm(folder / "registry", request.getfixturevalue("engine_url"))
        words += ("--base", request.getfixturevalue("base_tarball"))
    else:
        link_environments(request.getfixturevalue("built_once").registry, commands.registry)
    words += ("--isolation", request.param)
    return Evaluated(commands, folder, words, commands.done(*words))


def copy_files(folder: Path) -> tuple[str | Path, ...]:
    """Copy a model, a dataset and answers; return the words that evaluate them."""
    folder.mkdir(exist_ok=True)
    shutil.copy(DIGITS / "models" / "digits.onnx", folder)
    shutil.copytree(DIGITS / "data", folder / "data")
    (folder / "answers.yaml").write_text(ANSWERS)
    paths = (folder / "digits.onnx", folder / "data" / "test-images.idx")
    return ("eval", *paths, "--answers", folder / "answers.yaml", "--yes")


def test_one_command_measures_the_model(evaluated: Evaluated) -> None:
    run = evaluated.result
    metrics = {metric["name"]: metric for metric in run["end"]["metrics"]}
    assert (run["end"]["outcome"], run["start"]["isolation"]) == ("done", evaluated.words[-1])
    assert (metrics["top1"]["n"], round(metrics["top1"]["value"] * SAMPLES)) == (SAMPLES, RIGHT)
    assert metrics.keys() == {"top1", "top5", "latency_p50", "latency_p90", "latency_p99", "throughput"}
    assert [Path(path).name for path in run["written"]] == WRITTEN
    kinds = [published["kind"] for published in run["published"] if published["changed"]]
    assert kinds == ["model", "dataset", "image", "framework"]


def test_the_written_request_reproduces_the_lock(evaluated: Evaluated) -> None:
    run, request = evaluated.result, evaluated.folder / "digits-on-test-images.yaml"
    assert run["request"] == str(request)
    fresh = evaluated.commands.done("lock", request, "-o", evaluated.folder / "fresh.lock")
    beside = evaluated.commands.done("lock", request)
    assert fresh["lock"] == beside["lock"] == run["start"]["lock"]
    assert beside["path"] == run["lock_path"]


def test_the_written_manifests_publish_the_same_versions_elsewhere(evaluated: Evaluated, tmp_path: Path) -> None:
    manifests = (evaluated.folder / name for name in WRITTEN[:2])
    published = Warm(tmp_path / "registry").done("publish", *manifests)["published"]
    assert [entry["digest"] for entry in published] == [
        entry["digest"] for entry in evaluated.result["published"] if entry["kind"] in ("model", "dataset")
    ]


def test_a_second_evaluation_uses_everything_again(evaluated: Evaluated) -> None:
    before = {path: path.read_bytes() for path in evaluated.folder.iterdir() if path.suffix in (".yaml", ".lock")}
    again = evaluated.commands.done("eval", *evaluated.words[1:3], "--isolation", evaluated.words[-1])
    assert (again["written"], [entry["changed"] for entry in again["published"]]) == ([], [False, False])
    assert again["start"]["lock"] == evaluated.result["start"]["lock"]
    assert {path: path.read_bytes() for path in before} == before


def test_a_hand_edit_is_kept_and_measured(evaluated: Evaluated, tmp_path: Path) -> None:
    """The next version of the model; the request admits it, and the lock moves to it."""
    shutil.copytree(evaluated.folder, tmp_path / "edited", ignore=shutil.ignore_patterns("registry"))
    manifest = tmp_path / "edited" / WRITTEN[0]
    edited = manifest.read_text().replace("version: 1.0.0", "version: 1.1.0")
    manifest.write_text(edited)
    paths = (tmp_path / "edited" / "digits.onnx", tmp_path / "edited" / "data" / "test-images.idx")
    run = evaluated.commands.done("eval", *paths, "--isolation", evaluated.words[-1])
    assert run["model"]["version"] == "1.1.0"
    assert manifest.read_text() == edited
    request = tmp_path / "edited" / WRITTEN[2]
    request.write_text(request.read_text().replace('version: "^1.0.0"', 'version: "1.0.0"', 1))
    error = evaluated.commands.error(1, "eval", *paths)
    assert "admits model/digits@1.0.0, not model/digits@1.1.0" in error["message"]


def test_changed_content_under_a_published_version_is_refused(evaluated: Evaluated, tmp_path: Path) -> None:
    shutil.copytree(evaluated.folder, tmp_path / "edited", ignore=shutil.ignore_patterns("registry"))
    manifest = tmp_path / "edited" / WRITTEN[0]
    manifest.write_text(manifest.read_text().replace("factor: 0.0625", "factor: 0.125"))
    paths = (tmp_path / "edited" / "digits.onnx", tmp_path / "edited" / "data" / "test-images.idx")
    error = evaluated.commands.error(2, "eval", *paths)
    assert "already published with different content" in error["message"]
    assert error["next"] == f"raise `version` in {manifest}; of another model, change its `name`"


def test_a_server_records_the_evaluation(built_once: Commands, tmp_path: Path) -> None:
    """With its image; the model and the dataset are uploaded."""
    words = copy_files(tmp_path / "model")
    with service(copied(built_once, tmp_path / "registry", "").registry) as served:
        commands = at(served.url, tmp_path)
        share_environments(commands, built_once.registry)
        run = commands.done(*words, "--isolation", "process")
        recorded = commands.done("show", run["start"]["id"])
        again = commands.done(*words[:3], "--isolation", "process")
    metrics = {metric["name"]: metric["value"] for metric in recorded["end"]["metrics"]}
    assert round(metrics["top1"] * SAMPLES) == RIGHT
    assert [entry["kind"] for entry in run["published"]] == ["model", "dataset"]
    assert again["start"]["lock"] == run["start"]["lock"]
