"""Models of sounds and of texts from their manifests to the count of right answers, in containers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file
from scipy.signal import resample_poly
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from tests.support.api.commands import Commands
from tests.support.evaluator.sounds import heard, htk_filters, wav
from tests.support.registry.digits import locked, request, written

SAMPLES = 24
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "good", "bad", "film", "was", "##s", "not"]
GAIN = "from loudness import GAIN\n\n\ndef louder(value):\n    return value * GAIN\n"


def saved(path: Path, graph: onnx.GraphProto) -> None:
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def weights(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(3).normal(0, 1, shape).astype(np.float32)


def wrong_at_five(answers: NDArray[Any], classes: int) -> list[int]:
    """As labels: the answers, but for the sixth."""
    labels = [int(answer) for answer in answers]
    labels[5] = (labels[5] + 1) % classes
    return labels


def sounds(folder: Path) -> NDArray[np.float64]:
    """Writes the model and the dataset ``sounds``; the scores that are due, each the mean of the frames'."""
    matrix = weights(29, 10, 3) / 10
    matrix[:, :2] = 0  # loudness and colour, which are alike in all
    matrix = matrix.reshape(29 * 10, 3)
    given = helper.make_tensor_value_info("mfcc", TensorProto.FLOAT, ["batch", 29, 10])
    found = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 3])
    nodes = [helper.make_node("Flatten", ["mfcc"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["scores"])]
    saved(
        folder / "sounds.onnx",
        helper.make_graph(nodes, "net", [given], [found], [numpy_helper.from_array(matrix, "w")]),
    )
    (folder / "code").mkdir()
    (folder / "code" / "steps.py").write_text(GAIN)
    (folder / "code" / "loudness.py").write_text("GAIN = 4\n")
    (folder / "sounds").mkdir()
    filters, due = htk_filters(129, 8000, 20, 50, 3800), []
    noise = np.random.default_rng(5)
    for number in range(SAMPLES):
        recorded = noise.integers(-2000, 2000, (16000 + 800 * number, 2)) * (1 + number % 3)
        (folder / "sounds" / f"{number}.wav").write_bytes(wav(recorded, 16000))
        sound = resample_poly(recorded.mean(axis=1) / 2**15, 1, 2)
        frames = [
            np.pad(sound[at : at + 4000], (0, max(0, at + 4000 - len(sound)))) for at in range(0, len(sound), 2000)
        ]
        rows = [heard(4 * frame, 256, 132, filters, 1e-6)[:, :10].reshape(-1) for frame in frames]
        due.append(np.mean(np.array(rows) @ matrix, axis=0))
    answers = np.argmax(due, axis=1)
    assert len(set(answers.tolist())) > 1
    lines = [f"sounds/{number}.wav,{label}" for number, label in enumerate(wrong_at_five(answers, 3))]
    (folder / "index.csv").write_text("\n".join(["path,label", *lines]))
    return np.array(due)


SOUNDS: dict[str, Any] = {
    "schema": 1, "kind": "model", "name": "sounds", "version": "1.0.0", "license": "MIT",
    "task": "audio-classification", "framework": {"name": "onnxruntime", "version": "*"}, "format": "onnx",
    "inputs": [{
        "name": "mfcc", "type": "audio", "dtype": "float32", "shape": [None, 29, 10],
        "steps": [
            {"decode": {"channels": "mono"}},
            {"resample": {"rate": 8000, "method": "polyphase"}},
            {"frame": {"length": 4000, "step": 2000, "pad_start": 0, "pad_end": True, "calls": "each"}},
            {"python": {"file": "code/steps.py", "function": "louder"}},
            {"spectrogram": {"frame_length": 256, "frame_step": 132, "fft_length": 256, "window": "hann_periodic",
                             "power": 1}},
            {"mfcc": {"rate": 8000, "mels": 20, "low": 50, "high": 3800, "mel": "htk", "log_offset": 1e-6,
                      "coefficients": 10, "dct": "ortho"}},
        ],
    }],
    "outputs": [{"name": "scores", "type": "class-scores", "dtype": "float32", "shape": [None, 3], "label_offset": 0,
                 "reduce": "mean"}],
    "files": [{"path": "sounds.onnx", "role": "graph", "source": "./sounds.onnx"},
              {"path": "code/", "role": "code", "source": "./code"}],
}  # fmt: skip
SOUND_FILES: dict[str, Any] = {
    "schema": 1, "kind": "dataset", "name": "sounds", "version": "1.0.0", "license": "MIT", "format": "wav-index",
    "splits": {"test": {"index": "index.csv", "samples": SAMPLES}},
    "files": [{"path": "index.csv", "source": "./index.csv"}, {"path": "sounds/", "source": "./sounds"}],
}  # fmt: skip


def texts(folder: Path) -> NDArray[np.float64]:
    """Writes the model and the dataset ``texts``; the scores that are due."""
    pieces, words = weights(len(PIECES), 2), weights(9, 2)
    ports = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", 6]) for name in ("ids", "mask", "words")]
    found = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 2])
    nodes = [
        helper.make_node("Gather", ["pieces", "ids"], ["vectors"]),
        helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["kept", "last"], ["wide"]),
        helper.make_node("Mul", ["vectors", "wide"], ["present"]),
        helper.make_node("Gather", ["vocabulary", "words"], ["others"]),
        helper.make_node("Add", ["present", "others"], ["all"]),
        helper.make_node("ReduceSum", ["all", "middle"], ["scores"], keepdims=0),
    ]
    held = {"pieces": pieces, "vocabulary": words, "last": np.array([-1]), "middle": np.array([1])}
    tensors = [numpy_helper.from_array(value, name) for name, value in held.items()]
    saved(folder / "texts.onnx", helper.make_graph(nodes, "net", ports, [found], tensors))
    made = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.save(str(folder / "tokenizer.json"))
    (folder / "words.txt").write_text("<pad> 0\n<unknown> 1\na 4\ngood 5\nbad 6\nfilms 7\nnot 8\n")
    rows, due = [], []
    for number in range(SAMPLES):
        chosen = np.random.default_rng(number).choice(["a", "good", "bad", "films", "not", "awful"], number % 7)
        text = "  ".join(chosen)
        cut = [PIECES.index(piece) for word in chosen for piece in _split(str(word))][:4]
        known = {"a": 4, "good": 5, "bad": 6, "films": 7, "not": 8}
        looked_up = [known.get(str(word), 1) for word in chosen][-6:]
        looked_up = [0] * (6 - len(looked_up)) + looked_up
        due.append(pieces[[2, *cut, 3]].sum(axis=0) + words[looked_up].sum(axis=0))
        rows.append(text)
    labels = wrong_at_five(np.argmax(due, axis=1), 2)
    lines = [json.dumps({"review": text, "stars": label}) for text, label in zip(rows, labels, strict=True)]
    (folder / "texts.jsonl").write_text("\n".join(lines))
    return np.array(due)


def _split(word: str) -> list[str]:
    return {"films": ["film", "##s"], "awful": ["[UNK]"]}.get(word, [word])


def tokens(**arguments: object) -> list[dict[str, Any]]:
    return [{"decode": {"encoding": "utf-8"}}, {"tokenize": arguments | {"length": 6}}]


_JSON = {"kind": "tokenizer-json", "file": "tokenizer.json", "truncate": "end", "pad_side": "end", "pad": "[PAD]"}
_WORDS = {
    "kind": "words", "vocabulary": "words.txt", "pattern": " +", "lowercase": True, "start": None,
    "unknown": "<unknown>", "pad": "<pad>", "truncate": "start", "pad_side": "start", "yields": "ids",
}  # fmt: skip
_ROW = {"type": "text", "dtype": "int64", "shape": [None, 6], "field": "text"}
TEXTS: dict[str, Any] = SOUNDS | {
    "name": "texts", "task": "text-classification",
    "inputs": [
        _ROW | {"name": "ids", "steps": tokens(**_JSON, yields="ids")},
        _ROW | {"name": "mask", "steps": tokens(**_JSON, yields="mask")},
        _ROW | {"name": "words", "steps": tokens(**_WORDS)},
    ],
    "outputs": [{"name": "scores", "type": "class-scores", "dtype": "float32", "shape": [None, 2], "label_offset": 0}],
    "files": [{"path": "texts.onnx", "role": "graph", "source": "./texts.onnx"},
              {"path": "tokenizer.json", "role": "vocabulary", "source": "./tokenizer.json"},
              {"path": "words.txt", "role": "vocabulary", "source": "./words.txt"}],
}  # fmt: skip
TEXT_FILES: dict[str, Any] = SOUND_FILES | {
    "name": "texts", "format": "jsonl",
    "splits": {"test": {"file": "texts.jsonl", "fields": {"text": "review", "label": "stars"}, "samples": SAMPLES}},
    "files": [{"path": "texts.jsonl", "source": "./texts.jsonl"}],
}  # fmt: skip


@pytest.mark.image
@pytest.mark.engine
@pytest.mark.parametrize("name", ["sounds", "texts"])
def test_a_model_of_sounds_or_texts_gives_the_scores_that_are_due(
    registry: Commands, tmp_path: Path, name: str
) -> None:
    """Every score within 1e-4, every answer but the one that is labelled wrong."""
    due = {"sounds": sounds, "texts": texts}[name](tmp_path)
    model, dataset = {"sounds": (SOUNDS, SOUND_FILES), "texts": (TEXTS, TEXT_FILES)}[name]
    registry.done("publish", written(tmp_path / "model.yaml", model), written(tmp_path / "dataset.yaml", dataset))
    asked = request(name, name) | {"hardware": {"os": "linux", "device": "cpu"}}
    run = registry.done("run", locked(registry, tmp_path, asked), "--isolation", "container")
    assert run["end"]["outcome"] == "done", run
    right = {metric["name"]: metric["value"] for metric in run["end"]["metrics"]}["top1"]
    assert round(right * SAMPLES) == SAMPLES - 1
    registry.done("get", run["run"], "-o", tmp_path / "run")
    (predictions,) = (tmp_path / "run").rglob("predictions.safetensors")
    np.testing.assert_allclose(load_file(predictions)["scores"], due, rtol=0, atol=1e-4)
