"""ONNX graphs that lie in the folder already, as ``trying`` says."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from trying import OUT, Batch, broken, floats, port, threads, tried, write

ONNX = ("onnxruntime", "onnx")
TWO = [port("a", None, 2), port("b", None, 2, dtype="int64")]
PAIR: Batch = {"a": floats(2, 2), "b": np.full((2, 2), 3, np.int64)}
FREE: Batch = {"x": floats(1, 2)}
X = [port("x", None, 2)]


def told(loaded: Any) -> list[int]:  # noqa: ANN401 - the harness's predictor
    """What the session says that it was made with."""
    options = loaded.session.get_session_options()
    return [options.intra_op_num_threads, options.inter_op_num_threads]


def beside_others(loaded: Any) -> list[Any]:  # noqa: ANN401 - as above
    """Whether the session's threads spin, and the policies of the caller and of all threads."""
    spinning = loaded.session.get_session_options().get_session_config_entry("session.intra_op.allow_spinning")
    policies = [os.sched_getscheduler(int(thread.name)) for thread in Path("/proc/self/task").iterdir()]
    return [spinning, os.sched_getscheduler(0), policies.count(os.SCHED_BATCH)]


write(
    {
        "threads": threads(ONNX, "free.onnx", X, ["y"], FREE, runtime=told),
        "threads, shared": threads(ONNX, "free.onnx", X, ["y"], FREE, runtime=told, counts=[1], shared=True)
        | threads(ONNX, "free.onnx", X, ["y"], FREE, runtime=beside_others, counts=[2], shared=True),
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
