"""ONNX Runtime's profiler: a row for each node of the optimized graph.

The profiler writes JSON: events of nodes, whose name ends in ``_kernel_time``, with the shapes of all inputs including
weights, and an event ``model_run`` after those of its call. Times are whole microseconds since the profiler's start,
which is known by the real-time clock.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime

from ..core.job import Model
from ..predictors import Place, Tensors, find_graph
from ..predictors.onnxruntime import OnnxRuntime
from . import Graph, Profile, Row, RowTensor, constant_role
from .onnx_file import OnnxNode, read_onnx
from .row_matrix import Span, build_profile

_SUFFIX: Final = "_kernel_time"
_BLOCKED: Final = "_nchwc"
"""The suffix of nodes that compute with blocked channels (NCHWc); they are named after their output."""
_MICROSECOND: Final = 1000
_DTYPES: Final = {"float": "float32", "double": "float64", "bfloat16": "bfloat16"}
_WEIGHT_FORMATS: Final = {
    "Conv": "OIHW", "FusedConv": "OIHW", "ConvInteger": "OIHW", "QLinearConv": "OIHW", "ConvTranspose": "IOHW",
    "Gemm": "IO", "MatMul": "IO", "FusedMatMul": "IO", "FusedGemm": "IO", "MatMulInteger": "IO", "QLinearMatMul": "IO",
}  # fmt: skip
"""The axes of the weights, in ONNX and after ONNX Runtime's fusions, by type."""
_DENSE = "IO"
_MOST_FUSED: Final = 4
_JOINED: Final = "/MatMulAddFusion"

Event = Mapping[str, Any]


class ProfiledSession(OnnxRuntime):
    """A graph in ONNX Runtime with its profiler, which records from the creation of the session."""

    source = "onnxruntime-profiler"

    def __init__(
        self, folder: Path, model: Model, place: Place, adjust: Callable[[Any], None] = lambda _options: None
    ) -> None:
        """Load the graph; ``adjust`` changes the session's options."""
        self._arguments = (folder, model, place)
        self._path = find_graph(folder, model)
        self._calls = self._skipped = 0
        self._batch: Tensors = {}
        self.native = b""

        def profile(options: Any) -> None:  # noqa: ANN401 - ONNX Runtime has no types here
            options.enable_profiling = True
            options.profile_file_prefix = str(Path.cwd() / "trace-onnxruntime")
            adjust(options)

        super().__init__(self._path, model, place, profile)

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs by name."""
        self._calls += 1
        self._batch = batch
        return super().predict(batch)

    def start(self) -> None:
        """Begin to record."""
        self._skipped = self._calls

    def measure_axes(self, batch: Tensors) -> dict[str, int]:
        """Return the sizes of the inputs' named axes in ``batch``."""
        return {
            axis: size
            for port in self.session.get_inputs()
            for axis, size in zip(port.shape, batch[port.name].shape, strict=True)
            if isinstance(axis, str) and axis
        }

    def read_calls(self) -> list[list[Event]]:
        """Stop the profiler; return the events of the nodes of each recorded call, in order of execution."""
        path = Path(self.session.end_profiling())
        self.native = path.read_bytes()
        path.unlink()
        calls: list[list[Event]] = [[]]
        for event in json.loads(self.native):
            if event["cat"] == "Node" and event["name"].endswith(_SUFFIX):
                calls[-1].append(event)
            elif event["name"] == "model_run":
                calls[-1].sort(key=lambda node: node["ts"])
                calls.append([])
        return calls[self._skipped : -1]

    def finish(self) -> Profile:
        """Stop the profiler, release the session, and return the rows of the optimized graph."""
        began = int(self.session.get_profiling_start_time_ns())
        calls = self.read_calls()
        self.close()
        complete: Sequence[Event] = _profile_once(*self._arguments, self._batch, _keep_weights)
        nodes, _ = read_onnx(self._path)

        def describe(number: int) -> list[Row]:
            # Packed weights have no shape in the timed session, so take shapes from one that does not pack them.
            is_same = list(map(_key, complete)) == list(map(_key, calls[number]))
            return [_row(event, nodes) for event in (complete if is_same else calls[number])]

        spans = [[_span(event, began) for event in call] for call in calls]
        return build_profile(spans, describe, native=self.native, resolution_ns=_MICROSECOND)


def open_profiler(folder: Path, model: Model, place: Place) -> ProfiledSession:
    """Load the model with ONNX Runtime's profiler."""
    return ProfiledSession(folder, model, place)


def describe_graph(folder: Path, model: Model, place: Place, batch: Tensors) -> Graph:
    """Return the operators of the model after constant folding, with the shapes of one call.

    The shapes are those of a call, because shape inference of the file leaves many nodes without a shape.
    """
    nodes, parameters = read_onnx(find_graph(folder, model))

    def simplify(options: Any) -> None:  # noqa: ANN401 - ONNX Runtime has no types here
        _keep_weights(options)
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC

    def fix_axes(options: Any) -> None:  # noqa: ANN401 - as above
        simplify(options)
        for name, size in sizes.items():
            options.add_free_dimension_override_by_name(name, size)

    session = ProfiledSession(folder, model, place, simplify)
    sizes = session.measure_axes(batch)
    session.read_calls()
    session.close()
    events = _profile_once(folder, model, place, batch, fix_axes)
    return Graph(
        source="onnxruntime-basic-profile",
        rows=[_row(event, nodes) for event in events],
        parameters=parameters,
        operators=dict(sorted(Counter(node.type for node in nodes).items())),
        notes=("operators of the rows are those after ONNX Runtime folded constants (ORT_ENABLE_BASIC)",),
    )


def _keep_weights(options: Any) -> None:  # noqa: ANN401 - ONNX Runtime has no types here
    """Let the profiler see the weights of all operators, which packing would hide."""
    options.add_session_config_entry("session.disable_prepacking", "1")


def _profile_once(
    folder: Path, model: Model, place: Place, batch: Tensors, adjust: Callable[[Any], None]
) -> Sequence[Event]:
    """Return the events of the nodes of one call."""
    session = ProfiledSession(folder, model, place, adjust)
    session.predict(batch)
    (call,) = session.read_calls()
    session.close()
    return call


def _key(event: Event) -> tuple[str, str]:
    """Return what identifies a row in all calls; names of inserted nodes change between sessions."""
    return event["args"]["node_index"], event["args"]["op_name"]


def _span(event: Event, began: int) -> Span:
    return Span(_key(event), began + event["ts"] * _MICROSECOND, event["dur"] * _MICROSECOND)


def _row(event: Event, nodes: Sequence[OnnxNode]) -> Row:
    details = event["args"]
    name = event["name"].removesuffix(_SUFFIX)
    row = Row(
        level="layer",
        name=name,
        type=details["op_name"],
        source_names=_source_names(name.removesuffix(_BLOCKED).removesuffix(_JOINED), details["op_name"], nodes),
        provider=details.get("provider"),
        variant=_BLOCKED.removeprefix("_") if name.endswith(_BLOCKED) else None,
        inputs=_mark_roles(tuple(map(_tensor, details["input_type_shape"])), int(details["parameter_size"])),
        outputs=tuple(map(_tensor, details["output_type_shape"])),
    )
    return replace(row, attributes=_attributes(row))


def _tensor(entry: Mapping[str, Sequence[int]]) -> RowTensor:
    ((dtype, shape),) = entry.items()
    return RowTensor(tuple(shape), _DTYPES.get(dtype, dtype))


def _mark_roles(inputs: tuple[RowTensor, ...], parameter_bytes: int) -> tuple[RowTensor, ...]:
    """Mark the inputs that are constants: the last ones side by side whose bytes add up to those of parameters."""
    numbers = range(len(inputs))
    sizes = [_bytes(tensor) for tensor in inputs]
    windows = (numbers[first : first + count] for count in range(len(inputs) + 1) for first in reversed(numbers))
    constants = next((window for window in windows if sum(sizes[index] for index in window) == parameter_bytes), None)
    if constants is None:
        return inputs
    return tuple(
        replace(tensor, role=constant_role(index, tensor) if index in constants else "data")
        for index, tensor in enumerate(inputs)
    )


def _bytes(tensor: RowTensor) -> int:
    width = {"bool": 1, "string": 0, "bfloat16": 2}.get(tensor.dtype or "")
    return prod(tensor.shape or ()) * (np.dtype(tensor.dtype).itemsize if width is None else width)


def _attributes(row: Row) -> dict[str, Any]:
    """Return the axes of the weights."""
    form = _WEIGHT_FORMATS.get(row.type)
    weights = next((tensor.shape for tensor in row.inputs if tensor.role == "weight"), None)
    if form == _DENSE and weights and row.outputs[0].shape and weights[-1] != row.outputs[0].shape[-1]:
        form = form[::-1]  # Gemm with transposed weights
    return {} if form is None else {"weight_format": form}


def _source_names(name: str, kind: str, nodes: Sequence[OnnxNode]) -> tuple[str, ...]:
    """Return the nodes of the file that a row executes, the first one first; empty where they are unknown.

    A fused row has the name, or the output, of the last node that was fused. The nodes before it are followed through
    their first inputs to the first node of the row's own type.
    """
    makers = {output: node for node in nodes for output in node.outputs}
    last = next((node for node in nodes if node.name == name), makers.get(name))
    chain: list[OnnxNode] = []
    while last is not None and len(chain) < _MOST_FUSED:
        chain.append(last)
        if last.type == kind:
            break
        last = makers.get(last.inputs[0]) if last.inputs else None
    if not chain or chain[-1].type != kind:
        chain = chain[:1]
    return tuple(node.name for node in reversed(chain))
