"""ONNX graphs: inputs, outputs, and the files in which they keep weights. Field numbers are those of ``onnx.proto``."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from benchlock.registry.inspection.graphs import FoundGraph, FoundTensor, Size
from benchlock.registry.inspection.protobuf import MalformedError, Message, signed, whole

_DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
}  # fmt: skip
_OTHERS = {4: "a sequence", 5: "a map", 8: "a sparse tensor", 9: "optional"}
"""What a type may be that is no tensor's, by the field that says so."""
_PRODUCER = 2
_GRAPH = 7
_EXTERNAL = 1
_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
"""In which fields of a message there are messages that hold tensors."""


@dataclass(frozen=True, slots=True)
class External:
    """Where the values of a tensor lie outside the graph: a file, from the graph's folder, and the bytes in it."""

    tensor: str
    location: str
    offset: int
    length: int | None


def read_graph(stream: BinaryIO, size: int) -> FoundGraph:
    """The inputs that must be fed, those with a default value left out, and the outputs.

    Raises:
        MalformedError: it is no ONNX model.
    """
    model = whole(stream, size)
    graph = _graph(model)
    preset = {tensor.text(8) for tensor in graph.all(5)}
    preset |= {values.text(8) for sparse in graph.all(15) for values in sparse.all(1)}
    inputs = tuple(tensor for tensor in map(_tensor, graph.all(11)) if tensor.name not in preset)
    return FoundGraph(inputs, tuple(map(_tensor, graph.all(12))), model.text(_PRODUCER))


def external_files(stream: BinaryIO, size: int) -> tuple[External, ...]:
    """The tensors of a model whose values lie in other files: initial values, attributes, those of inner graphs too.

    Raises:
        MalformedError: it is no ONNX model, or does not say where such values lie.
    """
    return tuple(
        _external(tensor) for tensor in _tensors(whole(stream, size), "model") if tensor.value(14) == _EXTERNAL
    )


def _graph(model: Message) -> Message:
    found = None
    for field in model.fields():
        if field.number == _GRAPH:
            found = model.inside(field)
    if found is None:
        raise MalformedError("it holds no graph")
    return found


def _tensor(declared: Message) -> FoundTensor:
    """A ValueInfoProto: its type is a tensor's, or one for which manifests have no word."""
    of_type = declared.first(2)
    tensor = of_type.first(1) if of_type else None
    if tensor is None:
        numbers = [] if of_type is None else [field.number for field in of_type.fields()]
        return FoundTensor(declared.text(1), other=next((_OTHERS[one] for one in numbers if one in _OTHERS), None))
    shape = tensor.first(2)
    sizes = None if shape is None else tuple(_size(axis) for axis in shape.all(1))
    return FoundTensor(declared.text(1), _DTYPES.get(tensor.value(1)), sizes)


def _size(axis: Message) -> Size:
    number, name = signed(axis.value(1, -1 % (1 << 64))), axis.text(2)
    return number if number > 0 else name or None


def _tensors(message: Message, of_type: str) -> Iterator[Message]:
    if of_type == "tensor":
        yield message
        return
    inside = _INSIDE[of_type]
    for field in message.fields():
        if field.number in inside and field.size is not None:
            yield from _tensors(message.inside(field), inside[field.number])


def _external(tensor: Message) -> External:
    said = {entry.text(1): entry.text(2) for entry in tensor.all(13)}
    name = tensor.text(8)
    try:
        length = int(said["length"]) if "length" in said else None
        return External(name, said["location"], int(said.get("offset", "0")), length)
    except (KeyError, ValueError) as error:
        raise MalformedError(f"the tensor {name!r} does not say where its values lie") from error
