"""The record of a run's end: what the harness left, and how it ended, as metrics, blobs and facts."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from artifacts.digest import Descriptor
from artifacts.errors import InvalidInputError
from artifacts.store import FileStore
from evaluator.records.calls import KEY, calls_document
from evaluator.records.runs import SELF_REPORTED, Isolation, RunEnd, RunId, fit_end
from evaluator.runner.ending import Failure, failure_of
from evaluator.runner.process import NOT_ENFORCED
from evaluator.runner.results import FILES, RESULT, Judged, Result, Timed, open_output, read_result
from evaluator.runner.stages import Finished
from evaluator.runner.surroundings import misfit
from evaluator.runner.trust import check_times, self_reported
from evaluator.runner.verification import Verified
from evaluator.statistics.figures import Metric
from registry.lockfile import Lock, LockedPlatform
from registry.manifests import Framework, Model
from registry.metrics import DEFINITIONS, MetricDefinition

if TYPE_CHECKING:  # numpy and scipy
    from evaluator.statistics import metrics, quality, timing

_LOG = "log"
_RESULT = "result"
_TOLD = ("harness", "golden", "accuracy", "performance", "pipeline", "loadgen", "audits", "peak")
"""What of the harness' result is shown with the run; the whole of it is a blob."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run that was decided on: what, where and how."""

    id: RunId
    at: datetime
    lock: Lock
    platform: LockedPlatform
    isolation: Isolation
    cpus: tuple[int, ...]
    verified: Verified
    accelerators: tuple[int, ...] = ()
    part_of: Mapping[str, Any] | None = None
    """The repetition or comparison that the run is a part of, and what was stated before it began."""


def definitions_of(lock: Lock) -> tuple[MetricDefinition, ...]:
    """The definitions of the lock's metrics.

    Raises:
        InvalidInputError: it was locked with other definitions than this version has.
    """
    for name, version in lock.metrics.items():
        if name not in DEFINITIONS or DEFINITIONS[name].version != version:
            raise InvalidInputError(
                f"the lock asks for {name} by definition {version}, which this version of benchlock does not have",
                where=f"metrics.{name}",
                next_step="use the version that made the lock, or lock the request again",
            )
    return tuple(DEFINITIONS[name] for name in lock.metrics)


def cut_short(attempt: Attempt, failure: Failure | None, timings: Mapping[str, float], at: datetime) -> RunEnd:
    """The end of a run that left nothing: failed, or cancelled where there is no failure."""
    return fit_end(
        RunEnd(
            outcome="cancelled" if failure is None else "failed",
            failure_class=failure.kind if failure else None,
            failure_message=failure.message if failure else None,
            timings=dict(timings),
            details=_details(attempt),
            ended_at=at,
        )
    )


def ended(attempt: Attempt, finished: Finished, timings: Mapping[str, float], store: FileStore, at: datetime) -> RunEnd:
    """The end of a run whose harness was started; what it left is put into ``store``.

    Quality is taken from the stage that ran no model, where there was one. Hold ``store.writing()`` until the record is
    stored.
    """
    ending = finished.ending
    result, document, fault = (None, {}, None) if ending.excess else _read(finished.output)
    limits = attempt.lock.limits
    # Nothing holds a process to its memory.
    memory = None if attempt.isolation == "process" else limits.bytes
    failure = failure_of(ending, result, fault, limits.seconds, memory)
    if failure is None and result is not None and finished.scored is not None:
        scored, failure = _scored(finished.scored, limits.seconds, memory)
        result, document = _with_quality(result, document, scored)
    blobs = _blobs(finished, store) | _account(document, finished, store)
    metrics: tuple[Metric, ...] = ()
    details: dict[str, Any] = {}
    if failure is None:
        assert result is not None
        framework = attempt.verified.manifests["framework"]
        assert isinstance(framework, Framework)
        failure = misfit(result, attempt.platform, framework)
    if failure is None:
        assert result is not None
        try:
            kept = {role: store.path(blob.digest) for role, blob in blobs.items()}
            phases = _phases(result, kept)
            check_times(attempt.lock, phases, ending.ran)
            metrics = _metrics(attempt.lock, result, phases, kept.get("quality"))
            details = _calls(phases.performance, document, attempt.platform.device)
        except InvalidInputError as error:
            failure = Failure("crash", error.what)
    return fit_end(
        RunEnd(
            outcome="done" if failure is None else "failed",
            failure_class=failure.kind if failure else None,
            failure_message=finished.translate(failure.message) if failure else None,
            metrics=metrics,
            packages={found.name: found.version for found in result.environment.packages} if result else {},
            blobs=blobs,
            timings={**timings, **(result.timings if result else {})},
            details={**_details(attempt), "exit_code": ending.code, **_told(document), **details},
            ended_at=at,
        )
    )


def _scored(finished: Finished, seconds: float, memory: int | None) -> tuple[Result | None, Failure | None]:
    """What the stage ``score`` computed, or why it has nothing."""
    result, _, fault = (None, {}, None) if finished.ending.excess else _read(finished.output)
    failure = failure_of(finished.ending, result, fault, seconds, memory)
    return (result if failure is None else None), failure


def _with_quality(
    result: Result, document: Mapping[str, Any], scored: Result | None
) -> tuple[Result, Mapping[str, Any]]:
    """The account of the run with the quality that ``scored`` says, and none that the model's own stage says."""
    quality = {} if scored is None else scored.quality
    timings = {} if scored is None else {name: one for name, one in scored.timings.items() if name.startswith("score")}
    result = msgspec.structs.replace(result, quality=quality, timings={**result.timings, **timings})
    plain = {name: {key: value for key, value in msgspec.to_builtins(one).items() if value is not None}
             for name, one in quality.items()}  # fmt: skip
    return result, {**document, "quality": plain, "timings": dict(result.timings)}


def _account(document: Mapping[str, Any], finished: Finished, store: FileStore) -> dict[str, Descriptor]:
    """The account of a run in stages, which no stage has whole."""
    if finished.scored is None:
        return {}
    return {_RESULT: store.put(io.BytesIO(msgspec.json.encode(document)), name=RESULT)}


def _read(output: Path) -> tuple[Result | None, Mapping[str, Any], str | None]:
    try:
        found = read_result(output)
    except InvalidInputError as error:
        return None, {}, error.what
    return (None, {}, None) if found is None else (*found, None)


def _metrics(lock: Lock, result: Result, phases: "timing.Phases", measures: Path | None) -> tuple[Metric, ...]:
    """``measures`` is where what every sample adds to a metric is kept."""
    from evaluator.statistics.metrics import summarise  # noqa: PLC0415 - numpy and scipy, here alone

    quality = {name: _judged(name, found, measures) for name, found in result.quality.items()}
    return summarise(definitions_of(lock), quality, phases)


def _phases(result: Result, kept: Mapping[str, Path]) -> "timing.Phases":
    """``kept`` is where the blobs of each role are."""
    from evaluator.statistics import timing  # noqa: PLC0415 - as above

    peak = result.peak
    return timing.Phases(
        performance=_timed(result.performance, "samples", kept),
        pipeline=_timed(result.pipeline, "pipeline-samples", kept),
        peak=None if peak is None else timing.Peak(peak.qps, peak.failed_qps, len(peak.probes)),
    )


def _timed(timed: Timed | None, role: str, kept: Mapping[str, Path]) -> "timing.Performance | None":
    from evaluator.statistics.samples import read_samples  # noqa: PLC0415 - as above
    from evaluator.statistics.timing import Performance  # noqa: PLC0415

    if timed is None:
        return None
    if role not in kept:
        raise InvalidInputError(f"the harness timed {timed.queries} queries and left no {role} of them")
    samples = read_samples(kept[role])
    if len(samples.latency) != timed.queries:
        raise InvalidInputError(f"the harness counted {timed.queries} queries and left {len(samples.latency)} samples")
    return Performance(samples, timed.samples_per_query, timed.duration_s)


def _judged(name: str, found: Judged, kept: Path | None) -> "metrics.Right | quality.Judged":
    """A count as it is; a value with its interval, of what the harness kept of each sample."""
    from evaluator.statistics import metrics, quality  # noqa: PLC0415 - numpy and scipy, here alone

    if found.correct is not None:
        return metrics.Right(found.correct, found.n)
    assert found.value is not None
    if kept is None:
        raise InvalidInputError(f"the harness left nothing that the interval of {name} could be made of")
    return quality.judged(name, found.value, found.n, quality.read_measures(kept))


def _calls(performance: "timing.Performance | None", document: Mapping[str, Any], device: str) -> dict[str, Any]:
    """How the calls were disturbed, as a part of the details; nothing where that was not counted."""
    from evaluator.statistics.calls import describe_calls  # noqa: PLC0415 - as above

    if performance is None:
        return {}
    scope = document["performance"].get("cpu_scope")
    found = describe_calls(performance.samples, scope if scope in ("thread", "process") else "process", device)
    return {} if found is None else {KEY: calls_document(found)}


def _blobs(finished: Finished, store: FileStore) -> dict[str, Descriptor]:
    """What is kept of a run; of its quality what the clean stage left, and nothing that the model could write."""
    outputs = dict.fromkeys(FILES, finished)
    if finished.scored is not None:
        outputs |= dict.fromkeys(("predictions", "quality"), finished.scored)
    found = {}
    for role, path in FILES.items():
        stream = None if outputs[role].ending.excess else open_output(outputs[role].output, path)
        if stream is not None:
            with stream:
                found[role] = store.put(stream, name=path)
    log = finished.ending.log + (finished.scored.ending.log if finished.scored is not None else b"")
    if log:
        found[_LOG] = store.put(io.BytesIO(log), name=_LOG)
    return found


def _details(attempt: Attempt) -> dict[str, Any]:
    details: dict[str, Any] = {
        "cpus": list(attempt.cpus),
        "verified": {"files": attempt.verified.files, "bytes": attempt.verified.size},
    }
    if attempt.accelerators:
        details["accelerators"] = list(attempt.accelerators)
    if attempt.isolation == "process":
        details["not_enforced"] = list(NOT_ENFORCED)
    model = attempt.verified.manifests["model"]
    assert isinstance(model, Model)
    if marked := self_reported(attempt.lock, model, attempt.isolation):
        details[SELF_REPORTED] = list(marked)
    if attempt.part_of is not None:
        details["part_of"] = dict(attempt.part_of)
    return details


def _told(document: Mapping[str, Any]) -> dict[str, Any]:
    surroundings = document.get("environment", {})
    facts = {name: surroundings[name] for name in ("python", "threads") if name in surroundings}
    return {**{name: document[name] for name in _TOLD if document.get(name) is not None}, **facts}
