"""Real logs of LoadGen, with samples of the same queries and locks of the same settings."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchlock.evaluator.harness.performance.loadgen_traces import Log, read_log
from benchlock.registry.lock.lockfile import Lock
from tests.support.evaluator.evidence import CURRENT
from tests.support.resolution.variants import variant

LOGS = Path(__file__).parents[2] / "cases" / "loadgen"
SERVER = {"target_qps": 400.0, "target_latency": 0.1}


def lock_of_log(name: str, **more: object) -> Lock:
    """Return a lock of the scenario ``name`` with the settings of its log."""
    made = variant({"lock": CURRENT}).lock
    seeds = {"qsl": 1, "sample_index": 2, "schedule": 3}
    scenario = {**made.scenario, "name": name, "seeds": seeds, "min_duration": 0.2, "min_queries": 64}
    patch = {**CURRENT, "scenario": scenario | (SERVER if name == "server" else {}) | more}
    return variant({"lock": patch}).lock


def columns_of_log(name: str) -> dict[str, NDArray[Any]]:
    """Return samples of the queries of a log, which agree with each of its results."""
    log = read_log(LOGS / f"{name}.txt")
    latency = _latencies(log, name)
    rows, zeros = len(latency), np.zeros(len(latency), np.int64)
    columns: dict[str, NDArray[Any]] = {
        "preempted": zeros.astype(np.uint8),
        "samples": zeros + 1,
        "index": np.arange(rows) % 5,
        "warmup_ns": np.asarray([9, 9, 9], np.int64),
    }
    if name == "server":
        start = np.linspace(0, (rows - 1) * 1e9 / log.results["result_scheduled_samples_per_sec"], rows)
        columns |= {"start_ns": start.astype(np.int64), "before_ns": zeros, "latency_ns": latency}
        columns |= {"service_ns": latency // 2, "issue_delay_ns": zeros, "end_ns": columns["start_ns"] + latency}
    else:
        own = latency - 3000
        start = np.cumsum(latency) - latency
        columns |= {"start_ns": start, "before_ns": zeros + 2000, "latency_ns": own, "end_ns": start + own + 2000}
    return columns | {"cpu_ns": columns["latency_ns"] // 2}


def _latencies(log: Log, name: str) -> NDArray[np.int64]:
    """Return nanoseconds of each query, with the percentiles, the least, the greatest and the mean of a log."""
    results, rows = log.results, log.results["result_query_count"]
    shares = (50, 90, 95, 97, 99, 99.9)
    places = {int(rows * share / 100): results[f"result_{share:.2f}_percentile_latency_ns"] for share in shares}
    places |= {0: results["result_min_latency_ns"], rows - 1: results["result_max_latency_ns"]}
    if name == "server":
        rates = (results[f"result_{one}_samples_per_sec"] for one in ("completed", "scheduled"))
        completed, scheduled = ((rows - 1) * 1e9 / rate for rate in rates)
        places[1] = round(completed - scheduled)  # of the query that comes last
    else:
        places[rows - 6] = results["early_stopping_latency_ss"]
    ordered = np.zeros(rows, np.int64)
    for place, value in places.items():
        ordered[place] = value
    left = results["result_mean_latency_ns"] * rows
    known = sorted(places)
    for first, last in pairwise(known):
        ordered[first + 1 : last] = ordered[first]
    left -= int(ordered.sum())
    for first, last in pairwise(known):
        for place in range(last - 1, first, -1):
            more = min(left, int(ordered[last] - ordered[place]))
            ordered[place] += more
            left -= more
    assert left == 0
    return np.roll(ordered, -2)  # the least and the next one come last
