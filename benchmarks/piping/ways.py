"""One pipeline from JPEG files to scores, in a process of its own: one JSON document in, one out.

``python -m benchmarks.piping.ways JSON``, with ``way``: ``benchlock`` is the harness's pipeline phase in ``offline``;
``hand`` are two threads in front of a loop of calls; ``dataloader`` is ``torch.utils.data.DataLoader`` with two
processes; ``tfdata`` is ``tf.data`` with two threads. All call ONNX Runtime, a picture a call; all but the first give
it one thread, which is what suits them best. The CPU time of all is that from the first timed picture to the last.
"""

import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.timing import bare

_SKIPPED = 8
"""Pictures before the clock of the loaders starts, so that the start of their processes and graphs does not count.

As many follow when it stops: what was prefetched before it starts is then prefetched when it stops, too.
"""

_STEPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("decode", {"color": "RGB", "exif": "ignore"}),
    ("resize", {"shorter": 256, "method": "bilinear", "antialias": True}),
    ("center_crop", {"size": [224, 224]}),
    ("cast", {"dtype": "float32"}),
    ("normalize", {"mean": [127.5] * 3, "std": [127.5] * 3}),
)
Answer = dict[str, float]


def benchlock(asked: Mapping[str, Any]) -> Answer:
    """Run the harness's pipeline phase."""
    from benchlock.evaluator.harness.core.job import Axes, Dataset, File, Input, Job, Model, Output, Seeds, Step  # noqa: PLC0415
    from benchlock.evaluator.harness.core.scenarios import Offline  # noqa: PLC0415
    from benchlock.evaluator.harness.performance import loadgen, pipeline_timing  # noqa: PLC0415

    steps = tuple(Step(name, arguments) for name, arguments in _STEPS)
    one = Input("input", "image", "float32", "NHWC", Axes(0, None, (224, 224, 3)), steps)
    scores = Output("scores", "class-scores", "float32", Axes(0, None, None), 0, None, ())
    model = Model(
        "onnx", "onnxruntime", "image-classification", None, (one,), (scores,), (File("model.onnx", "graph"),)
    )
    dataset = Dataset("image-index", {"index": "index.csv", "samples": len(asked["pictures"])}, None)
    scenario = Offline(4, 1, asked["samples"], 0.0)
    job = Job(model, dataset, scenario, ("pipeline_throughput",), len(asked["cpus"]), Seeds(1, 2, 3), "cpu")
    drive, spent = loadgen.drive, 0.0

    def measured_drive(*arguments: Any) -> Any:  # noqa: ANN401 - as the phase calls it
        nonlocal spent
        used = _cpu()
        log = drive(*arguments)
        spent = _cpu() - used
        return log

    # The phase's load and warm-up are not among its samples.
    with tempfile.TemporaryDirectory() as output, patch.object(pipeline_timing, "drive", measured_drive):
        report = pipeline_timing.run(job, Path(asked["folder"]), Path(output))
    performance = report["performance"]
    samples = performance["samples"]
    return {"rate": samples / performance["duration_s"], "cpu": spent / samples}


def hand(asked: Mapping[str, Any]) -> Answer:
    """Prepare pictures in two threads in front of a loop of calls."""
    call = bare.onnxruntime_call(asked["model"], "input", 1)
    used = _cpu()
    rate = bare.pictures({**asked, "preparing": len(asked["cpus"])}, call)["rate"]
    return {"rate": rate, "cpu": (_cpu() - used) / asked["samples"]}


def dataloader(asked: Mapping[str, Any]) -> Answer:
    """Prepare pictures in the processes of PyTorch's loader."""
    import torch  # noqa: PLC0415
    from torch.utils.data import DataLoader, Dataset  # noqa: PLC0415

    torch.set_num_threads(1)
    paths = _paths(asked)

    class Pictures(Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, number: int) -> NDArray[np.float32]:
            return bare.prepare_picture(paths[number])

    loader = DataLoader(Pictures(), batch_size=1, num_workers=len(asked["cpus"]), prefetch_factor=4)
    return _loop(asked, (batch.numpy() for batch in loader))


def tfdata(asked: Mapping[str, Any]) -> Answer:
    """Prepare pictures in the threads of TensorFlow."""
    import tensorflow as tf  # noqa: PLC0415

    threads = len(asked["cpus"])
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)

    def prepare(path: Any) -> Any:  # noqa: ANN401 - a tensor
        pixels = tf.io.decode_jpeg(tf.io.read_file(path), channels=3, dct_method="INTEGER_ACCURATE")
        shape = tf.cast(tf.shape(pixels)[:2], tf.float32)
        size = tf.cast(tf.round(shape * 256.0 / tf.reduce_min(shape)), tf.int32)
        resized = tf.image.resize(pixels, size, "bilinear", antialias=True)
        top, left = (size[0] - 224) // 2, (size[1] - 224) // 2
        return (resized[top : top + 224, left : left + 224] - 127.5) / 127.5

    data = tf.data.Dataset.from_tensor_slices(_paths(asked)).map(prepare, num_parallel_calls=threads)
    return _loop(asked, data.batch(1).prefetch(4).as_numpy_iterator())


def _paths(asked: Mapping[str, Any]) -> list[str]:
    paths = asked["pictures"]
    return [paths[number % len(paths)] for number in range(asked["samples"] + 2 * _SKIPPED)]


def _loop(asked: Mapping[str, Any], batches: Iterable[NDArray[Any]]) -> Answer:
    """Call the model on each batch, and time all but the first and the last ones."""
    call = bare.onnxruntime_call(asked["model"], "input", 1)
    coming: Iterator[NDArray[Any]] = iter(batches)
    for _ in range(_SKIPPED):
        call(next(coming))
    used, start = _cpu(), time.perf_counter()
    for values in islice(coming, asked["samples"]):
        call(values)
    seconds, spent = time.perf_counter() - start, _cpu() - used
    return {"rate": asked["samples"] / seconds, "cpu": spent / asked["samples"]}


def _cpu() -> float:
    """Return the CPU seconds of this process and of its children that still work."""
    ticks = 0
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


WAYS: Mapping[str, Callable[[Mapping[str, Any]], Answer]] = {
    "benchlock": benchlock,
    "hand": hand,
    "dataloader": dataloader,
    "tfdata": tfdata,
}


def main() -> None:
    """Print pictures a second (``rate``) and CPU seconds a picture (``cpu``), on the last line."""
    asked = json.loads(sys.argv[1])
    os.sched_setaffinity(0, asked["cpus"])
    Image.init()
    answer = WAYS[asked["way"]](asked)
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
