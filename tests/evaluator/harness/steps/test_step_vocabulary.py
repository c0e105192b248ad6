"""The harness does the steps that manifests may name, with the arguments and the effects that the registry knows."""

import inspect
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from msgspec import UNSET, Struct
from msgspec.structs import fields

from benchlock.evaluator.harness.core.job import Step
from benchlock.evaluator.harness.steps import FILE_STEPS, STEPS, Kind, Tensor, bind
from benchlock.evaluator.harness.steps.text import KINDS
from benchlock.registry.manifests import tensor_shapes
from benchlock.registry.manifests.step_shapes import apply_steps
from benchlock.registry.manifests.steps import (
    AudioStep,
    ImageStep,
    OutputStep,
    TensorStep,
    TextStep,
    TokenizerJson,
    Words,
)
from benchlock.registry.text.parsed_text import Place
from benchlock.registry.text.yaml import read_yaml
from tests.support.evaluator.sounds import wav

TYPES: dict[Kind, type[TensorStep]] = {
    "image": ImageStep,
    "audio": AudioStep,
    "text": TextStep,
    "tensor": TensorStep,
    "output": OutputStep,
}


def vocabulary(kind: Kind) -> dict[str, tuple[type[Struct], ...]]:
    """The steps of a kind, with the types of their arguments."""
    found = {field.name: get_args(field.type) for field in fields(TYPES[kind])}
    return {name: tuple(each for each in types if each is not msgspec.UnsetType) for name, types in found.items()}


def arguments(kind: type[Struct]) -> dict[str, bool]:
    """The names of arguments, and whether they are demanded."""
    assert all(field.default in (msgspec.NODEFAULT, UNSET) for field in fields(kind))
    return {field.encode_name: field.required for field in fields(kind)}


def parameters(function: Any) -> dict[str, bool]:  # noqa: ANN401 - whatever can be called
    """The names of keyword arguments, and whether they are demanded."""
    named = inspect.signature(function).parameters.values()
    return {each.name: each.default is each.empty for each in named if each.kind is each.KEYWORD_ONLY}


PURE = [(kind, name) for kind, steps in STEPS.items() for name in steps]


def test_the_harness_has_every_step_and_no_other() -> None:
    assert set(STEPS) == set(TYPES)
    for kind in TYPES:
        assert set(vocabulary(kind)) - set(STEPS[kind]) == ({"python", "tokenize"} if kind == "text" else {"python"})
        assert set(STEPS[kind]) <= set(vocabulary(kind))
    assert set(FILE_STEPS) == {"python", "tokenize"}


@pytest.mark.parametrize(("kind", "name"), PURE)
def test_a_step_takes_the_arguments_of_the_manifest_and_demands_the_same(kind: Kind, name: str) -> None:
    (declared,) = vocabulary(kind)[name]
    assert parameters(STEPS[kind][name]) == arguments(declared)


def test_steps_of_files_take_the_arguments_of_the_manifest_and_demand_the_same() -> None:
    (declared,) = vocabulary("tensor")["python"]
    assert parameters(FILE_STEPS["python"]) == arguments(declared)
    assert vocabulary("text")["tokenize"] == (Words, TokenizerJson)
    for kind in (Words, TokenizerJson):
        taken = parameters(KINDS[str(kind.__struct_config__.tag)])
        assert taken | {"yields": True} == arguments(kind)


PICTURE = {"decode": {"color": "RGB", "exif": "ignore"}}
GREY = {"decode": {"color": "L", "exif": "ignore"}}
HALVED: dict[str, Any] = {"resize": {"size": [6, 4], "method": "bilinear", "antialias": True}}
SOUND = {"decode": {"channels": "mono"}}
STEREO = {"decode": {"channels": "keep"}}
SLOWER = {"resample": {"rate": 4000, "method": "polyphase"}}
SECOND: dict[str, Any] = {"pad": {"length": 8000, "value": 0, "side": "end"}}
HEARD: dict[str, Any] = {
    "spectrogram": {"frame_length": 200, "frame_step": 80, "fft_length": 256, "window": "hann", "power": 2}
}
COEFFICIENTS: dict[str, Any] = {
    "mfcc": {
        "rate": 8000, "mels": 20, "low": 20, "high": 4000, "mel": "htk", "log_offset": 1e-6, "coefficients": 13,
        "dct": "ortho",
    }
}  # fmt: skip


def frames(calls: str, *, pad_end: bool) -> dict[str, Any]:
    return {"frame": {"length": 300, "step": 200, "pad_start": 10, "pad_end": pad_end, "calls": calls}}


@pytest.mark.parametrize(
    "steps",
    [
        [PICTURE],
        [GREY, HALVED, {"cast": {"dtype": "float16"}}, {"transpose": {"layout": "NCHW"}}],
        [PICTURE, {"cast": {"dtype": "float32"}}, {"transpose": {"layout": "NCHW"}}, HALVED],
        [PICTURE, {"resize": {"shorter": 6, "method": "area", "antialias": True}}, {"center_crop": {"size": [5, 6]}}],
        [PICTURE, HALVED, {"center_crop": {"fraction": 0.5}}],
        [PICTURE, {"scale": {"factor": 0.5}}, {"normalize": {"mean": [1, 2, 3], "std": [1, 1, 1]}}],
        [PICTURE, {"cast": {"dtype": "float64"}}, {"scale": {"factor": 2}}],
        [GREY, HALVED, {"reshape": {"shape": [2, -1]}}, {"pad": {"length": 3, "value": 0, "side": "end"}}],
        [GREY, HALVED, {"pad": {"top": 1, "bottom": 2, "left": 3, "right": 4, "value": 9}}],
        [GREY, {"quantize": {"scale": 1, "zero_point": -128, "dtype": "int8"}}],
        [GREY, {"dequantize": {"scale": 0.5, "zero_point": 3, "dtype": "float32"}}],
    ],
)
def test_a_picture_has_the_shape_type_and_layout_that_the_registry_foresees(steps: list[dict[str, Any]]) -> None:
    agree(done("image", np.zeros((12, 9), np.uint8), steps), foreseen("image", steps))


@pytest.mark.parametrize(
    "steps",
    [
        [SOUND],
        [STEREO, SLOWER, {"cast": {"dtype": "float64"}}],
        [SOUND, {"quantize": {"scale": 0.1, "zero_point": 0, "dtype": "int8"}}, SLOWER],
        [SOUND, HEARD],
        [SOUND, SECOND, HEARD, COEFFICIENTS, {"reshape": {"shape": [98, 13, 1]}}],
        [SOUND, {"cast": {"dtype": "float64"}}, HEARD, COEFFICIENTS],
        [SOUND, frames("one", pad_end=False)],
        [STEREO, SECOND, frames("one", pad_end=False)],
        [SOUND, SECOND, frames("one", pad_end=True)],
    ],
)
def test_a_sound_has_the_shape_and_type_that_the_registry_foresees(steps: list[dict[str, Any]]) -> None:
    agree(done("audio", wav(np.arange(5000, dtype=np.int16)), steps), foreseen("audio", steps))


@pytest.mark.parametrize("steps", [[STEREO], [SOUND, SECOND], [SOUND, SECOND, HEARD]])
def test_each_call_has_the_shape_that_the_registry_foresees(steps: list[dict[str, Any]]) -> None:
    cut = [*steps, frames("each", pad_end=True)]
    whole = done("audio", wav(np.arange(5000, dtype=np.int16)), cut)
    agree(whole._replace(values=whole.values[0]), foreseen("audio", cut))


@pytest.mark.parametrize("yields", ["ids", "mask", "types"])
def test_tokens_have_the_shape_and_type_that_the_registry_foresees(tmp_path: Path, yields: str) -> None:
    (tmp_path / "words.txt").write_text("?")
    words = {
        "kind": "words", "vocabulary": "words.txt", "pattern": " ", "lowercase": True, "start": None, "unknown": "?",
        "pad": "?", "length": 7, "truncate": "end", "pad_side": "end", "yields": yields,
    }  # fmt: skip
    steps: list[dict[str, Any]] = [{"decode": {"encoding": "utf-8"}}, {"tokenize": words}]
    agree(done("text", "a text", steps, tmp_path), foreseen("text", steps))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize(
    "step",
    [{"softmax": {"axis": -1}}, {"sigmoid": {}}, {"argmax": {"axis": 0}}, {"argmax": {"axis": -1}}, {"topk": {"k": 2}}],
)
def test_an_output_has_the_shape_and_type_that_the_registry_foresees(dtype: str, step: dict[str, Any]) -> None:
    known = foreseen("output", [step], tensor_shapes.Tensor((4, 5), dtype))
    agree(done("output", Tensor(np.zeros((4, 5), dtype)), [step]), known)


def done(kind: Kind, start: object, steps: list[dict[str, Any]], folder: Path = Path()) -> Tensor:
    tensor: Any = start
    for bound in bind(kind, [Step(name, told) for step in steps for name, told in step.items()], folder):
        tensor = bound.apply(tensor)
    assert isinstance(tensor, Tensor)
    return tensor


def foreseen(
    kind: Kind, steps: list[dict[str, Any]], start: tensor_shapes.Tensor | None = None
) -> tensor_shapes.Tensor:
    typed = tuple(msgspec.convert(step, TYPES[kind]) for step in steps)
    return apply_steps(start or tensor_shapes.Tensor(), typed, Place(read_yaml("{}", "steps")))


def agree(tensor: Tensor, known: tensor_shapes.Tensor) -> None:
    assert known.sizes is not None
    assert len(tensor.values.shape) == len(known.sizes)
    for size, expected in zip(tensor.values.shape, known.sizes, strict=True):
        assert expected in (None, size)
    assert (str(tensor.values.dtype), tensor.layout) == (known.dtype, known.layout)
