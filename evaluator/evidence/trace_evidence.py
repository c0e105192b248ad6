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
    calls = sorted({len(experiment.call_duration) for experiment in trace.experiments.values()})
    recorded = {
        "level": level,
        "calls": calls[0] if len(calls) == 1 else calls,
        "rows": {name: len(experiment.header.rows) for name, experiment in trace.experiments.items()},
        "gaps": [gap.experiment for gap in trace.header.gaps],
    }
    if wrong := next((key for key in {**recorded, **stated} if recorded.get(key) != stated.get(key)), None):
        reason = f"the result states {wrong} {str(stated.get(wrong))[:60]}, but the trace has {recorded.get(wrong)}"
        raise _fault(reason)
    if trace.header.threads != lock.limits.cpus:
        raise _fault(f"it has {trace.header.threads} threads, but the lock has {lock.limits.cpus} CPUs")
    return tuple(estimate_overheads(trace.series).values())


def _fault(reason: str) -> InvalidInputError:
    return InvalidInputError(f"the blob {TRACE}: {reason}", where=TRACE, next_step="run the lock again")
