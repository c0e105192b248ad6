"""Validity of recorded times: call statistics, observed bounds and LoadGen's verdict.

``seconds`` and ``cpu_seconds`` are the runner's; ``queries`` is the harness's own.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.evaluator.records.run_model import CALLS, CONTAINER_CPU, Run, RunEnd
from benchlock.evaluator.statistics.metric_model import DELAY_SECONDS, DELAY_SHARE, Calls, format_duration

prepare_decoder(Calls)

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
            yield f"{one.key} is {format_duration(value)}, and {format_duration(one.value)} without the host's delay"


def clocks_disagree(run: Run) -> bool:
    """Return whether LoadGen's median of a run is not ours: one of the clocks did not time the calls alone."""
    details = {} if run.end is None else run.end.details
    accounts = (phase.get("loadgen") for phase in (details, details.get("pipeline")) if isinstance(phase, Mapping))
    return any(isinstance(account, Mapping) and account.get("clocks_agree") is False for account in accounts)


def explain_unusable_times(run: Run) -> str | None:
    """Return why no time of a run decides anything; None where nothing speaks against them."""
    if clocks_disagree(run):
        return f"the times of {run.id} are unusable: {CLOCKS_DISAGREE}"
    flag = flag_of(run)
    return None if flag is None else f"the times of {run.id} are flagged: {flag}"


def describe_unusable_times(runs: Sequence[Run]) -> str | None:
    """Return why times of runs decide nothing: the reasons of one or two, the number of more; None where all may."""
    reasons = [reason for reason in map(explain_unusable_times, runs) if reason]
    if len(reasons) <= _LISTED:
        return "; ".join(reasons) or None
    return f"{len(reasons)} of {len(runs)} runs have unusable times"


@dataclass(frozen=True, slots=True)
class ObservedTimes:
    """Time as the runner saw it, which no code of the model could change, and queries as the harness counted them.

    Attributes:
        seconds: From the start of the model's container or process to its end, by the runner's clock.
        cpu_seconds: CPU time of the container; None of a process, or where the engine did not say.
        queries: Queries that the harness says it made.
    """

    seconds: float
    cpu_seconds: float | None
    queries: int | None

    @property
    def seconds_a_query(self) -> float | None:
        """Seconds for each query at most, the start of the model included."""
        return self.seconds / self.queries if self.queries else None


def find_observed_times(run: Run) -> ObservedTimes | None:
    """Return what the runner saw of a run that has self-reported times; None of others."""
    if run.end is None or not run.end.times_self_reported:
        return None
    seconds, cpu = (_seconds(run.end.timings.get(name)) for name in ("run", CONTAINER_CPU))
    if seconds is None:
        return None
    performance = run.end.details.get("performance")
    queries = performance.get("queries") if isinstance(performance, Mapping) else None
    is_count = isinstance(queries, int) and not isinstance(queries, bool) and queries > 0
    return ObservedTimes(seconds, cpu, queries if is_count else None)


def _seconds(value: object) -> float | None:
    possible = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    return float(value) if possible and isinstance(value, int | float) else None


Cause = Literal["latency bound", "early stopping", "other", "no reason given"]

_MOST_CHARACTERS = 300
_NANOSECONDS = 1e-9


@dataclass(frozen=True, slots=True)
class Validity:
    """LoadGen's own verdict; ``cause`` in short and ``reason`` in words where it is INVALID.

    ``self_reported``: code of the model ran in LoadGen's process.
    """

    valid: bool
    cause: Cause | None = None
    reason: str | None = None
    self_reported: bool = False

    @property
    def mark(self) -> str:
        """The verdict as short as a table wants it."""
        if self.valid:
            return "VALID (self-reported)" if self.self_reported else "VALID"
        return f"INVALID ({self.cause}{', self-reported' if self.self_reported else ''})"

    @property
    def words(self) -> str:
        """The verdict with its reason."""
        word = ("VALID" if self.valid else "INVALID") + (" (self-reported)" if self.self_reported else "")
        return word if self.valid else f"{word}: {self.reason}"


class _Account(msgspec.Struct):
    """The part of LoadGen's account that its verdict rests on."""

    valid: bool
    settings: dict[str, Any] = {}
    results: dict[str, Any] = {}


@prepare_decoder
class _Phase(msgspec.Struct):
    loadgen: _Account


def validity_of(run: Run) -> Validity | None:
    """LoadGen's verdict on a run: of its performance phase, and of the pipeline phase where there was one.

    None where LoadGen drove nothing, where the record says nothing of it that can be understood, and of a run that is
    not done: its figures were withdrawn, and so is what they were worth.
    """
    found = {} if run.end is None or run.end.outcome != "done" else dict(_accounts(run.end.details))
    verdicts = {phase: _validity(account) for phase, account in found.items()}
    if not verdicts:
        return None
    reported = run.end is not None and run.end.times_self_reported
    against = {phase: one for phase, one in verdicts.items() if not one.valid}
    if not against:
        return Validity(valid=True, self_reported=reported)
    first = next(iter(against.values()))
    told = "; ".join(f"{'' if phase == 'performance' else f'{phase}: '}{one.reason}" for phase, one in against.items())
    return Validity(valid=False, cause=first.cause, reason=told, self_reported=reported)


def _accounts(details: Mapping[str, Any]) -> Iterator[tuple[str, _Account]]:
    for phase, said in (("performance", details), ("pipeline", details.get("pipeline"))):
        try:
            yield phase, msgspec.convert(said, _Phase).loadgen
        except msgspec.ValidationError:
            continue


def _validity(account: _Account) -> Validity:
    """Early stopping is not met either where the bound is missed: then the bound is the reason."""
    results = account.results
    if account.valid:
        return Validity(valid=True)
    if results.get("result_perf_constraints_met") is False:
        return Validity(valid=False, cause="latency bound", reason=_missed_bound(account))
    if results.get("early_stopping_met") is False:
        told = _told(results.get("early_stopping_result"))
        few = "too few queries for its early stopping, which wants 99 % confidence"
        return Validity(valid=False, cause="early stopping", reason=f"{few}: {told}" if told else few)
    if told := _told(results.get("result_invalid_reason")):
        return Validity(valid=False, cause="other", reason=told)
    return Validity(valid=False, cause="no reason given", reason="the record has no reason of LoadGen's")


def _missed_bound(account: _Account) -> str:
    results = account.results
    late, queries = results.get("result_overlatency_query_count"), results.get("result_query_count")
    bound, told = account.settings.get("target_latency_ns"), _told(results.get("result_invalid_reason"))
    text = "its bound of latency was missed"
    if isinstance(late, int) and isinstance(queries, int):
        over = f" {format_duration(bound * _NANOSECONDS)}" if isinstance(bound, int | float) else " it"
        text = f"{text}: {late} of {queries} queries took longer than{over}, 1 % may"
    return f"{text} (LoadGen: {told})" if told else text


def _told(text: object) -> str:
    """LoadGen's own words on one line, without the stars of its list."""
    return " ".join(text.replace("*", " ").split())[:_MOST_CHARACTERS] if isinstance(text, str) else ""
