"""The rows of many calls as one row table and two matrices, by one clock."""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import UNKNOWN, Profile, Row

GREATEST_DRIFT_NS: Final = 100_000
_ATTEMPTS = 7


class Span(NamedTuple):
    """One execution of a row: what identifies the row, and nanoseconds."""

    key: Hashable
    start: int
    duration: int


def build_profile(
    calls: Sequence[Sequence[Span]],
    describe: Callable[[int], list[Row]],
    **others: Any,  # noqa: ANN401 - the fields of Profile
) -> Profile:
    """Lay the spans of calls, in order of execution, in matrices [calls, rows].

    A call with other rows than most calls has ``UNKNOWN`` times, and makes the profile incomplete.

    Args:
        calls: The spans of each call.
        describe: Returns the rows of the call with a number.
        others: The other fields of the profile.

    Raises:
        ValueError: There is no call, or no call has a row.
    """
    sequences = [tuple(span.key for span in call) for call in calls]
    if not any(sequences):
        raise ValueError("the profiler recorded no operator")
    usual, count = Counter(sequences).most_common(1)[0]
    starts = np.full((len(calls), len(usual)), UNKNOWN, np.int64)
    durations = starts.copy()
    for number, call in enumerate(calls):
        if sequences[number] == usual:
            starts[number] = [span.start for span in call]
            durations[number] = [span.duration for span in call]
    different = len(calls) - count
    sizes = sorted({len(sequence) for sequence in sequences})
    incomplete = f"{different} of {len(calls)} calls have other rows; rows per call: {sizes}" if different else None
    return Profile(describe(sequences.index(usual)), starts, durations, incomplete, **others)


def measure_offset() -> int:
    """Return CLOCK_REALTIME minus CLOCK_MONOTONIC in nanoseconds, by the quickest of several readings."""
    readings = []
    for _ in range(_ATTEMPTS):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        readings.append((after - before, real - (before + after) // 2))
    return min(readings)[1]


def to_monotonic(real_ns: NDArray[np.int64], first: int, last: int) -> tuple[NDArray[np.int64], list[str]]:
    """Return times of the real-time clock by CLOCK_MONOTONIC, and a note if they are unknown, as the clock was set.

    Args:
        real_ns: The times in nanoseconds; ``UNKNOWN`` ones stay so.
        first: The offset before the first time.
        last: The offset after the last time.
    """
    drift = abs(last - first)
    if drift > GREATEST_DRIFT_NS:
        note = f"starts are unknown: the real-time clock moved by {drift} ns while the profiler ran"
        return np.full_like(real_ns, UNKNOWN), [note]
    return np.where(real_ns == UNKNOWN, UNKNOWN, real_ns - first), []
