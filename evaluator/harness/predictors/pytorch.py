"""TorchScript files and exported programs in PyTorch."""

from pathlib import Path
from typing import Any

import torch

from ..job import Model
from . import Tensors, by_position, graph


class PyTorch:
    in_caller = True

    def __init__(self, module: Any, model: Model, threads: int) -> None:  # noqa: ANN401 - torch has no types here
        self.threads = {"num_threads": threads, "num_interop_threads": 1}
        self._module = module
        self._model = model
        self._inputs = [port.name for port in model.inputs]

    def predict(self, batch: Tensors) -> Tensors:
        with torch.inference_mode():
            return by_position(self._model, self._module(*[torch.from_numpy(batch[name]) for name in self._inputs]))

    def close(self) -> None:
        del self._module


def load(folder: Path, model: Model, threads: int) -> PyTorch:
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    path = str(graph(folder, model))
    if model.format == "torchscript":
        return PyTorch(torch.jit.load(path, map_location="cpu").eval(), model, threads)
    if model.format == "torch-export":
        # An exported program was fixed in its mode when it was exported: it has no eval().
        return PyTorch(torch.export.load(path).module(), model, threads)
    raise ValueError(f"the format {model.format!r} is not built")
