"""Real models on real data, in containers: the known number of right answers, every known decision, and reruns."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.acceptance.real_cases import CASES, DATASETS, NETWORKS, Case, dataset_manifest
from tests.support.api.commands import Commands

pytestmark = [pytest.mark.engine, pytest.mark.image]


@pytest.fixture(scope="module")
def published(cases: Path, images: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every manifest beside its files, all published."""
    folder = tmp_path_factory.mktemp("real")
    for name in DATASETS:
        shutil.copytree(cases / "data" / name, folder / name)
        (folder / f"{name}.yaml").write_text(json.dumps(dataset_manifest(name)))
    for path in NETWORKS.glob("*.py"):
        shutil.copy(path, folder / path.name)
    for case in CASES:
        source, target = cases / "models" / case.file, folder / case.file.split("/")[-1]
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)
        (folder / f"{case.name}.yaml").write_text(json.dumps(case.manifest()))
        (folder / f"{case.name}.request.yaml").write_text(json.dumps(case.request()))
    manifests = [folder / f"{name}.yaml" for name in (*DATASETS, *(case.name for case in CASES))]
    images.done("publish", *manifests)
    return folder


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def ran(request: pytest.FixtureRequest, published: Path, images: Commands) -> tuple[Case, Path, dict[str, Any]]:
    """Each case, locked and run in a container."""
    case: Case = request.param
    lock = published / f"{case.name}.lock"
    images.done("lock", published / f"{case.name}.request.yaml", "-o", lock)
    return case, lock, images.done("run", lock, "--isolation", "container")


def test_as_many_answers_are_right_as_are_known_to_be(ran: tuple[Case, Path, dict[str, Any]]) -> None:
    case, _, run = ran
    found = {metric["name"]: (round(metric["value"] * case.samples), metric["n"]) for metric in run["end"]["metrics"]}
    assert (run["end"]["outcome"], run["start"]["isolation"]) == ("done", "container")
    top1, top5 = case.correct
    assert (found["top1"], found["top5"]) == ((top1, case.samples), (top5, case.samples))


def test_every_decision_is_the_known_one(
    ran: tuple[Case, Path, dict[str, Any]], images: Commands, cases: Path, tmp_path: Path
) -> None:
    case, _, run = ran
    images.done("get", run["run"], "-o", tmp_path / "out")
    tensors = load_file(tmp_path / "out" / "predictions.safetensors")
    output = case.ports["outputs"][0]
    decisions = np.argmax(tensors[output["name"]].reshape(case.samples, -1), axis=1) - output["label_offset"]
    expected = np.load(cases / "expected" / case.expected)["argmax"]
    assert np.array_equal(decisions, expected)


def test_a_rerun_is_bit_equal(ran: tuple[Case, Path, dict[str, Any]], images: Commands) -> None:
    _, lock, run = ran
    verdict = images.done("rerun", lock, "--against", run["run"])
    assert (verdict["verdict"], verdict["predictions"]) == ("reproduced", "bit-equal"), verdict
