"""ONNX graphs in ONNX Runtime."""

from pathlib import Path

import onnxruntime

from ..job import Model
from . import Tensors, graph


class OnnxRuntime:
    in_caller = True

    def __init__(self, path: Path, model: Model, threads: int) -> None:
        onnxruntime.disable_telemetry_events()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 3
        self.threads = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._outputs = [port.name for port in model.outputs]
        _check_names("input", [port.name for port in model.inputs], [port.name for port in self._session.get_inputs()])
        _check_names("output", self._outputs, [port.name for port in self._session.get_outputs()])

    def predict(self, batch: Tensors) -> Tensors:
        return dict(zip(self._outputs, self._session.run(self._outputs, batch), strict=True))

    def close(self) -> None:
        del self._session


def load(folder: Path, model: Model, threads: int) -> OnnxRuntime:
    return OnnxRuntime(graph(folder, model), model, threads)


def _check_names(kind: str, declared: list[str], present: list[str]) -> None:
    for name in declared:
        if name not in present:
            raise ValueError(f"the graph has no {kind} {name!r}; it has {', '.join(present)}")
