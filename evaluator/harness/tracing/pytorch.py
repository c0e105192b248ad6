"""PyTorch's profiler: a row for each outermost operator (``aten``) of a call.

TorchScript models have no names of modules at run time, so rows are known by their position. Shapes come from a call
outside the profile, because recording them doubles the profiler's cost.
"""

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ..core.job import Model
from ..predictors import Place, Tensors
from ..predictors import pytorch as predictor
from . import Graph, Profile, Row, RowTensor
from .row_matrix import Span, build_profile
from .trace_levels import LARGEST_TRACE

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its messages would be in the log of every run

_OPERATOR: Final = "aten::"
_ROLES: Final = {"weight": "weight", "bias": "bias", "running_mean": "weight", "running_var": "weight"}
"""The roles of arguments by name; those of other names are data."""
_ADDMM: Final = {"self": "bias", "mat2": "weight"}
_DENSE: Final = {"linear": "OI", "addmm": "IO"}
_BYTES_AN_EVENT: Final = 500
_WARMUP: Final = 3


class ProfiledPyTorch:
    """A PyTorch module with PyTorch's profiler."""

    source = "torch-profiler"

    def __init__(self, folder: Path, model: Model, place: Place) -> None:
        """Load the model; the profiler starts later."""
        self._predictor = predictor.load(folder, model, place)
        self._forward = self._predictor.module = _NotedModule(self._predictor.module)
        self._profiler = profile(activities=[ProfilerActivity.CPU])
        self._batch: Tensors = {}

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs of the module."""
        self._batch = batch
        return self._predictor.predict(batch)

    def start(self) -> None:
        """Begin to record."""
        self._forward.spans.clear()
        self._profiler.start()

    def finish(self) -> Profile:
        """Stop the profiler, and return the rows of the outermost operators."""
        self._profiler.stop()
        calls = _split_calls(_list_outermost(self._profiler), self._forward.spans)
        rows = self._forward.describe(self._predictor, self._batch)
        self._predictor.close()
        return build_profile(calls, lambda number: _rename(calls[number], rows), native=_export(self._profiler))


def open_profiler(folder: Path, model: Model, place: Place) -> ProfiledPyTorch:
    """Load the model with PyTorch's profiler."""
    return ProfiledPyTorch(folder, model, place)


def describe_graph(folder: Path, model: Model, place: Place, batch: Tensors) -> Graph:
    """Return the outermost operators of a call, which PyTorch executes as the model states them."""
    loaded = predictor.load(folder, model, place)
    for _ in range(_WARMUP):  # TorchScript optimizes a function in its first calls
        loaded.predict(batch)
    with FlopCounterMode(display=False) as counter:
        loaded.predict(batch)
    parameters = sum(tensor.numel() for tensor in loaded.module.parameters())
    loaded.module = _NotedModule(loaded.module)
    rows = loaded.module.describe(loaded, batch)
    return Graph(
        source="torch-dispatch",
        rows=rows,
        framework_flops=int(counter.get_total_flops()),
        parameters=parameters or None,
        operators=dict(sorted(Counter(row.type for row in rows).items())),
    )


class _NotedModule:
    """A module that notes the start and the end of its calls by the real-time clock, as the profiler does."""

    def __init__(self, module: Any) -> None:  # noqa: ANN401 - torch has no types here
        self._module = module
        self._noted: _NotedCalls | None = None
        self.spans: list[tuple[int, int]] = []

    def __call__(self, *inputs: Any) -> Any:  # noqa: ANN401 - as above
        """Call the module."""
        if self._noted is not None:
            with self._noted:
                return self._module(*inputs)
        begin = time.time_ns()
        answer = self._module(*inputs)
        self.spans.append((begin, time.time_ns()))
        return answer

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as above
        """Return an attribute of the module."""
        return getattr(self._module, name)

    def describe(self, loaded: predictor.PyTorch, batch: Tensors) -> list[Row]:
        """Return the operators that a call of the predictor makes, with their shapes."""
        self._noted = _NotedCalls()
        loaded.predict(batch)
        rows, self._noted = self._noted.rows, None
        return rows


class _NotedCalls(TorchDispatchMode):  # type: ignore[misc] # torch has no types here
    """Notes each operator that the module calls; in inference mode these are the outermost ones."""

    def __init__(self) -> None:
        """Start without a note."""
        super().__init__()
        self.rows: list[Row] = []

    def __torch_dispatch__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch has no types here
        """Call the operator and note its arguments and what it returns."""
        answer = function(*args, **(kwargs or {}))
        name = function.name().partition(".")[0]
        if name.startswith(_OPERATOR):
            names = [argument.name for argument in function._schema.arguments]  # noqa: SLF001 - there is no public one
            self.rows.append(_row(name, dict(zip(names, args, strict=False)) | (kwargs or {}), answer))
        return answer


def _row(name: str, arguments: dict[str, Any], answer: Any) -> Row:  # noqa: ANN401 - values of any type
    kind = name.removeprefix(_OPERATOR)
    roles = _ADDMM if kind == "addmm" else _ROLES
    inputs = [tensor for key, value in arguments.items() for tensor in _tensors(value, roles.get(key, "data"))]
    attributes: dict[str, Any] = {"weight_format": _DENSE[kind]} if kind in _DENSE else {}
    weights = arguments.get("weight")
    if "conv" in kind and isinstance(weights, torch.Tensor):
        is_transposed = "transpose" in kind or arguments.get("transposed")
        attributes = {"weight_format": "IOHW"} if is_transposed else {"weight_format": "OIHW"}
        attributes["group"] = arguments.get("groups", 1)
    return Row("layer", name, kind, inputs=tuple(inputs), outputs=tuple(_tensors(answer)), attributes=attributes)


def _tensors(value: Any, role: str | None = None) -> Iterator[RowTensor]:  # noqa: ANN401 - an argument of any type
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, torch.Tensor):
            yield RowTensor(tuple(item.shape), str(item.dtype).removeprefix("torch."), role)


class _Event(NamedTuple):
    """An operator in the profile; times in nanoseconds of the real-time clock."""

    start: int
    duration: int
    name: str


def _list_outermost(profiler: profile) -> list[_Event]:
    """Return the operators that are in no other operator, in order of start."""
    events = [
        _Event(event.start_ns(), event.duration_ns(), event.name())
        for event in profiler.profiler.kineto_results.events()
        if event.name().startswith(_OPERATOR)
    ]
    outermost: list[_Event] = []
    for event in sorted(events, key=lambda event: (event.start, -event.duration)):
        if not outermost or event.start >= outermost[-1].start + outermost[-1].duration:
            outermost.append(event)
    return outermost


def _split_calls(events: Sequence[_Event], spans: Sequence[tuple[int, int]]) -> list[list[Span]]:
    """Return the spans inside each call of the module; those of the tensors' conversion are outside."""
    calls: list[list[Span]] = [[] for _ in spans]
    begins = [begin for begin, _ in spans]
    numbers = np.searchsorted(begins, [event.start for event in events], side="right") - 1
    for number, event in zip(numbers.tolist(), events, strict=True):
        if number >= 0 and event.start + event.duration <= spans[number][1]:
            calls[number].append(Span(event.name, event.start, event.duration))
    return calls


def _rename(call: Sequence[Span], rows: list[Row]) -> list[Row]:
    """Return the rows of a call: those with shapes, or without them where the call with shapes had other operators."""
    names = [str(span.key) for span in call]
    if [row.name for row in rows] == names:
        return rows
    return [Row("layer", name, name.removeprefix(_OPERATOR)) for name in names]


def _export(profiler: profile) -> bytes:
    """Return the profile as Chrome's trace events; empty where it would be too large."""
    if len(profiler.profiler.kineto_results.events()) * _BYTES_AN_EVENT > LARGEST_TRACE:
        return b""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return path.read_bytes()
