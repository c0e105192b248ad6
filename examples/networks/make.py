"""One network of three convolutions as ONNX, TorchScript and SavedModel, whose activations need most memory.

Its weights are random numbers of one seed: the example is about memory, so nothing is trained. Run
``python -m examples.networks.make onnx`` with the package onnx, and likewise ``torch`` and ``tensorflow``.
"""

# ruff: noqa: PLC0415 - each framework is imported only where it is asked for

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.digits.archive import rewrite

MODELS = Path(__file__).parent / "models"
SIDE, CHANNELS, CLASSES, SEED = 64, 64, 10, 42

Weights = Mapping[str, NDArray[np.float32]]


def make_weights() -> Weights:
    """Draw the weights: a full, a depthwise and a pointwise convolution, and the matrix of the scores."""
    generator = np.random.default_rng(SEED)
    shapes = {
        "full": (CHANNELS, 1, 3, 3),
        "depthwise": (CHANNELS, 1, 3, 3),
        "pointwise": (CHANNELS, CHANNELS, 1, 1),
        "scores": (CHANNELS, CLASSES),
    }
    weights = {}
    for name, shape in shapes.items():
        inputs = shape[0] if name == "scores" else int(np.prod(shape[1:]))
        weights[name] = (generator.standard_normal(shape) * np.sqrt(2 / inputs)).astype(np.float32)
    return weights


def make_onnx(weights: Weights) -> None:
    """Write the graph for ONNX Runtime."""
    from onnx import TensorProto, helper, numpy_helper, save

    nodes, last = [], "input"
    for name in ("full", "depthwise", "pointwise"):
        side = weights[name].shape[-1]
        group = CHANNELS if name == "depthwise" else 1
        nodes.append(helper.make_node("Conv", [last, name], [f"{name}_sum"], pads=[side // 2] * 4, group=group))
        nodes.append(helper.make_node("Relu", [f"{name}_sum"], [f"{name}_out"]))
        last = f"{name}_out"
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["features"]))
    nodes.append(helper.make_node("MatMul", ["features", "scores_weight"], ["scores"]))
    named = {"scores_weight" if name == "scores" else name: values for name, values in weights.items()}
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, SIDE, SIDE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(values, name) for name, values in named.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, MODELS / "network.onnx")


def make_torch(weights: Weights) -> None:
    """Write the network for PyTorch."""
    import torch
    from torch import nn

    from examples.digits.export_torch import without_sources

    layers: list[nn.Module] = []
    for name in ("full", "depthwise", "pointwise"):
        values = torch.from_numpy(weights[name])
        group = CHANNELS if name == "depthwise" else 1
        side = values.shape[-1]
        layer = nn.Conv2d(values.shape[1] * group, CHANNELS, side, padding=side // 2, groups=group, bias=False)
        layer.weight = nn.Parameter(values)
        layers += [layer, nn.ReLU()]
    scores = nn.Linear(CHANNELS, CLASSES, bias=False)
    scores.weight = nn.Parameter(torch.from_numpy(weights["scores"].T.copy()))
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), scores).eval()
    path = MODELS / "network.torchscript.pt"
    torch.jit.save(torch.jit.freeze(torch.jit.script(module)), path)
    rewrite(path, without_sources)


def make_tensorflow(weights: Weights) -> None:
    """Write the network for TensorFlow, whose pictures have their channels last."""
    import tensorflow as tf

    module = tf.Module()
    module.kernels = [
        tf.Variable(weights["full"].transpose(2, 3, 1, 0)),
        tf.Variable(weights["depthwise"].transpose(2, 3, 0, 1)),
        tf.Variable(weights["pointwise"].transpose(2, 3, 1, 0)),
        tf.Variable(weights["scores"]),
    ]

    def serve(input: Any) -> Any:  # noqa: A002, ANN401 - the name is the tensor's; TensorFlow has no types
        full, depthwise, pointwise, scores = module.kernels
        values = tf.nn.relu(tf.nn.conv2d(input, full, 1, "SAME"))
        values = tf.nn.relu(tf.nn.depthwise_conv2d(values, depthwise, [1, 1, 1, 1], "SAME"))
        values = tf.nn.relu(tf.nn.conv2d(values, pointwise, 1, "SAME"))
        return {"scores": tf.linalg.matmul(tf.reduce_mean(values, axis=(1, 2)), scores)}

    shape = tf.TensorSpec((None, SIDE, SIDE, 1), tf.float32, name="input")
    module.serve = tf.function(serve, input_signature=[shape])
    path = MODELS / "network.savedmodel"
    shutil.rmtree(path, ignore_errors=True)
    tf.saved_model.save(module, str(path), {"serving_default": module.serve})
    (path / "assets").rmdir()  # empty, and git keeps no empty folder
    (path / "fingerprint.pb").unlink()  # optional, and holds a random number


MAKERS: Mapping[str, Callable[[Weights], None]] = {
    "onnx": make_onnx,
    "torch": make_torch,
    "tensorflow": make_tensorflow,
}

if __name__ == "__main__":
    MAKERS[sys.argv[1]](make_weights())
