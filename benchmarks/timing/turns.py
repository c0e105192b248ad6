"""What lies between the clock of a run and the call alone, in turns in one process: one JSON document in, one out.

``python -m benchmarks.timing.turns JSON``, in the environment of the locked wheels. The model is loaded once, as a user
would and as the harness does. Every turn is then measured in a process that is forked from this one, so that all ways
have the same memory, laid out in the same way: from one process to the next, that alone moves a call by more than what
is looked for.

``call`` is a timer around the framework's own call; ``loadgen`` the same in LoadGen's single stream; ``benchlock`` the
harness's meter around the harness's predictor in the harness's LoadGen. All go through the same samples.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchlock.evaluator.harness import predictors
from benchlock.evaluator.harness.core.job import Axes, File, Input, Model, Output, Seeds
from benchlock.evaluator.harness.core.phase_reports import Progress
from benchlock.evaluator.harness.performance import loadgen
from benchlock.evaluator.harness.performance.call_meter import Meter
from benchlock.evaluator.harness.performance.phase_setup import time_call
from benchlock.evaluator.harness.predictors import Place, Predictor
from benchmarks.timing import bare

_WARMUP = 50
_NANOSECONDS = 1e9
Found = dict[str, float]


def measured(way: Callable[[], Found]) -> Found:
    """What ``way`` found in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writing, "w") as pipe:
                json.dump(way(), pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer: Found = json.load(pipe)
    os.waitpid(child, 0)
    return answer


def benchlock(asked: dict[str, Any], predictor: Predictor) -> Found:
    units = [{asked["input"]: values} for values in bare.prepared(asked["shape"], asked["samples"])]
    fastest = min(time_call(partial(predictor.predict, units[0])) for _ in range(_WARMUP)) / _NANOSECONDS
    meter, progress = Meter(predictor, 1), Progress("turn", 1)
    read = meter.reader(lambda indices: units[indices[0]], predictor.predict, progress.at)
    source = loadgen.Source(len(units), len(units), lambda _: None)
    settings = loadgen.Settings("SingleStream", 64, asked["seconds"], 1.5 / fastest, Seeds(1, 2, 3))
    with tempfile.TemporaryDirectory() as folder:
        loadgen.run(read, source, settings, Path(folder) / "loadgen")
    latencies = meter.columns()["latency_ns"]
    middle, tenth = np.quantile(latencies, [0.5, 0.1]) / _NANOSECONDS
    return {"p50": float(middle), "p10": float(tenth), "calls": float(len(latencies))}


def predictor_of(asked: dict[str, Any], folder: Path) -> Predictor:
    """The harness's own, of the file linked into ``folder``."""
    file = Path(asked["file"])
    (folder / file.name).symlink_to(file)
    one = Input(asked["input"], "tensor", "float32", None, Axes(0, 1, tuple(asked["shape"][1:])), ())
    outputs = tuple(Output(name, "probabilities", None, Axes(0, 1, None), 0, None, ()) for name in asked["outputs"])
    files = (File(file.name, "graph"),)
    model = Model(asked["format"], asked["framework"], "image-classification", None, (one,), outputs, files)
    return predictors.load(model, folder, Place(asked["threads"], "cpu"))


def main() -> None:
    """Print by way what each of ``rounds`` found: the median and the fastest tenth of its calls, seconds."""
    asked = json.loads(sys.argv[1])
    os.sched_setaffinity(0, asked["cpus"])
    call = bare.CALLS[asked["framework"]](asked["file"], asked["input"], asked["threads"])
    with tempfile.TemporaryDirectory() as folder:
        predictor = predictor_of(asked, Path(folder))
        ways: dict[str, Callable[[], Found]] = {
            "call": lambda: bare.loop(asked, call),
            "loadgen": lambda: bare.loadgen(asked, call),
            "benchlock": lambda: benchlock(asked, predictor),
        }
        found: dict[str, list[Found]] = {name: [] for name in ways}
        order = np.random.default_rng(7)
        for _ in range(asked["rounds"]):
            for name in map(str, order.permutation(sorted(ways))):
                found[name].append(measured(ways[name]))
    sys.stdout.write("\n" + json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
