"""Sounds and texts in two classes through the real commands: a score with a threshold, of one call and of several."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.api.commands import Commands
from tests.support.evaluator.sounds import wav
from tests.support.registry.digits import locked, written

pytestmark = [pytest.mark.engine, pytest.mark.image]

FRAME = 400
# Loudness of each frame; a sound whose loudest frame is above a half is loud. The last one is labelled wrongly.
SOUNDS = {"quiet": ([0.1, 0.2], 0), "peak": ([0.1, 0.9, 0.1], 1), "loud": ([0.8], 1), "wrong": ([0.3, 0.7], 0)}
TEXTS = {"a good day": "yes", "bad": "no", "not so Good": "yes", "the worst": "no", "good grief": "no"}
WORDS = ["<pad>", "<unk>", "good", "bad"]


def sounds(folder: Path) -> None:
    """``sounds.csv`` beside its files, and a network: the mean of the absolute values of a frame."""
    rows = ["path,label"]
    for name, (frames, label) in SOUNDS.items():
        samples = np.concatenate([np.full(FRAME, 32767 * height) for height in frames])
        (folder / f"{name}.wav").write_bytes(wav(samples.astype(np.int16)))
        rows.append(f"{name}.wav,{label}")
    (folder / "sounds.csv").write_text("\n".join(rows) + "\n")
    nodes = [
        helper.make_node("Abs", ["x"], ["heights"]),
        helper.make_node("ReduceMean", ["heights"], ["score"], axes=[1], keepdims=1),
    ]
    save(folder / "sounds.onnx", nodes, (TensorProto.FLOAT, FRAME))


def texts(folder: Path) -> None:
    """``texts.jsonl``, the vocabulary, and a network: whether one of four words is the third of the vocabulary."""
    lines = [json.dumps({"text": text, "label": label}) for text, label in TEXTS.items()]
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "names.txt").write_text("no\nyes\n")
    (folder / "words.txt").write_text("\n".join(WORDS) + "\n")
    nodes = [
        helper.make_node("Equal", ["x", "good"], ["same"]),
        helper.make_node("Cast", ["same"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["numbers"], ["score"], axes=[1], keepdims=1),
    ]
    save(folder / "texts.onnx", nodes, (TensorProto.INT64, 4), [numpy_helper.from_array(np.array(2), "good")])


def save(
    path: Path, nodes: list[onnx.NodeProto], given: tuple[int, int], constants: list[onnx.TensorProto] | None = None
) -> None:
    port = helper.make_tensor_value_info("x", given[0], ["n", given[1]])
    score = helper.make_tensor_value_info("score", TensorProto.FLOAT, ["n", 1])
    graph = helper.make_graph(nodes, "scoring", [port], [score], initializer=constants or [])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


SCORE = {"name": "score", "type": "class-scores", "dtype": "float32", "shape": [None, 1], "label_offset": 0}
ARTIFACTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sounds": (
        {
            "task": "audio-classification",
            "inputs": [
                {
                    "name": "x",
                    "type": "audio",
                    "dtype": "float32",
                    "shape": [None, FRAME],
                    "steps": [
                        {"decode": {"channels": "mono"}},
                        {"frame": {"length": FRAME, "step": FRAME, "pad_start": 0, "pad_end": False, "calls": "each"}},
                    ],
                }
            ],
            "outputs": [SCORE | {"threshold": 0.5, "reduce": "max"}],
        },
        {
            "format": "wav-index",
            "splits": {"test": {"index": "sounds.csv", "samples": len(SOUNDS)}},
            "files": [{"path": f"{name}.wav", "source": f"{name}.wav"} for name in SOUNDS]
            + [{"path": "sounds.csv", "source": "sounds.csv"}],
        },
    ),
    "texts": (
        {
            "task": "text-classification",
            "inputs": [
                {
                    "name": "x",
                    "type": "text",
                    "dtype": "int64",
                    "shape": [None, 4],
                    "steps": [
                        {"decode": {"encoding": "utf-8"}},
                        {
                            "tokenize": {
                                "kind": "words",
                                "vocabulary": "words.txt",
                                "pattern": "[^a-z]+",
                                "lowercase": True,
                                "start": None,
                                "unknown": "<unk>",
                                "pad": "<pad>",
                                "length": 4,
                                "yields": "ids",
                                "truncate": "end",
                                "pad_side": "end",
                            }
                        },
                    ],
                }
            ],
            "outputs": [SCORE | {"threshold": 0.5}],
        },
        {
            "format": "jsonl",
            "splits": {
                "test": {"file": "texts.jsonl", "fields": {"text": "text", "label": "label"}, "samples": len(TEXTS)}
            },
            "labels": "names.txt",
            "files": [{"path": name, "source": name} for name in ("texts.jsonl", "names.txt")],
        },
    ),
}


@pytest.mark.parametrize(("kind", "right", "n"), [("sounds", 3, 4), ("texts", 4, 5)])
def test_as_many_are_right_as_were_made_right(
    kind: str, right: int, n: int, registry: Commands, tmp_path: Path
) -> None:
    {"sounds": sounds, "texts": texts}[kind](tmp_path)
    model, dataset = ARTIFACTS[kind]
    head = {"schema": 1, "version": "1.0.0", "license": "CC0-1.0"}
    files = [{"path": "model.onnx", "role": "graph", "source": f"{kind}.onnx"}]
    if kind == "texts":
        files.append({"path": "words.txt", "role": "vocabulary", "source": "words.txt"})
    framework = {"framework": {"name": "onnxruntime", "version": "*"}, "format": "onnx"}
    manifests = (
        head | {"kind": "model", "name": f"{kind}-model", "files": files} | framework | model,
        head | {"kind": "dataset", "name": f"{kind}-data"} | dataset,
    )
    registry.done("publish", *(written(tmp_path / f"{one['kind']}.yaml", one) for one in manifests))
    asked = {
        "schema": 1,
        "kind": "evaluation",
        "name": kind,
        "model": {"name": f"{kind}-model", "version": "*"},
        "dataset": {"name": f"{kind}-data", "version": "*", "split": "test"},
        "hardware": {"os": "linux", "arch": "amd64", "device": "cpu"},
        "limits": {"time": "5m", "memory": "2GiB", "cpus": 1, "processes": 64},
        "scenario": {"name": "accuracy", "batch": 2},
        "metrics": ["top1"],
        "seed": 7,
    }
    ran = registry.done("run", locked(registry, tmp_path, asked), "--isolation", "process")
    (top1,) = ran["end"]["metrics"]
    assert (top1["value"], top1["n"], top1["unit"]) == (right / n, n, "fraction")
    assert top1["ci"][0] < top1["value"] < top1["ci"][1]
