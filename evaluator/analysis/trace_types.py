"""Traces as analyses read them: rows of operators and kernels, and their times in each call.

Times are integer nanoseconds, on CLOCK_MONOTONIC of the harness. Unknown values are None, or ``UNKNOWN`` in arrays.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from benchlock.evaluator.statistics.trace_overheads import CallSeries

LEVELS: Final = ("none", "model", "framework", "system")
"""The deepest profilers of experiments, in the order in which their overheads add up."""
NANOSECONDS: Final = 1e-9
UNKNOWN: Final = -1
LARGEST_ROWS: Final = 10_000

Times = NDArray[np.int64]
Shape = Annotated[tuple[Annotated[int, Meta(ge=0, lt=1 << 40)], ...], Meta(max_length=32)]
_Count = Annotated[int, Meta(ge=1, lt=1 << 31)]


class RowTensor(Struct, frozen=True):
    """A tensor that an operator reads or writes; ``role`` of an input is ``data``, ``weight`` or ``bias``."""

    shape: Shape | None = None
    dtype: str | None = None
    role: str | None = None


class Row(Struct, frozen=True, kw_only=True):
    """An operator, a kernel or a part of a call, which every call executes once.

    The harness documents its fields (``Row`` in ``evaluator/harness/tracing/__init__.py``); ``index`` is the position
    among the rows of an experiment.
    """

    index: int
    level: Literal["model", "layer", "kernel"]
    name: str
    type: str
    parent: int | None = None
    source_names: tuple[str, ...] = ()
    source_type: str | None = None
    provider: str | None = None
    variant: str | None = None
    inputs: tuple[RowTensor, ...] = ()
    outputs: tuple[RowTensor, ...] = ()
    attributes: Mapping[str, Any] = {}
    allocated_bytes: int | None = None


Rows = Annotated[tuple[Row, ...], Meta(max_length=LARGEST_ROWS)]


class Graph(Struct, frozen=True, kw_only=True):
    """The model's own operators with their shapes, before the runtime fuses or replaces them."""

    rows: Rows = ()
    parameters: int | None = None


class ExperimentHeader(Struct, frozen=True, kw_only=True):
    """What a trace file records of an experiment beside its times."""

    deepest: Literal["none", "model", "framework", "system"]
    source: str | None = None
    start_source: str | None = None
    resolution_ns: Annotated[int, Meta(ge=1, lt=1 << 40)] = 1
    rows: Rows = ()
    incomplete: str | None = None
    notes: tuple[str, ...] = ()
    counters: Annotated[Mapping[str, int | str | None], Meta(max_length=64)] | None = None


class Gap(Struct, frozen=True, kw_only=True):
    """An experiment that could not be performed, with its reason and the next step."""

    experiment: str
    reason: str
    next_step: str | None = None


class Clock(Struct, frozen=True, kw_only=True):
    """The offset of the calendar clock from CLOCK_MONOTONIC."""

    realtime_minus_monotonic_ns: Annotated[int, Meta(gt=-(1 << 62), lt=1 << 62)] = 0


class Header(Struct, frozen=True, kw_only=True):
    """What a trace file records beside its times, as far as analyses need it."""

    schema: int
    level: Literal["model", "framework", "system", "full"]
    framework: str
    framework_version: str = ""
    batch: _Count = 1
    threads: _Count = 1
    clock: Clock = Clock()
    caps: Mapping[str, int | str | None] = {}
    graph: Graph | None = None
    experiments: Annotated[tuple[ExperimentHeader, ...], Meta(min_length=1, max_length=len(LEVELS))]
    gaps: tuple[Gap, ...] = ()
    phases: Mapping[str, int | None] = {}
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Experiment:
    """Calls that were traced by one deepest profiler; arrays are [calls], the last two [calls, rows].

    ``preempted`` is how often other processes took the CPU, ``process`` the number of the call's process, and ``block``
    that of its interleaved block.
    """

    header: ExperimentHeader
    call_start: Times
    call_duration: Times
    block: Times
    process: Times
    preempted: Times
    starts: Times
    durations: Times

    @property
    def series(self) -> CallSeries:
        """The calls, from which typical calls and overheads follow."""
        return CallSeries(self.call_duration, self.process, self.preempted)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A trace of a run: its header, its experiments by deepest profiler, and the fingerprint of its lock.

    It is equal to itself alone, so that what follows from it can be cached.
    """

    header: Header
    experiments: Mapping[str, Experiment]
    lock_fingerprint: str = ""

    @property
    def series(self) -> dict[str, CallSeries]:
        """The calls of each experiment, from which the cost of levels follows."""
        return {name: experiment.series for name, experiment in self.experiments.items()}
