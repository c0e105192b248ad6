"""Training in PyTorch: one step at a time, with the optimizers of ``torch.optim``."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.job import Model
from ..core.training_job import TrainingJob, derive_purpose_seed
from ..predictors import CPU, Tensors, map_by_position
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


class PyTorchTrainer:
    """A module with its optimizer."""

    def __init__(self, module: Any, model: Model, optimizer: Any, threads: int) -> None:  # noqa: ANN401 - torch has no types here
        """Keep the module, which learns from the first step on."""
        self.threads = {"num_threads": threads}
        self._module = module.train()
        self._model = model
        self._optimizer = optimizer
        self._loss = torch.nn.CrossEntropyLoss()

    def step(self, batch: Tensors, labels: NDArray[np.int64]) -> float:
        """Update the weights with one batch; return its mean loss before the update."""
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._find_loss(batch, labels)
        loss.backward()
        self._optimizer.step()
        return float(loss.item())

    def profile_step(self, batch: Tensors, labels: NDArray[np.int64]) -> StepProfile:
        """Update the weights with one batch; return what that took."""
        return ProfiledStep(self._module, self._optimizer).run(lambda: self._find_loss(batch, labels))

    def _find_loss(self, batch: Tensors, labels: NDArray[np.int64]) -> Any:  # noqa: ANN401 - as above
        return self._loss(self._module(*self._tensors(batch)), torch.from_numpy(labels))

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


def build(job: TrainingJob, folder: Path, seed: int) -> PyTorchTrainer:
    """Seed every generator, and build the network and its optimizer."""
    if job.device != CPU:
        raise ValueError(f"device {job.device!r} is not supported for training")
    set_threads(job.threads)
    torch.use_deterministic_algorithms(job.deterministic)
    random.seed(derive_purpose_seed(seed, "python"))
    np.random.seed(derive_purpose_seed(seed, "numpy"))  # noqa: NPY002 - the generator that code of a recipe may use
    torch.manual_seed(derive_purpose_seed(seed, "framework"))
    function = load_function(folder / job.network.file, job.network.function)
    try:
        module = function({})
    except SystemExit as error:  # code of a recipe must not end the harness
        raise ValueError(f"{job.network.function} exited with {error.code!r}") from error
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"{job.network.function} returned {type(module).__name__}, expected torch.nn.Module")
    optimizer = _make_optimizer(job.settings["optimizer"], module)
    return PyTorchTrainer(module, job.evaluation.model, optimizer, job.threads)


def _make_optimizer(settings: Mapping[str, Any], module: Any) -> Any:  # noqa: ANN401 - torch has no types here
    kind, names = _OPTIMIZERS[settings["name"]]
    options = {name: settings[name] for name in names}
    if "betas" in options:
        options["betas"] = tuple(options["betas"])
    return kind(module.parameters(), **options, **_IMPLEMENTATIONS[settings["implementation"]])
