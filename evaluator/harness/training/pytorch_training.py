"""Training in PyTorch: one step at a time, with an optimizer of ``torch.optim`` or of the recipe."""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from ..core.failures import Failure, classify_errors
from ..core.job import Code
from ..core.training_job import RecipeJob, derive_purpose_seed
from ..predictors import CPU, Tensors, map_by_position, merge_weights
from ..predictors.pytorch import set_threads
from ..steps.python_step import load_function
from . import StepProfile
from .pytorch_profile import ProfiledStep

_OPTIMIZERS: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "sgd": (torch.optim.SGD, ("lr", "momentum", "weight_decay")),
    "adam": (torch.optim.Adam, ("lr", "betas", "eps", "weight_decay")),
    "adamw": (torch.optim.AdamW, ("lr", "betas", "eps", "weight_decay")),
    "rmsprop": (torch.optim.RMSprop, ("lr", "eps", "momentum", "weight_decay")),
}
"""The class of each optimizer, and the settings that it has."""
_IMPLEMENTATIONS: Mapping[str, Mapping[str, bool]] = {
    "for-loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
_BATCH_NORMALIZATION = torch.nn.modules.batchnorm._BatchNorm  # noqa: SLF001 - the base of lazy ones, too


class Part(NamedTuple):
    """The samples of a batch that one forward pass computes, and their share of the batch."""

    inputs: Tensors
    labels: NDArray[np.int64]
    share: float


class PyTorchTrainer:
    """A module with its optimizer."""

    def __init__(self, module: Any, job: RecipeJob, optimizer: Any) -> None:  # noqa: ANN401 - torch has no types here
        """Keep the module, which learns from the first step on."""
        self.threads = {"num_threads": job.threads}
        self._module = self._called = module.train()
        self._trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._model = job.evaluation.model
        self._micro_batch = job.settings.get("micro_batch", job.settings["batch"])
        self._optimizer = optimizer
        self._rates = [group.get("lr") for group in optimizer.param_groups]
        self._loss = torch.nn.CrossEntropyLoss()

    def scale_rate(self, factor: float) -> None:
        """Set the learning rate of the next steps to ``factor`` times that of the optimizer's settings."""
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor

    def step(self, batch: Tensors, labels: NDArray[np.int64]) -> float:
        """Update the weights with one batch; return its mean loss before the update."""
        self._optimizer.zero_grad(set_to_none=True)
        mean = 0.0
        for part in self._split(batch, labels):
            loss = self._find_loss(part.inputs, part.labels)
            loss.backward(torch.full_like(loss, part.share))
            mean += part.share * float(loss.item())
        self._take_step()
        return mean

    def _split(self, batch: Tensors, labels: NDArray[np.int64]) -> list[Part]:
        """Return the parts of a batch; the gradient of its mean loss is the sum of theirs, weighted by their shares."""
        count, size = len(labels), self._micro_batch
        if count <= size:
            return [Part(batch, labels, 1.0)]
        parts = []
        for start in range(0, count, size):
            chosen = slice(start, start + size)
            inputs = {
                port.name: batch[port.name][(slice(None),) * (port.axes.axis or 0) + (chosen,)]
                for port in self._model.inputs
            }
            parts.append(Part(inputs, labels[chosen], len(labels[chosen]) / count))
        return parts

    def _take_step(self) -> None:
        """Update the weights with their gradients; the code of a custom optimizer must not end the harness."""
        try:
            self._optimizer.step()
        except SystemExit as error:
            raise ValueError(f"the optimizer exited with {error.code!r}") from error

    def find_gradients(self, batch: Tensors, labels: NDArray[np.int64]) -> tuple[float, list[Any]]:
        """Return the mean loss of a batch, and its gradient by each parameter; the weights stay."""
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._find_loss(batch, labels)
        loss.backward()
        gradients = [parameter.grad for parameter in self._trained]
        if any(gradient is None for gradient in gradients):
            what = "the loss does not depend on some weights, which processes cannot train together"
            raise Failure("predict", f"{what}; remove them from the network, or set requires_grad to False")
        return float(loss.item()), gradients

    def update(self, gradients: Sequence[Any]) -> None:
        """Update the weights with the gradient by each parameter."""
        for parameter, gradient in zip(self._trained, gradients, strict=True):
            parameter.grad = gradient
        self._take_step()

    def distribute(self, wrap: Callable[[Any], Any]) -> None:
        """Let every further step call ``wrap(module)``, which shares its gradients with other processes."""
        self._called = wrap(self._module)

    def profile_step(self, batch: Tensors, labels: NDArray[np.int64]) -> StepProfile:
        """Update the weights with one batch; return what that took."""
        profiled = ProfiledStep(self._module, self._optimizer)
        return profiled.run(self._split(batch, labels), self._find_loss, self._take_step)

    def _find_loss(self, batch: Tensors, labels: NDArray[np.int64]) -> Any:  # noqa: ANN401 - as above
        return self._loss(self._called(*self._tensors(batch)), torch.from_numpy(labels))

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs for a batch."""
        self._module.eval()
        try:
            with torch.inference_mode():
                return map_by_position(self._model, self._module(*self._tensors(batch)))
        finally:
            self._module.train()

    def weights(self) -> Mapping[str, NDArray[Any]]:
        """Return the state of the module."""
        return {name: tensor.detach().numpy() for name, tensor in self._module.state_dict().items()}

    def _tensors(self, batch: Tensors) -> list[Any]:
        return [torch.from_numpy(batch[port.name]) for port in self._model.inputs]


def build(job: RecipeJob, folder: Path, seed: int) -> PyTorchTrainer:
    """Seed every generator, and build the network and its optimizer."""
    if job.device != CPU:
        raise ValueError(f"device {job.device!r} is not supported for training")
    set_threads(job.threads)
    torch.use_deterministic_algorithms(job.deterministic)
    random.seed(derive_purpose_seed(seed, "python"))
    np.random.seed(derive_purpose_seed(seed, "numpy"))  # noqa: NPY002 - the generator that code of a recipe may use
    torch.manual_seed(derive_purpose_seed(seed, "framework"))
    initial = merge_weights((folder / path for path in job.initial), load_file)
    module = _call_code(folder, job.network, initial)
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"{job.network.function} returned {type(module).__name__}, expected torch.nn.Module")
    is_split = job.settings.get("micro_batch", job.settings["batch"]) < job.settings["batch"]
    if is_split and any(isinstance(part, _BATCH_NORMALIZATION) for part in module.modules()):
        raise ValueError("with micro_batch, batch normalization would use the statistics of each part")
    with classify_errors("load", "the optimizer"):
        optimizer = _make_optimizer(job.settings["optimizer"], module, folder)
        if "schedule" in job.settings and not all(
            isinstance(group.get("lr"), float) for group in optimizer.param_groups
        ):
            raise ValueError("a schedule needs the learning rate lr in each group of parameters, as a float")
    return PyTorchTrainer(module, job, optimizer)


def _call_code(folder: Path, code: Code, *arguments: Any) -> Any:  # noqa: ANN401 - torch has no types here
    """Return what a function of the recipe returns; it must not end the harness."""
    function = load_function(folder / code.file, code.function)
    try:
        return function(*arguments)
    except SystemExit as error:
        raise ValueError(f"{code.function} exited with {error.code!r}") from error


def _make_optimizer(settings: Mapping[str, Any], module: Any, folder: Path) -> Any:  # noqa: ANN401 - torch has no types here
    if "name" not in settings:
        code = Code(settings["file"], settings["function"])
        numbers = {key: value for key, value in settings.items() if key not in ("file", "function")}
        optimizer = _call_code(folder, code, list(module.parameters()), numbers)
        if not isinstance(optimizer, torch.optim.Optimizer):
            what = f"{code.function} returned {type(optimizer).__name__}, expected torch.optim.Optimizer"
            raise TypeError(what)
        return optimizer
    kind, names = _OPTIMIZERS[settings["name"]]
    options = {name: settings[name] for name in names}
    if "betas" in options:
        options["betas"] = tuple(options["betas"])
    return kind(module.parameters(), **options, **_IMPLEMENTATIONS[settings["implementation"]])
