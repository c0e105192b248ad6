"""`benchlock golden`, of the real ONNX Runtime: made, checked, published, held against each run; faults refused."""

import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.acceptance.real_cases import CASES, dataset_manifest
from tests.support.api.commands import Commands
from tests.support.registry.digits import DIGITS, locked, model, request, written
from tests.support.system.remains import remains

pytestmark = [pytest.mark.engine, pytest.mark.image]

TOLERANCE = {"absolute": 0.001, "relative": 0.0001}
SCALED = {"scale": {"factor": 1 / 255}}


def with_golden(document: dict[str, Any], *steps: dict[str, Any]) -> dict[str, Any]:
    """The manifest with a golden file beside it and tolerances; ``steps`` follow its cast."""
    changed = deepcopy(document)
    changed["files"].append({"path": "golden.npz", "role": "golden", "source": "./golden.npz"})
    for port in (*changed["inputs"], *changed["outputs"]):
        port["tolerance"] = TOLERANCE
    found = changed["inputs"][0]["steps"]
    place = next(index for index, step in enumerate(found) if "cast" in step) + 1
    found[place:place] = steps
    return changed


@pytest.fixture(scope="module")
def folder(registry: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with golden tensors of the digits model, made of the published digits."""
    folder = tmp_path_factory.mktemp("golden")
    registry.done("publish", DIGITS / "dataset.yaml")
    manifest = written(folder / "plain.yaml", model("digits-golden"))
    made = registry.done("golden", manifest, "--from", "digits", "--split", "test")
    assert (made["golden"], made["samples"], made["listed"]) == (str(folder / "golden.npz"), 4, False)
    assert made["answered"]["n"] == 64
    assert made["answered"]["right"] > 56
    assert set(made["tolerances"]) == {"inputs[0]", "outputs[0]"}
    assert made["tolerances"]["inputs[0]"] == {"absolute": 0.0001, "relative": 0.0}
    written(folder / "model.yaml", with_golden(model("digits-golden")))
    return folder


def test_what_was_made_is_what_the_format_says(registry: Commands, folder: Path) -> None:
    with np.load(folder / "golden.npz") as arrays:
        shapes = {name: (str(arrays[name].dtype), arrays[name].shape) for name in arrays.files}
    assert shapes == {
        **{f"raw/input/{number}": ("uint8", (8, 8)) for number in range(4)},
        "input/input": ("float32", (4, 1, 8, 8)),
        "output/scores": ("float32", (4, 10)),
    }
    assert remains(registry) == []


def test_what_was_made_passes_in_a_process(registry: Commands, folder: Path) -> None:
    """In a container each run holds its answers against it."""
    found = registry.done("golden", folder / "model.yaml", "--check", "--isolation", "process")
    assert (found["ok"], found["samples"]) == (True, 4)
    assert found["inputs"]["input"]["largest"] == 0.0
    assert found["outputs"]["scores"]["largest"] < 0.001


def test_a_manifest_that_scales_otherwise_is_caught_before_anything_runs(registry: Commands, folder: Path) -> None:
    manifest = written(folder / "scaled.yaml", with_golden(model("scaled"), SCALED))
    error = registry.error(1, "golden", manifest)
    assert error["message"].startswith("golden: input input deviates in 4 of 4 golden samples, most in sample ")
    assert "times 0.00392157: check scale" in error["message"]
    assert registry.done("list", "model")["artifacts"] == []
    assert remains(registry) == []


def test_a_run_is_refused_and_recorded_with_its_class_and_the_next_is_unharmed(
    registry: Commands, folder: Path
) -> None:
    registry.done(
        "publish", folder / "model.yaml", written(folder / "scaled.yaml", with_golden(model("scaled"), SCALED))
    )
    answer = registry.call("run", locked(registry, folder, request("scaled")))
    assert (answer.code, answer.document["end"]["outcome"], answer.document["end"]["metrics"]) == (1, "failed", [])
    assert answer.document["end"]["failure_class"] == "golden"
    assert "input input deviates in 4 of 4" in answer.document["end"]["failure_message"]
    run = registry.done("run", locked(registry, folder, request("digits-golden")))
    assert run["end"]["outcome"] == "done"
    golden = registry.done("show", run["run"])["end"]["details"]["golden"]
    assert (golden["samples"], golden["inputs"]["input"]["largest"]) == (4, 0.0)
    assert remains(registry) == []


def test_golden_tensors_of_given_files(registry: Commands, tmp_path: Path) -> None:
    from PIL import Image  # noqa: PLC0415 - this test alone

    for number in range(2):
        values = np.full((8, 8), 40 * number, np.uint8)
        Image.fromarray(values).save(tmp_path / f"{number}.png")
    manifest = written(tmp_path / "model.yaml", with_golden(model("filed")))
    made = registry.done("golden", manifest, "--sample", tmp_path / "0.png", "--sample", tmp_path / "1.png")
    assert (made["samples"], made["answered"], made["tolerances"]) == (2, None, {})
    with np.load(tmp_path / "golden.npz") as arrays:
        assert arrays["raw/input/1"].tobytes() == (tmp_path / "1.png").read_bytes()
        assert np.all(arrays["input/input"][1] == 40)
    (tmp_path / "1.png").unlink()
    error = registry.error(2, "golden", manifest, "--sample", tmp_path / "0.png")
    assert "already exists" in error["message"]


@pytest.mark.usefixtures("folder")
def test_golden_tensors_that_a_claim_denies_are_refused(registry: Commands, tmp_path: Path) -> None:
    """They are made of the dataset of the claim, so that no option names one."""
    of = {"name": "digits", "version": "^1.0", "split": "test"}
    claim = {"metric": "top1", "value": 0.9, "tolerance": 0.05, "dataset": of}
    document = model("claimed") | {"claims": [claim]}
    document["inputs"][0]["steps"].insert(2, {"scale": {"factor": -1}})
    error = registry.error(1, "golden", written(tmp_path / "claimed.yaml", document))
    assert "samples predicted correctly, but the claim states top1 of at least 0.85" in error["message"]
    assert not (tmp_path / "golden.npz").exists()


def test_what_cannot_be_asked_is_told(registry: Commands, folder: Path, tmp_path: Path) -> None:
    plain = written(tmp_path / "plain.yaml", model("plain"))
    error = registry.error(2, "golden", plain)
    assert (error["message"], "--from DATASET" in error["next"]) == (f"{plain} lists no golden file", True)
    assert "(published: digits" in error["next"]
    listed = written(tmp_path / "listed.yaml", with_golden(model("plain")))
    assert registry.error(2, "golden", listed)["message"] == "the golden file ./golden.npz does not exist"
    assert "only models have" in registry.error(2, "golden", DIGITS / "dataset.yaml")["message"]
    assert registry.error(2, "golden", plain, "--from", "digits", "--split", "tset")["next"].startswith("choose one of")
    assert registry.error(1, "golden", plain, "--from", "digits", "--split", "test", "--index", "9999")["message"] == (
        "load: dataset: no sample 9999; it has 359"
    )
    assert registry.error(2, "golden", plain, "--from", "nothing")["code"] == "unknown-name"
    assert registry.error(2, "golden", folder / "model.yaml", "--from", "digits", "--check")["next"]


@pytest.fixture(scope="module")
def resnet(cases: Path, registry: Commands, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with ResNet-8 and its manifest; its pictures are published."""
    folder = tmp_path_factory.mktemp("resnet8")
    shutil.copytree(cases / "data" / "cifar10_jpeg", folder / "cifar10_jpeg")
    case = next(case for case in CASES if case.name == "resnet8-onnx-nhwc")
    shutil.copy(cases / "models" / case.file, folder / case.file.split("/")[-1])
    registry.done("publish", written(folder / "data.yaml", dataset_manifest("cifar10_jpeg")))
    return folder, case.manifest()


def test_resnet8_with_a_division_by_255_is_caught(resnet: tuple[Path, dict[str, Any]], registry: Commands) -> None:
    """By its answers where it has no golden tensors, of which none are written; by those of the right manifest."""
    folder, document = resnet
    wrong = with_golden(document, SCALED)
    manifest = written(folder / "wrong.yaml", wrong)
    error = registry.error(1, "golden", manifest, "--from", "cifar10-jpeg")
    assert "no better than chance for 10 classes; nothing was written" in error["message"], error
    assert not (folder / "golden.npz").exists()
    right = written(folder / "right.yaml", with_golden(document))
    made = registry.done("golden", right, "--from", "cifar10-jpeg")
    assert made["answered"]["right"] > 40
    error = registry.error(1, "golden", manifest)
    assert "input input_1 deviates in 4 of 4 golden samples" in error["message"]
    assert "found is expected times 0.00392157: check scale" in error["message"]
