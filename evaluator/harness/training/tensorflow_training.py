"""Training in TensorFlow: Keras layers, and a step of ``tf.function`` that is traced before the clock starts."""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from safetensors.tensorflow import load_file

from ..core.job import Dataset, Model
from ..core.training_job import RecipeJob, derive_purpose_seed
from ..predictors import CPU, Tensors, merge_weights
from ..predictors.tensorflow import Keras, build_network, set_threads
from . import digest_weights, encode_weights


class TensorFlowTrainer:
    """A Keras network with its optimizer."""

    def __init__(self, network: Any, model: Model, optimizer: Mapping[str, Any], threads: int) -> None:  # noqa: ANN401 - TensorFlow has no types here
        """Build the optimizer.

        Args:
            network: The network, which learns from the first step on.
            model: The model that it becomes.
            optimizer: The settings of the optimizer.
            threads: The thread count.
        """
        self._network, self._model = network, model
        self._predictor = Keras(network, model, threads, CPU)
        self.threads = self._predictor.threads
        self._rate, self._decay = optimizer["lr"], optimizer["weight_decay"]
        self._optimizer = _make_optimizer(optimizer)
        self._optimizer.build(network.trainable_variables)
        self._update = tf.function(self._learn, jit_compile=False)

    def scale_rate(self, factor: float) -> None:
        """Set the learning rate of the next steps to ``factor`` times that of the optimizer's settings."""
        self._optimizer.learning_rate.assign(self._rate * factor)

    def step(self, batch: Tensors, labels: NDArray[np.int64]) -> float:
        """Update the weights with one batch; return its mean loss before the update."""
        inputs = self._predictor.pack([tf.constant(batch[port.name]) for port in self._model.inputs])
        return float(self._update(inputs, tf.constant(labels)))

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs for a batch, by the function that evaluates the trained model."""
        return self._predictor.predict(batch)

    def weights(self) -> Mapping[str, NDArray[Any]]:
        """Return the weights by the paths of their variables."""
        return {variable.path: variable.numpy() for variable in self._network.weights}

    def warm_up(self, batches: Iterator[int], evaluated: Iterator[int]) -> None:
        """Trace and run the step and the prediction on zeros, then restore all variables.

        Args:
            batches: The sizes of training batches.
            evaluated: The sizes of evaluation batches.

        Raises:
            ValueError: The loss has another part than the cross-entropy, or a variable was not restored.
        """
        variables = [*self._network.variables, *self._optimizer.variables]
        before = [variable.numpy() for variable in variables]
        digest = digest_weights(encode_weights(self.weights()))
        for size in batches:
            self.step(self._make_zeros(size), np.zeros(size, np.int64))
        if self._network.losses:
            raise ValueError("the network adds losses, such as those of regularizers; the loss is cross-entropy alone")
        for size in evaluated:
            self.predict(self._make_zeros(size))
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
        if digest_weights(encode_weights(self.weights())) != digest:
            raise ValueError("the weights before the first step could not be restored")

    def _make_zeros(self, size: int) -> Tensors:
        """Return a batch of zeros for each input."""
        zeros = {}
        for port in self._model.inputs:
            axis, sample = cast("int", port.axes.axis), cast("tuple[int, ...]", port.axes.sample)  # as build requires
            zeros[port.name] = np.zeros([*sample[:axis], size, *sample[axis:]], port.dtype)
        return zeros

    def _learn(self, inputs: Any, labels: Any) -> Any:  # noqa: ANN401 - tensors
        with tf.GradientTape() as tape:
            scores = tf.nest.flatten(self._network(inputs, training=True))[0]
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
        variables = self._network.trainable_variables
        gradients = tape.gradient(loss, variables)
        if self._decay:  # as in PyTorch's SGD and Adam, it is part of the gradient
            gradients = [
                None if gradient is None else tf.convert_to_tensor(gradient) + self._decay * variable
                for gradient, variable in zip(gradients, variables, strict=True)
            ]
        self._optimizer.apply(gradients, variables)
        return loss


def build(job: RecipeJob, folder: Path, seed: int) -> TensorFlowTrainer:
    """Seed every generator, build the network and its optimizer, and trace the step.

    Raises:
        ValueError: The device, an input, a setting or the network is not supported.
    """
    if job.device != CPU:
        raise ValueError(f"device {job.device!r} is not supported for training")
    for port in job.evaluation.model.inputs:
        if port.axes.axis is None or port.axes.sample is None or None in port.axes.sample:
            what = f"the input {port.name} needs a batch axis, and a size of every other axis"
            raise ValueError(f"{what}: TensorFlow traces the step before the clock starts")
    if "name" not in job.settings["optimizer"] or "micro_batch" in job.settings:
        raise ValueError("a custom optimizer and micro_batch are not supported in TensorFlow")
    set_threads(job.threads, CPU)
    if job.deterministic:
        tf.config.experimental.enable_op_determinism()
    random.seed(derive_purpose_seed(seed, "python"))  # from which Keras draws the seeds of layers
    np.random.seed(derive_purpose_seed(seed, "numpy"))  # noqa: NPY002 - the generator that code of a recipe may use
    tf.random.set_seed(derive_purpose_seed(seed, "framework"))
    initial = merge_weights((folder / path for path in job.initial), load_file)
    network = build_network(folder, job.network, initial)
    paths = [variable.path for variable in network.weights]
    if not network.trainable_variables or len(paths) != len(set(paths)):
        raise ValueError(f"{job.network.function} returned a network without weights to train, or with equal paths")
    trainer = TensorFlowTrainer(network, job.evaluation.model, job.settings["optimizer"], job.threads)
    settings, keeps_last = job.settings, job.settings["sampler"]["last"] == "keep"
    trainer.warm_up(
        _list_sizes(job.dataset, settings["batch"], keeps_last=keeps_last),
        _list_sizes(job.evaluation.dataset, settings["evaluate"]["batch"], keeps_last=True),
    )
    return trainer


def _list_sizes(dataset: Dataset, batch: int, *, keeps_last: bool) -> Iterator[int]:
    """Yield the sizes of the batches of a split: that of all but the last, and that of the last."""
    count = int(dataset.split["samples"])
    if count >= batch:
        yield batch
    if keeps_last and count % batch:
        yield count % batch


def _make_optimizer(settings: Mapping[str, Any]) -> Any:  # noqa: ANN401 - TensorFlow has no types here
    """Return the optimizer with all its settings."""
    if settings["name"] == "sgd":
        return tf.keras.optimizers.SGD(learning_rate=settings["lr"], momentum=settings["momentum"], nesterov=False)
    if settings["name"] == "adam":
        first, second = settings["betas"]
        return tf.keras.optimizers.Adam(
            learning_rate=settings["lr"], beta_1=first, beta_2=second, epsilon=settings["eps"], amsgrad=False
        )
    raise ValueError(f"the optimizer {settings['name']} is not supported in TensorFlow; known: sgd, adam")
