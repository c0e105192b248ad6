"""The samples of the performance phase, as the harness leaves them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from artifacts.errors import InvalidInputError

NANOSECONDS = 1e-9


@dataclass(frozen=True, slots=True)
class Samples:
    """One value a query, in the order in which they were issued."""

    latency: npt.NDArray[np.float64]
    """Seconds from issue to answer."""


def read_samples(path: Path) -> Samples:
    """The samples of a safetensors file with ``latency_ns`` (int64, nanoseconds).

    Raises:
        InvalidInputError: no such file, no safetensors, or a latency that is no series of durations.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            latency = np.asarray(file.get_tensor("latency_ns"))
    except (SafetensorError, OSError) as error:
        raise InvalidInputError(f"the samples cannot be read: {error}", where=str(path)) from error
    if latency.ndim != 1 or latency.dtype != np.int64 or (latency < 0).any():
        raise InvalidInputError("latency_ns is no series of int64 durations", where=str(path))
    return Samples(latency * NANOSECONDS)
