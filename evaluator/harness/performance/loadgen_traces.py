"""LoadGen's log and trace, and the facts of a timed phase that follow from them and the raw samples.

A trace has a line per event. The event that begins a sample has the time at which it was scheduled, in microseconds
with three decimals, and the delays until it was issued and until it was complete, in nanoseconds.

The functions need no LoadGen, model or predictor, so that they can recompute the facts from the files of a run.
"""

import hashlib
import json
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MARK = ":::MLLOG "
SEPARATOR = b"--- probe ---\n"
"""The bytes before each log in a file of several logs."""
_EFFECTIVE = "effective_"
_RESULT_KEYS = ("result_", "early_stopping_")
_MINIMA = ("result_min_duration_met", "result_min_queries_met")


@dataclass(frozen=True, slots=True)
class Log:
    """LoadGen's own log; ``valid`` is its verdict, including early stopping, and ``errors`` its error lines."""

    version: str
    valid: bool
    errors: tuple[str, ...]
    settings: dict[str, Any]
    results: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log."""

    key: str
    value: Any
    is_error: bool


def read_log(path: Path) -> Log:
    """Read the detail log of one run; raise ``ValueError`` if it is incomplete."""
    return summarize_log([_parse_entry(text) for _, text in split_entries(path.read_text(encoding="utf-8"))])


def split_entries(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each line that is an entry, counted from 1, and its JSON."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(_MARK):
            yield number, line.removeprefix(_MARK)


def _parse_entry(text: str) -> Entry:
    entry = json.loads(text)
    return Entry(entry["key"], entry["value"], bool(entry["metadata"].get("is_error")))


def summarize_log(entries: Sequence[Entry]) -> Log:
    """Summarize the entries of a log, in their order.

    Raises:
        ValueError: The log is incomplete.
    """
    values = {entry.key: entry.value for entry in entries}
    if "result_validity" not in values:
        raise ValueError("LoadGen wrote no result_validity")
    errors = [f"{entry.key}: {entry.value}" for entry in entries if entry.is_error]
    errors += [f"{key}: false" for key in _MINIMA if not values.get(key)]
    return Log(
        version=str(values.get("loadgen_version")),
        valid=values["result_validity"] == "VALID",
        errors=tuple(errors),
        settings={key.removeprefix(_EFFECTIVE): value for key, value in values.items() if key.startswith(_EFFECTIVE)},
        results={key: value for key, value in values.items() if key.startswith(_RESULT_KEYS)},
    )


TRACE = "mlperf_log_trace.json"

_SAMPLE = re.compile(
    r'"name":"Sample",.*"ph":"b",.*"ts":(\d+)\.(\d{3}),.*"sample_idx":(\d+),"issue_start_ns":(\d+),"complete_ns":(\d+)'
)
_PERCENTILE = re.compile(r"result_(\d+\.\d+)_percentile_(per_query_)?latency_ns")


@dataclass(frozen=True, slots=True)
class ScheduledQueries:
    """Nanoseconds of each query: its scheduled time since the first, its delay until issue, and its latency."""

    at: NDArray[np.int64]
    issued: NDArray[np.int64]
    latency: NDArray[np.int64]


def read_trace(path: Path, index: NDArray[np.int64]) -> ScheduledQueries:
    """Read the queries of a trace.

    Args:
        path: The trace.
        index: int64 [queries], the sample of each query in the order of issue.

    Raises:
        ValueError: The trace has other queries.
    """
    values = array("q")
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if match := _SAMPLE.search(line):
                microseconds, thousandths, *fields = map(int, match.groups())
                values.extend((microseconds * 1000 + thousandths, *fields))
    rows = np.frombuffer(values, np.int64).reshape(-1, 4)
    if not np.array_equal(rows[:, 1], index):
        raise ValueError(f"LoadGen's trace has {len(rows)} queries, which differ from the {len(index)} issued")
    return ScheduledQueries(rows[:, 0] - rows[:1, 0], rows[:, 2].copy(), rows[:, 3].copy())


def percentiles(log: Log) -> dict[float, int]:
    """Return LoadGen's latency percentiles of queries in nanoseconds, by share.

    LoadGen takes element ``n * share`` of the ordered latencies.
    """
    values: dict[float, int] = {}
    for key, value in sorted(log.results.items()):
        if match := _PERCENTILE.fullmatch(key):
            # With several samples a query, the log has both percentiles, and that of the query sorts last.
            values[round(float(match[1]) / 100, 6)] = int(value)
    return values


def compare_percentiles(log: Log, latency: NDArray[np.int64]) -> list[dict[str, float]]:
    """Return LoadGen's percentiles beside those of ``latency``, by the same rule, in nanoseconds."""
    ordered = np.sort(latency)
    return [
        {"share": share, "own_ns": int(ordered[int(len(ordered) * share)]), "loadgen_ns": theirs}
        for share, theirs in percentiles(log).items()
    ]


MEDIAN = 0.5

# The harness reads its clock inside LoadGen's interval; the two clocks may drift by this.
_LESS_SHARE, _LESS_NS = 0.005, 2_000

# LoadGen's median, which includes the interpreter, may exceed the harness's by this.
_MORE_SHARE, _MORE_NS = 0.1, 100_000


def describe_phase(columns: Mapping[str, NDArray[Any]], samples_per_query: int) -> dict[str, Any]:
    """Summarize the raw samples of a phase.

    The duration runs from the first start, or the first scheduled query, to the last answer, in seconds.
    """
    return {
        "queries": len(columns["latency_ns"]),
        "samples_per_query": samples_per_query,
        "samples": len(columns["index"]),
        "duration_s": float(columns["end_ns"].max() - columns["start_ns"].min()) / 1e9,
        "preempted": int(columns["preempted"].sum()),
    }


def describe_sweep(columns: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Summarize the raw samples of a sweep; the duration is the sum of calls and preparations in seconds."""
    return {
        "queries": len(columns["latency_ns"]),
        "samples_per_query": 1,
        "samples": len(columns["index"]),
        "duration_s": float((columns["before_ns"] + columns["latency_ns"]).sum()) / 1e9,
        "preempted": int(columns["preempted"].sum()),
    }


def describe_starts(columns: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Summarize the processes of a cold start; the duration is the sum of theirs in seconds."""
    repeats = len(columns["latency_ns"])
    return {
        "queries": repeats,
        "samples_per_query": 1,
        "samples": repeats,
        "duration_s": float(columns["latency_ns"].sum()) / 1e9,
    }


def describe_account(
    log: Log, columns: Mapping[str, NDArray[Any]], comparisons: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """Summarize LoadGen's log, with the digest of the sequence of samples that it issued.

    Args:
        log: The detail log.
        columns: The raw samples of the phase.
        comparisons: LoadGen's percentiles beside those of ``columns``, in nanoseconds.
    """
    return {
        "version": log.version,
        "valid": log.valid,
        "errors": list(log.errors),
        "settings": log.settings,
        "results": log.results,
        "sequence_sha256": hashlib.sha256(columns["index"].astype("<i8").tobytes()).hexdigest(),
        "percentiles": list(comparisons),
        "clocks_agree": clocks_agree(comparisons),
    }


def compare_log(log: Log, columns: Mapping[str, NDArray[Any]], scenario: str) -> list[dict[str, float]]:
    """Compare LoadGen's log with the raw samples; return LoadGen's percentiles beside those of the samples.

    Args:
        log: The detail log.
        columns: The raw samples of the phase.
        scenario: ``offline``, whose one query has no percentiles; ``server``, whose latencies are LoadGen's own; or
            another scenario, whose latencies were measured inside LoadGen's interval.

    Raises:
        ValueError: The log reports other queries, or its clock and the harness's disagree.
        KeyError: The log or the columns lack a value.
    """
    if scenario == "offline":
        _check_count(log.settings["samples_per_query"], len(columns["index"]))
        return []
    _check_count(log.results["result_query_count"], len(columns["latency_ns"]))
    if scenario == "server":
        comparisons = compare_percentiles(log, columns["latency_ns"])
        _check_equal(comparisons)
        return comparisons
    comparisons = compare_percentiles(log, columns["before_ns"] + columns["latency_ns"])
    _check_inside(comparisons)
    return comparisons


def _check_count(logged: int, measured: int) -> None:
    if logged != measured:
        raise ValueError(f"it counts {logged}, but {measured} were answered")


def _check_equal(comparisons: list[dict[str, float]]) -> None:
    for entry in comparisons:
        if entry["own_ns"] != entry["loadgen_ns"]:
            raise ValueError(
                f"its {entry['share']:.1%} percentile is {entry['loadgen_ns']} ns, "
                f"that of its trace {entry['own_ns']} ns"
            )


def _check_inside(comparisons: list[dict[str, float]]) -> None:
    for entry in comparisons:
        own_ns, loadgen_ns = entry["own_ns"], entry["loadgen_ns"]
        if entry["share"] == MEDIAN and loadgen_ns < own_ns * (1 - _LESS_SHARE) - _LESS_NS:
            raise ValueError(
                f"its median of a query is {loadgen_ns} ns, less than that of our clock inside, {own_ns} ns"
            )


def clocks_agree(comparisons: Sequence[Mapping[str, float]]) -> bool:
    """Return whether LoadGen's median exceeds the harness's by at most 10 % and 0.1 ms, the cost of Python in between.

    It exceeds it by more where other processes had the CPU between the two clocks.
    """
    return all(
        entry["loadgen_ns"] <= entry["own_ns"] * (1 + _MORE_SHARE) + _MORE_NS
        for entry in comparisons
        if entry["share"] == MEDIAN
    )


def describe_probe(rate: float, log: Log) -> dict[str, Any]:
    """Summarize a probe of the arrival rate ``rate``, in queries a second."""
    results = log.results
    return {
        "qps": rate,
        "valid": log.valid,
        "queries": results["result_query_count"],
        "completed_qps": results["result_completed_samples_per_sec"],
        "latency_p99_ns": results["result_99.00_percentile_latency_ns"],
    }


def find_peak(probes: Sequence[Mapping[str, Any]]) -> tuple[float | None, float | None]:
    """Return the highest rate with a valid probe and the lowest rate without one; None where there is no such rate."""
    rates: dict[float, bool] = {}
    for probe in probes:
        rates[probe["qps"]] = rates.get(probe["qps"], False) or bool(probe["valid"])
    sustained = [rate for rate, is_valid in rates.items() if is_valid]
    failed = [rate for rate, is_valid in rates.items() if not is_valid]
    return max(sustained, default=None), min(failed, default=None)
