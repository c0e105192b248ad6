"""TensorFlow's RunMetadata: a row for each operator of a Session, after all optimizations of its graph.

The other profiler of TensorFlow, of its functions, leaves out operators, and others in each call.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from importlib import import_module
from itertools import count
from math import prod
from pathlib import Path
from typing import Any, Final, cast

from ..core.job import Model
from ..predictors import Place, Predictor, Tensors, load
from . import Graph, Profile, Row, RowTensor, Shape, constant_role
from .litert import describe_interpreter
from .row_matrix import Span, build_profile

_DTYPES: Final = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 9: "int64",
    10: "bool", 11: "qint8", 12: "quint8", 13: "qint32", 14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16",
    20: "resource", 21: "variant", 22: "uint32", 23: "uint64",
}  # fmt: skip
"""The names of TensorFlow's types by their numbers."""
_WRAPPERS = re.compile("^_?(Mkl)?(Native)?(Fused)?")
"""What a type of the optimized graph has before the type in the model's graph, as in ``_MklNativeFusedConv2D``."""
_WEIGHT_FORMATS: Final = {"Conv2D": "HWIO", "DepthwiseConv2dNative": "HWIM", "MatMul": "IO"}
_INPUTS: Final = ("_Arg", "Placeholder")
_SILENT: Final = ("Const", "NoOp", "Placeholder")
"""Types that are no operators of the model."""
_REAL: Final = ("float16", "bfloat16", "float32", "float64")
_MOST_FUSED: Final = 4
_NOTE: Final = (
    "rows are those of a Session, whose graph TensorFlow optimizes in another way than the function that the other "
    "phases call; calls without a profiler are those of the same Session"
)
_ONEDNN_NOTE: Final = "types with Mkl are oneDNN's; TF_ENABLE_ONEDNN_OPTS=0 in the environment would change them"


class Profiler:
    """The model in a Session that returns the metadata of each call."""

    source = "tensorflow-run-metadata"
    in_caller = False

    def __init__(self, session: Any) -> None:  # noqa: ANN401 - a class of a module that imports TensorFlow
        """Profile a session."""
        self._session = session
        self.device, self.threads = session.device, session.threads
        self._calls: list[Any] = []
        self._batch: Tensors = {}

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs of one call."""
        answers, metadata = self._session.profile(batch)
        self._calls.append(metadata)
        self._batch = batch
        return cast(Tensors, answers)

    def start(self) -> None:
        """Begin to record."""
        self._calls.clear()

    def finish(self) -> Profile:
        """Stop, release the model, and return the profile."""
        _, described = self._session.profile(self._batch, with_graph=True)
        graph = [node for partition in described.partition_graphs for node in partition.node]
        source = self._session.frozen.definition.node
        self._session.close()
        return convert(self._calls, graph, source)


def open_profiler(folder: Path, model: Model, place: Place) -> Profiler:
    """Load the model in a Session that profiles each call.

    Raises:
        ValueError: Its format or device has no such profile.
    """
    return Profiler(load_untraced(folder, model, place))


def load_untraced(folder: Path, model: Model, place: Place) -> Predictor:
    """Load the model in a Session, for the calls that those of ``open_profiler`` are compared with.

    Raises:
        ValueError: Its format or device has no profile.
    """
    module = import_module("..predictors.tensorflow", __package__)  # which alone imports TensorFlow
    return cast(Predictor, module.GraphSession(folder, model, place))


def describe_graph(folder: Path, model: Model, place: Place, batch: Tensors) -> Graph:
    """Describe the operators of the model with constant weights, with the shapes of a call of ``batch``."""
    predictor: Any = load(model, folder, place)
    if model.format == "tflite":
        return describe_interpreter(predictor, batch)
    frozen = predictor.freeze()
    predictor.close()
    return list_operations(frozen.infer_shapes({name: values.shape for name, values in batch.items()}))


def list_operations(operations: Sequence[Any]) -> Graph:
    """Return the operations of a graph, in the order of its file, as rows; those of constants are left out."""
    nodes = {operation.name: operation.node_def for operation in operations}
    constants = find_constants(nodes)
    tensors = {
        f"{operation.name}:{slot}": RowTensor(_static_shape(tensor), tensor.dtype.name)
        for operation in operations
        for slot, tensor in enumerate(operation.outputs)
    }
    rows = [
        _describe_row(node, tensors, constants, _count_outputs(name, tensors))
        for name, node in nodes.items()
        if name not in constants and node.op not in _SILENT
    ]
    weights = [tensors[f"{name}:0"] for name, node in nodes.items() if node.op == "Const"]
    real = [tensor.shape for tensor in weights if tensor.shape and tensor.dtype in _REAL]
    counts = Counter(node.op for node in nodes.values())
    return Graph(
        source="tensorflow-graph",
        rows=rows,
        parameters=sum(map(prod, real)),
        operators=dict(sorted(counts.items())),
        notes=("variables are constants in this graph; parameters are its real constants with an axis",),
    )


def _static_shape(tensor: Any) -> Shape | None:  # noqa: ANN401 - TensorFlow has no types here
    sizes = None if tensor.shape.rank is None else tensor.shape.as_list()
    return None if sizes is None or None in sizes else tuple(sizes)


def find_constants(nodes: Mapping[str, Any]) -> set[str]:
    """Return the names of the nodes whose outputs depend on no input of the graph.

    Args:
        nodes: The nodes of a graph by name, each after the nodes that it reads or before them.
    """
    dependent = {name for name, node in nodes.items() if node.op in _INPUTS}
    readers: dict[str, list[str]] = {}
    for name, node in nodes.items():
        for made in _read_inputs(node):
            readers.setdefault(made.partition(":")[0], []).append(name)
    reached = list(dependent)
    while reached:
        following = [name for name in readers.get(reached.pop(), ()) if name not in dependent]
        dependent.update(following)
        reached += following
    return nodes.keys() - dependent


def _read_inputs(node: Any) -> list[str]:  # noqa: ANN401 - a node of TensorFlow
    """Return the tensors that a node reads, as ``name:slot``."""
    return [text if ":" in text else f"{text}:0" for text in node.input if not text.startswith("^")]


def _count_outputs(name: str, tensors: Mapping[str, RowTensor]) -> int:
    return next(slot for slot in count() if f"{name}:{slot}" not in tensors)


def convert(calls: Sequence[Any], graph: Sequence[Any], source: Sequence[Any]) -> Profile:
    """Convert the ``RunMetadata`` of all calls.

    Args:
        calls: The metadata of each call.
        graph: The nodes of the graph that was executed.
        source: The nodes of the model's graph.
    """
    listed = [_list_stats(metadata) for metadata in calls]
    order = {stats.node_name: position for position, stats in enumerate(listed[0])} if listed else {}
    for stats in listed:
        stats.sort(key=lambda entry: order.get(entry.node_name, len(order)))
    metadata = [call.SerializeToString() for call in calls]
    return build_profile(
        [[_span(entry) for entry in stats] for stats in listed],
        lambda number: list(_describe_rows(listed[number], graph, source)),
        native=b"".join(len(message).to_bytes(8, "little") + message for message in metadata),
        notes=(_NOTE, *([_ONEDNN_NOTE] if any("Mkl" in node.op for node in graph) else [])),
    )


def _list_stats(metadata: Any) -> list[Any]:  # noqa: ANN401 - a message of TensorFlow
    """Return the statistics of the operators of a call by start."""
    stats = [entry for device in metadata.step_stats.dev_stats for entry in device.node_stats]
    return sorted(stats, key=lambda entry: entry.all_start_nanos)


def _span(entry: Any) -> Span:  # noqa: ANN401 - a message of TensorFlow
    start, end = entry.op_start_rel_nanos, entry.op_end_rel_nanos
    return Span(entry.node_name, entry.all_start_nanos + start, end - start)


def _describe_rows(stats: Sequence[Any], graph: Sequence[Any], source: Sequence[Any]) -> Iterator[Row]:
    nodes, sources = ({node.name: node for node in listed} for listed in (graph, source))
    constants = find_constants(nodes)
    tensors = {f"{entry.node_name}:{output.slot}": _tensor(output) for entry in stats for output in entry.output}
    for entry in stats:
        allocated = sum(memory.total_bytes for memory in entry.memory)
        if entry.node_name in nodes:
            node = nodes[entry.node_name]
            row = _describe_row(node, tensors, constants, len(entry.output))
            row = replace(row, source_names=_find_sources(node, sources))
        else:
            row = Row("layer", entry.node_name, entry.timeline_label.partition(" = ")[2].partition("(")[0])
        yield replace(row, provider="CPU", allocated_bytes=allocated)


def _tensor(output: Any) -> RowTensor:  # noqa: ANN401 - a message of TensorFlow
    description = output.tensor_description
    shape = None if description.shape.unknown_rank else tuple(int(axis.size) for axis in description.shape.dim)
    return RowTensor(shape, _DTYPES.get(description.dtype))


def _describe_row(node: Any, tensors: Mapping[str, RowTensor], constants: AbstractSet[str], outputs: int) -> Row:  # noqa: ANN401
    """Return a node as a row.

    Args:
        node: The node.
        tensors: All tensors of the graph, as ``name:slot``.
        constants: The names of the nodes that are constant.
        outputs: The number of the node's outputs.
    """
    inputs = []
    for position, name in enumerate(_read_inputs(node)):
        tensor = tensors.get(name, RowTensor(None))
        role = constant_role(position, tensor) if name.partition(":")[0] in constants else "data"
        inputs.append(replace(tensor, role=role))
    return Row(
        level="layer",
        name=node.name,
        type=node.op,
        source_names=(node.name,),
        inputs=tuple(inputs),
        outputs=tuple(tensors[f"{node.name}:{slot}"] for slot in range(outputs)),
        attributes=_attributes(node),
    )


def _attributes(node: Any) -> dict[str, Any]:  # noqa: ANN401 - a node of TensorFlow
    form = _WEIGHT_FORMATS.get(_WRAPPERS.sub("", node.op))
    if form == "IO" and "transpose_b" in node.attr and node.attr["transpose_b"].b:
        form = form[::-1]
    return {} if form is None else {"weight_format": form}


def _find_sources(node: Any, sources: Mapping[str, Any]) -> tuple[str, ...]:  # noqa: ANN401 - a node of TensorFlow
    """Return the nodes of the model's graph that a node executes, the first one first; empty where they are unknown.

    A fused node has the name of the last one. Those before it are followed to the first one of its own type.
    """
    type_ = _WRAPPERS.sub("", node.op)
    chain: list[Any] = []
    last = sources.get(node.name)
    while last is not None and len(chain) < _MOST_FUSED:
        chain.append(last)
        if last.op == type_:
            return tuple(found.name for found in reversed(chain))
        last = sources.get(last.input[0].partition(":")[0]) if last.input else None
    return tuple(found.name for found in chain[:1])
