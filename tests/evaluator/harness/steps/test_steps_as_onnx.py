"""Steps that ONNX defines too, against the reference implementation that its specification carries.

Exactly where nothing is rounded; else within 1e-5 of the largest value, since the reference computes in float32.
"""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from benchlock.evaluator.harness.steps import Tensor
from benchlock.evaluator.harness.steps.audio import spectrogram
from benchlock.evaluator.harness.steps.image import resize
from benchlock.evaluator.harness.steps.numeric import (
    argmax,
    dequantize,
    normalize,
    pad,
    quantize,
    reshape,
    scale,
    sigmoid,
    softmax,
    topk,
    transpose,
)

COORDINATES = {"half_pixel": "half_pixel", "asymmetric": "asymmetric", "align_corners": "align_corners"}
NEAREST = {"half_pixel": "round_prefer_ceil", "asymmetric": "floor", "align_corners": "round_prefer_floor"}
"""What ONNX calls the pixel that each convention takes; the sizes below leave no point half-way for align_corners."""


def onnx(operator: str, *inputs: NDArray[Any] | None, **attributes: Any) -> NDArray[Any]:  # noqa: ANN401 - ONNX's own
    """The last output of one operator: of TopK the indices, of all others the only one."""
    names = ["" if value is None else f"input_{index}" for index, value in enumerate(inputs)]
    node = helper.make_node(operator, names, ["output", "more"][: 2 if operator == "TopK" else 1], **attributes)
    given = {name: value for name, value in zip(names, inputs, strict=True) if value is not None}
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), None)
        for name, value in given.items()
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in node.output]
    model = helper.make_model(helper.make_graph([node], "one", ports, results))
    found: list[Any] = list(ReferenceEvaluator(model).run(None, given))
    return np.asarray(found[-1])


def noise(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(17).normal(0, 40, shape).astype(np.float32)


def near(found: NDArray[Any], reference: NDArray[Any]) -> None:
    assert found.shape == reference.shape
    np.testing.assert_allclose(found, reference, rtol=0, atol=1e-5 * np.abs(reference).max())


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("size", [(4, 9), (20, 31)])
@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic"])
def test_resize_without_antialias(method: str, size: tuple[int, int], coordinates: str) -> None:
    picture = noise(11, 17, 1)
    mode = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic"}[method]
    reference = onnx(
        "Resize", picture[..., 0], None, None, np.array(size), mode=mode, cubic_coeff_a=-0.75,
        coordinate_transformation_mode=COORDINATES[coordinates], nearest_mode=NEAREST[coordinates],
    )  # fmt: skip
    found = resize(Tensor(picture, "HWC"), size=size, method=method, antialias=False, coordinates=coordinates)
    near(found.values[..., 0], reference)


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 128), ("int8", -3)])
def test_quantize_and_dequantize(dtype: str, zero: int) -> None:
    values, factor, middle = noise(500), np.array(0.37, np.float32), np.array(zero, dtype)
    quantized = quantize(Tensor(values), scale=0.37, zero_point=zero, dtype=dtype).values
    np.testing.assert_array_equal(quantized, onnx("QuantizeLinear", values, factor, middle))
    found = dequantize(Tensor(quantized), scale=0.37, zero_point=zero, dtype="float32").values
    np.testing.assert_array_equal(found, onnx("DequantizeLinear", quantized, factor, middle))


def test_order_and_shape() -> None:
    picture = noise(4, 5, 3)
    np.testing.assert_array_equal(
        transpose(Tensor(picture, "HWC"), layout="NCHW").values, onnx("Transpose", picture, perm=[2, 0, 1])
    )
    np.testing.assert_array_equal(
        reshape(Tensor(picture), shape=[6, -1]).values, onnx("Reshape", picture, np.array([6, -1]))
    )
    np.testing.assert_array_equal(
        pad(Tensor(picture, "HWC"), top=1, bottom=2, left=3, right=0, value=7).values,
        onnx("Pad", picture, np.array([1, 3, 0, 2, 0, 0]), np.array(7, np.float32)),
    )


def test_sums_and_products() -> None:
    picture, mean, std = noise(4, 5, 3), [1.5, -2.0, 30.0], [0.5, 3.0, 7.0]
    less = onnx("Sub", picture, np.array(mean, np.float32))
    near(normalize(Tensor(picture, "HWC"), mean=mean, std=std).values, onnx("Div", less, np.array(std, np.float32)))
    near(scale(Tensor(picture), factor=1 / 255).values, onnx("Mul", picture, np.array(1 / 255, np.float32)))


def test_outputs() -> None:
    scores = noise(6, 10)
    near(softmax(Tensor(scores), axis=-1).values, onnx("Softmax", scores, axis=-1))
    near(sigmoid(Tensor(scores / 10)).values, onnx("Sigmoid", scores / 10))
    np.testing.assert_array_equal(topk(Tensor(scores), k=3).values, onnx("TopK", scores, np.array([3]), axis=-1))
    tied = np.rint(scores / 40)
    np.testing.assert_array_equal(argmax(Tensor(tied), axis=1).values, onnx("ArgMax", tied, axis=1, keepdims=0))


@pytest.mark.parametrize(("window", "periodic"), [("hann_periodic", 1), ("hann", 0)])
def test_the_spectrum_of_windowed_frames(window: str, periodic: int) -> None:
    sound = noise(300)
    weights = onnx("HannWindow", np.array(64), periodic=periodic)
    complexes = onnx("STFT", sound[None, :, None], np.array(20), weights.astype(np.float32), np.array(64), onesided=1)
    found = spectrogram(Tensor(sound), frame_length=64, frame_step=20, fft_length=64, window=window, power=2)
    near(found.values, (complexes[0] ** 2).sum(axis=-1))
