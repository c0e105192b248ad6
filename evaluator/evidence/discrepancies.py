"""The fields of a record that differ from its evidence."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from benchlock.artifacts import size_limits
from benchlock.evaluator.evidence.recomputation import Recomputation, Subject
from benchlock.evaluator.evidence.timed_phases import is_equal, shorten_value
from benchlock.evaluator.records.evidence_status import HOST_FAILURES
from benchlock.evaluator.records.run_types import (
    CONTAINER_CPU,
    SELF_REPORTED,
    Isolation,
    Run,
    RunEnd,
    fit_end,
    replace_nul,
)
from benchlock.evaluator.runner.energy import ENERGY
from benchlock.evaluator.runner.host_platform import is_code_by_format
from benchlock.evaluator.runner.lock_verification import find_evaluated
from benchlock.evaluator.runner.process_run import NOT_ENFORCED
from benchlock.evaluator.runner.run_outcome import Ending, Failure, failure_of
from benchlock.evaluator.runner.run_stages import has_stages
from benchlock.evaluator.runner.self_reported_times import find_overrun, list_measured, list_reported_by_model
from benchlock.evaluator.statistics.metric_types import Metric
from benchlock.registry.database.ids_and_timestamps import as_json

HOST_TIMINGS: Final = (
    "verification",
    "job",
    "environment",
    "image",
    "start",
    "run",
    "watching_cpu",
    CONTAINER_CPU,
    "unlabel",
    "predict",
    "score",
)
"""The timings that the host measures and that no blob contains."""
HOST_DETAILS: Final = ("cpus", "verified", "accelerators", "exit_code", "part_of", ENERGY)
"""The details that the host reports."""

_RUN: Final = "run"
_LONGEST: Final = 2.0**53
_FAILURE: Final = "failure"
"""The field whose difference explains the others and comes first."""
_MAX_MESSAGE: Final = 600
_EXIT_CODE: Final = "exit_code"
_ABSENT: Final = object()
_SAMPLES: Final = re.compile(r"\bsamples? \d+( to \d+)?( \([^()]*\))?")


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """A field whose recorded value differs from its evidence; an absent value is None."""

    field: str
    recorded: Any
    recomputed: Any

    def __str__(self) -> str:
        """Describe the field with both values."""
        recorded, recomputed = _format_value(self.recorded), _format_value(self.recomputed)
        return f"{self.field} is recorded as {recorded} and recomputed as {recomputed}"


def find_discrepancies(run: Run, subject: Subject, recomputed: Recomputation, log: bytes) -> tuple[Discrepancy, ...]:
    """List each recomputable field of an ended run that differs.

    Args:
        run: The run as recorded.
        subject: Its lock and platform.
        recomputed: The recomputation from its blobs.
        log: The console output of the harness.
    """
    assert run.end is not None
    stated = _document(run, run.end, recomputed)
    failure = _failure(run, run.end, subject, recomputed, log)
    expected = _expected(run, subject, recomputed, failure)
    differences = sorted(_differences("", stated, expected), key=lambda difference: difference.field != _FAILURE)
    return (*_missing_timings(run.end, recomputed), *differences)


def _missing_timings(end: RunEnd, recomputed: Recomputation) -> Iterator[Discrepancy]:
    """Yield the timing that bounds the times of a finished run, if its record lacks it."""
    if end.outcome == "done" and _seconds(end, _RUN) is None:
        yield Discrepancy(f"timings.{_RUN}", end.timings.get(_RUN), f"at least {recomputed.claimed:.6g} seconds")


def _seconds(end: RunEnd, name: str) -> float | None:
    """Return the seconds that the host reports under a name; None if the record has none that are valid."""
    value: object = end.timings.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LONGEST:
        return None
    return float(value)


def _document(run: Run, end: RunEnd, recomputed: Recomputation) -> dict[str, Any]:
    """Return the recomputable fields of the record."""
    timings, details = (json.loads(as_json(dict(part))) for part in (end.timings, end.details))
    return {
        "isolation": run.start.isolation,
        "outcome": end.outcome,
        "failure": _failure_document(end.failure_class, end.failure_message),
        "metrics": {metric.key: _metric_document(metric) for metric in end.metrics},
        "packages": dict(end.packages),
        "timings": {
            name: value for name, value in timings.items() if name not in HOST_TIMINGS or name in recomputed.timings
        },
        "details": {name: value for name, value in details.items() if name not in _host_details(end)},
    }


def _host_details(end: RunEnd) -> tuple[str, ...]:
    """Return the details that only the host knows; the exit code of a finished run is known to be 0."""
    return tuple(name for name in HOST_DETAILS if name != _EXIT_CODE or end.outcome != "done")


def _expected(run: Run, subject: Subject, recomputed: Recomputation, failure: Failure | None) -> dict[str, Any]:
    """Return the expected values of the same fields."""
    end = run.end
    assert end is not None
    done = failure is None and recomputed.result is not None
    # Only the host knows that a run was abandoned or cancelled; such a run left no evidence.
    outcome = end.outcome if end.outcome in ("abandoned", "cancelled") else "done" if done else "failed"
    isolation: Isolation = "process" if run.start.image_id is None else "container"
    details = json.loads(as_json({**recomputed.details, **(recomputed.calls if done else {})}))
    if outcome in ("abandoned", "cancelled"):
        details = {}
    # A run without evidence may have fewer details.
    if isolation == "process" and (outcome == "done" or "not_enforced" in end.details):
        details["not_enforced"] = list(NOT_ENFORCED)
    if outcome == "done":
        details[_EXIT_CODE] = 0
    details |= _self_reported(end, subject, isolation)
    # A record's texts and details are truncated to their limits, so the expected ones are truncated, too.
    host = {name: value for name, value in end.details.items() if name in _host_details(end)}
    expected_end = replace(end, packages=recomputed.packages, details={**host, **details})
    fitted = expected_end if _is_older_than_limits(end) else fit_end(expected_end)
    details = {name: value for name, value in fitted.details.items() if name not in _host_details(end)}
    stated_failure = failure if outcome == "failed" else None
    return {
        "isolation": isolation,
        "outcome": outcome,
        "failure": None if stated_failure is None else _failure_document(stated_failure.kind, stated_failure.message),
        "metrics": {metric.key: _metric_document(metric) for metric in recomputed.metrics} if outcome == "done" else {},
        "packages": dict(fitted.packages),
        "timings": json.loads(as_json(dict(recomputed.timings))),
        "details": details,
    }


def _self_reported(end: RunEnd, subject: Subject, isolation: Isolation) -> dict[str, Any]:
    """Return the self-reported metrics as a part of the details.

    A build that does not know the harness as a released one records all metrics, and another build does not; both
    records are right. The marks are decided again on reading.
    """
    model = find_evaluated(subject.manifests) if subject.manifests else None
    if model is None:  # of a run without evidence
        return {name: end.details[name] for name in (SELF_REPORTED,) if name in end.details}
    names = list_reported_by_model(subject.lock, model, isolation)
    if SELF_REPORTED not in end.details and (not has_stages(subject.lock) or is_code_by_format(model)):
        return {}  # old builds recorded no mark: it is added on reading
    stated = end.details.get(SELF_REPORTED)
    # The order may be that of the metrics of the build that made the lock.
    if isinstance(stated, list | tuple) and sorted(map(str, stated)) in (
        sorted(names),
        sorted(list_measured(subject.lock)),
    ):
        names = tuple(stated)
    return {SELF_REPORTED: list(names)} if names else {}


def _failure(run: Run, end: RunEnd, subject: Subject, recomputed: Recomputation, log: bytes) -> Failure | None:
    """Return why the run failed: by its evidence if that shows it, else as the host reports it."""
    stated = Failure(end.failure_class or "", end.failure_message or "")  # type: ignore[arg-type]
    result = recomputed.result
    if end.outcome == "failed" and (stated.kind in HOST_FAILURES or (result is not None and result.failure is None)):
        return stated  # the harness succeeded: the host or another stage failed
    code = end.details.get("exit_code")
    ending = Ending(code if isinstance(code, int) else 0, out_of_memory=False, log=log, started_in=0, ran=0, watched=0)
    limits = subject.lock.limits
    memory = None if run.start.isolation == "process" else limits.bytes
    failure = failure_of(ending, result, recomputed.fault, limits.seconds, memory) or recomputed.failure
    failure = failure or _overrun(end, recomputed)
    if (
        failure is not None
        and failure.kind == stated.kind
        and _mask_samples(_fit_message(failure, end)) == _mask_samples(stated.message)
    ):
        return stated
    return failure


def _overrun(end: RunEnd, recomputed: Recomputation) -> Failure | None:
    ran = _seconds(end, _RUN)
    return (
        None
        if ran is None
        else find_overrun(recomputed.claimed, ran, recomputed.claimed_cpu, _seconds(end, CONTAINER_CPU))
    )


def _is_older_than_limits(end: RunEnd) -> bool:
    """Return whether a text or a part of the record is longer than today's limits."""
    return fit_end(end) != end


def _fit_message(failure: Failure, end: RunEnd) -> str:
    if _is_older_than_limits(end):
        return failure.message
    return size_limits.truncate(failure.message, size_limits.FAILURE_MESSAGE)


def _mask_samples(message: str) -> str:
    """Return the message without the numbers of samples, because a stage has them in another order."""
    return _SAMPLES.sub("sample", replace_nul(message))


def _failure_document(kind: str | None, message: str | None) -> dict[str, Any] | None:
    if kind is None and message is None:
        return None
    return {"class": kind, "message": None if message is None else replace_nul(message)}


def _metric_document(metric: Metric) -> dict[str, Any]:
    names = ("value", "n", "unit", "direction", "version")
    return {name: getattr(metric, name) for name in names} | {"ci": [metric.ci.low, metric.ci.high]}


def _differences(where: str, recorded: object, expected: object) -> Iterator[Discrepancy]:
    """Yield the deepest fields that differ; lists are compared as a whole."""
    if isinstance(recorded, Mapping) and isinstance(expected, Mapping):
        for name in sorted(recorded.keys() | expected.keys()):
            path = f"{where}.{name}" if where else str(name)
            yield from _differences(path, recorded.get(name, _ABSENT), expected.get(name, _ABSENT))
    elif recorded is _ABSENT or expected is _ABSENT or not is_equal(recorded, expected):
        yield Discrepancy(where, *(None if value is _ABSENT else value for value in (recorded, expected)))


def _format_value(value: object) -> str:
    if isinstance(value, Mapping) and value.keys() == {"class", "message"}:
        return f"{value['class']} ({size_limits.shorten(str(value['message']), _MAX_MESSAGE)})"
    return "absent" if value is None else shorten_value(value)
