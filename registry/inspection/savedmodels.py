"""SavedModels: the signatures in ``saved_model.pb``. Field numbers are those of TensorFlow's ``meta_graph.proto``."""

from collections.abc import Mapping
from typing import BinaryIO

from benchlock.registry.inspection.graphs import FoundGraph, FoundTensor, Size
from benchlock.registry.inspection.protobuf import MalformedError, Message, signed, whole

FILE = "saved_model.pb"

_DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 9: "int64", 10: "bool",
    17: "uint16", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip
_MARKER = "__saved_model_init_op"
"""A signature that initialises, and predicts nothing."""


def read_signatures(stream: BinaryIO, size: int) -> Mapping[str, FoundGraph]:
    """The signatures by name; inputs and outputs sorted by name, since the file keeps no order.

    Raises:
        MalformedError: it is no SavedModel.
    """
    graphs = list(whole(stream, size).all(2))
    if not graphs:
        raise MalformedError("it holds no graph")
    signatures = {key: value for graph in graphs for key, value in _entries(graph, 5)}
    return {name: _signature(found) for name, found in sorted(signatures.items()) if name != _MARKER}


def _signature(signature: Message) -> FoundGraph:
    inputs, outputs = (
        tuple(_tensor(name, tensor) for name, tensor in sorted(_entries(signature, number), key=lambda pair: pair[0]))
        for number in (1, 2)
    )
    return FoundGraph(inputs, outputs)


def _entries(message: Message, number: int) -> list[tuple[str, Message]]:
    """The entries of a map of messages."""
    found = []
    for entry in message.all(number):
        value = entry.first(2)
        if value is None:
            raise MalformedError("an entry of a map has no value")
        found.append((entry.text(1), value))
    return found


def _tensor(name: str, tensor: Message) -> FoundTensor:
    shape = tensor.first(3)
    known = shape is not None and not shape.value(3)
    sizes = tuple(_size(axis) for axis in shape.all(2)) if shape is not None and known else None
    return FoundTensor(name, _DTYPES.get(tensor.value(2)), sizes)


def _size(axis: Message) -> Size:
    size = signed(axis.value(1))
    return size if size > 0 else None
