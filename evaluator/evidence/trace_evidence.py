"""The metrics of a trace, read back from its blob."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.analysis.trace_file import LARGEST_FILE, read_trace
from benchlock.evaluator.harness.tracing.trace_levels import EXPERIMENTS, LARGEST_TRACE
from benchlock.evaluator.statistics.metric_types import Metric
from benchlock.evaluator.statistics.trace_overheads import estimate_overheads
from benchlock.registry.lock.lockfile import Lock

TRACE: Final = "trace"
LARGEST: Final = {TRACE: LARGEST_FILE, "trace-native": LARGEST_TRACE}
"""The maximum size of the blobs, in bytes, by role."""


def read_overheads(lock: Lock, files: Mapping[str, Path], stated: Mapping[str, Any] | None) -> tuple[Metric, ...]:
    """Return the cost of each trace level; empty for a lock without a trace.

    Args:
        lock: The lock of the run.
        files: The files of the run's blobs, by role.
        stated: The part ``trace`` of the result.

    Raises:
        InvalidInputError: The trace is malformed, or is not of the locked level.
    """
    level = lock.request.get("trace", "none")
    if level == "none":
        return ()
    if stated is None or stated.get("level") != level:
        raise _fault(f"the result has no trace of the level {level}")
    trace = read_trace(files[TRACE])
    if (trace.header.level, tuple(trace.experiments)) != (level, EXPERIMENTS[level]):
        raise _fault(f"it has the level {trace.header.level} and the experiments {', '.join(trace.experiments)}")
    calls = {len(experiment.call_duration) for experiment in trace.experiments.values()}
    if calls != {stated.get("calls")}:
        raise _fault(f"the result states {stated.get('calls')} calls, but the experiments have {sorted(calls)}")
    return tuple(estimate_overheads(trace.series).values())


def _fault(reason: str) -> InvalidInputError:
    return InvalidInputError(f"the blob {TRACE}: {reason}", where=TRACE, next_step="run the lock again")
