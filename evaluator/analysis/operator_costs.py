"""The work of operators: floating-point operations and compulsory bytes, from their shapes alone.

FLOPs are twice the multiply-accumulates of convolutions and matrix products, without bias. All other kinds have 0. An
operator with a shape or type that is unknown has None, and a sum with it is a lower bound.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Final

from benchlock.evaluator.analysis.operator_kinds import (
    COMPUTING,
    count_output_channels,
    find_data,
    find_weights,
    kind_of,
)
from benchlock.evaluator.analysis.trace_types import Graph, Row, RowTensor

_PER_MAC: Final = 2
_SCATTERING: Final = "deconvolution"
"""oneDNN's transposed convolution, whose weights have the axes of a convolution."""
_SIZES: Final = {
    **dict.fromkeys(("float64", "int64", "uint64", "complex64", "double"), 8),
    **dict.fromkeys(("float32", "int32", "uint32", "float"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool"), 1),
}
"""The bytes of an element by type."""


def add_up(values: Iterable[int | None]) -> str | int:
    """Return the sum, or text with ``≥`` before that of the known values."""
    terms = list(values)
    total = sum(term for term in terms if term is not None)
    return f"≥ {total}" if None in terms else total


def count_flops(row: Row) -> int | None:
    """Return the FLOPs of an operator; None if they are unknown."""
    kind = kind_of(row)
    if kind == "other":
        return None
    if kind not in COMPUTING:
        return 0
    macs = _count_dense(row) if kind == "dense" else _count_convolution(row)
    return None if macs is None else _PER_MAC * macs


def _count_convolution(row: Row) -> int | None:
    """Return weight elements / output channels * output elements, which holds for any number of groups.

    A transposed convolution multiplies each element of its input instead: weight elements / input channels * input
    elements.
    """
    weights, output = find_weights(row), row.outputs[0] if row.outputs else None
    if weights is None or weights.shape is None or output is None or output.shape is None:
        return None
    layout = row.attributes.get("weight_format")
    if layout == "IOHW" or row.type == _SCATTERING:
        data = find_data(row)
        if data is None or not data.shape or len(data.shape) != len(weights.shape) or not data.shape[1]:
            return None
        return prod(data.shape) * prod(weights.shape) // data.shape[1]
    channels = count_output_channels(weights.shape, layout if isinstance(layout, str) else None)
    return prod(weights.shape) // channels * prod(output.shape) if channels else None


def _count_dense(row: Row) -> int | None:
    """Return output elements * the length of the products, which is that of a matrix of weights or of the data."""
    weights, output = find_weights(row), row.outputs[0] if row.outputs else None
    if output is None or not output.shape:
        return None
    if weights is not None and weights.shape is not None and len(weights.shape) == len("IO") and output.shape[-1]:
        return prod(weights.shape) // output.shape[-1] * prod(output.shape)
    data = find_data(row)
    if data is None or not data.shape:
        return None
    if min(len(data.shape), len(output.shape)) < len("IO") or not output.shape[-2]:
        return prod(output.shape) * data.shape[-1]
    # One axis of a matrix of the data is that of the output, in either order; the other is that of the products.
    return prod(output.shape) * (prod(data.shape[-2:]) // output.shape[-2])


def count_bytes(tensors: Sequence[RowTensor]) -> int | None:
    """Return the bytes of tensors, each once; None without tensors, or if a shape or type is unknown."""
    total = 0
    for tensor in tensors:
        size = _SIZES.get(tensor.dtype or "")
        if tensor.shape is None or size is None:
            return None
        total += prod(tensor.shape) * size
    return total if tensors else None


def find_model_flops(rows: Sequence[Row], graph: Graph | None) -> tuple[int | None, ...]:
    """Return the FLOPs that the model states for each executed row; None where no operator of the model fits.

    An operator is found by its name among the source names of a row. Operators without a row of their name are
    joined by kind and order, if there are as many as such rows.
    """
    if graph is None:
        return (None,) * len(rows)
    names = {name: position for position, row in enumerate(rows) for name in row.source_names}
    values: list[int | None] = [None if kind_of(row) in (*COMPUTING, "other") else 0 for row in rows]
    left: dict[str, list[Row]] = {}
    for operator in graph.rows:
        known = (name for name in (operator.name, *operator.source_names) if name in names)
        position = names.get(next(known, ""))
        kind, flops = kind_of(operator), count_flops(operator)
        if kind not in COMPUTING or flops is None:
            continue
        if position is None:
            left.setdefault(kind, []).append(operator)
        else:
            values[position] = (values[position] or 0) + flops
    for kind, operators in left.items():
        free = [index for index, row in enumerate(rows) if kind_of(row) == kind and values[index] is None]
        if len(free) == len(operators):
            for index, operator in zip(free, operators, strict=True):
                values[index] = count_flops(operator)
    return tuple(values)
