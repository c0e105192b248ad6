"""Real graphs of several inputs and outputs, with constants, states and a call for each frame, in containers."""

import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

from tests.support.api.commands import Commands
from tests.support.registry.digits import locked, request, written

pytestmark = [pytest.mark.engine, pytest.mark.image]

FLOAT, LONG = TensorProto.FLOAT, TensorProto.INT64
SOUNDS = [[100, -200, 300, -400, 500, 600], [7, 8, 9, 10, 11, 12, 13, 14], [-1, -2, -3, -4]]
WEIGHTS = np.asarray([[1, -1], [2, 0], [-1, 3], [0, 1]], np.float32)


def predictions(registry: Commands, folder: Path, run: dict[str, Any]) -> dict[str, NDArray[Any]]:
    assert (run["end"]["outcome"], run["start"]["isolation"]) == ("done", "container"), run
    registry.done("get", run["run"], "-o", folder / "out")
    found: dict[str, NDArray[Any]] = load_file(folder / "out" / "predictions.safetensors")
    return found


def published(registry: Commands, folder: Path, model: dict[str, Any], dataset: dict[str, Any]) -> None:
    """The model, whose graph is ``NAME.onnx`` in ``folder``, and the dataset, whose files lie there too."""
    header = {"schema": 1, "version": "1.0.0", "license": "MIT"}
    graph = {"path": "model.onnx", "role": "graph", "source": f"./{model['name']}.onnx"}
    framework = {"framework": {"name": "onnxruntime", "version": "*"}, "format": "onnx", "files": [graph]}
    manifests = [
        written(folder / "model.yaml", {**header, "kind": "model", **framework, **model}),
        written(folder / "dataset.yaml", {**header, "kind": "dataset", **dataset}),
    ]
    registry.done("publish", *manifests)


def save(path: Path, nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any], *weights: TensorProto) -> None:
    given, found = ([helper.make_tensor_value_info(*port) for port in ports] for ports in (inputs, outputs))
    graph = helper.make_graph(nodes, "net", given, found, initializer=weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_several_inputs_and_outputs_and_a_constant(registry: Commands, tmp_path: Path) -> None:
    """``sum = a * k + b`` and ``total``, the sum of ``a`` a sample, in batches of two out of five samples."""
    nodes = [
        helper.make_node("Mul", ["a", "k"], ["scaled"]),
        helper.make_node("Add", ["scaled", "b"], ["sum"]),
        helper.make_node("ReduceSum", ["a", "axis"], ["total"], keepdims=0),
    ]
    axis = numpy_helper.from_array(np.asarray([1], np.int64), "axis")
    given = [("a", FLOAT, ["n", 3]), ("b", FLOAT, ["n", 3]), ("k", FLOAT, [])]
    save(tmp_path / "mixed.onnx", nodes, given, [("sum", FLOAT, ["n", 3]), ("total", FLOAT, ["n"])], axis)
    left, right = np.arange(15, dtype=np.float32).reshape(5, 3), np.full((5, 3), 7, np.int32)
    np.savez(tmp_path / "pairs.npz", l=left, r=right)
    model = {
        "name": "mixed",
        "task": "tensor",
        "inputs": [
            {"name": "a", "type": "tensor", "field": "left", "dtype": "float32", "shape": [None, 3]},
            {
                "name": "b",
                "type": "tensor",
                "field": "right",
                "dtype": "float32",
                "shape": [None, 3],
                "steps": [{"cast": {"dtype": "float32"}}],
            },
            {"name": "k", "type": "constant", "dtype": "float32", "shape": [], "batch_axis": "none", "value": 10},
        ],
        "outputs": [
            {"name": "sum", "type": "tensor", "dtype": "float32", "shape": [None, 3]},
            {"name": "total", "type": "value", "dtype": "float32"},
        ],
    }
    split = {"file": "pairs.npz", "fields": {"left": "l", "right": "r"}, "samples": 5}
    dataset = {"name": "pairs", "format": "npz", "splits": {"test": split}, "files": [_file("pairs.npz")]}
    published(registry, tmp_path, model, dataset)
    asked = request("mixed", "pairs") | {"scenario": {"name": "accuracy", "batch": 2, "warmup": 1}, "metrics": []}
    lock = locked(registry, tmp_path, asked)
    found = predictions(registry, tmp_path, registry.done("run", lock, "--isolation", "container"))
    np.testing.assert_array_equal(found["sum"], left * 10 + right)
    np.testing.assert_array_equal(found["total"], left.sum(axis=1))


@pytest.mark.parametrize("reset", ["sample", "never"])
def test_a_sound_heard_frame_by_frame_by_what_remembers(registry: Commands, tmp_path: Path, reset: str) -> None:
    """The state is the sum of the frames so far; a call's scores are it times the weights; the last call counts."""
    nodes = [
        helper.make_node("Add", ["x", "before"], ["after"]),
        helper.make_node("MatMul", ["after", "weights"], ["plain"]),
        helper.make_node("Cast", ["rate"], ["factor"], to=FLOAT),
        helper.make_node("Mul", ["plain", "factor"], ["scores"]),
    ]
    name = f"hearing-{reset}"
    given = [("x", FLOAT, ["n", 4]), ("before", FLOAT, ["n", 4]), ("rate", LONG, [])]
    answers = [("scores", FLOAT, ["n", 2]), ("after", FLOAT, ["n", 4])]
    save(tmp_path / f"{name}.onnx", nodes, given, answers, numpy_helper.from_array(WEIGHTS, "weights"))
    frame = {"length": 4, "step": 4, "pad_start": 0, "pad_end": True, "calls": "each"}
    state = {"name": "before", "type": "state", "dtype": "float32", "shape": [None, 4]}
    model = {
        "name": name,
        "task": "audio-classification",
        "inputs": [
            {
                "name": "x",
                "type": "audio",
                "dtype": "float32",
                "shape": [None, 4],
                "steps": [{"decode": {"channels": "mono"}}, {"frame": frame}, {"scale": {"factor": 32768}}],
            },
            state | {"from": "after", "initial": "zeros", "reset": reset},
            {"name": "rate", "type": "constant", "dtype": "int64", "shape": [], "batch_axis": "none", "value": 2},
        ],
        "outputs": [
            {"name": "scores", "type": "class-scores", "dtype": "float32", "label_offset": 0, "reduce": "last"},
            {"name": "after", "type": "state", "dtype": "float32", "shape": [None, 4]},
        ],
    }
    expected = _heard(reset)
    labels = expected.argmax(axis=1).tolist()
    split = {"index": "index.csv", "samples": len(SOUNDS)}
    files = [_file("index.csv"), *(_file(f"{number}.wav") for number in range(len(SOUNDS)))]
    _write_sounds(tmp_path, labels)
    dataset = {"name": f"sounds-{reset}", "format": "wav-index", "splits": {"test": split}, "files": files}
    published(registry, tmp_path, model, dataset)
    lock = locked(registry, tmp_path, request(name, f"sounds-{reset}"))
    run = registry.done("run", lock, "--isolation", "container")
    np.testing.assert_array_equal(predictions(registry, tmp_path, run)["scores"], expected)
    metrics = {metric["name"]: metric for metric in run["end"]["metrics"]}
    assert (metrics["top1"]["value"], metrics["top1"]["n"]) == (1.0, 3)
    assert metrics["latency_p50"]["n"] >= 64


def _heard(reset: str) -> NDArray[np.float32]:
    """The scores after each sample's last frame, worked out frame by frame."""
    memory, scores = np.zeros(4, np.float32), []
    for sound in SOUNDS:
        if reset == "sample":
            memory = np.zeros(4, np.float32)
        for start in range(0, len(sound), 4):
            piece = sound[start : start + 4]
            memory = memory + np.asarray(piece + [0] * (4 - len(piece)), np.float32)
        scores.append(memory @ WEIGHTS * 2)
    return np.stack(scores)


def _write_sounds(folder: Path, labels: list[int]) -> None:
    for number, sound in enumerate(SOUNDS):
        with wave.open(str(folder / f"{number}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(struct.pack(f"<{len(sound)}h", *sound))
    rows = "".join(f"{number}.wav,{label}\n" for number, label in enumerate(labels))
    (folder / "index.csv").write_text(f"path,label\n{rows}")


def _file(path: str) -> dict[str, str]:
    return {"path": path, "source": f"./{path}"}
