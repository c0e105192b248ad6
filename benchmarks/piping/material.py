"""The pictures and the network that the pipelines are measured on, made from a seed."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

PICTURES = 104
_SIZES = ((500, 375), (375, 500), (500, 333), (640, 480), (400, 300))
_QUALITY = 90
_CLASSES = 1001
_BLOCKS = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1))
"""Channels and stride of each separable convolution of MobileNet v1 at a width of 0.25."""


def write_pictures(folder: Path) -> list[Path]:
    """Write JPEG files of the sizes and the detail of photographs, and their ``index.csv``."""
    random = np.random.default_rng(7)
    paths = []
    for number in range(PICTURES):
        width, height = _SIZES[number % len(_SIZES)]
        coarse = random.integers(0, 256, (height // 25, width // 25, 3)).astype(np.uint8)
        smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        pixels = np.asarray(smooth, np.int16) + random.integers(-12, 13, (height, width, 3))
        paths.append(folder / f"{number:03}.jpg")
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(paths[-1], quality=_QUALITY)
    (folder / "index.csv").write_text("\n".join(["path", *(path.name for path in paths)]) + "\n")
    return paths


def write_network(path: Path) -> None:
    """Write MobileNet v1 at a width of 0.25 for pictures [N, 224, 224, 3], with random weights."""
    nodes, weights = [helper.make_node("Transpose", ["input"], ["x0"], perm=[0, 3, 1, 2])], []
    random, place, channels = np.random.default_rng(7), 0, 3

    def convolve(out: int, size: int, stride: int, groups: int) -> None:
        nonlocal place, channels
        inputs = channels // groups
        values = random.normal(0, (2 / (inputs * size * size)) ** 0.5, (out, inputs, size, size)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{place}"))
        options: dict[str, Any] = {
            "strides": [stride, stride],
            "pads": [size // 2] * 4,
            "group": groups,
            "kernel_shape": [size, size],
        }
        nodes.append(helper.make_node("Conv", [f"x{place}", f"w{place}"], [f"c{place}"], **options))
        nodes.append(helper.make_node("Relu", [f"c{place}"], [f"x{place + 1}"]))
        place, channels = place + 1, out

    convolve(8, 3, 2, 1)
    for out, stride in _BLOCKS:
        convolve(channels, 3, stride, channels)
        convolve(out, 1, 1, 1)
    nodes.append(helper.make_node("GlobalAveragePool", [f"x{place}"], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    dense = random.normal(0, 0.1, (channels, _CLASSES)).astype(np.float32)
    weights.append(numpy_helper.from_array(dense, "dense"))
    nodes.append(helper.make_node("MatMul", ["flat", "dense"], ["logits"]))
    nodes.append(helper.make_node("Softmax", ["logits"], ["scores"]))
    given = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 224, 224, 3])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", _CLASSES])
    graph = helper.make_graph(nodes, "mobilenet", [given], [scores], initializer=weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
