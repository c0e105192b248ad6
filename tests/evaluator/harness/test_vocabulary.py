"""The harness does the steps that manifests may name, with the arguments and the effects that the registry knows."""

import inspect
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import UNSET, Struct
from msgspec.structs import fields

from evaluator.harness.steps import STEPS, Tensor
from registry.manifests import tensors
from registry.manifests.effects import follow
from registry.manifests.steps import ImageStep, OutputStep
from registry.yaml import Place, read

# Steps that a manifest may name and that no harness does yet: `lock` refuses them.
NOT_BUILT = {"python"}


def vocabulary() -> dict[str, type[Struct]]:
    """The steps of pictures and of outputs, with the type of their arguments."""
    found: dict[str, type[Struct]] = {}
    for kind in (ImageStep, OutputStep):
        for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined]
            found[field.name] = field.type.cls
    return found


def test_the_harness_has_every_step_and_no_other() -> None:
    assert set(STEPS) == set(vocabulary()) - NOT_BUILT


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_step_takes_the_arguments_of_the_manifest_and_demands_the_same(name: str) -> None:
    arguments = {field.name: field.default is msgspec.NODEFAULT for field in fields(vocabulary()[name])}
    assert all(field.default in (msgspec.NODEFAULT, UNSET) for field in fields(vocabulary()[name]))
    parameters = list(inspect.signature(STEPS[name]).parameters.values())[1:]
    assert {parameter.name: parameter.default is parameter.empty for parameter in parameters} == arguments


PICTURE = {"decode": {"color": "RGB", "exif": "ignore"}}
GREY = {"decode": {"color": "L", "exif": "ignore"}}
HALVED: dict[str, Any] = {"resize": {"size": [6, 4], "method": "bilinear", "antialias": True}}


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
    foreseen = follow(tensors.Tensor(), msgspec.convert(steps, tuple[ImageStep, ...]), place())
    tensor: Any = np.zeros((12, 9), np.uint8)
    for step in steps:
        ((name, arguments),) = step.items()
        tensor = STEPS[name](tensor, **arguments)
    agree(tensor, foreseen)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize(
    "step",
    [{"softmax": {"axis": -1}}, {"sigmoid": {}}, {"argmax": {"axis": 0}}, {"argmax": {"axis": -1}}, {"topk": {"k": 2}}],
)
def test_an_output_has_the_shape_and_type_that_the_registry_foresees(dtype: str, step: dict[str, Any]) -> None:
    foreseen = follow(tensors.Tensor((4, 5), dtype), msgspec.convert([step], tuple[OutputStep, ...]), place())
    ((name, arguments),) = step.items()
    agree(STEPS[name](Tensor(np.zeros((4, 5), dtype)), **arguments), foreseen)


def place() -> Place:
    return Place(read("{}", "steps"))


def agree(tensor: Tensor, foreseen: tensors.Tensor) -> None:
    assert foreseen.sizes is not None
    assert len(tensor.values.shape) == len(foreseen.sizes)
    for size, known in zip(tensor.values.shape, foreseen.sizes, strict=True):
        assert known in (None, size)
    assert (str(tensor.values.dtype), tensor.layout) == (foreseen.dtype, foreseen.layout)
