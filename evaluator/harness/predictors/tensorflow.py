"""SavedModels, Keras files and TFLite graphs in TensorFlow."""

from pathlib import Path
from typing import Any

import tensorflow as tf

from ..job import Model
from . import Predictor, Tensors, by_position, graph
from .accelerators import CPU, check_cuda
from .interpreter import Interpreted

_ACCELERATOR = "GPU"


class _Function:
    """A traced function; TensorFlow runs its kernels in threads of its own."""

    in_caller = False

    def __init__(self, function: Any, threads: int, device: str) -> None:  # noqa: ANN401 - TensorFlow has no types here
        self.threads = {"intra_op_parallelism_threads": threads, "inter_op_parallelism_threads": 1}
        self.device = device
        self._function = function

    def close(self) -> None:
        del self._function

    def _answer(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - tensors
        """What the function returns; on an accelerator only what was made there."""
        found = self._function(*arguments, **named)
        if self.device != CPU:
            for tensor in tf.nest.flatten(found):
                if _ACCELERATOR not in tensor.device:
                    raise ValueError(f"the model answers with a tensor of {tensor.device}; {self.device} was asked for")
        return found


class SavedModel(_Function):
    """A signature of a SavedModel: tensors by the signature's keys."""

    def __init__(self, path: Path, model: Model, threads: int, device: str) -> None:
        loaded = tf.saved_model.load(str(path))
        if model.signature not in loaded.signatures:
            present = ", ".join(loaded.signatures)
            raise ValueError(f"no signature {model.signature!r}; the SavedModel has {present}")
        super().__init__(loaded.signatures[model.signature], threads, device)
        # A signature alone does not keep the variables of its SavedModel alive.
        self._loaded = loaded
        self._outputs = [port.name for port in model.outputs]

    def predict(self, batch: Tensors) -> Tensors:
        found = self._answer(**{name: tf.constant(values) for name, values in batch.items()})
        return {name: found[name].numpy() for name in self._outputs}


class Keras(_Function):
    """A Keras file: tensors by their position."""

    def __init__(self, path: Path, model: Model, threads: int, device: str) -> None:
        network = tf.keras.models.load_model(str(path), compile=False)
        super().__init__(tf.function(lambda inputs: network(inputs, training=False)), threads, device)
        self._model = model
        self._inputs = [port.name for port in model.inputs]

    def predict(self, batch: Tensors) -> Tensors:
        inputs = [tf.constant(batch[name]) for name in self._inputs]
        return by_position(self._model, self._answer(inputs if len(inputs) > 1 else inputs[0]))


def load(folder: Path, model: Model, threads: int, device: str) -> Predictor:
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    _choose(device)
    path = graph(folder, model)
    if model.format == "savedmodel":
        return SavedModel(path, model, threads, device)
    if model.format == "keras":
        return Keras(path, model, threads, device)
    if model.format == "tflite":
        return Interpreted(tf.lite.Interpreter(model_path=str(path), num_threads=threads), model, threads)
    raise ValueError(f"the format {model.format!r} is not built")


def _choose(device: str) -> None:
    """Let TensorFlow see the CPU alone, or the first accelerator, of which it takes memory as it needs it."""
    found = [] if device == CPU else tf.config.list_physical_devices(_ACCELERATOR)
    if device != CPU:
        check_cuda(device, tf.sysconfig.get_build_info().get("cuda_version"), len(found))
        tf.config.experimental.set_memory_growth(found[0], True)
    tf.config.set_visible_devices(found[:1], _ACCELERATOR)
