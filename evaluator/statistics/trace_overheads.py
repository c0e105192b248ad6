"""The cost of each trace level, from pairs of fresh processes.

The memory layout of a process makes all of its calls faster or slower, so that calls of one pair of processes say
nothing about the next pair. The unit of the interval is therefore the pair, not the call.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from benchlock.evaluator.statistics.confidence_intervals import student
from benchlock.evaluator.statistics.metric_types import Interval, Metric
from benchlock.registry.manifests.metric_definitions import DEFINITIONS, OVERHEAD

SHALLOWER: Final = {"model": "none", "framework": "model", "system": "model"}
"""The experiment that each one is compared with; layers are not traced in that of ``system``."""
_NANOSECONDS: Final = 1e-9
_LEAST_SHARE: Final = 0.5

Floats = npt.NDArray[np.float64]


class CallSeries(NamedTuple):
    """The calls of an experiment.

    ``durations`` are nanoseconds, ``processes`` the number of each call's process, from 0 without a gap, and
    ``preempted`` how often the call was preempted.
    """

    durations: npt.NDArray[np.int64]
    processes: npt.NDArray[np.int64]
    preempted: npt.NDArray[np.int64]


def select_calls(series: CallSeries) -> npt.NDArray[np.int64]:
    """Return the positions of calls that were not preempted; of a process with less than half of them, all calls."""
    calm = series.preempted <= 0
    for process in np.unique(series.processes):
        own = series.processes == process
        if calm[own].mean() < _LEAST_SHARE:
            calm[own] = True
    return np.flatnonzero(calm)


def typical_call(series: CallSeries) -> float:
    """Return the mean over processes of the median call, in seconds."""
    return float(np.mean(_medians(series)))


def estimate_overheads(experiments: Mapping[str, CallSeries]) -> dict[str, Metric]:
    """Return the cost of each level in seconds: the mean over pairs of processes of the difference of median calls.

    The interval is Student's t of these differences, which are few: it is exact where they are normal, and contains
    the variation between processes. It is unbounded with one pair. Preempted calls of a process do not count, unless
    that would leave less than half of them.

    Args:
        experiments: The calls by the name of their experiment; processes of equal number ran in turns.

    Returns:
        The metrics by the name of the deeper experiment.
    """
    metrics = {}
    for deep, shallow in SHALLOWER.items():
        if deep in experiments and shallow in experiments:
            name, definition = f"{OVERHEAD}{deep}", DEFINITIONS[f"{OVERHEAD}{deep}"]
            first, second = _medians(experiments[shallow]), _medians(experiments[deep])
            pairs = min(len(first), len(second))
            differences = second[:pairs] - first[:pairs]
            value, n = float(differences.mean()), len(experiments[deep].durations)
            ci = _mean_interval(differences)
            metrics[deep] = Metric(name, value, definition.unit, definition.direction, n, ci, definition.version)
    return metrics


def _mean_interval(values: Floats) -> Interval:
    if len(values) == 1:
        return Interval(None, None)
    reach = student(len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Interval(float(values.mean()) - reach, float(values.mean()) + reach)


def _medians(series: CallSeries) -> Floats:
    """Return the median call of each process, in seconds."""
    calls = select_calls(series)
    durations, processes = series.durations[calls], series.processes[calls]
    medians = [np.median(durations[processes == process]) for process in np.unique(processes)]
    return np.asarray(medians) * _NANOSECONDS
