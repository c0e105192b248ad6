"""ONNX graphs of a test's own, written by the onnx package."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx import TensorProto, helper

Port = tuple[int, Sequence[int | str | None] | None]
"""Element type and shape; a shape of None says nothing of its axes."""

Ports = Mapping[str, Port]

PICTURE: dict[str, Port] = {"x": (TensorProto.FLOAT, ["batch", 8, 8, 1])}
SCORES: dict[str, Port] = {"y": (TensorProto.FLOAT, ["batch", 2])}


def model(
    inputs: Ports = PICTURE,
    outputs: Ports = SCORES,
    *,
    initial: Sequence[TensorProto] = (),
    operation: str = "Identity",
    doc: str = "",
) -> onnx.ModelProto:
    """A graph with these ports; what it says of its outputs need not be true: it is read, and never run."""
    given, found = (
        [helper.make_tensor_value_info(name, *port) for name, port in some.items()] for some in (inputs, outputs)
    )
    nodes = [helper.make_node(operation, [next(iter(inputs), "none")], [name]) for name in outputs]
    graph = helper.make_graph(nodes, "net", given, found, initializer=list(initial))
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, doc_string=doc, opset_imports=opset, ir_version=8)


def graph(inputs: Ports = PICTURE, outputs: Ports = SCORES, *, doc: str = "") -> bytes:
    """The bytes of such a graph; ``doc`` makes two of them differ."""
    content: bytes = model(inputs, outputs, doc=doc).SerializeToString()
    return content


def loosened(source: Path, target: Path) -> Path:
    """The graph at ``source`` with input axes that are all free: it says nothing of what it cannot take."""
    loaded = onnx.load(source)
    for port in loaded.graph.input:
        for axis, size in enumerate(port.type.tensor_type.shape.dim):
            size.dim_param = f"free_{axis}"
    onnx.save(loaded, target)
    return target


def demanding(target: Path) -> Path:
    """A network of digits whose graph leaves every axis free, and that fails on samples of other than 64 elements."""
    given = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", "c", "h", "w"])
    found = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [64, 10], [0.5] * 640)
    nodes = [
        helper.make_node("Flatten", ["input"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["scores"]),
    ]
    graph = helper.make_graph(nodes, "demanding", [given], [found], initializer=[weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), target)
    return target


GRAPH = graph()
ANOTHER_GRAPH = graph(doc="another")
