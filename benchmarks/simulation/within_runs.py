"""How often the interval within one run holds the true quantile, of calls that depend on each other."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from benchlock.evaluator.statistics.confidence_intervals import quantile, quantile_of_series
from benchlock.evaluator.statistics.metric_types import Interval
from benchmarks.simulation.processes import Process, autoregressive, constant_queue, exponential_queue
from benchmarks.simulation.tables import markdown, percent

HEADER = (
    "calls",
    "n",
    "treated as independent",
    "interval given",
    "contains the true value",
    "both ends given",
    "contain the true value",
)
CORRELATIONS = (0.0, 0.5, 0.9, 0.95, 0.99)
LOADS = (0.5, 0.6, 0.7, 0.8, 0.9)

_SEED = 16
_AT_ONCE = 4_000_000
"""Values of the series that are in memory at a time."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of simulated runs of one process, all as long.

    Attributes:
        naive: The share whose interval for independent calls contains the true value.
        given: The share with an interval, of one end at least.
        held: Of these the share that contain the true value; an end that is not given excludes nothing.
        whole: The share with both ends.
        held_whole: Of these the share that contain the true value.
    """

    naive: float
    given: float
    held: float
    whole: float
    held_whole: float


def estimate_coverage(process: Process, calls: int, runs: int, seed: int = _SEED) -> Coverage:
    """Simulate ``runs`` runs of so many calls."""
    random = np.random.default_rng([seed, calls])
    naive, ends = [], []
    for first in range(0, runs, at_once := max(1, _AT_ONCE // calls)):
        for values in process.draw(random, min(at_once, runs - first), calls):
            naive.append(_holds(quantile(np.sort(values), process.q)[1], process.truth))
            ci = quantile_of_series(values, process.q)[1]
            ends.append((ci.low is not None, ci.high is not None, _holds(ci, process.truth)))
    low, high, held = np.array(ends).T
    given, whole = low | high, low & high
    return Coverage(float(np.mean(naive)), given.mean(), _share(held, given), whole.mean(), _share(held, whole))


def tables() -> Iterator[str]:
    """Yield the tables of this module."""
    yield "One run, `latency_p50`, of calls whose times are autocorrelated:"
    yield markdown(HEADER, _rows(map(autoregressive, CORRELATIONS), {200: 1000, 1000: 1000, 10_000: 400}))
    yield "One run, `latency_p99`, of a queue with Poisson arrivals at a utilisation:"
    queues = (queue(load) for queue in (exponential_queue, constant_queue) for load in LOADS)
    yield markdown(HEADER, _rows(queues, {1000: 1000, 10_000: 400, 60_000: 200}))


def _rows(processes: Iterable[Process], lengths: dict[int, int]) -> Iterator[tuple[str, ...]]:
    for process in processes:
        for calls, runs in lengths.items():
            found = estimate_coverage(process, calls, runs)
            shares = (found.naive, found.given, found.held, found.whole, found.held_whole)
            yield process.name, f"{calls:,}", *map(percent, shares)


def _holds(ci: Interval, truth: float) -> bool:
    return (ci.low is None or ci.low <= truth) and (ci.high is None or truth <= ci.high)


def _share(
    held: "np.ndarray[tuple[int], np.dtype[np.bool_]]", among: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
) -> float:
    return float(held[among].mean()) if among.any() else float("nan")
