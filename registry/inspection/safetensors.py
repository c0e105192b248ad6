"""The header of a safetensors file: names, types and shapes of tensors, and whether they fill the file."""

import json
import math
import struct
from dataclasses import dataclass
from typing import Any, BinaryIO

from benchlock.registry.inspection.budgets import BUDGET, OverBudgetError, check_count, in_units
from benchlock.registry.inspection.protobuf import MalformedError

LONGEST_HEADER = 100_000_000
"""Bytes of the longest header that the format allows."""

_TOO_MANY = 1 << 63

_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as the header describes it; ``dtype`` is the format's word."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def read_header(stream: BinaryIO, size: int) -> tuple[StoredTensor, ...]:
    """The tensors of a file of ``size`` bytes, in the order of their values.

    Raises:
        MalformedError: it breaks the format's rules: a JSON header of tensors that fill the rest of the file, without a
            gap or an overlap.
    """
    try:
        return _tensors(stream, size)
    except MalformedError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, struct.error, RecursionError) as error:
        raise MalformedError(f"its header cannot be read: {error}") from error


def _tensors(stream: BinaryIO, size: int) -> tuple[StoredTensor, ...]:
    (length,) = struct.unpack("<Q", stream.read(8))
    room = size - 8 - length
    if length > LONGEST_HEADER or room < 0:
        raise MalformedError("its header is longer than the file")
    if length > BUDGET.header:
        raise OverBudgetError(f"has a header of more than {in_units(BUDGET.header)}")
    header = json.loads(stream.read(length), object_pairs_hook=_distinct)
    tensors = [(name, tensor) for name, tensor in header.items() if name != "__metadata__"]
    tensors.sort(key=lambda pair: tuple(pair[1]["data_offsets"]))
    end = 0
    for name, tensor in tensors:
        begin, stop = tensor["data_offsets"]
        if begin != end or 8 * (stop - begin) != _elements(name, tensor["shape"]) * _BITS[tensor["dtype"]]:
            raise MalformedError(f"the tensor {name} does not fit its place")
        end = stop
    if end != room:
        raise MalformedError(f"its tensors have {end} bytes, and the file has {room} for them")
    return tuple(StoredTensor(name, tensor["dtype"], tuple(tensor["shape"])) for name, tensor in tensors)


def _elements(name: str, shape: list[Any]) -> int:
    """The product of the sizes, whose number and values are bounded before they are multiplied."""
    check_count(len(shape), BUDGET.axes, f"axes, of the tensor {name[:100]!r}")
    if not all(isinstance(size, int) and 0 <= size < _TOO_MANY for size in shape):
        raise MalformedError(f"the tensor {name[:100]} has a shape of no sizes")
    product: int = math.prod(shape)
    return product


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Readers differ in which of two equal names they take."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise MalformedError("a name stands twice in its header")
    return found
