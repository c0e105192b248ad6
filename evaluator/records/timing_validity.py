"""The validity of recorded times: call statistics, observed bounds and LoadGen's verdict.

In ``ObservedTimes`` the runner measured ``seconds`` and ``cpu_seconds``, while the harness reported ``queries``.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec

from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.evaluator.records.run_types import CALLS, CONTAINER_CPU, Run, RunEnd
from benchlock.evaluator.statistics.metric_types import (
    DELAY_SECONDS,
    DELAY_SHARE,
    DISTURBED_AT_MOST,
    Calls,
    format_duration,
)

prepare_decoder(Calls)

CLOCKS_DISAGREE: Final = "LoadGen's clock and benchlock's own disagree on the median latency"

QUIET_HOST: Final = (
    "more runs on a busy host do not help: use a quieter host, or leave CPUs free for other processes (limits.cpus)"
)
"""The next step if the times of runs are unusable."""

_LISTED: Final = 2
MEDIAN: Final = 0.5

KEY: Final = CALLS
"""The key of the call statistics in a run's details."""


def calls_document(calls: Calls) -> dict[str, Any]:
    """Return the call statistics as plain values for a record's details, without an empty ``undelayed``."""
    document: dict[str, Any] = msgspec.to_builtins(calls)
    if not calls.undelayed:
        del document["undelayed"]
    return document


def calls_of(run: Run) -> Calls | None:
    """Return the call statistics of an ended run; None if its record has none that are valid.

    They are marked as self-reported if the run's other times are.
    """
    if run.end is None or CALLS not in run.end.details:
        return None
    try:
        calls = msgspec.convert(run.end.details[CALLS], Calls)
    except msgspec.ValidationError:
        return None
    seconds = [0.0 if value is None else value for value in (calls.wall, calls.cpu)]
    possible = all(math.isfinite(value) and value >= 0 for value in seconds)
    if not possible or not 0 <= calls.preempted <= calls.n or calls.n <= 0:
        return None
    return calls


@dataclass(frozen=True, slots=True)
class Flag:
    """A reason why the times of a run are unreliable.

    Attributes:
        cause: The measured cause, with its limit.
        meaning: What the cause means for the calls.
    """

    cause: str
    meaning: str

    @property
    def advice(self) -> str:
        """The meaning and the next step, in sentences."""
        sentences = (f"{self.meaning}, so timings are unreliable.", f"{QUIET_HOST}.")
        return " ".join(sentence[0].upper() + sentence[1:] for sentence in sentences)


def list_flags(run: Run) -> Iterator[Flag]:
    """Yield why a run is flagged: its disturbed calls, and its queries that were issued late."""
    calls = calls_of(run)
    if run.end is None or calls is None:
        return
    mark = " (self-reported)" if run.end.times_self_reported else ""
    if calls.flagged:
        others = "other processes used the CPUs of the run"
        is_certain = calls.share > DISTURBED_AT_MOST
        yield Flag(
            calls.disturbance + mark, others if is_certain else f"{others}, or the calls waited for something else"
        )
    if delays := "; ".join(_delays(run.end, calls)):
        yield Flag(delays + mark, "the host issued queries late")


def flag_of(run: Run) -> str | None:
    """Describe why a run is flagged; None if it is not."""
    return "; ".join(flag.cause for flag in list_flags(run)) or None


def _delays(end: RunEnd, calls: Calls) -> Iterator[str]:
    """Yield each reported latency to which the host's delay adds too much, beside the one without it."""
    reported = {one.key: one.value for one in end.metrics}
    for one in calls.undelayed:
        value = reported.get(one.key, 0.0)
        if value > one.value * (1 + DELAY_SHARE) + DELAY_SECONDS:
            yield f"{one.key} is {format_duration(value)}, and {format_duration(one.value)} without the host's delay"


_NANOSECONDS: Final = 1e-9
_Nanoseconds = Annotated[float, msgspec.Meta(ge=0, le=1e18)]


class ComparedPercentile(msgspec.Struct):
    """A percentile of the latency by benchlock's clock and by LoadGen's."""

    share: Annotated[float, msgspec.Meta(ge=0, le=1)]
    own_ns: _Nanoseconds
    loadgen_ns: _Nanoseconds

    @property
    def words(self) -> str:
        """Both values."""
        loadgen, own = (format_duration(value * _NANOSECONDS) for value in (self.loadgen_ns, self.own_ns))
        return f"{loadgen} by LoadGen's clock, {own} by benchlock's"


@prepare_decoder
class ComparedClocks(msgspec.Struct):
    """The part of LoadGen's account that compares its clock with benchlock's."""

    percentiles: list[ComparedPercentile]


def clocks_disagree(run: Run) -> bool:
    """Return whether LoadGen's median of a run differs from ours, so one clock did not time the calls alone."""
    return any(_list_disagreements(run))


def describe_clocks(run: Run) -> Flag | None:
    """Describe how LoadGen's clock disagrees with ours, with both medians if they are recorded; None if it agrees."""
    accounts = list(_list_disagreements(run))
    if not accounts:
        return None
    medians = []
    for account in accounts:
        with suppress(msgspec.ValidationError):
            percentiles = msgspec.convert(account, ComparedClocks).percentiles
            medians += [each.words for each in percentiles if each.share == MEDIAN]
    cause = ": ".join(filter(None, (CLOCKS_DISAGREE, "; ".join(medians))))
    return Flag(cause, "other processes had the CPU between the two clocks")


def _list_disagreements(run: Run) -> Iterator[Mapping[str, Any]]:
    """Yield LoadGen's accounts of the phases in which its clock and ours disagree."""
    details = {} if run.end is None else run.end.details
    for phase in (details, details.get("pipeline")):
        account = phase.get("loadgen") if isinstance(phase, Mapping) else None
        if isinstance(account, Mapping) and account.get("clocks_agree") is False:
            yield account


def explain_unusable_times(run: Run) -> str | None:
    """Return why the times of a run must not decide anything; None if they may."""
    if clocks_disagree(run):
        return f"the times of {run.id} are unusable: {CLOCKS_DISAGREE}"
    flag = flag_of(run)
    return None if flag is None else f"the times of {run.id} are flagged: {flag}"


def describe_unusable_times(runs: Sequence[Run]) -> str | None:
    """Describe why times of runs are unusable: one or two reasons, or their number; None if all are usable."""
    reasons = [reason for reason in map(explain_unusable_times, runs) if reason]
    if len(reasons) <= _LISTED:
        return "; ".join(reasons) or None
    return f"{len(reasons)} of {len(runs)} runs have unusable times"


@dataclass(frozen=True, slots=True)
class ObservedTimes:
    """Times as the runner observed them, which code of the model cannot change, and the reported queries.

    Attributes:
        seconds: From the start of the model's container or process to its end, by the runner's clock.
        cpu_seconds: The CPU time of the container; None for a process, or if the engine did not report it.
        queries: The number of queries that the harness reports.
    """

    seconds: float
    cpu_seconds: float | None
    queries: int | None

    @property
    def seconds_a_query(self) -> float | None:
        """The maximum of the mean seconds per query, including the start of the model."""
        return self.seconds / self.queries if self.queries else None


def find_observed_times(run: Run) -> ObservedTimes | None:
    """Return the observed times of a run with self-reported times; None for other runs."""
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

_NEXT_STEPS: Final[Mapping[Cause | None, str]] = {
    "latency bound": "request a lower rate (scenario.target_qps) or a longer bound (scenario.target_latency)",
    "early stopping": "request more queries (scenario.min_queries) or a longer run (scenario.min_duration)",
}
_MAX_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Validity:
    """LoadGen's own verdict.

    Attributes:
        valid: Whether LoadGen calls the run valid.
        cause: The kind of reason why it does not.
        reason: The reason in words.
        self_reported: Whether code of the model ran in LoadGen's process.
    """

    valid: bool
    cause: Cause | None = None
    reason: str | None = None
    self_reported: bool = False

    @property
    def mark(self) -> str:
        """The verdict in its short form for tables."""
        if self.valid:
            return "VALID (self-reported)" if self.self_reported else "VALID"
        return f"INVALID ({self.cause}{', self-reported' if self.self_reported else ''})"

    @property
    def words(self) -> str:
        """The verdict with its reason."""
        word = ("VALID" if self.valid else "INVALID") + (" (self-reported)" if self.self_reported else "")
        return word if self.valid else f"{word}: {self.reason}"

    @property
    def next_step(self) -> str:
        """What makes such a run valid; empty if that is unknown."""
        return _NEXT_STEPS.get(self.cause, "")


class _Account(msgspec.Struct):
    """The part of LoadGen's account that its verdict rests on."""

    valid: bool
    settings: dict[str, Any] = {}
    results: dict[str, Any] = {}


@prepare_decoder
class _Phase(msgspec.Struct):
    loadgen: _Account


def validity_of(run: Run) -> Validity | None:
    """Return LoadGen's verdict on a run: on its performance phase, and on its pipeline phase if there is one.

    None if LoadGen drove no phase, if the record of it cannot be read, and for a run that is not done, because its
    metrics were withdrawn together with their validity.
    """
    accounts = {} if run.end is None or run.end.outcome != "done" else dict(_accounts(run.end.details))
    verdicts = {phase: _validity(account) for phase, account in accounts.items()}
    if not verdicts:
        return None
    reported = run.end is not None and run.end.times_self_reported
    invalid = {phase: verdict for phase, verdict in verdicts.items() if not verdict.valid}
    if not invalid:
        return Validity(valid=True, self_reported=reported)
    first = next(iter(invalid.values()))
    reason = "; ".join(
        f"{'' if phase == 'performance' else f'{phase}: '}{verdict.reason}" for phase, verdict in invalid.items()
    )
    return Validity(valid=False, cause=first.cause, reason=reason, self_reported=reported)


class EarlyStopping(msgspec.Struct, frozen=True):
    """LoadGen's early stopping in a phase: what its queries show with 99 % confidence.

    Attributes:
        phase: ``performance`` or ``pipeline``.
        met: Whether the queries suffice; in ``server`` whether 99 % of all queries meet the target latency.
        queries: The number of queries.
        estimates: By percentile the seconds that a query takes at most, None for too few queries; ``server`` has none.
        over: The number of queries of ``server`` that exceeded the target latency.
        self_reported: Whether code of the model ran in LoadGen's process.
    """

    phase: str
    met: bool
    queries: int
    estimates: dict[str, float | None]
    over: int | None
    self_reported: bool

    @property
    def words(self) -> str:
        """What early stopping shows, empty if the queries do not suffice."""
        parts = [
            f"{share}% of queries take at most {format_duration(latency)}"
            for share, latency in self.estimates.items()
            if latency is not None
        ]
        if self.over is not None:
            parts = [f"99% of queries meet the target latency ({self.over} of {self.queries} exceeded it)"]
        mark = " (self-reported)" if self.self_reported else ""
        return f"with 99% confidence, {', '.join(parts)}{mark}" if self.met else ""


_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _StoppingResults(msgspec.Struct, frozen=True):
    """The results of a scenario with early stopping, named as in LoadGen's log."""

    result_query_count: _Number
    early_stopping_met: bool = False
    early_stopping_latency_ss: _Number | None = None
    early_stopping_latency_ms: _Number | None = None
    result_overlatency_query_count: _Number | None = None


def list_early_stopping(run: Run) -> tuple[EarlyStopping, ...]:
    """Return LoadGen's early stopping in each of the run's phases whose scenario has it.

    Empty if the run is not done, or if its record differs from its evidence.
    """
    is_verified = run.evidence is None or run.evidence.state == "verified"
    if run.end is None or run.end.outcome != "done" or not is_verified:
        return ()
    stopped = []
    for phase, account in _accounts(run.end.details):
        if account.settings.get("scenario") not in ("SingleStream", "MultiStream", "Server"):
            continue
        with suppress(msgspec.ValidationError):
            found = msgspec.convert(account.results, _StoppingResults)
            latencies = {"90": found.early_stopping_latency_ss, "99": found.early_stopping_latency_ms}
            # LoadGen writes 0 where it has no estimate.
            estimates = {share: latency / 1e9 or None for share, latency in latencies.items() if latency is not None}
            queries, over = found.result_query_count, found.result_overlatency_query_count
            is_reported = run.end.times_self_reported
            stopped.append(EarlyStopping(phase, found.early_stopping_met, queries, estimates, over, is_reported))
    return tuple(stopped)


def _accounts(details: Mapping[str, Any]) -> Iterator[tuple[str, _Account]]:
    for phase, document in (("performance", details), ("pipeline", details.get("pipeline"))):
        try:
            yield phase, msgspec.convert(document, _Phase).loadgen
        except msgspec.ValidationError:
            continue


def _validity(account: _Account) -> Validity:
    """Return LoadGen's verdict with its cause.

    A missed latency bound also fails early stopping; then the bound is the cause.
    """
    results = account.results
    if account.valid:
        return Validity(valid=True)
    if results.get("result_perf_constraints_met") is False:
        return Validity(valid=False, cause="latency bound", reason=_missed_bound(account))
    if results.get("early_stopping_met") is False:
        reason = _join_lines(results.get("early_stopping_result"))
        too_few = "too few queries for early stopping at 99 % confidence"
        return Validity(valid=False, cause="early stopping", reason=f"{too_few}: {reason}" if reason else too_few)
    if reason := _join_lines(results.get("result_invalid_reason")):
        return Validity(valid=False, cause="other", reason=reason)
    return Validity(valid=False, cause="no reason given", reason="the record states no reason")


def _missed_bound(account: _Account) -> str:
    results = account.results
    late, queries = results.get("result_overlatency_query_count"), results.get("result_query_count")
    bound, reason = account.settings.get("target_latency_ns"), _join_lines(results.get("result_invalid_reason"))
    text = "its latency bound was missed"
    if isinstance(late, int) and isinstance(queries, int):
        over = f" {format_duration(bound * _NANOSECONDS)}" if isinstance(bound, int | float) else " it"
        text = f"{text}: {late} of {queries} queries took longer than{over} (1 % may)"
    return f"{text} (LoadGen: {reason})" if reason else text


def _join_lines(text: object) -> str:
    """Return LoadGen's own text on one line, without the stars of its list."""
    return " ".join(text.replace("*", " ").split())[:_MAX_CHARACTERS] if isinstance(text, str) else ""
