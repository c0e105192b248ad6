"""ONNX graphs that lie in the folder already, as ``trying`` says."""

import numpy as np
from trying import OUT, Batch, broken, floats, port, tried, write

ONNX = ("onnxruntime", "onnx")
TWO = [port("a", None, 2), port("b", None, 2, dtype="int64")]
PAIR: Batch = {"a": floats(2, 2), "b": np.full((2, 2), 3, np.int64)}
FREE: Batch = {"x": floats(1, 2)}
X = [port("x", None, 2)]

write(
    {
        "two": tried(ONNX, "two.onnx", TWO, ["whole", "sum"], PAIR),
        "an input left out": tried(ONNX, "two.onnx", TWO[:1], ["sum"], PAIR),
        "no output": tried(ONNX, "two.onnx", TWO, ["product"], PAIR),
        "another type": tried(ONNX, "two.onnx", TWO, ["sum"], PAIR | {"b": floats(2, 2)}),
        "free": tried(ONNX, "free.onnx", X, ["y"], FREE, {"x": floats(3, 4)}),
        "fixed": tried(ONNX, "fixed.onnx", [port("x", 4, 2, axis=0)], ["y"], {"x": floats(4, 2)}),
        "fixed, another batch": tried(ONNX, "fixed.onnx", X, ["y"], FREE),
        "quantised": tried(
            ONNX, "quantised.onnx", [port("x", None, 2, dtype="uint8")], ["y"], {"x": np.full((1, 2), 131, np.uint8)}
        ),
        **broken(ONNX, OUT / "two.onnx", TWO, ["sum"], PAIR),
    }
)
