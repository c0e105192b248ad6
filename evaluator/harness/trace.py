"""LoadGen's trace: what each query of ``server`` took from the time at which it was scheduled, and what tracing costs.

A trace has a line for each event; the one that begins a sample says when it was scheduled, in microseconds with three
decimals, how much later it was issued, and how much later it was complete, in nanoseconds.
"""

import re
from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .loadgen_log import Log

TRACE = "mlperf_log_trace.json"

_SAMPLE = re.compile(
    r'"name":"Sample",.*"ph":"b",.*"ts":(\d+)\.(\d{3}),.*"sample_idx":(\d+),"issue_start_ns":(\d+),"complete_ns":(\d+)'
)
_PERCENTILE = re.compile(r"result_(\d+\.\d+)_percentile_(per_query_)?latency_ns")


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Nanoseconds of each query: when it was scheduled, since the first; until its issue, and until its answer."""

    at: NDArray[np.int64]
    issued: NDArray[np.int64]
    latency: NDArray[np.int64]


def read_trace(path: Path, index: NDArray[np.int64]) -> Scheduled:
    """The queries of a trace, which were issued for the samples ``index``, in that order.

    Raises:
        ValueError: it tells of others.
    """
    found = array("q")
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if match := _SAMPLE.search(line):
                whole, part, *rest = map(int, match.groups())
                found.extend((whole * 1000 + part, *rest))
    rows = np.frombuffer(found, np.int64).reshape(-1, 4)
    if not np.array_equal(rows[:, 1], index):
        raise ValueError(f"LoadGen's trace tells of {len(rows)} queries, other ones than the {len(index)} issued")
    return Scheduled(rows[:, 0] - rows[:1, 0], rows[:, 2].copy(), rows[:, 3].copy())


def percentiles(log: Log) -> dict[float, int]:
    """LoadGen's own, of a query: the share, and nanoseconds; element ``n * share`` of the ordered latencies."""
    found: dict[float, int] = {}
    for key, value in sorted(log.results.items()):
        if match := _PERCENTILE.fullmatch(key):
            # Of several samples a query both are there, and the one of the query sorts last.
            found[round(float(match[1]) / 100, 6)] = int(value)
    return found


def agreement(log: Log, latency: NDArray[np.int64]) -> list[dict[str, float]]:
    """LoadGen's percentiles beside our own of the same queries, by the same rule; nanoseconds."""
    ordered = np.sort(latency)
    return [
        {"share": share, "own_ns": int(ordered[int(len(ordered) * share)]), "loadgen_ns": theirs}
        for share, theirs in percentiles(log).items()
    ]
