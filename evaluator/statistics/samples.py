"""The samples of the performance phase, as the harness leaves them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from artifacts.errors import InvalidInputError

NANOSECONDS = 1e-9

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
    try:
        with safe_open(path, framework="numpy") as file:
            names = set(file.keys())
            found = {name: np.asarray(file.get_tensor(name)) for name in _SERIES if name in names}
            others = {name: np.asarray(file.get_tensor(name)) for name in names.difference(_SERIES)}
    except (SafetensorError, OSError) as error:
        raise InvalidInputError(f"the samples cannot be read: {error}", where=str(path)) from error
    if "latency_ns" not in found:
        raise InvalidInputError("the samples cannot be read: there is no latency_ns", where=str(path))
    for name, series in found.items():
        kind, word = (np.integer, "0 and 1") if name == "preempted" else (np.int64, "int64 durations")
        if series.ndim != 1 or not np.issubdtype(series.dtype, kind) or (series < 0).any():
            raise InvalidInputError(f"{name} is no series of {word}", where=str(path))
        if len(series) != len(found["latency_ns"]):
            raise InvalidInputError(f"{name} has another length than latency_ns", where=str(path))
    return Samples(
        found["latency_ns"] * NANOSECONDS,
        found["cpu_ns"] * NANOSECONDS if "cpu_ns" in found else None,
        found["preempted"] > 0 if "preempted" in found else None,
        {name: column for name, column in others.items() if _is_column(column, len(found["latency_ns"]))},
    )


def _is_column(values: npt.NDArray[np.generic], rows: int) -> bool:
    return values.ndim == 1 and values.dtype == np.int64 and len(values) == rows
