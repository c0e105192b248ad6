"""LiteRT's profiler: a row for each operator of LiteRT and of its delegate XNNPACK, with the operator of the file.

``litert_library`` reads the events. The operators of a TFLite file come from the interpreter, which lists neither
attributes nor names, so that an operator has the name of its first output.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from ..core.job import Model
from ..predictors import CPU, Place, Tensors, check_names, find_graph, load
from ..predictors.tflite_interpreter import Operator, TfliteInterpreter
from . import Graph, Profile, Row, RowTensor
from .litert_library import DEFAULT, DELEGATE_OPERATOR, OPERATOR, CompiledModel, Event, digest_library, run_trial
from .row_matrix import Span, build_profile

_MICROSECOND: Final = 1000
_CALL: Final = (DEFAULT, "Invoke")
"""The event of an executed graph; ``INVOKE`` has none for a graph with signatures."""
_PROVIDERS: Final = {OPERATOR: "LiteRT", DELEGATE_OPERATOR: "XNNPACK"}
_WEIGHTS: Final = {"CONV_2D": "OHWI", "DEPTHWISE_CONV_2D": "1HWO", "FULLY_CONNECTED": "OI"}
"""The axes of the weights of an operator, its second input."""
_CONSTANTS: Final = ("weight", "bias")
"""The roles of the inputs after the first one."""
_EXECUTES: Final = {
    "Convolution": ("CONV_2D", "DEPTHWISE_CONV_2D"), "Deconvolution": ("TRANSPOSE_CONV",),
    "Fully Connected": ("FULLY_CONNECTED", "CONV_2D", "BATCH_MATMUL"),
    "Add": ("ADD",), "Subtract": ("SUB",), "Multiply": ("MUL",), "Divide": ("DIV",),
    "Average Pooling": ("AVERAGE_POOL_2D", "MEAN"), "Global Average Pooling": ("MEAN", "AVERAGE_POOL_2D"),
    "Max Pooling": ("MAX_POOL_2D",), "Softmax": ("SOFTMAX",), "Sigmoid": ("LOGISTIC",), "Tanh": ("TANH",),
    "Static Reshape": ("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), "Static Constant Pad": ("PAD", "PADV2"),
    "Clamp": ("RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "MINIMUM", "MAXIMUM"),
}  # fmt: skip
"""The operators of a file that one of XNNPACK can execute, by XNNPACK's name."""
_FUSED: Final = "Clamp"
"""XNNPACK's name of an activation that the file has as a part of the operator before."""


class Profiler:
    """The model in LiteRT's C library, with its profiler."""

    source = "litert-profiler"
    in_caller = True
    device = CPU

    def __init__(self, folder: Path, model: Model, place: Place) -> None:
        """Load the graph and check the names of its inputs and outputs."""
        self._interpreter = _load_undelegated(folder, model, place)
        compiled = CompiledModel(find_graph(folder, model), place.threads, self._interpreter.find_shapes)
        self.threads = {"num_threads": place.threads}
        check_names("input", [port.name for port in model.inputs], compiled.inputs, all_fed=True)
        check_names("output", [port.name for port in model.outputs], compiled.outputs)
        self._compiled = compiled
        self._batch: Tensors = {}
        self._outputs = [port.name for port in model.outputs]

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs of one call."""
        self._batch = batch
        answers = self._compiled.run(batch)
        return {name: answers[name] for name in self._outputs}

    def start(self) -> None:
        """Begin to record."""
        self._compiled.start()

    def finish(self) -> Profile:
        """Stop, release the model, and return the profile."""
        events = self._compiled.finish()
        self._compiled.close()
        rows = describe_interpreter(self._interpreter, self._batch).rows
        self._interpreter.close()
        return convert(events, rows, digest_library())


def open_profiler(folder: Path, model: Model, place: Place) -> Profiler:
    """Load the model with the profiler of LiteRT, after a trial of the same in a child process.

    Raises:
        ValueError: This build of LiteRT cannot be profiled; the message has the reason.
    """
    if place.device != CPU:
        raise ValueError(f"the profiler of LiteRT records calls on the CPU only, not on {place.device}")
    run_trial(lambda: _compare(folder, model, place))
    return Profiler(folder, model, place)


def _compare(folder: Path, model: Model, place: Place) -> None:
    """Raise unless a profiled call has the outputs of the interpreter, and an event of the call."""
    interpreter = cast(TfliteInterpreter, load(model, folder, place))
    compiled = CompiledModel(find_graph(folder, model), place.threads, interpreter.find_shapes)
    generator = np.random.default_rng(0)
    batch = {name: generator.random(values.shape).astype(values.dtype) for name, values in compiled.inputs.items()}
    expected = interpreter.predict(batch)
    compiled.start()
    answers = compiled.run(batch)
    events = compiled.finish()
    for name, values in expected.items():
        if values.tobytes() != answers[name].tobytes():
            raise ValueError(f"output {name!r} of the profiled graph differs from that of the interpreter")
    if len(list(_split(events))) != 1:
        raise ValueError("the profiler has no event of the call")


def describe_graph(folder: Path, model: Model, place: Place, batch: Tensors) -> Graph:
    """Describe the operators of the file with their shapes in a call of ``batch``."""
    interpreter = _load_undelegated(folder, model, place)
    graph = describe_interpreter(interpreter, batch)
    interpreter.close()
    return graph


def _load_undelegated(folder: Path, model: Model, place: Place) -> TfliteInterpreter:
    module = import_module("..predictors.litert", __package__)  # which alone imports LiteRT
    return cast(TfliteInterpreter, module.load_undelegated(folder, model, place))


def describe_interpreter(interpreter: TfliteInterpreter, batch: Tensors) -> Graph:
    """Describe the operators of a loaded graph with their shapes in a call of ``batch``."""
    interpreter.predict(batch)
    operators, tensors = interpreter.operators()
    computed = {index for operator in operators for index in operator.outputs}
    rows = list_operators(operators, tensors)
    constants = {index for operator in operators for index, role in _roles(operator, computed) if role != "data"}
    parameters = sum(int(np.prod(tensors[index]["shape"])) for index in constants if index in tensors)
    counts = Counter(operator.type for operator in operators)
    return Graph("tflite-operators", rows, parameters=parameters, operators=dict(sorted(counts.items())))


def list_operators(operators: Sequence[Operator], tensors: Mapping[int, Mapping[str, Any]]) -> list[Row]:
    """Return the operators of a file as rows."""
    computed = {index for operator in operators for index in operator.outputs}
    rows = []
    for operator in operators:
        name = str(tensors[operator.outputs[0]]["name"]) if operator.outputs else operator.type
        row = Row(
            "layer",
            name,
            operator.type,
            source_names=(name,),
            inputs=tuple(_tensor(tensors, index, role) for index, role in _roles(operator, computed)),
            outputs=tuple(_tensor(tensors, index, None) for index in operator.outputs),
            attributes={"weight_format": _WEIGHTS[operator.type]} if operator.type in _WEIGHTS else {},
        )
        rows.append(row)
    return rows


def _roles(operator: Operator, computed: set[int]) -> Iterator[tuple[int, str]]:
    """Yield each input with its role; only operators of ``_WEIGHTS`` have constants with a role."""
    for position, index in enumerate(operator.inputs):
        is_constant = operator.type in _WEIGHTS and 0 < position <= len(_CONSTANTS) and index not in computed
        yield index, _CONSTANTS[position - 1] if is_constant else "data"


def _tensor(tensors: Mapping[int, Mapping[str, Any]], index: int, role: str | None) -> RowTensor:
    entry = tensors.get(index)
    if entry is None:
        return RowTensor(None, None, role)
    shape = tuple(int(size) for size in entry["shape"])
    return RowTensor(shape, np.dtype(entry["dtype"]).name, role)


def convert(events: Sequence[Event], operators: Sequence[Row], library: str) -> Profile:
    """Convert the events of all calls.

    Args:
        events: The events in the order of the profiler.
        operators: The operators of the file.
        library: The digest of the library, for the native profile.
    """
    calls = list(_split(events))
    document = {"library": library, "fields": Event._fields, "events": events}
    by_delegate = any(event.type == DELEGATE_OPERATOR for event in events)
    return build_profile(
        [_lay_out(call) for call in calls],
        lambda number: describe_rows(calls[number][1:], operators),
        native=json.dumps(document, separators=(",", ":")).encode(),
        clock="monotonic",
        start_source="accumulated" if by_delegate else "measured",
        resolution_ns=_MICROSECOND,
        notes=("times are whole microseconds: use means over calls, not medians, for rows below 5 µs",),
    )


def _split(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Yield for each call the event of the call, then those of its operators, without those of nested graphs."""
    call: list[Event] = []
    end_us = 0
    for event in events:
        if (event.type, event.tag) == _CALL and event.start_us >= end_us:  # a nested graph begins inside its call
            if call:
                yield call
            call, end_us = [event], event.start_us + event.elapsed_us
        elif call and event.type in _PROVIDERS and event.graph == 0:
            call.append(event)
    if call:
        yield call


def _lay_out(call: Sequence[Event]) -> list[Span]:
    """Return the spans of the operators of a call; those of delegates have no start and are laid end to end."""
    whole, *listed = call
    spans, end = [], whole.start_us
    for event in listed:
        start = event.start_us if event.type == OPERATOR else end
        key = (event.tag, event.type, event.node)
        spans.append(Span(key, start * _MICROSECOND, event.elapsed_us * _MICROSECOND))
        end = start + event.elapsed_us
    return spans


def describe_rows(events: Sequence[Event], operators: Sequence[Row]) -> list[Row]:
    """Return the rows of a call, each with the operator of the file that it executes.

    The event of an operator of LiteRT has the operator's index. XNNPACK's events have none: they are matched in order
    with the operators in between, by ``_EXECUTES``.
    """
    rows, last = [], -1
    for position, event in enumerate(events):
        type_ = event.tag.partition(" (")[0]
        if event.type == OPERATOR:
            found = event.node if 0 <= event.node < len(operators) else None
        else:
            following = (other.node for other in events[position:] if other.type == OPERATOR)
            found = _find_operator(type_, operators, last, next(following, len(operators)))
        rows.append(_row(event, type_, None if found is None else operators[found]))
        last = last if found is None else found
        if found is None and type_ == _FUSED and last >= 0:
            fused = operators[last]
            data = tuple(RowTensor(tensor.shape, tensor.dtype, "data") for tensor in fused.outputs)
            rows[-1] = replace(rows[-1], source_names=fused.source_names, inputs=data, outputs=fused.outputs)
    return rows


def _find_operator(type_: str, operators: Sequence[Row], last: int, end: int) -> int | None:
    """Return the first operator after ``last`` that ``type_`` can execute, without passing one that has weights."""
    for index in range(last + 1, min(end, len(operators))):
        if operators[index].type in _EXECUTES.get(type_, ()):
            return index
        if operators[index].type in _WEIGHTS:
            return None
    return None


def _row(event: Event, type_: str, operator: Row | None) -> Row:
    variant = event.tag.partition(") ")[2] or None
    row = Row("layer", event.tag, type_, provider=_PROVIDERS[event.type], variant=variant)
    if operator is None:
        return row
    return replace(
        row,
        source_names=operator.source_names,
        source_type=operator.type if operator.type != type_ else None,
        inputs=operator.inputs,
        outputs=operator.outputs,
        attributes=operator.attributes,
    )
