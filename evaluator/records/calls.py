"""What a record says of single calls, read without trust: an imported record may say anything."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from benchlock.artifacts.readable import readable
from benchlock.evaluator.records.runs import CALLS, Run, RunEnd
from benchlock.evaluator.statistics.figures import DELAY_SECONDS, DELAY_SHARE, Calls
from benchlock.evaluator.statistics.units import duration

readable(Calls)

CLOCKS_DISAGREE: Final = "LoadGen's clock and benchlock's own disagree on the median latency"

QUIET_HOST: Final = (
    "more runs of a busy host do not help: use a quieter one, or leave some of its CPUs to others (limits.cpus)"
)
"""The next step where times of runs are unusable."""

_LISTED: Final = 2

KEY: Final = CALLS
"""Where in a run's details they stand."""


def calls_document(calls: Calls) -> dict[str, Any]:
    """The calls as plain values, for a record's details; ``undelayed`` where there are such figures alone."""
    document: dict[str, Any] = msgspec.to_builtins(calls)
    if not calls.undelayed:
        del document["undelayed"]
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
    if run.end is None or calls is None:
        return None
    reasons = [calls.disturbance] if calls.flagged else []
    reasons += _delays(run.end, calls)
    if not reasons:
        return None
    return "; ".join(reasons) + (" (self-reported)" if run.end.times_self_reported else "")


def _delays(end: RunEnd, calls: Calls) -> Iterator[str]:
    """Yield each reported latency to which the host's delay adds too much, beside the one without it."""
    reported = {metric.key: metric.value for metric in end.metrics}
    for one in calls.undelayed:
        value = reported.get(one.key, 0.0)
        if value > one.value * (1 + DELAY_SHARE) + DELAY_SECONDS:
            yield f"{one.key} is {duration(value)}, and {duration(one.value)} without the host's delay"


def clocks_disagree(run: Run) -> bool:
    """Return whether LoadGen's median of a run is not ours: one of the clocks did not time the calls alone."""
    details = {} if run.end is None else run.end.details
    accounts = (phase.get("loadgen") for phase in (details, details.get("pipeline")) if isinstance(phase, Mapping))
    return any(isinstance(account, Mapping) and account.get("clocks_agree") is False for account in accounts)


def unusable_times(run: Run) -> str | None:
    """Return why no time of a run decides anything; None where nothing speaks against them."""
    if clocks_disagree(run):
        return f"the times of {run.id} are unusable: {CLOCKS_DISAGREE}"
    flag = flag_of(run)
    return None if flag is None else f"the times of {run.id} are flagged: {flag}"


def describe_unusable_times(runs: Sequence[Run]) -> str | None:
    """Return why times of runs decide nothing: the reasons of one or two, the number of more; None where all may."""
    reasons = [reason for reason in map(unusable_times, runs) if reason]
    if len(reasons) <= _LISTED:
        return "; ".join(reasons) or None
    return f"{len(reasons)} of {len(runs)} runs have unusable times"
