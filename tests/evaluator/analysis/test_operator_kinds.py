"""Kinds of operators of four frameworks, by the same rules."""

from typing import Any

import pytest

from benchlock.evaluator.analysis.operator_kinds import KINDS, kind_of
from benchlock.evaluator.analysis.trace_types import Row, RowTensor

TYPES = {
    "conv": ("Conv", "FusedConv", "CONV_2D", "_MklNativeFusedConv2D", "_FusedConv2D", "Conv2D", "aten::_convolution"),
    "depthwise_conv": ("DepthwiseConv2dNative", "DEPTHWISE_CONV_2D", "_FusedDepthwiseConv2dNative"),
    "dense": ("Gemm", "MatMul", "FusedMatMul", "FULLY_CONNECTED", "aten::linear", "aten::addmm", "Fully Connected"),
    "pool": (
        "AveragePool",
        "GlobalAveragePool",
        "AVERAGE_POOL_2D",
        "AvgPool",
        "aten::mean",
        "Average Pooling",
        "MaxPool",
    ),
    "norm": ("BatchNormalization", "FusedBatchNormV3", "aten::batch_norm", "LayerNormalization"),
    "activation": ("Relu", "Clip", "Relu6", "aten::relu", "aten::relu6", "Clamp", "RELU", "aten::relu_"),
    "elementwise": ("Add", "AddV2", "AddN", "Mul", "ADD", "aten::add", "BiasAdd", "Rsqrt", "aten::add_"),
    "softmax": ("Softmax", "SOFTMAX", "aten::softmax"),
    "layout": (
        *(
            "Transpose",
            "ReorderInput",
            "ReorderOutput",
            "Pad",
            "Reshape",
            "Flatten",
            "SQUEEZE",
            "aten::pad",
            "Static Reshape",
        ),
        *("aten::slice", "Concat", "Gather", "reorder"),
    ),
    "constant": ("Const", "NoOp", "_Arg", "_Retval", "Identity", "VarHandleOp", "ReadVariableOp"),
    "copy": ("aten::copy_", "MemcpyToHost", "aten::clone"),
    "other": ("LSTM", "MyOperator", "", "::", "Einsum"),
}


@pytest.mark.parametrize(("kind", "type_"), [(kind, type_) for kind, types in TYPES.items() for type_ in types])
def test_a_type_has_a_kind(kind: str, type_: str) -> None:
    assert kind_of(Row(index=0, level="layer", name="a", type=type_)) == kind


def test_every_kind_is_tested() -> None:
    assert set(TYPES) == set(KINDS)


def with_weights(
    type_: str,
    layout: str,
    weights: tuple[int, ...],
    data: tuple[int, ...],
    **more: Any,  # noqa: ANN401 - fields of a row
) -> Row:
    inputs = (RowTensor(data, "float32", "data"), RowTensor(weights, "float32", "weight"))
    attributes = {"weight_format": layout, **more.pop("attributes", {})}
    return Row(index=0, level="layer", name="a", type=type_, inputs=inputs, attributes=attributes, **more)


@pytest.mark.parametrize(
    ("layout", "weights", "data", "attributes", "kind"),
    [
        ("OIHW", (16, 3, 3, 3), (1, 3, 32, 32), {"group": 1}, "conv"),
        ("OIHW", (16, 1, 3, 3), (1, 16, 32, 32), {"group": 16}, "depthwise_conv"),
        ("OIHW", (16, 1, 3, 3), (1, 16, 32, 32), {}, "depthwise_conv"),
        ("OIHW", (8, 1, 5, 5), (1, 1, 28, 28), {"group": 1}, "conv"),
        ("OIHW", (16, 8, 3, 3), (1, 16, 32, 32), {"group": 2}, "conv"),
        ("HWIO", (3, 3, 3, 16), (1, 32, 32, 3), {}, "conv"),
        ("HWIM", (3, 3, 16, 1), (1, 32, 32, 16), {}, "depthwise_conv"),
        ("1HWO", (1, 3, 3, 16), (1, 32, 32, 16), {}, "depthwise_conv"),
        ("OHWI", (16, 1, 1, 8), (1, 32, 32, 8), {}, "conv"),
        ("OIHW", (16, 1), (1, 16, 32, 32), {}, "conv"),
    ],
)
def test_a_convolution_of_single_channels_is_depthwise(
    layout: str, weights: tuple[int, ...], data: tuple[int, ...], attributes: dict[str, int], kind: str
) -> None:
    assert kind_of(with_weights("Conv", layout, weights, data, attributes=attributes)) == kind


def test_a_fully_connected_layer_of_xnnpack_is_what_the_file_has() -> None:
    layer = with_weights("Fully Connected (NHWC, F32)", "OHWI", (16, 1, 1, 8), (1, 32, 32, 8), source_type="CONV_2D")
    assert kind_of(layer) == "conv"
    assert kind_of(Row(index=0, level="layer", name="a", type="Fully Connected", source_type="CONV_2D")) == "conv"
    assert (
        kind_of(Row(index=0, level="layer", name="a", type="Fully Connected", source_type="FULLY_CONNECTED")) == "dense"
    )
    assert kind_of(with_weights("Fully Connected", "OHWI", (16, 1, 1, 8), (1, 32, 32, 8))) == "conv"
    assert kind_of(with_weights("Fully Connected", "OI", (10, 64), (1, 64))) == "dense"


def test_a_source_decides_what_the_runtime_does_not() -> None:
    assert kind_of(Row(index=0, level="layer", name="a", type="Clamp", source_type="ADD")) == "activation"
    assert kind_of(Row(index=0, level="layer", name="a", type="Delegate/9", source_type="ADD")) == "elementwise"
