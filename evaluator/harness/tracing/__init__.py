"""Traces: what each framework's own profiler says of a call, in one form for all frameworks.

There is one module per framework, found by the name of its predictor. Only this module imports the profiler. It records
and renames, but interprets nothing: kinds of operators, FLOPs and overheads are computed from the stored trace.
No module of this package is imported in a run without a trace.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ..predictors import Tensors

UNKNOWN = -1
"""The value of an unknown time in ``Profile.starts`` and ``Profile.durations``."""
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RowTensor:
    """A tensor that an operator reads or writes; ``role`` of an input is ``data``, ``weight`` or ``bias``."""

    shape: Shape | None
    dtype: str | None = None
    role: str | None = None


def constant_role(position: int, tensor: RowTensor) -> str | None:
    """Return the role of an input that is constant; scalars, such as scales and zero points, have none."""
    return None if not tensor.shape else "bias" if position > 1 and len(tensor.shape) == 1 else "weight"


@dataclass(frozen=True, slots=True)
class Row:
    """One operator, kernel or part of a call, which every call executes once; None is unknown.

    ``docs/reference/formats.md`` describes the fields. ``type`` is the framework's own, ``source_type`` that of the
    model file where it differs, and ``parent`` the index of the row that contains this one.
    """

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
    attributes: Mapping[str, Any] = field(default_factory=dict)
    allocated_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """The rows of a profiler in the order of execution, and their times in each call.

    Attributes:
        rows: The rows of a call.
        starts: int64 [calls, rows]: nanoseconds of ``clock``; ``UNKNOWN`` where the profiler has no time.
        durations: int64 [calls, rows]: nanoseconds.
        incomplete: Why the rows are not those of every call; None where they are.
        native: The profiler's own output, as bytes.
        clock: The clock of the starts.
        start_source: ``measured``, or ``accumulated`` where rows were laid end to end inside their call.
        resolution_ns: The step of the profiler's clock.
        notes: Sentences that a reader must know.
    """

    rows: list[Row]
    starts: NDArray[np.int64]
    durations: NDArray[np.int64]
    incomplete: str | None
    native: bytes
    clock: Literal["realtime", "monotonic"] = "realtime"
    start_source: Literal["measured", "accumulated"] = "measured"
    resolution_ns: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """The model's own operators with their shapes, before the runtime fuses or replaces them.

    ``framework_flops`` are those of a counter of the framework, None where it has none that is right. ``operators`` are
    counts by type.
    """

    source: str
    rows: list[Row]
    framework_flops: int | None = None
    parameters: int | None = None
    operators: Mapping[str, int] | None = None
    notes: tuple[str, ...] = ()


class Profiler(Protocol):
    """A model loaded with the profiler of its framework.

    A module of a framework has the functions::

        def open_profiler(folder: Path, model: Model, place: Place) -> Profiler: ...   # rows of level layer
        def describe_graph(folder: Path, model: Model, place: Place, batch: Tensors) -> Graph: ...

    The module ``onednn`` has ``open_profiler`` alone, whose rows have the level ``kernel``, and ``VARIABLES``, the
    environment variables that its process is started with. ``folder`` is the folder of the model's files; ``batch`` has
    the inputs of one call by name. Both functions may raise any error, which becomes a failure or a recorded gap.
    """

    @property
    def source(self) -> str:
        """The name of the profiler, such as ``onnxruntime-profiler``."""

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs of one call, bit-equal to those of the predictor."""
        ...

    def start(self) -> None:
        """Begin to record; calls before are warm-up and are not in the profile."""

    def finish(self) -> Profile:
        """Stop, release the model, and return the profile of all calls of ``predict`` since ``start``."""
        ...
