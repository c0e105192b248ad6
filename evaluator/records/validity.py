"""What LoadGen says of a run, read without trust: an imported record may say anything."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from benchlock.artifacts.readable import readable
from benchlock.evaluator.records.runs import Run
from benchlock.evaluator.statistics.units import duration

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


@readable
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
        over = f" {duration(bound * _NANOSECONDS)}" if isinstance(bound, int | float) else " it"
        text = f"{text}: {late} of {queries} queries took longer than{over}, 1 % may"
    return f"{text} (LoadGen: {told})" if told else text


def _told(text: object) -> str:
    """LoadGen's own words on one line, without the stars of its list."""
    return " ".join(text.replace("*", " ").split())[:_MOST_CHARACTERS] if isinstance(text, str) else ""
