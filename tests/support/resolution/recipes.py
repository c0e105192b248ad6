"""A recipe with the parts of its lock, and requests that train it."""

from collections.abc import Mapping
from typing import Any, cast

from benchlock.registry.lock.lock_feasibility import ChosenRecipe
from benchlock.registry.manifests import Dataset, Framework, Image, Recipe
from benchlock.registry.requests.evaluation_request import Request
from tests.support.resolution.locks import DATASET, FILES, FRAMEWORK, IMAGE, Shelf, published, request

RECIPE = """
schema: 1
kind: recipe
name: cnn
version: {version}
license: Apache-2.0
task: image-classification
framework: {{name: pytorch, version: "{needs}"}}
network: {{file: network.py, function: build}}
loss: cross-entropy
optimizer: {{name: adam, lr: 0.001}}
batch: 2
sampler: {{kind: shuffle, last: drop}}
evaluate: {{every: 1, batch: 2}}
inputs:
  - {{name: x, type: image, dtype: float32, shape: [null, 1, 8, 8], layout: NCHW,
     steps: [decode: {{color: L, exif: ignore}}, cast: {{dtype: float32}}, transpose: {{layout: NCHW}}]}}
outputs: [{{name: scores, type: class-scores, dtype: float32, shape: [null, 10], label_offset: 0}}]
mutable: [optimizer.lr, batch, optimizer.momentum, evaluate.every]
files: [{{path: network.py, role: code, source: ./network.py}}]
"""
REQUEST = """
schema: 1
kind: evaluation
level: training
name: train
recipe: {name: cnn, version: "^1.0"}
dataset: {name: digits, version: "^1.0", split: train}
framework: {name: pytorch, version: ">=1.20 <2"}
target: {metric: top1, split: test, value: 0.9}
hardware: {os: linux, arch: amd64, device: cpu}
limits: {time: 10m, memory: 2GiB, cpus: 2, processes: 256}
scenario: {name: time_to_quality, repeats: 3, max: {epochs: 5}, deterministic: true}
metrics: [epochs_to_quality, final_quality]
reproduce: bits
seed: 4294967295
"""
DISTRIBUTED = """
schema: 1
kind: evaluation
level: distributed
name: train
recipe: {name: cnn, version: "^1.0"}
dataset: {name: digits, version: "^1.0", split: train}
framework: {name: pytorch, version: ">=1.20 <2"}
distribution: {processes: 2, threads: 1}
hardware: {os: linux, arch: amd64, device: cpu}
limits: {time: 10m, memory: 2GiB, cpus: 2, processes: 256}
scenario: {name: steps, steps: 4, warmup: 1, deterministic: true}
metrics: [steps_per_second, communication, communication_logical, speedup, efficiency, loss_difference]
seed: 4294967295
"""
CODE = {"network.py": b"def build(weights): ..."}
SPLIT = "  test: {{images: images.idx, labels: labels.idx, samples: 2}}\n"


def ask(**replaced: str) -> Request:
    """A request that trains the recipe, with these keys replaced."""
    return request(REQUEST, **replaced)


def ask_distributed(**replaced: str) -> Request:
    """A request that trains the recipe in two processes, with these keys replaced."""
    return request(DISTRIBUTED, **replaced)


def recipes(needs: str = ">=1 <2", predictor: str = "pytorch", replaced: Mapping[str, str] | None = None) -> Shelf:
    """The shelf with a recipe in place of the model; its framework has the predictor that can train."""
    recipe = RECIPE
    for old, new in (replaced or {}).items():
        assert old in recipe
        recipe = recipe.replace(old, new)
    parts = (
        published(recipe, CODE, version="1.0.0", needs=needs),
        published(DATASET.replace(SPLIT, SPLIT + SPLIT.replace("test", "train")), FILES["dataset"], version="1.0.0"),
        published(
            FRAMEWORK.replace("name: onnxruntime", "name: pytorch").replace(
                "predictor: onnxruntime", f"predictor: {predictor}"
            ),
            {},
            version="1.31.1",
        ),
        published(IMAGE.replace("framework: onnxruntime", "framework: pytorch"), FILES["image"], version="1.0.0"),
    )
    for part, kind in zip(parts, (Recipe, Dataset, Framework, Image), strict=True):
        assert isinstance(part, kind)
    return Shelf(cast("Any", ChosenRecipe(*cast("Any", parts))), {**FILES, "recipe": CODE}, {})
