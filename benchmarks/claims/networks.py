"""Deep500, level 1: what a batch needs in memory and in time when it passes in parts."""

from collections.abc import Iterator, Mapping

from benchmarks.claims.measured_runs import EXAMPLES, Laboratory, MeasuredRun, abbreviate
from benchmarks.claims.rows import Row, format_interval, format_rows, format_seconds, format_table

_MODELS = {"onnxruntime": "onnx", "pytorch": "torchscript", "tensorflow": "savedmodel"}
_FIRST, _LAST = "1", "16"
_MEBI = 2**20


def measure(laboratory: Laboratory) -> Iterator[str]:
    """Yield the section."""
    folder = EXAMPLES / "networks"
    laboratory.publish(
        EXAMPLES / "digits" / "dataset.yaml", *(folder / "models" / f"memory-{name}.yaml" for name in _MODELS.values())
    )
    runs = {
        framework: laboratory.run(folder / "requests" / f"memory-{name}.yaml", **{"memory: 500MiB": "memory: 4GiB"})
        for framework, name in _MODELS.items()
    }
    yield from format_rows(_list_rows(runs))
    yield "\nThe batch has 256 samples; each number of parts is a fresh process:\n"
    heads = ("framework", "parts", "peak of memory", "the whole batch", "95 %")
    yield from format_table(heads, (cells for name, run in runs.items() for cells in _list_parts(name, run)))


def _list_rows(runs: Mapping[str, MeasuredRun]) -> Iterator[Row]:
    locks = abbreviate(*runs.values())
    peaks = {name: [_read(run, "peak_memory", parts) for parts in (_FIRST, _LAST)] for name, run in runs.items()}
    texts = (f"{name}: {whole / _MEBI:.0f} → {last / _MEBI:.0f} MiB" for name, (whole, last) in peaks.items())
    yield Row(
        "Deep500 L1: micro-batches avoid out-of-memory",
        f"peak at once → in {_LAST} parts: {'; '.join(texts)}",
        "partly" if all(last < whole for whole, last in peaks.values()) else "no",
        "these locks allow 4 GiB and show the peaks alone, because processes have no limit; in a container of 500 MiB "
        "the batch runs out of memory at once and passes in 16 parts, in all three frameworks "
        "(`tests/acceptance/test_networks.py`, [the commands](../how-to/networks.md#measure)); "
        "whole calls are split, where Deep500 chooses sizes for each convolution",
        locks,
    )
    equal = {name: run.metric("outputs_equal")["value"] == 1 for name, run in runs.items()}
    yield Row(
        "Deep500 L1: the transformation does not change the outputs",
        "; ".join(f"{name}: {'bit-equal' if is_equal else 'different bits'}" for name, is_equal in equal.items()),
        "yes" if all(equal.values()) else "partly",
        "the bits of the outputs of all parts are compared",
        locks,
    )
    ratios = {
        name: _read(run, "batch_latency", _LAST) / _read(run, "batch_latency", _FIRST) for name, run in runs.items()
    }
    yield Row(
        "Deep500 L1: micro-batches are slower in TensorFlow",
        f"time in {_LAST} parts / at once: " + "; ".join(f"{name}: {ratio:.2f}" for name, ratio in ratios.items()),
        "yes" if ratios["tensorflow"] > 1 else "no",
        "faster here; but these are medians of consecutive calls of one run, not interleaved: they show a tendency",
        locks,
    )


def _read(run: MeasuredRun, name: str, parts: str) -> float:
    return float(run.metrics(name)[parts]["value"])


def _list_parts(framework: str, run: MeasuredRun) -> Iterator[tuple[str, ...]]:
    for parts, latency in sorted(run.metrics("batch_latency").items(), key=lambda item: int(item[0])):
        peak = f"{_read(run, 'peak_memory', parts) / _MEBI:.0f} MiB"
        low, high = latency["ci"]
        factor, unit = (1e3, "ms") if latency["value"] < 1 else (1.0, "s")
        interval = f"{format_interval(low, high, factor)} {unit}"
        yield framework, parts, peak, format_seconds(latency["value"]), interval
