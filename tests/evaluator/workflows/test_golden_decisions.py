"""What the command ``golden`` decides by itself: samples out of files, tolerances, whether answers are believed."""

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import convert, structs

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.workflows.golden_decisions import (
    AnswerCount,
    count_answers,
    explain_doubt,
    list_claimed_top1,
    sample_dataset,
    suggest_tolerance,
)
from benchlock.registry.lock.split_checks import check_model_inputs
from benchlock.registry.manifests import Dataset, Model, parse_published
from benchlock.registry.manifests.manifest_types import Claim, ClaimDataset, Output
from benchlock.registry.publishing.drafts import read_draft
from benchlock.registry.publishing.publication import store_draft

PORTS: dict[str, dict[str, Any]] = {
    "image": {"layout": "NHWC", "shape": [None, 8, 8, 1], "steps": [{"decode": {"color": "L", "exif": "ignore"}}]},
    "audio": {"shape": [None, "n"], "steps": [{"decode": {"channels": "mono"}}]},
    "text": {"shape": [None, "n"], "steps": [{"decode": {"encoding": "utf-8"}}]},
    "tensor": {"shape": [None, 4]},
}
FILE = {"path": "net.onnx", "role": "graph", "sha256": "0" * 64, "size": 1}


def model(*ports: dict[str, Any], output: dict[str, Any] | None = None) -> Model:
    document = {
        "schema": 1,
        "kind": "model",
        "name": "net",
        "version": "1.0.0",
        "license": "MIT",
        "task": "tensor",
        "framework": {"name": "onnxruntime", "version": "*"},
        "format": "onnx",
        "inputs": ports,
        "outputs": [{"name": "y", "type": "tensor", "dtype": "float32"} | (output or {})],
        "files": [FILE],
    }
    found = parse_published(encode_canonical(document))
    assert isinstance(found, Model)
    return found


def port(kind: str, name: str = "x", **more: object) -> dict[str, Any]:
    dtype = {"image": "uint8"}.get(kind, "float32")
    steps = {"text": {"steps": [{"decode": {"encoding": "utf-8"}}, {"tokenize": TOKENIZE}], "dtype": "int64"}}
    return {"name": name, "type": kind, "dtype": dtype} | PORTS[kind] | steps.get(kind, {}) | more


TOKENIZE = {
    "kind": "words", "vocabulary": "net.onnx", "pattern": " ", "lowercase": True, "start": None, "unknown": "u",
    "pad": "p", "length": 6, "truncate": "end", "pad_side": "end", "yields": "ids",
}  # fmt: skip


def dataset_of(found: Model, files: list[Path], folder: Path, store: LocalStore) -> Dataset:
    """The dataset of ``files``, taken in with all the checks of publishing."""
    folder.mkdir()
    text, path = sample_dataset(found, files, folder)
    dataset = store_draft(read_draft(text, "samples", path), store)
    assert isinstance(dataset, Dataset)
    return dataset


@pytest.fixture
def files(tmp_path: Path) -> dict[str, list[Path]]:
    """Two files of each type of input; what is in a picture is looked at by its steps alone."""
    for number, text in enumerate(("the cat", "grün")):
        (tmp_path / f"{number}.png").write_bytes(text.encode())
        with wave.open(str(tmp_path / f"{number}.wav"), "wb") as sound:
            sound.setparams((1, 2, 8000, 0, "NONE", ""))
            sound.writeframes(bytes(32))
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
        np.save(tmp_path / f"{number}.npy", np.full(4, number, np.float32))
    suffixes = {"image": "png", "audio": "wav", "text": "txt", "tensor": "npy"}
    return {kind: [tmp_path / f"{number}.{suffix}" for number in range(2)] for kind, suffix in suffixes.items()}


@pytest.mark.parametrize("kind", PORTS)
def test_files_and_nothing_are_datasets_that_feed_the_model(
    kind: str, files: dict[str, list[Path]], tmp_path: Path
) -> None:
    store = LocalStore(tmp_path / "blobs")
    for field in ({}, {"field": "mine"}):
        found = model(port(kind, **field))
        for some in ([], files[kind]):
            dataset = dataset_of(found, some, tmp_path / f"{len(field)}{len(some)}", store)
            (split,) = dataset.splits.values()
            assert split.samples == max(len(some), 1)
            if not some or kind in ("text", "tensor"):  # an index has a field of its own
                check_model_inputs(found, dataset, split)


def test_a_model_of_several_fields_can_be_checked_and_not_fed_with_files(
    files: dict[str, list[Path]], tmp_path: Path
) -> None:
    found = model(port("text", "a", field="words"), port("tensor", "b", field="numbers"))
    dataset = dataset_of(found, [], tmp_path / "none", LocalStore(tmp_path / "blobs"))
    check_model_inputs(found, dataset, next(iter(dataset.splits.values())))
    with pytest.raises(InvalidInputError, match="reads several fields"):
        sample_dataset(found, files["tensor"], tmp_path)


@pytest.mark.parametrize(("kind", "name"), [("text", "0.png"), ("tensor", "0.txt"), ("text", "absent.txt")])
def test_a_file_that_is_no_such_sample_is_named(kind: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes(b"\xff\xfe\xfd")
    (tmp_path / "0.txt").write_text("no tensor")
    with pytest.raises(InvalidInputError, match=f"cannot read .*{name} as a sample"):
        sample_dataset(model(port(kind)), [tmp_path / name], tmp_path)


@pytest.mark.parametrize(
    ("kind", "dtype", "largest", "absolute", "relative"),
    [
        ("input", "float32", 251.0, 1e-3, 0.0),
        ("input", "float32", 1.0, 1e-6, 0.0),
        ("output", "float32", 0.99, 1e-5, 1e-4),
        ("output", "float32", 0.0, 1e-5, 1e-4),
        ("input", "uint8", 255.0, 0.0, 0.0),
        ("output", "int8", 127.0, 1.0, 0.0),
        ("input", "float16", 0.9, 1e-3, 0.0),
        ("output", "float16", 0.9, 1e-3, 1e-2),
        ("output", "float64", 0.9, 1e-5, 1e-4),
    ],
)
def test_tolerances_follow_the_values(kind: str, dtype: str, largest: float, absolute: float, relative: float) -> None:
    (taken,), (given,) = (found := model(port("tensor"))).inputs, found.outputs
    suggested = suggest_tolerance(given if kind == "output" else taken, {"dtype": dtype, "largest": largest})
    assert suggested == {"absolute": absolute, "relative": relative}
    assert json.loads(json.dumps(suggested)) == suggested


@pytest.mark.parametrize(
    "output",
    [
        {"type": "class-index", "label_offset": 0, "dtype": "int32"},
        {"type": "mask", "label_offset": 0, "dtype": "float32"},
        {"type": "tensor", "steps": [{"argmax": {"axis": -1}}]},
        {"type": "tensor", "steps": [{"sigmoid": {}}, {"topk": {"k": 2}}]},
    ],
)
def test_of_classes_another_one_is_never_near(output: dict[str, Any]) -> None:
    (found,) = model(port("tensor"), output=output).outputs
    for dtype in ("int64", "float32"):
        assert suggest_tolerance(found, {"dtype": dtype, "largest": 9.0}) == {"absolute": 0.0, "relative": 0.0}


@pytest.mark.parametrize(
    ("reduce", "shape", "quality", "expected"),
    [
        ("none", [4, 30, 5], {"value": 7 / 90, "n": 90}, AnswerCount(7, 90, 5)),
        ("none", [4, 30], {"value": 0.5, "n": 90}, AnswerCount(45, 90, 2)),
        ("mean", [4, 10], {"correct": 3, "n": 9}, AnswerCount(3, 9, 10)),
        (None, [4, 10, 1, 1], {"correct": 3, "n": 9}, AnswerCount(3, 9, 10)),
    ],
)
def test_answers_of_calls_that_are_kept_apart_are_counted_too(
    reduce: str | None, shape: list[int], quality: dict[str, Any], expected: AnswerCount
) -> None:
    output = {"type": "class-scores", "label_offset": 0} | ({} if reduce is None else {"reduce": reduce})
    called = model(port("tensor"))
    called = structs.replace(called, outputs=(convert({"name": "y", "dtype": "float32"} | output, Output),))
    report = {"outputs": {"y": {"shape": shape}}}
    assert count_answers(called, report, {"top1": quality}) == expected
    assert count_answers(called, report, {}) is None


@pytest.mark.parametrize(
    ("given", "claimed", "words"),
    [
        (AnswerCount(7, 64, 10), (), "no better than chance for 10 classes"),
        (AnswerCount(47, 64, 10), (), None),
        (AnswerCount(20, 64, 10), (), None),  # poor, and no guessing
        (AnswerCount(0, 64, 1000), (), "no better than chance"),
        (AnswerCount(34, 64, 2), (), "no better than chance for 2 classes"),
        (AnswerCount(3, 4, 2), (), None),  # too few to tell
        (AnswerCount(0, 4, None), (), None),
        (AnswerCount(40, 64, 10), (0.86,), "the claim states top1 of at least 0.86"),
        (AnswerCount(52, 64, 10), (0.86,), None),
        (AnswerCount(0, 4, None), (0.99,), "the claim states top1 of at least 0.99"),
    ],
)
def test_answers_are_doubted_where_chance_says_so(
    given: AnswerCount, claimed: tuple[float, ...], words: str | None
) -> None:
    found = explain_doubt(given, claimed)
    assert (found is None) == (words is None), found
    assert words is None or words in str(found)


def test_claims_count_on_their_own_dataset_alone(tmp_path: Path) -> None:
    def claim(
        metric: str = "top1", name: str = "golden-samples", version: str = "^1.0", split: str = "samples"
    ) -> Claim:
        return Claim(
            metric=metric, value=0.9, tolerance=0.05, dataset=ClaimDataset(name=name, version=version, split=split)
        )

    found = model(port("tensor"))
    dataset = dataset_of(found, [], tmp_path / "none", LocalStore(tmp_path / "blobs"))
    assert list_claimed_top1(found, dataset, "samples") == ()
    claims = (claim(), claim("top5"), claim(name="other"), claim(version="^2.0"), claim(split="test"))
    assert list_claimed_top1(structs.replace(found, claims=claims), dataset, "samples") == (0.9 - 0.05,)
