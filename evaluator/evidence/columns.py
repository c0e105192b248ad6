"""The columns of raw samples against one another: what they say of one query must add up."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.harness.job import COLD_PHASES

Columns = Mapping[str, NDArray[Any]]

_GREATEST: Final = 1 << 62
_DURATIONS: Final = ("latency_ns", "cpu_ns", "before_ns", "service_ns", "prepare_ns", "predict_ns", "outputs_ns")
_ROWS: Final = (*_DURATIONS, "preempted", "start_ns", "end_ns", "samples", "batch", "issue_delay_ns")
"""Columns with a value for each query, or for each call."""
_STAGES: Final = ("prepare_ns", "predict_ns", "outputs_ns")
_SEQUENTIAL: Final = ("single_stream", "multi_stream", "offline")
_SLACK: Final = 1.01
"""Two clocks may differ by this factor."""


def check_columns(role: str, columns: Columns, scenario: Mapping[str, Any], total: int) -> None:
    """Raise unless the columns of a timed phase agree with one another and with the scenario.

    Args:
        role: The role of their blob, which messages name.
        columns: The columns that such a phase has, see ``requirements``.
        scenario: The scenario of the lock.
        total: The number of samples in the split.

    Raises:
        InvalidInputError: They do not.
    """
    _check_shapes(role, columns)
    name = scenario["name"]
    if name == "cold_start":
        parts = sum(columns[f"{phase}_ns"] for phase in COLD_PHASES)
        _demand(role, np.array_equal(columns["latency_ns"], parts), "the phases of a start do not add up to latency_ns")
        return
    index, samples = columns["index"], columns["samples"]
    _demand(role, int(samples.sum()) == len(index), f"samples adds up to {samples.sum()}, and index has {len(index)}")
    _demand(role, bool((index < total).all()), f"index names a sample beyond the {total} of the split")
    expected = _samples_of_query(scenario, columns)
    if expected is not None:
        _demand(role, bool((samples == expected).all()), "samples is not what the lock says of a query")
    _check_times(role, columns, name)


def _check_shapes(role: str, columns: Columns) -> None:
    """Raise unless the columns are series of whole numbers, of one length, whose sums can be computed."""
    rows = len(columns["latency_ns"])
    _demand(role, rows > 0, "there are no samples")
    known = (*_ROWS, "index", "warmup_ns", *(f"{phase}_ns" for phase in COLD_PHASES))
    for name in (name for name in known if name in columns):
        column = columns[name]
        _demand(role, column.ndim == 1 and column.dtype in (np.int64, np.uint8), f"{name} is not a series of integers")
        is_within = not len(column) or (column.min() >= 0 and column.max() < _GREATEST)
        _demand(role, bool(is_within), f"{name} is out of range")
        if name.endswith("_ns") and name not in ("start_ns", "end_ns"):
            _demand(role, float(column.sum(dtype=np.float64)) < _GREATEST, f"the sum of {name} is out of range")
        if name not in ("index", "warmup_ns"):
            _demand(role, len(column) == rows, f"{name} has {len(column)} values, and latency_ns {rows}")
    if "samples" in columns:
        total = float(columns["samples"].sum(dtype=np.float64))
        _demand(role, total < _GREATEST, "the sum of samples is out of range")


def _samples_of_query(scenario: Mapping[str, Any], columns: Columns) -> Any:  # noqa: ANN401 - a number or a column
    """Return the number of samples of each query; None of an offline run, whose calls need not be full."""
    name = scenario["name"]
    if name == "offline":
        return None
    return columns["batch"] if name == "batch_sweep" else scenario.get("samples_per_query", 1)


def _check_times(role: str, columns: Columns, name: str) -> None:
    start, before, latency, end = (columns[f"{one}_ns"] for one in ("start", "before", "latency", "end"))
    if name == "server":
        served = columns["service_ns"]
        _demand(role, np.array_equal(end, start + latency), "end_ns is not start_ns and latency_ns together")
        within = float(served.sum()) <= float(latency.sum()) * _SLACK
        _demand(role, within, "service_ns is longer than the latency of the same queries")
    else:
        served = latency
        whole = np.array_equal(end, start + before + latency)
        _demand(role, whole, "end_ns is not start_ns, before_ns and latency_ns together")
    if name in _SEQUENTIAL:
        _demand(role, bool((start[1:] >= end[:-1]).all()), "a query starts before the one before it has ended")
    if all(stage in columns for stage in _STAGES):
        # Samples of an offline run are prepared before the clock of their call starts.
        stages = _STAGES[1:] if name == "offline" else _STAGES
        spent = sum(columns[stage] for stage in stages)
        _demand(role, bool((spent <= served).all()), f"{', '.join(stages)} together are longer than the call")


def _demand(role: str, is_true: bool, reason: str) -> None:
    if not is_true:
        raise InvalidInputError(f"the blob {role}: {reason}", where=role, next_step="run the lock again")
