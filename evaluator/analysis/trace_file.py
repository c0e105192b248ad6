"""Reading of trace files, which may come from anywhere: every size is bounded, and every contradiction is refused."""

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from safetensors import SafetensorError, safe_open

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.analysis.operator_kinds import WEIGHT_FORMATS
from benchlock.evaluator.analysis.trace_types import (
    LARGEST_ROWS,
    UNKNOWN,
    Experiment,
    ExperimentHeader,
    Header,
    Row,
    Times,
    Trace,
)

SCHEMA: Final = 1
LARGEST_FILE: Final = 64 << 20
LARGEST_SPANS: Final = 1_000_000
LARGEST_CALLS: Final = 1 << 14
_LATEST: Final = 1 << 61
_LONGEST: Final = 1 << 42
"""The maximum duration in nanoseconds, 73 minutes: sums over all spans of a trace stay below 2^63."""
_DEEPEST: Final = 16
_LARGEST_TENSOR: Final = 1 << 48
"""The maximum number of elements of a tensor: work that follows from shapes stays far below the largest float."""
_CALL_TENSORS: Final = ("call_start", "call_duration", "block", "process", "preempted")
_ROW_TENSORS: Final = ("start", "duration")
_ADVICE: Final = "run the lock again with a released harness"


def read_trace(path: Path, where: str = "trace") -> Trace:
    """Read a trace file.

    Args:
        path: The file, whose digest was verified before.
        where: The name of the file in error messages.

    Raises:
        InvalidInputError: The file is not a trace, is too large, is of a newer schema, or contradicts itself.
    """
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise _fault(where, f"it has {size} bytes; the maximum is {LARGEST_FILE}")
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            header = _parse_header(metadata.get("trace", ""), where)
            _check_header(header, where)
            experiments = {str(about.deepest): _read_experiment(file, about, where) for about in header.experiments}
    except SafetensorError as error:
        raise _fault(where, f"it is not a safetensors file: {error}") from error
    spans = sum(experiment.durations.size for experiment in experiments.values())
    if spans > LARGEST_SPANS:
        raise _fault(where, f"it has {spans} spans; the maximum is {LARGEST_SPANS}")
    return Trace(header, experiments, metadata.get("lock_fingerprint", ""))


def _fault(where: str, reason: str, next_step: str = _ADVICE) -> InvalidInputError:
    return InvalidInputError(f"cannot read the trace: {reason}", where=where, next_step=next_step)


def _parse_header(text: str, where: str) -> Header:
    try:
        schema = msgspec.json.decode(text).get("schema")
        if isinstance(schema, int) and schema > SCHEMA:
            reason = f"it has schema {schema}, but this version of benchlock reads schema {SCHEMA}"
            raise _fault(where, reason, "use the version of benchlock that made it, or a later one")
        return msgspec.json.decode(text, type=Header)
    except (msgspec.DecodeError, AttributeError, RecursionError) as error:
        raise _fault(where, f"invalid metadata `trace`: {error}") from error


def _check_header(header: Header, where: str) -> None:
    """Raise unless rows are numbered, parents come before their children, and each experiment occurs once."""
    if header.schema != SCHEMA:
        raise _fault(where, f"unknown schema {header.schema}")
    names = [about.deepest for about in header.experiments]
    if len(set(names)) != len(names):
        raise _fault(where, "an experiment occurs twice")
    tables = [about.rows for about in header.experiments] + ([header.graph.rows] if header.graph else [])
    if sum(map(len, tables)) > LARGEST_ROWS:
        raise _fault(where, f"it has {sum(map(len, tables))} rows; the maximum is {LARGEST_ROWS}")
    for rows in tables:
        _check_rows(rows, where)


def _check_rows(rows: Sequence[Row], where: str) -> None:
    depths = list[int]()
    for position, row in enumerate(rows):
        if row.index != position or (row.parent is not None and not 0 <= row.parent < position):
            raise _fault(where, f"row {position} ({row.name}) has the index {row.index} and parent {row.parent}")
        depths.append(0 if row.parent is None else depths[row.parent] + 1)
        if depths[-1] > _DEEPEST:
            raise _fault(where, f"row {position} is nested {depths[-1]} levels deep; the maximum is {_DEEPEST}")
        layout = row.attributes.get("weight_format")
        if layout is not None and layout not in WEIGHT_FORMATS:
            raise _fault(where, f"row {position} has the unknown weight format {str(layout)[:20]!r}")
        if any(prod(tensor.shape or ()) > _LARGEST_TENSOR for tensor in (*row.inputs, *row.outputs)):
            raise _fault(where, f"row {position} has a tensor of more than {_LARGEST_TENSOR} elements")


def _read_experiment(file: Any, about: ExperimentHeader, where: str) -> Experiment:  # noqa: ANN401 - the library has no types
    """Read the tensors of an experiment."""
    names, name = set(file.keys()), about.deepest
    tensors = {}
    for part in (*_CALL_TENSORS, *_ROW_TENSORS):
        key = f"{name}.{part}"
        if key not in names:
            raise _fault(where, f"tensor {key} is missing")
        _check_type(key, file.get_slice(key), 1 + (part in _ROW_TENSORS), where)
        tensors[part] = file.get_tensor(key)
        _check_range(key, tensors[part], where)
    calls, rows = len(tensors["call_start"]), len(about.rows)
    for part, values in tensors.items():
        shape = (calls, rows) if part in _ROW_TENSORS else (calls,)
        if not calls or values.shape != shape:
            raise _fault(where, f"tensor {name}.{part} has shape {list(values.shape)}, expected {list(shape)}")
    if calls > LARGEST_CALLS:
        raise _fault(where, f"experiment {name} has {calls} calls; the maximum is {LARGEST_CALLS}")
    size = np.count_nonzero(tensors["block"] == 0)
    if not size or not np.array_equal(tensors["block"], np.arange(calls) // size):
        raise _fault(where, f"the blocks of {name} are not numbered from 0, with equal numbers of calls")
    process = tensors["process"]
    if process[0] != 0 or not np.isin(np.diff(process), (0, 1)).all():
        raise _fault(where, f"the processes of {name} are not numbered from 0 in order")
    columns = {part: tensors[part] for part in _CALL_TENSORS}
    return Experiment(about, **columns, starts=tensors["start"], durations=tensors["duration"])


def _check_type(key: str, tensor: Any, rank: int, where: str) -> None:  # noqa: ANN401 - as above
    """Raise unless a tensor that is not loaded has the type and the number of axes that it must have."""
    if tensor.get_dtype() != "I64" or len(tensor.get_shape()) != rank:
        found = f"{tensor.get_dtype()} {list(tensor.get_shape())}"
        raise _fault(where, f"tensor {key} is {found}, expected int64 with {rank} axes")


def _check_range(key: str, values: Times, where: str) -> None:
    least = 1 if key.endswith("call_duration") else UNKNOWN
    most = _LATEST if key.endswith("start") else _LONGEST
    if values.size and (values.min() < least or values.max() >= most):
        raise _fault(where, f"tensor {key} is out of range: it must be at least {least} and below {most}")
