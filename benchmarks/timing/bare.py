"""What a user would write without benchlock, in the environment of the locked wheels: one JSON document in, one out.

``python bare.py JSON``, with ``way``: ``loop`` is a timer around the call alone; ``loadgen`` is the same call in
LoadGen's single stream, by LoadGen's own clock; ``first`` says a line after the first call; ``pictures`` are JPEG files
decoded and resized by as many threads as there are CPUs, in front of a loop of calls.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlperf_loadgen as lg
import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from PIL import Image

_WARMUP = 50
_AHEAD = 4
Call = Callable[[Any], Any]


def onnxruntime_call(file: str, name: str, threads: int) -> Call:
    import onnxruntime  # noqa: PLC0415 - each is in its own environment

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda values: session.run(None, {name: values})


def litert_call(file: str, _name: str, threads: int) -> Call:
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - each is in its own environment

    interpreter = Interpreter(model_path=file, num_threads=threads)
    interpreter.allocate_tensors()
    given, found = (
        details[0]["index"] for details in (interpreter.get_input_details(), interpreter.get_output_details())
    )

    def call(values: Any) -> Any:  # noqa: ANN401 - an array
        interpreter.set_tensor(given, values)
        interpreter.invoke()
        return interpreter.get_tensor(found)

    return call


def pytorch_call(file: str, _name: str, threads: int) -> Call:
    import torch  # noqa: PLC0415 - each is in its own environment

    torch.set_num_threads(threads)
    module = torch.jit.load(file).eval()

    def call(values: Any) -> Any:  # noqa: ANN401 - an array
        with torch.inference_mode():
            return module(torch.from_numpy(values)).numpy()

    return call


CALLS: Mapping[str, Callable[[str, str, int], Call]] = {
    "onnxruntime": onnxruntime_call,
    "litert": litert_call,
    "pytorch": pytorch_call,
}


def prepared(shape: Sequence[int], several: int = 1) -> list[NDArray[Any]]:
    """Pixels from 0 to 255, the same every time; several samples lie one after the other, as a run has them."""
    first, *rest = shape
    pixels = np.random.default_rng(7).integers(0, 256, (several * first, *rest)).astype(np.float32)
    return [pixels[start : start + first] for start in range(0, len(pixels), first)]


def loop(asked: Mapping[str, Any], call: Call) -> dict[str, Any]:
    samples, clock = prepared(asked["shape"], asked["samples"]), time.perf_counter_ns
    for _ in range(_WARMUP):
        call(samples[0])
    found: list[int] = []
    end = time.perf_counter() + asked["seconds"]
    while time.perf_counter() < end:
        values = samples[len(found) % len(samples)]
        start = clock()
        answer = call(values)
        found.append(clock() - start)
        del answer
    return {"p50": statistics.median(found) / 1e9, "p10": float(np.quantile(found, 0.1)) / 1e9, "calls": len(found)}


def loadgen(asked: Mapping[str, Any], call: Call) -> dict[str, Any]:
    samples = prepared(asked["shape"], asked["samples"])
    for _ in range(_WARMUP):
        call(samples[0])
    start = time.perf_counter_ns()
    call(samples[0])
    took = time.perf_counter_ns() - start

    found: list[int] = []
    clock = time.perf_counter_ns

    def issue(queries: Sequence[Any]) -> None:
        for query in queries:
            values = samples[query.index]
            start = clock()
            answer = call(values)
            found.append(clock() - start)
            del answer
            lg.QuerySamplesComplete([lg.QuerySampleResponse(query.id, 0, 0)])

    settings = lg.TestSettings()
    settings.scenario, settings.mode = lg.TestScenario.SingleStream, lg.TestMode.PerformanceOnly
    settings.min_query_count, settings.min_duration_ms = 64, round(asked["seconds"] * 1000)
    settings.single_stream_expected_latency_ns = took // 2
    with tempfile.TemporaryDirectory() as folder:
        logs = lg.LogSettings()
        logs.log_output.outdir, logs.enable_trace = folder, False
        system, library = (
            lg.ConstructSUT(issue, lambda: None),
            lg.ConstructQSL(len(samples), len(samples), lambda _: None, lambda _: None),
        )
        lg.StartTestWithLogSettings(system, library, settings, logs, "")
        lines = (Path(folder) / "mlperf_log_detail.txt").read_text().splitlines()
    entries = [json.loads(line.partition(" ")[2]) for line in lines if line.startswith(":::MLLOG ")]
    told = {entry["key"]: entry["value"] for entry in entries}
    p50 = told["result_50.00_percentile_latency_ns"] / 1e9
    return {"p50": p50, "p10": float(np.quantile(found, 0.1)) / 1e9, "calls": told["result_query_count"]}


def first(asked: Mapping[str, Any], call: Call) -> dict[str, Any]:
    """All that the harness imports is imported, whatever of it one call needs."""
    call(*prepared(asked["shape"]))
    return {"imported": [module.__name__ for module in (lg, Image, safetensors.numpy)]}


def prepare_picture(path: str) -> NDArray[Any]:
    """Decode a file, resize it (the shorter side to 256), crop it to 224 and bring it to MobileNet's scale."""
    with Image.open(path) as file:
        picture = file.convert("RGB")
    short = min(picture.size)
    picture = picture.resize(
        (round(picture.width * 256 / short), round(picture.height * 256 / short)), Image.Resampling.BILINEAR
    )
    left, top = (picture.width - 224) // 2, (picture.height - 224) // 2
    pixels = np.asarray(picture.crop((left, top, left + 224, top + 224)), np.float32)
    return (pixels - 127.5) / 127.5


def pictures(asked: Mapping[str, Any], call: Call) -> dict[str, Any]:
    """Measure the images a second from JPEG files to answers."""

    def picture(path: str) -> NDArray[Any]:
        return prepare_picture(path)[None]

    paths = asked["pictures"]
    call(picture(paths[0]))
    with ThreadPoolExecutor(asked["preparing"]) as pool:
        start = time.perf_counter()
        for values in _ahead(pool, picture, [paths[number % len(paths)] for number in range(asked["samples"])]):
            call(values)
        took = time.perf_counter() - start
    return {"rate": asked["samples"] / took}


def _ahead(pool: ThreadPoolExecutor, work: Callable[[str], Any], paths: Sequence[str]) -> Iterator[Any]:
    waiting: deque[Future[Any]] = deque()
    for path in paths:
        waiting.append(pool.submit(work, path))
        if len(waiting) > _AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


WAYS = {"loop": loop, "loadgen": loadgen, "first": first, "pictures": pictures}


def main() -> None:
    asked = json.loads(sys.argv[1])
    if "cpus" in asked:
        os.sched_setaffinity(0, asked["cpus"])
    call = CALLS[asked["framework"]](asked["file"], asked["input"], asked["threads"])
    sys.stdout.write(json.dumps(WAYS[asked["way"]](asked, call)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
