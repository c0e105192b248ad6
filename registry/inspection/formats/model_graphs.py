"""Inputs and outputs of model graphs: ONNX, SavedModel and TFLite, read without their frameworks."""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from benchlock.registry.inspection.formats.protobuf import MalformedError, Message, to_signed, whole_message

Size = int | str | None
"""A size of a tensor: a number, the name of a free axis, or None for a free axis without a name."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """The meaning of quantized integers: ``(x - zero_point) * scale``."""

    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """An input or output as a graph declares it; None where it is not stated, or manifests cannot express it.

    ``other`` is the type in words if it is not a tensor: ``a sequence``.
    """

    name: str
    dtype: str | None = None
    sizes: tuple[Size, ...] | None = None
    quantization: Quantization | None = None
    other: str | None = None


@dataclass(frozen=True, slots=True)
class GraphSignature:
    """The inputs and outputs of a graph; ``producer`` is the tool that wrote it."""

    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]
    producer: str = ""


_ONNX_DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
}  # fmt: skip
_OTHERS = {4: "a sequence", 5: "a map", 8: "a sparse tensor", 9: "optional"}
"""Types other than tensors, by the field that declares them."""
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
"""The fields of messages that lead to tensors, by message."""


@dataclass(frozen=True, slots=True)
class External:
    """The location of a tensor's values outside the graph: a path from the graph's folder, and the bytes there."""

    tensor: str
    location: str
    offset: int
    length: int | None


def read_onnx_graph(stream: BinaryIO, size: int) -> GraphSignature:
    """Return the outputs of an ONNX model, and the inputs without a default value.

    Raises:
        MalformedError: The file is not an ONNX model.
    """
    model = whole_message(stream, size)
    graph = _graph(model)
    preset = {tensor.text(8) for tensor in graph.all(5)}
    preset |= {values.text(8) for sparse in graph.all(15) for values in sparse.all(1)}
    inputs = tuple(tensor for tensor in map(_read_onnx_tensor, graph.all(11)) if tensor.name not in preset)
    return GraphSignature(inputs, tuple(map(_read_onnx_tensor, graph.all(12))), model.text(_PRODUCER))


def external_files(stream: BinaryIO, size: int) -> tuple[External, ...]:
    """Return all tensors with values in other files: initial values and attributes, in inner graphs too.

    Raises:
        MalformedError: The file is not an ONNX model, or does not state where such values are.
    """
    return tuple(
        _external(tensor) for tensor in _tensors(whole_message(stream, size), "model") if tensor.value(14) == _EXTERNAL
    )


def _graph(model: Message) -> Message:
    """Return the last graph of a model."""
    graph = None
    for field in model.fields():
        if field.number == _GRAPH:
            graph = model.inside(field)
    if graph is None:
        raise MalformedError("it does not contain a graph")
    return graph


def _read_onnx_tensor(declared: Message) -> GraphTensor:
    """Read a ValueInfoProto, whose type is a tensor's or one that manifests cannot express."""
    type_message = declared.first(2)
    tensor = type_message.first(1) if type_message else None
    if tensor is None:
        numbers = [] if type_message is None else [field.number for field in type_message.fields()]
        return GraphTensor(
            declared.text(1), other=next((_OTHERS[number] for number in numbers if number in _OTHERS), None)
        )
    shape = tensor.first(2)
    sizes = None if shape is None else tuple(_read_onnx_size(axis) for axis in shape.all(1))
    return GraphTensor(declared.text(1), _ONNX_DTYPES.get(tensor.value(1)), sizes)


def _read_onnx_size(axis: Message) -> Size:
    """Return a positive size, else the name of the axis, if it has one."""
    number, name = to_signed(axis.value(1, -1 % (1 << 64))), axis.text(2)
    return number if number > 0 else name or None


def _tensors(message: Message, of_type: str) -> Iterator[Message]:
    """Yield all tensors in a message."""
    if of_type == "tensor":
        yield message
        return
    inside = _INSIDE[of_type]
    for field in message.fields():
        if field.number in inside and field.size is not None:
            yield from _tensors(message.inside(field), inside[field.number])


def _external(tensor: Message) -> External:
    """Return the location of a tensor's values."""
    values = {entry.text(1): entry.text(2) for entry in tensor.all(13)}
    name = tensor.text(8)
    try:
        length = int(values["length"]) if "length" in values else None
        return External(name, values["location"], int(values.get("offset", "0")), length)
    except (KeyError, ValueError) as error:
        raise MalformedError(f"the tensor {name!r} has no location of its values") from error


FILE = "saved_model.pb"
"""The name of the graph's file in a SavedModel."""

_SAVEDMODEL_DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 9: "int64", 10: "bool",
    17: "uint16", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip
_MARKER = "__saved_model_init_op"
"""A signature that initialises the model, and predicts nothing."""


def read_signatures(stream: BinaryIO, size: int) -> Mapping[str, GraphSignature]:
    """Return the signatures by name, with inputs and outputs sorted by name, since the file keeps no order.

    Raises:
        MalformedError: The file is not a SavedModel.
    """
    graphs = list(whole_message(stream, size).all(2))
    if not graphs:
        raise MalformedError("it does not contain a graph")
    signatures = {key: value for graph in graphs for key, value in _entries(graph, 5)}
    return {name: _signature(signature) for name, signature in sorted(signatures.items()) if name != _MARKER}


def _signature(signature: Message) -> GraphSignature:
    """Return the inputs and outputs of a signature."""
    inputs, outputs = (
        tuple(
            _read_savedmodel_tensor(name, tensor)
            for name, tensor in sorted(_entries(signature, number), key=lambda pair: pair[0])
        )
        for number in (1, 2)
    )
    return GraphSignature(inputs, outputs)


def _entries(message: Message, number: int) -> list[tuple[str, Message]]:
    """Return the entries of a map of messages."""
    entries = []
    for entry in message.all(number):
        value = entry.first(2)
        if value is None:
            raise MalformedError("an entry of a map has no value")
        entries.append((entry.text(1), value))
    return entries


def _read_savedmodel_tensor(name: str, tensor: Message) -> GraphTensor:
    """Read a TensorInfo."""
    shape = tensor.first(3)
    known = shape is not None and not shape.value(3)
    sizes = tuple(_read_savedmodel_size(axis) for axis in shape.all(2)) if shape is not None and known else None
    return GraphTensor(name, _SAVEDMODEL_DTYPES.get(tensor.value(2)), sizes)


def _read_savedmodel_size(axis: Message) -> Size:
    """Return a positive size; None for a free axis."""
    size = to_signed(axis.value(1))
    return size if size > 0 else None


_IDENTIFIER = b"TFL3"
_TFLITE_DTYPES = {
    0: "float32", 1: "float16", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 9: "int8",
    10: "float64", 12: "uint64", 15: "uint32", 16: "uint16",
}  # fmt: skip
_LONGEST = 1 << 16  # elements of a vector of names, sizes or tensors


def read_tflite_graph(stream: BinaryIO, size: int) -> GraphSignature:
    """Return the inputs and outputs of the first graph, in its order.

    Raises:
        MalformedError: The file is not a TFLite graph.
    """
    graph = first_tflite_graph(open_tflite(stream, size))
    tensors = graph.tables(0)
    inputs, outputs = (
        tuple(_read_tflite_tensor(tensors, index) for index in graph.numbers(slot, "i")) for slot in (1, 2)
    )
    return GraphSignature(inputs, outputs)


def custom_operations(stream: BinaryIO, size: int) -> tuple[str, ...]:
    """Return the names of the operations that are not part of TFLite.

    Raises:
        MalformedError: The file is not a TFLite graph.
    """
    return tuple(name for name in (code.text(1) for code in open_tflite(stream, size).tables(1)) if name)


def open_tflite(stream: BinaryIO, size: int) -> "FlatTable":
    """Return the model of a TFLite file.

    Raises:
        MalformedError: The file is not a TFLite graph.
    """
    file = FlatBuffer(stream, size)
    if file.read(4, 4) != _IDENTIFIER:
        raise MalformedError("its first bytes do not match")
    return file.root()


def first_tflite_graph(model: "FlatTable") -> "FlatTable":
    """Return the first graph of a TFLite model. Raises ``MalformedError`` if there is none."""
    graphs = model.tables(2)
    if not graphs:
        raise MalformedError("it does not contain a graph")
    return graphs[0]


@dataclass(frozen=True, slots=True)
class FlatBuffer:
    """A FlatBuffers file of ``size`` bytes."""

    stream: BinaryIO
    size: int

    def read(self, at: int, count: int) -> bytes:
        """Read ``count`` bytes at a position."""
        if at < 0 or count < 0 or at + count > self.size:
            raise MalformedError("it has an offset outside the file")
        self.stream.seek(at)
        return self.stream.read(count)

    def number(self, at: int, form: str) -> int:
        """Read a little-endian number; ``form`` is a format character of ``struct``."""
        value: int
        (value,) = struct.unpack(f"<{form}", self.read(at, struct.calcsize(f"<{form}")))
        return value

    def target(self, at: int) -> int:
        """Return the position that the offset at ``at`` points to."""
        return at + self.number(at, "I")

    def vector(self, at: int) -> tuple[int, int]:
        """Return the number of elements of the vector at ``at``, and the position of the first."""
        count = self.number(at, "I")
        if count > _LONGEST:
            raise MalformedError(f"it lists {count} elements, which is too many")
        return count, at + 4

    def root(self) -> "FlatTable":
        """Return the root table."""
        return FlatTable(self, self.target(0))


@dataclass(frozen=True, slots=True)
class FlatTable:
    """A table at a position of a FlatBuffers file."""

    file: FlatBuffer
    at: int

    def _slot(self, index: int) -> int | None:
        """Return the position of the field in a slot; None if it is absent."""
        described = self.at - self.file.number(self.at, "i")
        place = 4 + 2 * index
        if place >= self.file.number(described, "H"):
            return None
        offset = self.file.number(described + place, "H")
        return self.at + offset if offset else None

    def scalar(self, index: int, form: str) -> int:
        """Return a number; 0 if it is absent."""
        at = self._slot(index)
        return 0 if at is None else self.file.number(at, form)

    def text(self, index: int) -> str:
        """Return a text; empty if it is absent."""
        at = self._slot(index)
        if at is None:
            return ""
        count, start = self.file.vector(self.file.target(at))
        try:
            return self.file.read(start, count).decode()
        except UnicodeDecodeError as error:
            raise MalformedError("a name is not UTF-8") from error

    def numbers(self, index: int, form: str) -> tuple[int, ...]:
        """Return a vector of numbers; empty if it is absent."""
        at = self._slot(index)
        if at is None:
            return ()
        count, start = self.file.vector(self.file.target(at))
        return struct.unpack(f"<{count}{form}", self.file.read(start, count * struct.calcsize(f"<{form}")))

    def table(self, index: int) -> "FlatTable | None":
        """Return an inner table; None if it is absent."""
        at = self._slot(index)
        return None if at is None else FlatTable(self.file, self.file.target(at))

    def tables(self, index: int) -> "tuple[FlatTable, ...]":
        """Return a vector of tables; empty if it is absent."""
        at = self._slot(index)
        if at is None:
            return ()
        count, start = self.file.vector(self.file.target(at))
        return tuple(FlatTable(self.file, self.file.target(start + 4 * place)) for place in range(count))


def _read_tflite_tensor(tensors: tuple[FlatTable, ...], index: int) -> GraphTensor:
    """Return one of the tensors of a graph."""
    if not 0 <= index < len(tensors):
        raise MalformedError(f"it references a tensor {index} that does not exist")
    tensor = tensors[index]
    return GraphTensor(tensor.text(3), _TFLITE_DTYPES.get(tensor.scalar(1, "b")), _sizes(tensor), _quantization(tensor))


def _sizes(tensor: FlatTable) -> tuple[Size, ...] | None:
    """Return the sizes; None if the graph does not state the number of axes.

    The signature has -1 for a free axis. Without a signature the shape is fixed. An empty shape is that of a scalar
    only if ``has_rank`` is set: converters also leave the shape empty for results of custom operators.
    """
    sizes = tensor.numbers(7, "i") or tensor.numbers(0, "i")
    if not sizes and not tensor.scalar(8, "b"):
        return None
    return tuple(size if size > 0 else None for size in sizes)


def _quantization(tensor: FlatTable) -> Quantization | None:
    """Return the quantization of the whole tensor; None if there is none, or one per channel."""
    parameters = tensor.table(4)
    scales = parameters.numbers(2, "f") if parameters else ()
    points = parameters.numbers(3, "q") if parameters else ()
    return Quantization(float(scales[0]), points[0]) if parameters and len(scales) == len(points) == 1 else None
