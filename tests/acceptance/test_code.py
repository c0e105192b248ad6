"""Models that carry code: a container runs it, a process only if the user allows it, and never what is unsafe."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from examples.digits.idx import read_idx
from tests.support.api.commands import Commands
from tests.support.registry.digits import DIGITS, locked, model, request, written

pytestmark = [pytest.mark.engine, pytest.mark.image]

NETWORK = """
import torch
from shapes import CLASSES

def build(weights):
    linear = torch.nn.Linear(64, CLASSES, bias=False)
    linear.load_state_dict(weights)
    return torch.nn.Sequential(torch.nn.Flatten(), linear)
"""


@pytest.fixture(scope="module")
def folder(images: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of one matrix around which code builds a network, one of which says that it is unsafe; published."""
    folder = tmp_path_factory.mktemp("code")
    weights = np.random.default_rng(7).normal(size=(10, 64)).astype(np.float32)
    save_file({"weight": weights}, folder / "weights.safetensors")
    (folder / "network.py").write_text(NETWORK)
    (folder / "shapes.py").write_text("CLASSES = 10\n")
    files = [("weights.safetensors", "weights"), ("network.py", "code"), ("shapes.py", "code")]
    coded = model("coded") | {
        "framework": {"name": "pytorch", "version": "*"},
        "format": "safetensors",
        "code": {"file": "network.py", "function": "build"},
        "files": [{"path": path, "role": role, "source": f"./{path}"} for path, role in files],
    }
    manifests = [
        written(folder / "coded.yaml", coded),
        written(folder / "unsafe.yaml", coded | {"name": "unsafe", "unsafe": True}),
    ]
    images.done("publish", DIGITS / "dataset.yaml", *manifests)
    return folder


@pytest.fixture(scope="module")
def alone(images: Commands) -> Commands:
    """The same registry on a machine without an engine."""
    return replace(images, engine="")


def accuracy(name: str) -> dict[str, Any]:
    return request(name) | {"scenario": {"name": "accuracy", "batch": 8, "warmup": 0}, "metrics": ["top1"]}


def test_a_container_runs_the_code(images: Commands, folder: Path, tmp_path: Path) -> None:
    """``test_operators.py`` has code that a process may run, of a framework whose environment is quickly made."""
    lock = locked(images, folder, accuracy("coded"))
    run = images.done("run", lock)
    assert run["start"]["isolation"] == "container"
    matrix = load_file(folder / "weights.safetensors")["weight"]
    pictures = read_idx(DIGITS / "data" / "test-images.idx").reshape(-1, 64).astype(np.float32)
    images.done("get", run["run"], "-o", tmp_path / "run")
    scores = load_file(tmp_path / "run" / "predictions.safetensors")["scores"]
    np.testing.assert_allclose(scores, pictures @ matrix.T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("words", [(), ("--isolation", "process")])
def test_without_a_container_code_is_refused_before_anything_is_read(
    images: Commands, alone: Commands, folder: Path, words: tuple[str, ...]
) -> None:
    lock = locked(images, folder, accuracy("coded"))
    before = len(images.done("runs")["runs"])
    error = alone.error(5, "run", lock, *words)
    assert error["message"] == "the model contains code (code), which runs only in a container"
    assert "--allow-code" in error["next"]
    assert len(images.done("runs")["runs"]) == before


def test_what_is_unsafe_never_runs_as_a_process(images: Commands, alone: Commands, folder: Path) -> None:
    lock = locked(images, folder, accuracy("unsafe"))
    error = alone.error(5, "run", lock, "--allow-code")
    assert "it runs only in a container" in error["message"]
    assert images.done("run", lock, "--isolation", "container")["end"]["outcome"] == "done"
