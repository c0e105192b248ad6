"""The operators and the sizes of the constants in an ONNX file, which ONNX Runtime does not list.

ONNX's own library is not in the images. Only the structure is read (https://onnx.ai/onnx/repo-docs/IR.html, and
https://protobuf.dev/programming-guides/encoding); weights are skipped.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

_GRAPH, _NODE, _INITIALIZER, _DIMS = 7, 1, 5, 1
_INPUT, _OUTPUT, _NAME, _TYPE = 1, 2, 3, 4
_VARINT, _BYTES = 0, 2
_FIXED: Final = {1: 8, 5: 4}
"""The bytes of values by type of encoding."""
_CONTINUES, _SEVEN_BITS = 0x80, 0x7F


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node of the graph with the names of its tensors."""

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def read_onnx(path: Path) -> tuple[tuple[OnnxNode, ...], int]:
    """Return the nodes of the main graph, and the number of values in its constants (initializers).

    Raises:
        ValueError: The file is malformed.
    """
    try:
        with path.open("rb") as stream:
            data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        graph = next(value for key, value in _fields(data) if key == _GRAPH and isinstance(value, memoryview))
        parts = [(key, value) for key, value in _fields(graph) if isinstance(value, memoryview)]
        nodes = tuple(_node(value) for key, value in parts if key == _NODE)
        return nodes, sum(prod(_dims(value)) for key, value in parts if key == _INITIALIZER)
    except (IndexError, KeyError, StopIteration, ValueError) as error:
        raise ValueError(f"{path.name} is not an ONNX file") from error


def _node(message: memoryview) -> OnnxNode:
    texts: dict[int, list[str]] = {_INPUT: [], _OUTPUT: [], _NAME: [], _TYPE: []}
    for key, value in _fields(message):
        if key in texts and isinstance(value, memoryview):
            texts[key].append(str(value, "utf-8", "replace"))
    return OnnxNode("".join(texts[_NAME]), "".join(texts[_TYPE]), tuple(texts[_INPUT]), tuple(texts[_OUTPUT]))


def _dims(message: memoryview) -> Iterator[int]:
    for key, value in _fields(message):
        if key == _DIMS and isinstance(value, int):
            yield value
        at = 0
        while key == _DIMS and isinstance(value, memoryview) and at < len(value):  # packed
            size, at = _varint(value, at)
            yield size


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the numbered fields of a message: numbers, or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        size, at = _varint(data, at) if kind in (_VARINT, _BYTES) else (_FIXED[kind], at)
        if kind == _VARINT:
            yield tag >> 3, size
            continue
        if at + size > len(data):
            raise IndexError
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & _SEVEN_BITS) << shift
        at, shift = at + 1, shift + 7
        if not byte & _CONTINUES:
            return value, at
