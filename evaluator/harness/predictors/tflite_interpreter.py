"""The interpreter of TFLite graphs that LiteRT and TensorFlow share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.job import Model
from . import CPU, Tensors, check_names

_MARK = slice(4, 8)
_TFLITE = b"TFL3"
_DELEGATE = "DELEGATE"
"""The type of the nodes that delegates add to the operators of the file."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a graph; ``inputs`` and ``outputs`` are indices of tensors, -1 for an absent optional input."""

    type: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class TfliteInterpreter:
    """A TFLite graph in the interpreter of LiteRT or of TensorFlow."""

    in_caller = True
    device = CPU

    def __init__(self, interpreter: Any, model: Model, threads: int) -> None:  # noqa: ANN401 - a type of either library
        """Allocate the tensors and check the graph's inputs and outputs."""
        self.threads = {"num_threads": threads}
        self._interpreter = interpreter
        interpreter.allocate_tensors()
        self._inputs = _indices("input", [port.name for port in model.inputs], interpreter.get_input_details())
        self._outputs = _indices("output", [port.name for port in model.outputs], interpreter.get_output_details())
        self._shapes = {entry["name"]: tuple(entry["shape"]) for entry in interpreter.get_input_details()}
        self._graph = {entry["name"]: _signature(entry) for entry in interpreter.get_input_details()}
        self._batch_axes = {port.name: port.axes.axis for port in model.inputs}

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs of ``batch``, after resizing the inputs where the batch size changed."""
        interpreter = self._interpreter
        if any(self._shapes[name] != values.shape for name, values in batch.items()):
            self._resize(batch)
        for name, values in batch.items():
            interpreter.set_tensor(self._inputs[name], values)
        interpreter.invoke()
        return {name: interpreter.get_tensor(index) for name, index in self._outputs.items()}

    def find_shapes(self, batch: Tensors) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all outputs of the graph in a call of ``batch``."""
        self.predict(batch)
        return {entry["name"]: tuple(map(int, entry["shape"])) for entry in self._interpreter.get_output_details()}

    def close(self) -> None:
        """Release the interpreter."""
        del self._interpreter

    def operators(self) -> tuple[list[Operator], dict[int, Mapping[str, Any]]]:
        """Return the graph's operators in the order of execution, and its tensors by index, as the library lists them.

        Shapes are those of the last call.
        """
        tensors = {int(entry["index"]): entry for entry in self._interpreter.get_tensor_details()}
        details = self._interpreter._get_ops_details()  # noqa: SLF001 - no public method lists operators
        listed = [
            Operator(entry["op_name"], tuple(map(int, entry["inputs"])), tuple(map(int, entry["outputs"])))
            for entry in details
        ]
        return [operator for operator in listed if operator.type != _DELEGATE], tensors

    def _resize(self, batch: Tensors) -> None:
        for name, values in batch.items():
            _check_shape(name, self._graph[name], values.shape, self._batch_axes[name])
            self._interpreter.resize_tensor_input(self._inputs[name], values.shape)
            self._shapes[name] = values.shape
        self._interpreter.allocate_tensors()


def check_tflite(path: Path) -> str:
    """Return the path of a TFLite graph; raise ``ValueError`` for another file, which interpreters do not explain."""
    with path.open("rb") as stream:
        if stream.read(_MARK.stop)[_MARK] != _TFLITE:
            raise ValueError(f"{path.name} is not a TFLite graph")
    return str(path)


def _signature(entry: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the declared shape of an input, -1 for a dynamic axis."""
    return tuple(int(size) for size in entry.get("shape_signature", entry["shape"]))


def _check_shape(name: str, graph: Sequence[int], shape: Sequence[int], batch_axis: int | None) -> None:
    """Raise unless only batch axes change; the interpreter would resize any axis and run another network."""
    fits = len(graph) == len(shape) and all(
        axis == batch_axis or size in (-1, shape[axis]) for axis, size in enumerate(graph)
    )
    if not fits:
        raise ValueError(f"input {name!r} of the graph has shape {list(graph)}, but got {list(shape)}")


def _indices(kind: str, declared: Sequence[str], details: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    present = {entry["name"]: entry["index"] for entry in details}
    check_names(kind, declared, present, all_fed=kind == "input")
    return {name: present[name] for name in declared}
