"""FLOPs and bytes of operators, to the unit."""

from typing import Any

import pytest

from benchlock.evaluator.analysis.operator_costs import (
    add_up,
    count_bytes,
    count_flops,
    find_model_flops,
)
from benchlock.evaluator.analysis.trace_types import Graph, Row, RowTensor

CONV = (1, 16, 32, 32)


def operator(
    type_: str,
    output: tuple[int, ...] | None,
    *inputs: tuple[int, ...] | None,
    layout: str | None = None,
    **more: Any,  # noqa: ANN401 - fields of a row
) -> Row:
    roles = ("data", "weight", "bias")
    tensors = tuple(RowTensor(shape, "float32", role) for shape, role in zip(inputs, roles, strict=False))
    attributes = {} if layout is None else {"weight_format": layout}
    fields = {"index": 0, "level": "layer", "name": "a", **more}
    return Row(type=type_, inputs=tensors, outputs=(RowTensor(output, "float32"),), attributes=attributes, **fields)


@pytest.mark.parametrize(
    ("row", "flops"),
    [
        (operator("Conv", CONV, (1, 3, 32, 32), (16, 3, 3, 3), (16,), layout="OIHW"), 884_736),
        (operator("Conv2D", (1, 32, 32, 16), (1, 32, 32, 3), (3, 3, 3, 16), layout="HWIO"), 884_736),
        (operator("CONV_2D", (1, 32, 32, 16), (1, 32, 32, 3), (16, 3, 3, 3), layout="OHWI"), 884_736),
        (operator("Conv", (1, 16, 112, 112), (1, 16, 112, 112), (16, 1, 3, 3), layout="OIHW"), 3_612_672),
        (operator("DepthwiseConv2dNative", (1, 8, 8, 16), (1, 8, 8, 8), (3, 3, 8, 2), layout="HWIM"), 18_432),
        (operator("DEPTHWISE_CONV_2D", (1, 8, 8, 16), (1, 8, 8, 16), (1, 3, 3, 16), layout="1HWO"), 18_432),
        (operator("Conv", (4, 16, 32, 32), (4, 3, 32, 32), (16, 3, 3, 3), layout="OIHW"), 4 * 884_736),
        (operator("ConvTranspose", (1, 8, 4, 4), (1, 16, 2, 2), (16, 8, 2, 2), layout="IOHW"), 2 * 64 * 32),
        (operator("aten::_convolution", (1, 8, 4, 4), (1, 16, 2, 2), (16, 8, 2, 2), layout="IOHW"), 2 * 64 * 32),
        (operator("deconvolution", (1, 8, 4, 4), (1, 16, 2, 2), (8, 16, 2, 2), layout="OIHW"), 2 * 64 * 32),
        (operator("ConvTranspose", (1, 8, 4, 4), (1, 0, 2, 2), (0, 8, 2, 2), layout="IOHW"), None),
        (operator("Gemm", (1, 10), (1, 64), (10, 64), layout="OI"), 1_280),
        (operator("MatMul", (1, 10), (1, 64), (64, 10)), 1_280),
        (operator("MatMul", (2, 5, 7), (2, 5, 3), (2, 3, 7)), 420),
        (operator("FusedMatMul", (8, 16), (32, 8), None), 2 * 8 * 16 * 32),
        (operator("MatMul", (10,), (64,), None), 1_280),
        (operator("Fully Connected", (1, 8, 8, 4), (1, 8, 8, 2), (4, 1, 1, 2), layout="OHWI"), 1_024),
        (operator("Relu", CONV, CONV), 0),
        (operator("Conv", None, (1, 3, 32, 32), (16, 3, 3, 3), layout="OIHW"), None),
        (operator("Conv", CONV, (1, 3, 32, 32), None, layout="OIHW"), None),
        (operator("Conv", CONV, (1, 3, 32, 32), (16, 3, 3, 3)), None),
        (operator("Conv", CONV, (1, 3, 32, 32)), None),
        (operator("LSTM", CONV, CONV), None),
    ],
)
def test_flops_are_twice_the_multiplications(row: Row, flops: int | None) -> None:
    assert count_flops(row) == flops


def test_a_sum_with_an_unknown_term_is_a_lower_bound() -> None:
    rows = [operator("Gemm", (1, 10), (1, 64), (10, 64), layout="OI"), operator("LSTM", CONV, CONV)]
    assert add_up(map(count_flops, rows)) == "≥ 1280"
    assert add_up(map(count_flops, rows[:1])) == 1_280
    assert add_up(map(count_flops, [operator("Conv", None, None, None)])) == "≥ 0"
    assert add_up([]) == 0


def test_bytes_are_those_of_every_tensor_once() -> None:
    row = operator("Conv", CONV, (1, 3, 32, 32), (16, 3, 3, 3), (16,), layout="OIHW")
    assert count_bytes(row.inputs) == 4 * (3 * 1024 + 432 + 16)
    assert count_bytes(row.outputs) == 4 * 16 * 1024
    assert count_bytes([RowTensor((3, 2), "int8")]) == 6
    assert count_bytes([RowTensor((3, 2), "string"), RowTensor((3, 2), "int8")]) is None
    assert count_bytes([]) is None


def test_flops_of_the_model_are_found_by_name_then_by_order() -> None:
    small, large = (
        operator("Conv", CONV, (1, 3, 32, 32), (16, 3, 3, 3), layout="OIHW", name="c1", index=0),
        operator("Conv", CONV, (1, 16, 32, 32), (16, 16, 3, 3), layout="OIHW", name="c2", index=1),
    )
    flops = (884_736, 4_718_592)
    fused = [
        operator("Conv", CONV, name="x", source_names=("c2",)),
        operator("Conv", CONV, name="y", source_names=("c1", "r")),
    ]
    assert find_model_flops(fused, Graph(rows=(small, large))) == flops[::-1]
    unnamed = [operator("Conv", CONV, name="x"), operator("Relu", CONV, name="r"), operator("Conv", CONV, name="y")]
    assert find_model_flops(unnamed, Graph(rows=(small, large))) == (flops[0], 0, flops[1])
    assert find_model_flops(unnamed[:2], Graph(rows=(small, large))) == (None, 0)
    assert find_model_flops(unnamed, None) == (None, None, None)
