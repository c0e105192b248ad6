"""PyTorch: TorchScript files, exported programs, and weights of a network built by code."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from ..core.job import Model
from ..steps.python_step import load_function
from . import CPU, Place, Tensors, check_cuda, find_graph, list_files, map_by_position, merge_weights

_CUDA = "cuda"
# torch.load explains at length how to let a file execute code before it states the error after this mark.
_UNPICKLER = "WeightsUnpickler error: "


class PyTorch:
    """A PyTorch module on the CPU."""

    in_caller = True
    device = CPU

    def __init__(self, module: Any, model: Model, threads: int) -> None:  # noqa: ANN401 - torch has no types here
        """Wrap ``module``; the first call examines it."""
        self.threads = {"num_threads": threads, "num_interop_threads": 1}
        self.module = module
        self._model = model
        self._inputs = [port.name for port in model.inputs]
        self._to_tensor: Callable[[Any], Any] | None = None
        self._shared = False

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs of ``batch``; arrays may share memory with PyTorch, but not with the module."""
        if self._to_tensor is None:
            return self._first(batch)
        with torch.inference_mode():
            answer = self.module(*[self._to_tensor(batch[name]) for name in self._inputs])
            return map_by_position(self._model, _copy(answer) if self._shared else answer)

    def close(self) -> None:
        """Release the module."""
        del self.module

    def _first(self, batch: Tensors) -> Tensors:
        """Make the first call, which detects a module that changes its inputs or returns its own parameters.

        Later calls copy such inputs and answers, so that no call affects the tensors of another.
        """
        with torch.inference_mode():
            inputs = [torch.tensor(batch[name]) for name in self._inputs]
            answer = self.module(*inputs)
            outputs = map_by_position(self._model, _copy(answer))
            own_pointers = {tensor.data_ptr() for tensor in (*self.module.parameters(), *self.module.buffers())} - {0}
            self._shared = any(tensor.data_ptr() in own_pointers for tensor in _tensors(answer))
            changed = any(
                not torch.equal(tensor, torch.from_numpy(batch[name]))
                for tensor, name in zip(inputs, self._inputs, strict=True)
            )
        self._to_tensor = torch.tensor if changed else torch.from_numpy
        return outputs


class AcceleratedPyTorch(PyTorch):
    """A PyTorch module on the first visible accelerator; a call moves its tensors there and back."""

    in_caller = False

    def __init__(self, module: Any, model: Model, threads: int, device: str) -> None:  # noqa: ANN401 - as above
        """Wrap ``module``, whose parameters are on the accelerator."""
        super().__init__(module, model, threads)
        self.device = device

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs of ``batch``, copied from the accelerator."""
        with torch.inference_mode():
            inputs = [torch.from_numpy(batch[name]).to(_CUDA) for name in self._inputs]
            return map_by_position(self._model, _move_back(self.module(*inputs)))


def set_threads(threads: int) -> None:
    """Set the thread counts of PyTorch."""
    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != 1:  # can be set only once in a process
        torch.set_num_interop_threads(1)


def load(folder: Path, model: Model, place: Place) -> PyTorch:
    """Load the model; it can be a TorchScript file, an exported program, or weights with code."""
    set_threads(place.threads)
    if place.device == CPU:
        return PyTorch(_read(folder, model, CPU), model, place.threads)
    check_cuda(place.device, torch.version.cuda, torch.cuda.device_count())
    return AcceleratedPyTorch(_read(folder, model, _CUDA), model, place.threads, place.device)


def _read(folder: Path, model: Model, place: str) -> Any:  # noqa: ANN401 - torch has no types here
    """Return the module with its parameters at ``place``, the CPU or the first accelerator."""
    if model.format == "torchscript":
        return torch.jit.load(str(find_graph(folder, model)), map_location=place).eval()
    if model.format == "torch-export":
        program = torch.export.load(str(find_graph(folder, model)))
        if place != CPU:
            from torch.export.passes import move_to_device_pass  # noqa: PLC0415 - absent from older releases

            program = move_to_device_pass(program, place)
        # The mode of an exported program is fixed at its export: it has no eval().
        return program.module()
    if model.format == "safetensors":
        weights = merge_weights(list_files(folder, model, "weights"), load_file)
        return _build_network(folder, model, weights).to(place)
    if model.format == "state-dict":
        return _build_network(
            folder, model, _load_state_dict(list_files(folder, model, "weights"), unsafe=model.unsafe)
        ).to(place)
    raise ValueError(f"format {model.format!r} is not supported")


def _build_network(folder: Path, model: Model, weights: Any) -> Any:  # noqa: ANN401 - torch has no types here
    """Return the network that the model's code builds around ``weights``."""
    if model.code is None:
        raise ValueError(f"a model with format {model.format} needs code")
    function = load_function(folder / model.code.file, model.code.function)
    try:
        module = function(weights)
    except SystemExit as error:  # code of a model must not end the harness
        raise ValueError(f"{model.code.function} exited with {error.code!r}") from error
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"{model.code.function} returned {type(module).__name__}, expected torch.nn.Module")
    return module.eval().requires_grad_(requires_grad=False)


def _load_state_dict(paths: list[Path], *, unsafe: bool) -> Any:  # noqa: ANN401 - any content of the file
    if len(paths) != 1:
        raise ValueError(f"{len(paths)} files with role weights, expected one")
    try:
        return torch.load(str(paths[0]), map_location=CPU, weights_only=not unsafe)
    except EOFError as error:
        raise ValueError(f"{paths[0].name} is truncated") from error
    except Exception as error:
        _, marker, reason = str(error).partition(_UNPICKLER)
        if marker:
            raise ValueError(
                f"{paths[0].name} contains more than weights: {reason.strip().partition(chr(10))[0]}"
            ) from error
        raise


def _move_back(answer: Any) -> Any:  # noqa: ANN401 - a tensor, or a sequence or mapping of them
    """Return the answer with its tensors moved from the accelerator to the CPU."""
    if isinstance(answer, dict):
        return {name: _move_back(tensor) for name, tensor in answer.items()}
    if isinstance(answer, list | tuple):
        return [_move_back(tensor) for tensor in answer]
    if answer.device.type != _CUDA:
        raise ValueError(f"the model returned a tensor on device {answer.device}, but {_CUDA} was requested")
    return answer.cpu()


def _tensors(answer: Any) -> list[Any]:  # noqa: ANN401 - a tensor, or a sequence or mapping of them
    values = list(answer.values()) if isinstance(answer, dict) else answer
    items = values if isinstance(values, list | tuple) else [values]
    return [value for value in items if isinstance(value, torch.Tensor)]


def _copy(answer: Any) -> Any:  # noqa: ANN401 - a tensor, or a sequence or mapping of them
    if isinstance(answer, dict):
        return {name: _copy(value) for name, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [_copy(value) for value in answer]
    return answer.clone() if isinstance(answer, torch.Tensor) else answer
