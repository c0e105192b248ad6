"""What LiteRT and TensorFlow share: the interpreter of TFLite graphs, handed in by either."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..job import Model
from . import Tensors


class Interpreted:
    in_caller = True

    def __init__(self, interpreter: Any, model: Model, threads: int) -> None:  # noqa: ANN401 - of two libraries
        self.threads = {"num_threads": threads}
        self._interpreter = interpreter
        interpreter.allocate_tensors()
        self._inputs = _indices("input", [port.name for port in model.inputs], interpreter.get_input_details())
        self._outputs = _indices("output", [port.name for port in model.outputs], interpreter.get_output_details())
        self._shapes = {entry["name"]: tuple(entry["shape"]) for entry in interpreter.get_input_details()}

    def predict(self, batch: Tensors) -> Tensors:
        interpreter = self._interpreter
        if any(self._shapes[name] != values.shape for name, values in batch.items()):
            self._resize(batch)
        for name, values in batch.items():
            interpreter.set_tensor(self._inputs[name], values)
        interpreter.invoke()
        return {name: interpreter.get_tensor(index) for name, index in self._outputs.items()}

    def close(self) -> None:
        del self._interpreter

    def _resize(self, batch: Tensors) -> None:
        for name, values in batch.items():
            self._interpreter.resize_tensor_input(self._inputs[name], values.shape)
            self._shapes[name] = values.shape
        self._interpreter.allocate_tensors()


def _indices(kind: str, declared: Sequence[str], details: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    present = {entry["name"]: entry["index"] for entry in details}
    for name in declared:
        if name not in present:
            raise ValueError(f"the graph has no {kind} {name!r}; it has {', '.join(present)}")
    return {name: present[name] for name in declared}
