"""Training: repeats of a recipe until a target, and the evaluation of their weights in another process.

One module per framework has a function ``build(job, folder, seed) -> Trainer``, and only it imports its framework.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from ..core.failures import Failure, classify_errors
from ..core.job import Output
from ..core.training_job import RecipeJob
from ..predictors import Tensors
from ..quality.classification import decisions

_TRAINERS = {"pytorch": "pytorch_training", "tensorflow": "tensorflow_training"}
"""The module of each framework that can train, by predictor."""


TRANSIENT: Final = 0
"""The category of memory that has no other purpose, such as the workspace of an operator."""
GRADIENTS: Final = 1
SAVED: Final = 2
"""The category of what the forward pass saves for the backward pass."""


@dataclass(frozen=True, slots=True)
class StepProfile:
    """What one training step takes.

    Attributes:
        weights: The bytes of weights and buffers, which are held before and after the step.
        optimizer: The bytes of the state of the optimizer, held likewise.
        bytes: Each allocation in order [changes]; a release is negative.
        categories: ``TRANSIENT``, ``GRADIENTS`` or ``SAVED`` for each change [changes].
        operators: The CPU time of each kind of operator, in nanoseconds.
    """

    weights: int
    optimizer: int
    bytes: NDArray[np.int64]
    categories: NDArray[np.int64]
    operators: Mapping[str, int]


class Trainer(Protocol):
    """A network with its optimizer in one framework."""

    @property
    def threads(self) -> Mapping[str, int]:
        """The thread counts that were set, by the framework's names."""

    def scale_rate(self, factor: float) -> None:
        """Set the learning rate of the next steps to ``factor`` times that of the optimizer's settings."""

    def step(self, batch: Tensors, labels: NDArray[np.int64]) -> float:
        """Update the weights with one batch; return its mean loss before the update."""
        ...

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs for a batch, without an update and with the network in the mode of evaluation."""
        ...

    def weights(self) -> Mapping[str, NDArray[Any]]:
        """Return the weights, with buffers, by name."""
        ...


def build_trainer(job: RecipeJob, folder: Path, seed: int) -> Trainer:
    """Build the network and the optimizer of a repeat.

    Raises:
        Failure: ``load``: the framework cannot train, or the code fails.
    """
    predictor = job.evaluation.model.predictor
    if predictor not in _TRAINERS:
        raise Failure("load", f"the predictor {predictor} cannot train; known: {', '.join(_TRAINERS)}")
    with classify_errors("load", "the network"):
        module = import_module(f".{_TRAINERS[predictor]}", __name__)
        return cast(Trainer, module.build(job, folder, seed))


def encode_weights(weights: Mapping[str, NDArray[Any]]) -> bytes:
    """Return weights as a safetensors file that they alone determine.

    Tensors are in C order and little-endian, and in the order of the library: larger types first, then names. The file
    has no metadata, so its digest identifies the weights.
    """
    tensors = {}
    for name in sorted(weights):
        values = np.ascontiguousarray(weights[name])
        tensors[name] = values.astype(values.dtype.newbyteorder("<"), copy=False)
    content: bytes = save(tensors)
    return content


def digest_tensors(weights: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """Return the digest of each tensor, with its type and shape, by name in order."""
    digests = {}
    for name, values in sorted(weights.items()):
        content = sha256(f"{values.dtype.str} {values.shape} ".encode())
        content.update(np.ascontiguousarray(values).tobytes())
        digests[name] = content.hexdigest()
    return digests


def digest_weights(content: bytes) -> str:
    """Return the digest of encoded weights, such as ``sha256:…``."""
    return f"sha256:{sha256(content).hexdigest()}"


def decide_classes(output: Output, values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the predicted label of each sample: its best class, ties to the lowest index.

    Args:
        output: The output that has the scores.
        values: The scores [samples, classes].

    Raises:
        Failure: ``predict``: the values are not scores of classes.
    """
    return np.asarray([decisions(output, row, 1)[0] - output.label_offset for row in values], np.int64)
