"""The trained weights in Keras, and from there as a Keras file, a SavedModel and a TFLite file. Pictures: NHWC."""

import json
import re
import shutil
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from examples.digits.archive import rewrite
from examples.digits.weights import MODELS, WEIGHTS

INPUT = (8, 8, 1)


def convolution(index: int, weights: dict[str, NDArray[np.float32]]) -> Any:  # noqa: ANN401 - Keras has no types
    """The layer, and ``[out, in, height, width]`` as Keras orders it."""
    kernel, bias = weights[f"{index}.weight"], weights[f"{index}.bias"]
    layer = tf.keras.layers.Conv2D(len(bias), 3, padding="same", activation="relu", name=f"convolution_{index}")
    layer.build((None, None, None, kernel.shape[1]))
    layer.set_weights([kernel.transpose(2, 3, 1, 0), bias])
    return layer


def linear(index: int, weights: dict[str, NDArray[np.float32]]) -> Any:  # noqa: ANN401 - Keras has no types
    """The layer; PyTorch flattens ``[C, 2, 2]``, Keras ``[2, 2, C]``."""
    kernel, bias = weights[f"{index}.weight"], weights[f"{index}.bias"]
    layer = tf.keras.layers.Dense(len(bias), name="scores")
    layer.build((None, kernel.shape[1]))
    layer.set_weights([kernel.reshape(len(bias), -1, 2, 2).transpose(2, 3, 1, 0).reshape(-1, len(bias)), bias])
    return layer


def network(weights: dict[str, NDArray[np.float32]]) -> Any:  # noqa: ANN401 - Keras has no types
    """The same network: ``[N, 8, 8, 1]`` with ink from 0 to 1 -> logits ``[N, 10]``."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input(INPUT, name="input"),
            *(convolution(0, weights), convolution(2, weights), layers.MaxPool2D(name="pool_4")),
            *(convolution(5, weights), layers.MaxPool2D(name="pool_7")),
            *(layers.Flatten(name="flatten"), linear(9, weights)),
        ],
        name="digits",
    )


def servable(model: Any) -> Any:  # noqa: ANN401 - Keras has no types
    """The model behind one function with the named tensors ``input`` and ``scores``."""
    module = tf.Module()
    module.weights = [variable.value for variable in model.weights]
    module.serve = tf.function(
        lambda input: {"scores": model(input, training=False)},  # noqa: A006 - the name is the tensor's
        input_signature=[tf.TensorSpec((None, *INPUT), tf.float32, name="input")],
    )
    return module


def reproducible(name: str, content: bytes) -> bytes:
    """A Keras file says when it was written, and calls what layers share by its address in memory: neither is read."""
    if name == "metadata.json":
        said = json.loads(content)
        del said["date_saved"]
        return json.dumps(said).encode()
    if name == "config.json":
        identity = re.compile(rb'(?<="shared_object_id": )\d+')
        addresses = list(dict.fromkeys(identity.findall(content)))
        return identity.sub(lambda found: b"%d" % addresses.index(found[0]), content)
    return content


def main() -> None:
    """Three exports of one set of weights."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    with np.load(WEIGHTS) as stored:
        model = network(dict(stored))
    model.save(MODELS / "digits.keras")
    rewrite(MODELS / "digits.keras", reproducible)

    module = servable(model)
    folder = MODELS / "digits.savedmodel"
    shutil.rmtree(folder, ignore_errors=True)
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.serve})
    (folder / "assets").rmdir()  # empty, and git keeps no empty folder
    (folder / "fingerprint.pb").unlink()  # optional, and holds a random number

    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder))
    (MODELS / "digits.tflite").write_bytes(converter.convert())


if __name__ == "__main__":
    main()
