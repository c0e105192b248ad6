"""Operations of ONNX and TFLite graphs: what they tell about layouts of pictures, scores, and runtimes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from benchlock.registry.inspection.formats.model_graphs import first_tflite_graph, open_tflite
from benchlock.registry.inspection.formats.protobuf import MalformedError, Message, to_signed, whole_message
from benchlock.registry.manifests.field_types import Layout

_ONNX_PICTURES = ("Conv", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "BatchNormalization")
"""Operations that read axis 1 as the channels of a picture, by definition of ONNX."""
_TFLITE_PICTURES = ("Conv2D", "DepthwiseConv2D", "AveragePool2D", "MaxPool2D")
"""Operations that read the last axis as the channels of a picture, by definition of TFLite."""
_TFLITE_CODES = {
    0: "Add", 1: "AveragePool2D", 3: "Conv2D", 4: "DepthwiseConv2D", 6: "DequantizeLinear", 9: "FullyConnected",
    14: "Sigmoid", 17: "MaxPool2D", 18: "Mul", 25: "Softmax", 41: "Sub", 42: "Div", 53: "Cast", 114: "QuantizeLinear",
}  # fmt: skip
"""Operations of TFLite by their number; those that are also of ONNX have its names."""
_ELEMENTWISE = ("Cast", "Identity", "Sub", "Add", "Mul", "Div", "Clip", "QuantizeLinear", "DequantizeLinear")
"""Operations after which a tensor has the same axes."""
_SAME_MEANING = ("Cast", "Identity", "QuantizeLinear", "DequantizeLinear")
_TO_CHANNELS_FIRST = (0, 3, 1, 2)
_INTEGERS = 8
_LONGEST_PATH = 16
"""Maximum number of operations between an input and the operation that tells its layout, and likewise for outputs."""


@dataclass(frozen=True, slots=True)
class GraphOperations:
    """What the operations of a graph tell about its inputs and outputs.

    Attributes:
        layouts: The layout of each input that a convolution or pooling reads as a picture.
        last: The operation that computes each output: ``Softmax``. Casts and the like are skipped.
    """

    layouts: Mapping[str, Layout]
    last: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OnnxVersions:
    """The versions that an ONNX graph states.

    Attributes:
        ir_version: The version of the file format.
        opsets: The version of each domain of operators; the domain of ONNX itself is empty.
        used_domains: The domains of the operations of the outer graph, without those of the model's own functions.
    """

    ir_version: int
    opsets: Mapping[str, int]
    used_domains: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Node:
    operation: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    domain: str = ""
    permutation: tuple[int, ...] = ()


def trace_onnx(stream: BinaryIO, size: int) -> tuple[OnnxVersions, GraphOperations]:
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
    versions = OnnxVersions(to_signed(model.value(1)), opsets, frozenset(node.domain for node in nodes) - functions)
    inputs, outputs = ({tensor.text(1): tensor.text(1) for tensor in graph.all(number)} for number in (11, 12))
    return versions, _trace(nodes, inputs, outputs, (_ONNX_PICTURES, "NCHW"))


def trace_tflite(stream: BinaryIO, size: int) -> GraphOperations:
    """Return what the operations of the first graph of a TFLite file tell about inputs and outputs.

    Raises:
        MalformedError: The file is not a TFLite graph.
    """
    model = open_tflite(stream, size)
    graph = first_tflite_graph(model)
    # Numbers above 127 are in a newer field; the older one has the number, or 127.
    codes = [max(code.scalar(0, "b"), code.scalar(3, "i")) for code in model.tables(1)]
    nodes = []
    for operator in graph.tables(3):
        code = operator.scalar(0, "I")
        operation = _TFLITE_CODES.get(codes[code], "") if code < len(codes) else ""
        inputs, outputs = (tuple(map(str, operator.numbers(slot, "i"))) for slot in (1, 2))
        nodes.append(_Node(operation, inputs, outputs))
    tensors = graph.tables(0)
    given, results = (
        {str(index): tensors[index].text(3) for index in graph.numbers(slot, "i") if 0 <= index < len(tensors)}
        for slot in (1, 2)
    )
    return _trace(nodes, given, results, (_TFLITE_PICTURES, "NHWC"))


def _trace(
    nodes: Sequence[_Node],
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    pictures: tuple[Sequence[str], Layout],
) -> GraphOperations:
    """Return what operations tell about inputs and outputs.

    Args:
        nodes: The operations.
        inputs: The name of each input, by its name in the operations.
        outputs: The name of each output, likewise.
        pictures: The operations that read pictures, and their layout.
    """
    consumers: defaultdict[str, list[_Node]] = defaultdict(list)
    for node in nodes:
        for name in node.inputs:
            consumers[name].append(node)
    producers = {name: node for node in nodes for name in node.outputs}
    layouts = {name: _find_layout(key, consumers, pictures) for key, name in inputs.items()}
    last = {name: _find_last(key, producers) for key, name in outputs.items()}
    return GraphOperations(
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


def _find_layout(
    name: str, consumers: Mapping[str, Sequence[_Node]], pictures: tuple[Sequence[str], Layout]
) -> Layout | None:
    """Return the layout with which the first operations of the graph read an input; None if they do not tell."""
    names = {name}
    for _ in range(_LONGEST_PATH):
        nodes = [node for one in names for node in consumers.get(one, ())]
        # Only the first input of a convolution is a picture; the others are weights.
        if any(node.operation in pictures[0] and node.inputs[0] in names for node in nodes):
            return pictures[1]
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
