"""Labels that have no score, by their range and the offset of the model."""

import pytest

from benchlock.registry.manifests import Dataset, Model
from benchlock.registry.manifests.authored_manifests import examine
from benchlock.registry.scaffold.label_range import find_excess_label
from tests.support.registry.idx_files import idx_file, idx_manifest

MODEL = """\
schema: 1
kind: model
name: net
version: 1.0.0
license: MIT
task: image-classification
framework: {name: onnxruntime, version: ">=1.20 <2"}
format: onnx
inputs: [{name: x, type: tensor, dtype: float32, shape: [null, 4]}]
outputs: [{name: y, type: class-scores, dtype: float32, shape: [null, 3], label_offset: OFFSET}]
files: [{path: tiny.onnx, role: graph, source: ./tiny.onnx}]
"""
IDX = idx_manifest(3)
INDEX = """\
schema: 1
kind: dataset
name: photos
version: 1.0.0
license: MIT
format: image-index
splits: {test: {index: test.csv, samples: 2}}
labels: labels.txt
files:
  - {path: photos/, source: ./photos}
  - {path: test.csv, source: ./test.csv}
  - {path: labels.txt, source: ./labels.txt}
"""


def find(offset: int, dataset_text: str, files: dict[str, bytes]) -> tuple[str, str, str] | None:
    model = examine(MODEL.replace("OFFSET", str(offset)), "model").manifest
    dataset = examine(dataset_text, "dataset").manifest
    assert isinstance(model, Model)
    assert isinstance(dataset, Dataset)
    return find_excess_label(model, dataset, dataset.splits["test"], files.get)


def idx_of(*labels: int) -> dict[str, bytes]:
    return {"labels.idx": idx_file(len(labels), content=bytes(labels))}


@pytest.mark.parametrize(
    ("offset", "labels", "what", "step"),
    [
        (1, (0, 1, 2), "label 2 of the dataset is class index 3, but the output has 3", "write label_offset: 0"),
        (-1, (0, 1), "label 0 of the dataset is class index -1", "write a label_offset from 0 to 1"),
        (0, (1, 2, 3), "label 3 of the dataset is class index 3", "write label_offset: -1"),
        (0, (0, 3), "label 3 of the dataset is class index 3", "choose a model of these classes"),
    ],
)
def test_a_label_without_a_score_is_found(offset: int, labels: tuple[int, ...], what: str, step: str) -> None:
    excess = find(offset, IDX, idx_of(*labels))
    assert excess is not None
    assert excess[0] == "outputs[0].label_offset"
    assert what in excess[1]
    assert excess[2] == step


def test_labels_of_an_index_are_numbers_or_names() -> None:
    files = {"labels.txt": b"cat\ndog\nowl\n", "test.csv": b"path,label\nphotos/a.png,owl\nphotos/b.png,0\n"}
    assert find(0, INDEX, files) is None
    excess = find(1, INDEX, files)
    assert excess is not None
    assert "label 2 of the dataset is class index 3" in excess[1]


@pytest.mark.parametrize(
    ("text", "files"),
    [
        (IDX, idx_of(0, 1, 2)),
        (IDX, {}),
        (IDX, {"labels.idx": b"no idx"}),
        (INDEX, {"labels.txt": b"cat\n"}),
        (INDEX, {"labels.txt": b"cat\n", "test.csv": b"path,label\nphotos/a.png,bird\nphotos/b.png,9\n"}),
        (INDEX, {"labels.txt": b"cat\n", "test.csv": b"path\nphotos/a.png\n"}),
        (INDEX, {"labels.txt": b"cat\n", "test.csv": b"path,label\nphotos/a.png," + b"9" * 4301 + b"\n"}),
        (INDEX, {"labels.txt": b"\xff", "test.csv": b"path,label\nphotos/a.png,9\n"}),
    ],
)
def test_nothing_is_said_of_labels_that_fit_or_are_unknown(text: str, files: dict[str, bytes]) -> None:
    assert find(0, text, files) is None
