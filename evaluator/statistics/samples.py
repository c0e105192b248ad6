"""The samples of the performance phase, as the harness leaves them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from benchlock.artifacts.errors import InvalidInputError

NANOSECONDS = 1e-9

Column = npt.NDArray[Any]

_SERIES = ("latency_ns", "cpu_ns", "preempted")


@dataclass(frozen=True, slots=True)
class Samples:
    """One value a query, in the order in which they were issued.

    ``cpu`` and ``preempted`` are None of a harness that did not count them.
    """

    latency: npt.NDArray[np.float64]
    """Seconds from issue to answer."""
    cpu: npt.NDArray[np.float64] | None = None
    """Seconds of CPU."""
    preempted: npt.NDArray[np.bool_] | None = None
    """Whether others got the CPU in between."""
    more: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    """Other columns of as many rows, by the names that the harness gave them; those in ``_ns`` are nanoseconds."""


def read_samples(path: Path) -> Samples:
    """The samples of a safetensors file: ``latency_ns``, and where they are there ``cpu_ns`` and ``preempted``.

    Times are int64 nanoseconds, ``preempted`` is 1 or 0.

    Raises:
        InvalidInputError: no such file, no safetensors, a series that is none, or series of different lengths.
    """
    return samples_of(read_columns(path))


def read_columns(path: Path) -> dict[str, Column]:
    """Read every column of a safetensors file, as the harness leaves it.

    Raises:
        InvalidInputError: The file is missing or no safetensors, ``latency_ns`` is missing, or a series is malformed.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            columns = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, TypeError) as error:
        raise InvalidInputError(f"the samples cannot be read: {error}", where=str(path)) from error
    if "latency_ns" not in columns:
        raise InvalidInputError("the samples cannot be read: there is no latency_ns", where=str(path))
    for name in [name for name in _SERIES if name in columns]:
        series = columns[name]
        kind, word = (np.integer, "0 and 1") if name == "preempted" else (np.int64, "int64 durations")
        if series.ndim != 1 or not np.issubdtype(series.dtype, kind) or (series < 0).any():
            raise InvalidInputError(f"{name} is no series of {word}", where=str(path))
        if len(series) != len(columns["latency_ns"]):
            raise InvalidInputError(f"{name} has another length than latency_ns", where=str(path))
    return columns


def samples_of(columns: Mapping[str, Column]) -> Samples:
    """Return the samples that the columns of a file hold, in seconds."""
    rows = len(columns["latency_ns"])
    return Samples(
        columns["latency_ns"] * NANOSECONDS,
        columns["cpu_ns"] * NANOSECONDS if "cpu_ns" in columns else None,
        columns["preempted"] > 0 if "preempted" in columns else None,
        {name: column for name, column in columns.items() if name not in _SERIES and _is_column(column, rows)},
    )


def _is_column(values: npt.NDArray[np.generic], rows: int) -> bool:
    return values.ndim == 1 and values.dtype == np.int64 and len(values) == rows
