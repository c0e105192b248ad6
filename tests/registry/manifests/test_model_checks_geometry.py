"""Detectors whose code changes the size of the picture are refused where they are written: boxes could not go back."""

import json
from typing import Any

import pytest

from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.registry.manifests import Manifest, content, files_of, parse_published, with_files
from tests.support.registry.authored import read_authored

DECODE: dict[str, Any] = {"decode": {"color": "RGB", "exif": "apply"}}
CODE: dict[str, Any] = {"python": {"file": "code/steps.py", "function": "prepare"}}
MARGINS: dict[str, Any] = {"pad": {"top": 40, "bottom": 40, "left": 0, "right": 0, "value": 114}}
LENGTH: dict[str, Any] = {"pad": {"length": 320, "value": 0, "side": "end"}}
WIDE: dict[str, Any] = {"resize": {"size": [240, 320], "method": "bilinear", "antialias": True}}
FULL: dict[str, Any] = {"resize": {"size": [320, 320], "method": "bilinear", "antialias": True}}
SHORT: dict[str, Any] = {"resize": {"shorter": 320, "method": "bilinear", "antialias": True}}
BATCH: tuple[int | str | None, ...] = (None, 320, 320, 3)


def detector(steps: list[dict[str, Any]], shape: tuple[int | str | None, ...] = BATCH) -> dict[str, Any]:
    port = {"name": "picture", "type": "image", "dtype": "uint8", "shape": list(shape), "layout": "NHWC"}
    return {
        "schema": 1,
        "kind": "model",
        "name": "finder",
        "version": "1.0.0",
        "license": "MIT",
        "task": "object-detection",
        "framework": {"name": "onnxruntime", "version": "*"},
        "format": "onnx",
        "inputs": [port | {"steps": steps}],
        "outputs": [
            {"name": "boxes", "type": "boxes", "dtype": "float32", "shape": [None, 9, 4]},
            {"name": "scores", "type": "box-scores", "dtype": "float32", "shape": [None, 9, 2]},
        ],
        "predictions": {
            "type": "detections", "boxes": "boxes", "scores": "scores", "classes": None, "count": None,
            "box_format": "xyxy-absolute", "background": None, "label_offset": 0, "score_threshold": 0.5,
            "nms": None, "max_detections": None,
        },
        "files": [
            {"path": "finder.onnx", "role": "graph", "source": "./finder.onnx"},
            {"path": "code/", "role": "code", "source": "./code"},
        ],
    }  # fmt: skip


def authored(document: dict[str, Any]) -> Manifest:
    return read_authored(json.dumps(document), "model.yaml")


@pytest.mark.parametrize(
    ("steps", "where", "message"),
    [
        ([DECODE, WIDE, CODE], "inputs[0].steps[2].python", "code makes 320 x 320 pixels of 240 x 320"),
        ([DECODE, WIDE, LENGTH], "inputs[0].steps[2].pad.length", "a picture whose first axis is cut or padded"),
    ],
)
def test_a_size_that_nobody_can_follow_is_refused(steps: list[dict[str, Any]], where: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        authored(detector(steps))
    assert caught.value.where is not None
    assert caught.value.where.startswith(f"{where} (model.yaml")
    assert message in caught.value.what
    assert "are followed" in str(caught.value.next_step)


@pytest.mark.parametrize(
    ("steps", "shape"),
    [
        ([DECODE, WIDE, MARGINS], BATCH),
        ([DECODE, WIDE, MARGINS, CODE], BATCH),
        ([DECODE, FULL, CODE, CODE], BATCH),
        ([DECODE, CODE], (None, "height", "width", 3)),
        ([DECODE, SHORT, CODE], (None, "height", "width", 3)),
        ([DECODE, CODE], BATCH),  # every picture may be of that size: the run looks
        ([DECODE, SHORT, CODE], BATCH),
    ],
)
def test_a_letterbox_of_steps_is_followed_and_code_that_may_leave_the_size_is_taken(
    steps: list[dict[str, Any]], shape: tuple[int | str | None, ...]
) -> None:
    authored(detector(steps, shape))


def test_a_fault_before_the_code_is_said_once() -> None:
    with pytest.raises(InvalidInputError, match="no crop of 400") as caught:
        authored(detector([DECODE, FULL, {"center_crop": {"size": [400, 400]}}, CODE]))
    assert len(caught.value.problems or (caught.value,)) == 1


def test_a_model_that_finds_no_boxes_may_resize_in_code() -> None:
    document = detector([DECODE, WIDE, CODE]) | {"task": "image-classification"}
    del document["predictions"]
    document["outputs"] = [{"name": "scores", "type": "class-scores", "dtype": "float32", "label_offset": 0}]
    authored(document)


def test_what_was_published_before_is_read() -> None:
    manifest = authored(detector([DECODE, FULL, CODE]))
    kept = {file.path: Descriptor(digest_bytes(file.path.encode()), 4) for file in files_of(manifest)}
    document = json.loads(content(with_files(manifest, kept)))
    document["inputs"][0]["steps"][1] = WIDE
    parse_published(encode_canonical(document))
