"""Versions and operations of an ONNX graph: what they tell about runtimes, layouts of pictures and scores."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from benchlock.registry.inspection.formats.protobuf import MalformedError, Message, to_signed, whole_message
from benchlock.registry.manifests.field_types import Layout

_CHANNELS_FIRST = ("Conv", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "BatchNormalization")
"""Operations that read axis 1 as the channels of a picture, by definition of ONNX."""
_ELEMENTWISE = ("Cast", "Identity", "Sub", "Add", "Mul", "Div", "Clip", "QuantizeLinear", "DequantizeLinear")
"""Operations after which a tensor has the same axes."""
_SAME_MEANING = ("Cast", "Identity", "QuantizeLinear", "DequantizeLinear")
_TO_CHANNELS_FIRST = (0, 3, 1, 2)
_INTEGERS = 8
_LONGEST_PATH = 16
"""Maximum number of operations between an input and the operation that tells its layout, and likewise for outputs."""


@dataclass(frozen=True, slots=True)
class OnnxOperations:
    """The versions and some operations of an ONNX graph.

    Attributes:
        ir_version: The version of the file format.
        opsets: The version of each domain of operators; the domain of ONNX itself is empty.
        layouts: The layout of each input that a convolution or pooling reads as a picture.
        used_domains: The domains of the operations of the outer graph, without those of the model's own functions.
        last: The operation that computes each output: ``Softmax``. Casts and the like are skipped.
    """

    ir_version: int
    opsets: Mapping[str, int]
    used_domains: frozenset[str]
    layouts: Mapping[str, Layout]
    last: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Node:
    operation: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    domain: str = ""
    permutation: tuple[int, ...] = ()


def read_operations(stream: BinaryIO, size: int) -> OnnxOperations:
    """Return the versions of an ONNX model, and what the operations of its graph tell about inputs and outputs.

    Raises:
        MalformedError: The file is not an ONNX model.
    """
    model = whole_message(stream, size)
    graph = None
    for graph in model.all(7):  # noqa: B007 - the last one counts
        pass
    if graph is None:
        raise MalformedError("it does not contain a graph")
    opsets = {_domain(opset.text(1)): to_signed(opset.value(2)) for opset in model.all(8)}
    functions = {function.text(10) for function in model.all(25)}
    nodes = [_read_node(node) for node in graph.all(1)]
    consumers: defaultdict[str, list[_Node]] = defaultdict(list)
    for node in nodes:
        for name in node.inputs:
            consumers[name].append(node)
    producers = {name: node for node in nodes for name in node.outputs}
    layouts = {tensor.text(1): _find_layout(tensor.text(1), consumers) for tensor in graph.all(11)}
    last = {tensor.text(1): _find_last(tensor.text(1), producers) for tensor in graph.all(12)}
    return OnnxOperations(
        to_signed(model.value(1)),
        opsets,
        frozenset(node.domain for node in nodes) - functions,
        {name: layout for name, layout in layouts.items() if layout is not None},
        {name: operation for name, operation in last.items() if operation},
    )


def _domain(domain: str) -> str:
    """Return the name of a domain of operators; that of ONNX has two names, one of them empty."""
    return "" if domain == "ai.onnx" else domain


def _read_node(message: Message) -> _Node:
    """Read a NodeProto; of its attributes, only the permutation of a transpose is read."""
    inputs, outputs, attributes = list[str](), list[str](), list[Message]()
    operation = domain = ""
    for field in message.fields():
        match field.number:
            case 1:
                inputs.append(message.read(field))
            case 2:
                outputs.append(message.read(field))
            case 4:
                operation = message.read(field)
            case 5:
                attributes.append(message.inside(field))
            case 7:
                domain = _domain(message.read(field))
    permutation = tuple[int, ...]()
    if operation == "Transpose":
        permutation = next((_integers(attribute) for attribute in attributes if attribute.text(1) == "perm"), ())
    return _Node(operation, tuple(inputs), tuple(outputs), domain, permutation)


def _integers(attribute: Message) -> tuple[int, ...]:
    """Return the integers of an attribute."""
    return tuple(field.value for field in attribute.fields() if field.number == _INTEGERS and field.size is None)


def _find_layout(name: str, consumers: Mapping[str, Sequence[_Node]]) -> Layout | None:
    """Return the layout with which the first operations of the graph read an input; None if they do not tell."""
    names = {name}
    for _ in range(_LONGEST_PATH):
        nodes = [node for one in names for node in consumers.get(one, ())]
        # Only the first input of a convolution is a picture; the others are weights.
        if any(node.operation in _CHANNELS_FIRST and node.inputs[0] in names for node in nodes):
            return "NCHW"
        if any(node.operation == "Transpose" and node.permutation == _TO_CHANNELS_FIRST for node in nodes):
            return "NHWC"
        names = {output for node in nodes if node.operation in _ELEMENTWISE for output in node.outputs}
    return None


def _find_last(name: str, producers: Mapping[str, _Node]) -> str | None:
    """Return the operation that computes an output, without operations that keep the meaning of its values."""
    for _ in range(_LONGEST_PATH):
        node = producers.get(name)
        if node is None or not node.inputs or node.operation not in _SAME_MEANING:
            return None if node is None else node.operation
        name = node.inputs[0]
    return None
