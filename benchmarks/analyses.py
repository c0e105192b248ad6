"""How long the fifteen analyses and the exports take: 200 calls of 91 layers, and a million spans."""

import resource
import tempfile
from pathlib import Path
from time import perf_counter

from benchlock.evaluator.analysis.call_profiles import Subject
from benchlock.evaluator.analysis.exports.formats import EXPORTS
from benchlock.evaluator.analysis.inspection import FIFTEEN, analyze
from benchlock.evaluator.analysis.trace_file import read_trace
from tests.support.evaluator.traces import LAYERS, write_trace

ROWS = 91


def measure(path: Path) -> None:
    began = perf_counter()
    trace = read_trace(path)
    spans = sum(experiment.durations.size for experiment in trace.experiments.values())
    print(f"{spans} spans: read in {perf_counter() - began:.2f} s", end="")
    began = perf_counter()
    tables = analyze(Subject(trace), FIFTEEN)
    print(f", {len(tables)} analyses in {perf_counter() - began:.2f} s")
    for name, export in EXPORTS.items():
        began, size = perf_counter(), 0
        for chunk in export(trace, "run/1"):
            size += len(chunk)
        print(f"  {name}: {size / 1e6:.1f} MB in {perf_counter() - began:.2f} s")


def main() -> None:
    layers = [{**LAYERS[number % len(LAYERS)], "name": f"layer {number}"} for number in range(ROWS)]
    with tempfile.TemporaryDirectory() as folder:
        for calls in (200, 10_300):
            measure(write_trace(Path(folder) / f"{calls}.safetensors", layers=layers, calls=calls))
    print(f"largest memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
