"""The experiments of each trace level, and how many calls they make.

An experiment is named by its deepest profiler, and has several processes. A time is read from the experiment whose
deepest profiler is the level of that time, because a deeper profiler slows what it contains (Li and others, XSP, 2020,
leveled experimentation).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final, Literal

Experiment = Literal["none", "model", "framework", "system"]

EXPERIMENTS: Final[Mapping[str, tuple[Experiment, ...]]] = {
    "none": (),
    "model": ("none", "model"),
    "framework": ("none", "model", "framework"),
    "system": ("none", "model", "system"),
    "full": ("none", "model", "framework", "system"),
}
"""The experiments of a level. ``system`` has no rows of layers, so that its cost is not that of both profilers."""
CALL_TENSORS: Final = ("call_start", "call_duration", "block", "preempted", "minor_faults", "cpu_time")
"""The tensors [calls] that a process of an experiment records; times in nanoseconds."""
TRACE_TENSORS: Final = (*CALL_TENSORS, "process", "start", "duration")
"""All tensors of an experiment; the last two are [calls, rows]."""
LARGEST_TRACE: Final = 64 << 20
"""The greatest number of bytes of a trace, and of the profilers' own output."""
SECONDS: Final = 30.0
"""The seconds that the calls of all experiments may take together."""
START_SECONDS: Final = 75.0
"""The seconds that all starts of processes may take together, with their warm-up; the first of each is always made."""
OVER_TIME: Final = f"the calls of a trace take at most {SECONDS:g} s"

_CALLS = 200
_BLOCK = 10
_PROCESSES = 4
_BYTES_A_ROW = 700
"""The bytes that ONNX Runtime's profiler, the most talkative one, writes for a row of a call."""
SETTLING_CALLS: Final = 2
"""The calls after the start of a profiler that are not recorded, because the first ones allocate its buffers."""
UNITS: Final = _BLOCK
"""The greatest number of different calls; an experiment prepares each once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The calls of each experiment: in each of ``processes`` processes ``blocks`` blocks of ``block_calls`` calls.

    ``reason`` says why there are fewer calls than usual; None where there are not.
    """

    processes: int
    blocks: int
    block_calls: int
    reason: str | None = None

    @property
    def calls(self) -> int:
        """The calls of each experiment."""
        return self.processes * self.blocks * self.block_calls


def plan_calls(start_seconds: float, round_seconds: float, rows: int) -> Plan:
    """Return the calls of each experiment.

    Args:
        start_seconds: The seconds that one process of every experiment takes until it is warm.
        round_seconds: The seconds of one call in every experiment together.
        rows: The estimated number of rows of a call in the deepest experiment.
    """
    processes = max(1, min(_PROCESSES, int(START_SECONDS / max(start_seconds, 1e-9))))
    by_time = int(SECONDS / max(round_seconds, 1e-9))
    by_size = LARGEST_TRACE // (_BYTES_A_ROW * max(rows, 1))
    most = min(by_time, by_size)
    if most >= _CALLS:
        return Plan(processes, ceil(_CALLS / processes / _BLOCK), _BLOCK)
    reason = OVER_TIME if by_time <= by_size else "a trace has at most 64 MiB"
    block = max(1, min(_BLOCK, most // processes))
    return Plan(processes, max(1, most // processes // block), block, reason)
