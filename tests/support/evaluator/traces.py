"""Trace files as a harness leaves them, with rows and times that a test chooses."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from benchlock.evaluator.analysis.host_roofs import Roof, Roofs
from benchlock.evaluator.analysis.trace_file import read_trace
from benchlock.evaluator.analysis.trace_types import Trace

ROOFS = Roofs(
    threads=1,
    compute=(Roof(name="sgemm 128", working_set=1, best=90e9, median=80e9, n=5),
             Roof(name="sgemm 512", working_set=1, best=100e9, median=80e9, n=5)),
    bandwidth=(Roof(name="copy", working_set=1 << 18, best=80e9, median=60e9, n=9),
               Roof(name="copy", working_set=1 << 28, best=20e9, median=20e9, n=9)),
)  # fmt: skip
RowDocument = dict[str, Any]
START = 10**12


def tensor(*shape: int, role: str | None = "data", dtype: str = "float32") -> dict[str, Any]:
    return {"shape": list(shape), "dtype": dtype, "role": role}


def row(name: str, type_: str, outputs: Sequence[int], *inputs: object, **more: object) -> RowDocument:
    """A layer; ``took`` is its time in nanoseconds, 10,000 if none is given."""
    return {
        "level": "layer",
        "name": name,
        "type": type_,
        "inputs": list(inputs),
        "outputs": [tensor(*outputs, role=None)],
        "took": 10_000,
        **more,
    }


def conv(name: str, channels: tuple[int, int], size: int, kernel: int = 3, **more: object) -> RowDocument:
    """A convolution of ``channels`` (in, out) on ``size`` points each way, that keeps their number."""
    before, after = channels
    inputs = (tensor(1, before, size, size), tensor(after, before, kernel, kernel, role="weight"))
    attributes = {"group": 1, "weight_format": "OIHW"}
    return row(name, "Conv", (1, after, size, size), *inputs, attributes=attributes, **more)


def depthwise(name: str, channels: int, size: int, **more: object) -> RowDocument:
    inputs = (tensor(1, channels, size, size), tensor(channels, 1, 3, 3, role="weight"))
    attributes = {"group": channels, "weight_format": "OIHW"}
    return row(name, "Conv", (1, channels, size, size), *inputs, attributes=attributes, **more)


def dense(name: str, before: int, after: int, **more: object) -> RowDocument:
    inputs = (tensor(1, before), tensor(after, before, role="weight"))
    return row(name, "Gemm", (1, after), *inputs, attributes={"weight_format": "OI"}, **more)


LAYERS = (
    conv("conv1", (3, 16), 32, took=40_000, source_names=["c1"]),
    row("relu1", "Relu", (1, 16, 32, 32), tensor(1, 16, 32, 32), took=5_000),
    depthwise("depthwise", 16, 32, took=20_000),
    row("reorder", "ReorderOutput", (1, 16, 32, 32), tensor(1, 16, 32, 32), took=3_000),
    dense("dense", 64, 10, took=7_000),
    row("softmax", "Softmax", (1, 10), tensor(1, 10), took=2_000),
)
PARTS = [{"level": "model", "name": name, "type": name} for name in ("prepare", "predict", "outputs")]
OVERHEAD = {"none": 0, "model": 1_000, "framework": 60_000, "system": 20_000}
"""What each experiment adds to a call, in nanoseconds."""


def _number_rows(rows: Sequence[RowDocument]) -> list[RowDocument]:
    return [
        {"index": index, **{key: value for key, value in one.items() if key != "took"}}
        for index, one in enumerate(rows)
    ]


def _place(rows: Sequence[RowDocument], begin: int, call: int) -> tuple[list[int], list[int]]:
    """The starts and durations of the rows of one call: its parts, and the others one after another inside of it."""
    starts, durations, cursor = [], [], begin + 1_000
    for one in rows:
        if one["level"] == "model":
            starts.append({"prepare": begin - 500, "predict": begin, "outputs": begin + call + 10}[one["name"]])
            durations.append({"prepare": 400, "predict": call, "outputs": 300}[one["name"]])
        else:
            starts.append(cursor)
            durations.append(one["took"])
            cursor += one["took"]
    return starts, durations


def _times(name: str, rows: Sequence[RowDocument], calls: int, number: int, noise: int) -> dict[str, Any]:
    random = np.random.default_rng(number)
    inside = sum(one.get("took", 0) for one in rows)
    base = max(inside, sum(one["took"] for one in LAYERS)) + 15_000 + OVERHEAD[name]
    durations = base + random.integers(0, noise + 1, size=calls)
    begins = START + np.arange(calls) * 10**7 + number * 10**6
    placed = [_place(rows, int(begin), int(took)) for begin, took in zip(begins, durations, strict=True)]
    parts = {
        "call_start": begins,
        "call_duration": durations,
        "block": np.arange(calls) // 10,
        "process": np.arange(calls) * min(5, calls) // calls,
        "preempted": np.zeros(calls),
        "minor_faults": np.zeros(calls),
        "cpu_time": durations,
        "start": np.array([starts for starts, _ in placed]).reshape(calls, len(rows)),
        "duration": np.array([took for _, took in placed]).reshape(calls, len(rows)),
    }
    return {f"{name}.{part}": values.astype(np.int64) for part, values in parts.items()}


def write_trace(
    path: Path,
    *,
    layers: Sequence[RowDocument] = LAYERS,
    kernels: Sequence[RowDocument] | None = None,
    levels: Sequence[str] = ("none", "model", "framework"),
    calls: int = 200,
    noise: int = 2_000,
    graph: Sequence[RowDocument] | None = None,
    fingerprint: str = "",
    change: Callable[[dict[str, Any], dict[str, Any]], object] | None = None,
    **header: Any,  # noqa: ANN401 - keys of the document
) -> Path:
    """Write a trace; ``change`` may alter its header and its tensors before."""
    tensors: dict[str, Any] = {}
    experiments = []
    for number, name in enumerate(levels):
        rows: list[RowDocument] = [] if name == "none" else list(PARTS)
        if name == "framework":
            rows += [{"parent": 1, **one} for one in layers]
        if name == "system":
            rows += [{"parent": 1, **one, "level": "kernel"} for one in kernels or ()]
        source = {"framework": "test-profiler", "system": "test-kernels"}.get(name)
        experiments.append({"deepest": name, "source": source, "rows": _number_rows(rows), "resolution_ns": 1})
        tensors |= _times(name, rows, calls, number, noise)
    document: dict[str, Any] = {
        "schema": 1,
        "level": "full" if "system" in levels else levels[-1],
        "framework": "onnxruntime",
        "framework_version": "1.31.1",
        "batch": 1,
        "threads": 1,
        "seed": 7,
        "clock": {"realtime_minus_monotonic_ns": 1_700_000_000 * 10**9, "drift_ns": 10},
        "graph": {"source": "test", "rows": _number_rows(layers if graph is None else graph), "parameters": 100},
        "experiments": experiments,
        "gaps": [],
        "phases": {"load_ns": 2_000_000, "import_ns": 30_000_000, "first_call_ns": 400_000, "second_call_ns": None},
        **header,
    }
    document = json.loads(json.dumps(document))
    if change is not None:
        change(document, tensors)
    save_file(tensors, path, {"lock_fingerprint": fingerprint, "trace": json.dumps(document)})
    return path


def make_trace(folder: Path, **options: Any) -> Trace:  # noqa: ANN401 - options of write_trace
    """A trace, as analyses read it."""
    return read_trace(write_trace(folder / f"{len(list(folder.iterdir()))}.safetensors", **options))
