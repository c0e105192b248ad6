"""What a record says of single calls, read without trust: an imported record may say anything."""

import math
from typing import Any, Final

import msgspec

from artifacts.readable import readable
from evaluator.records.runs import CALLS, Run
from evaluator.statistics.figures import Calls

readable(Calls)

KEY: Final = CALLS
"""Where in a run's details they stand."""


def calls_document(calls: Calls) -> dict[str, Any]:
    """The calls as plain values, for a record's details."""
    document: dict[str, Any] = msgspec.to_builtins(calls)
    return document


def calls_of(run: Run) -> Calls | None:
    """The calls of an ended run, None where its record says nothing of them that can be understood.

    Their figures are marked as self-reported where the run's other times are.
    """
    if run.end is None or CALLS not in run.end.details:
        return None
    try:
        found = msgspec.convert(run.end.details[CALLS], Calls)
    except msgspec.ValidationError:
        return None
    seconds = [0.0 if one is None else one for one in (found.wall, found.cpu)]
    possible = all(math.isfinite(one) and one >= 0 for one in seconds)
    if not possible or not 0 <= found.preempted <= found.n or found.n <= 0:
        return None
    return found


def flag_of(run: Run) -> str | None:
    """Why a run is flagged, in words; None where it is not."""
    calls = calls_of(run)
    if run.end is None or calls is None or not calls.flagged:
        return None
    return calls.disturbance + (" (self-reported)" if run.end.times_self_reported else "")
