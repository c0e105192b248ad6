"""What single calls took: the latencies of those that were not pre-empted, and their CPU time."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluator.statistics.figures import Calls, Metric
from evaluator.statistics.intervals import quantile
from evaluator.statistics.samples import Samples

PERCENTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}


def describe_calls(samples: Samples, scope: str) -> Calls | None:
    """The calls behind a run's times; None where nobody counted who had the CPU.

    Percentiles are by nearest rank between order statistics, like those of all calls beside which they stand.
    """
    if samples.preempted is None or not len(samples.latency):
        return None
    return Calls(
        n=len(samples.latency),
        preempted=int(samples.preempted.sum()),
        scope=scope,
        undisturbed=tuple(_percentiles("latency", samples.latency[~samples.preempted])),
        cpu_time=() if samples.cpu is None else tuple(_percentiles("cpu_time", samples.cpu)),
    )


def _percentiles(name: str, values: npt.NDArray[Any]) -> Iterator[Metric]:
    if not len(values):
        return
    ordered = np.sort(values)
    for percentile, q in PERCENTILES.items():
        value, ci = quantile(ordered, q)
        yield Metric(f"{name}_{percentile}", value, "s", "lower", len(ordered), ci, 1)
