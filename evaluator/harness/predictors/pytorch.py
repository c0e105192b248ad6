"""TorchScript files and exported programs in PyTorch."""

from pathlib import Path
from typing import Any

import torch

from ..job import Model
from . import Tensors, by_position, graph
from .accelerators import CPU, check_cuda

_CUDA = "cuda"


class PyTorch:
    in_caller = True
    device = CPU

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


class Accelerated(PyTorch):
    """On the first accelerator that the process sees; a call takes its tensors there and its answers back."""

    in_caller = False

    def __init__(self, module: Any, model: Model, threads: int, device: str) -> None:  # noqa: ANN401 - as above
        super().__init__(module, model, threads)
        self.device = device

    def predict(self, batch: Tensors) -> Tensors:
        with torch.inference_mode():
            given = [torch.from_numpy(batch[name]).to(_CUDA) for name in self._inputs]
            return by_position(self._model, _back(self._module(*given)))


def load(folder: Path, model: Model, threads: int, device: str) -> PyTorch:
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    if device == CPU:
        return PyTorch(_read(graph(folder, model), model.format, CPU), model, threads)
    check_cuda(device, torch.version.cuda, torch.cuda.device_count())
    return Accelerated(_read(graph(folder, model), model.format, _CUDA), model, threads, device)


def _read(path: Path, form: str, place: str) -> Any:  # noqa: ANN401 - torch has no types here
    """The module, its parameters at ``place``, the CPU or the first accelerator."""
    if form == "torchscript":
        return torch.jit.load(str(path), map_location=place).eval()
    if form == "torch-export":
        program = torch.export.load(str(path))
        if place != CPU:
            from torch.export.passes import move_to_device_pass  # noqa: PLC0415 - absent from older releases

            program = move_to_device_pass(program, place)
        # An exported program was fixed in its mode when it was exported: it has no eval().
        return program.module()
    raise ValueError(f"the format {form!r} is not built")


def _back(answer: Any) -> Any:  # noqa: ANN401 - a tensor, or a sequence or mapping of them
    """The same on the CPU, of tensors that were made on the accelerator."""
    if isinstance(answer, dict):
        return {name: _back(tensor) for name, tensor in answer.items()}
    if isinstance(answer, list | tuple):
        return [_back(tensor) for tensor in answer]
    if answer.device.type != _CUDA:
        raise ValueError(f"the model answers with a tensor of the device {answer.device}, and {_CUDA} was asked for")
    return answer.cpu()
