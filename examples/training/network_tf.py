"""The network of ``network.py`` in Keras: new, or with trained weights. Pictures are NHWC, as TensorFlow needs."""

from collections.abc import Mapping

import tensorflow as tf


def build(weights: Mapping[str, tf.Tensor]) -> tf.keras.Model:
    """Return the network ``[N, 8, 8, 1]`` -> scores ``[N, 10]``; with no weights, Keras initialises it."""
    layers = tf.keras.layers
    network = tf.keras.Sequential([
        tf.keras.Input((8, 8, 1)),
        layers.Conv2D(16, 3, padding="same", activation="relu", name="first"), layers.MaxPool2D(),
        layers.Conv2D(32, 3, padding="same", activation="relu", name="second"), layers.MaxPool2D(),
        layers.Flatten(), layers.Dense(10, name="scores"),
    ], name="digits")  # fmt: skip
    for variable in network.weights if weights else ():
        variable.assign(weights[variable.path])
    return network
