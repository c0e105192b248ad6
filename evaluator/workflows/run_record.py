"""The record of a run's end: metrics, blobs and facts of its outcome."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import Descriptor
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.isolation.resource_limits import IsolatedFaultError, LimitExceededError
from benchlock.evaluator.records.run_model import SELF_REPORTED, Isolation, RunEnd, RunId, fit_end
from benchlock.evaluator.runner.lock_verification import VerifiedFiles
from benchlock.evaluator.runner.outcome import FILES, RESULT, Failure, Result, failure_of, open_output, read_result
from benchlock.evaluator.runner.process import NOT_ENFORCED
from benchlock.evaluator.runner.self_reported import find_overrun, list_self_reported
from benchlock.evaluator.runner.stages import StageOutcome
from benchlock.registry.lock.lockfile import Lock, LockedPlatform
from benchlock.registry.manifests import Model

if TYPE_CHECKING:  # numpy and scipy
    pass

_LOG = "log"
_RESULT = "result"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run that was decided on: what, where and how."""

    id: RunId
    at: datetime
    lock: Lock
    platform: LockedPlatform
    isolation: Isolation
    cpus: tuple[int, ...]
    verified: VerifiedFiles
    accelerators: tuple[int, ...] = ()
    part_of: Mapping[str, Any] | None = None
    """The repetition or comparison that the run is a part of, and what was stated before it began."""


def make_interrupted_end(
    attempt: Attempt, failure: Failure | None, timings: Mapping[str, float], at: datetime
) -> RunEnd:
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


def make_run_end(
    attempt: Attempt,
    finished: StageOutcome,
    timings: Mapping[str, float],
    store: BlobStore,
    scratch: Path | None,
    at: datetime,
) -> RunEnd:
    """Return the end of a run whose harness was started; what it left is put into ``store``.

    Every figure is recomputed from these blobs: what the harness says of itself is compared with them. Quality is taken
    from the stage that ran no model, where there was one. Hold ``store.writing()`` until the record is stored.
    """
    from benchlock.evaluator.evidence.examination import recompute_once  # noqa: PLC0415 - numpy and scipy, here alone
    from benchlock.evaluator.evidence.recomputation import Recomputation, Subject  # noqa: PLC0415

    ending = finished.ending
    result, document, fault = (None, {}, None) if ending.excess else _read(finished.output)
    limits = attempt.lock.limits
    # Nothing holds a process to its memory.
    memory = None if attempt.isolation == "process" else limits.bytes
    failure = failure_of(ending, result, fault, limits.seconds, memory)
    if failure is None and result is not None and finished.scored is not None:
        scored, failure = _scored(finished.scored, limits.seconds, memory)
        document = _with_quality(result, document, scored)
    blobs = _blobs(finished, document, store)
    found = Recomputation()
    if "result" in blobs:
        subject = Subject(attempt.lock, attempt.platform, attempt.verified.manifests)
        try:
            found = recompute_once(subject, blobs, store, scratch)
        except (LimitExceededError, IsolatedFaultError) as error:
            found = Recomputation(failure=Failure("output", error.what))
    failure = failure or found.failure or find_overrun(found.claimed, ending.ran, found.claimed_cpu, ending.cpu)
    done = failure is None
    return fit_end(
        RunEnd(
            outcome="done" if done else "failed",
            failure_class=failure.kind if failure else None,
            failure_message=finished.translate(failure.message) if failure else None,
            metrics=found.metrics if done else (),
            packages=found.packages,
            blobs=blobs,
            timings={**timings, **found.timings},
            details={**_details(attempt), "exit_code": ending.code, **found.details, **(found.calls if done else {})},
            ended_at=at,
        )
    )


def _scored(finished: StageOutcome, seconds: float, memory: int | None) -> tuple[Result | None, Failure | None]:
    """What the stage ``score`` computed, or why it has nothing."""
    result, _, fault = (None, {}, None) if finished.ending.excess else _read(finished.output)
    failure = failure_of(finished.ending, result, fault, seconds, memory)
    return (result if failure is None else None), failure


def _with_quality(result: Result, document: Mapping[str, Any], scored: Result | None) -> Mapping[str, Any]:
    """The account of the run with the quality that ``scored`` says, and none that the model's own stage says."""
    quality = {} if scored is None else scored.quality
    timings = {} if scored is None else {name: one for name, one in scored.timings.items() if name.startswith("score")}
    plain = {name: {key: value for key, value in msgspec.to_builtins(one).items() if value is not None}
             for name, one in quality.items()}  # fmt: skip
    return {**document, "quality": plain, "timings": {**result.timings, **timings}}


def _read(output: Path) -> tuple[Result | None, Mapping[str, Any], str | None]:
    try:
        found = read_result(output)
    except InvalidInputError as error:
        return None, {}, error.what
    return (None, {}, None) if found is None else (*found, None)


def _blobs(finished: StageOutcome, document: Mapping[str, Any], store: BlobStore) -> dict[str, Descriptor]:
    """Store the files of a run and its log, and return them by role.

    Predictions and measures of quality are those of the stage that ran no model. A run in stages has no ``result.json``
    of its own: ``document`` is stored in its place.
    """
    outputs = dict.fromkeys(FILES, finished)
    found = {}
    if finished.scored is not None:
        outputs |= dict.fromkeys(("predictions", "quality"), finished.scored)
        del outputs[_RESULT]
        found[_RESULT] = store.put(io.BytesIO(msgspec.json.encode(document)), name=RESULT)
    for role, output in outputs.items():
        path = FILES[role]
        stream = None if output.ending.excess else open_output(output.output, path)
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
    if marked := list_self_reported(attempt.lock, model, attempt.isolation):
        details[SELF_REPORTED] = list(marked)
    if attempt.part_of is not None:
        details["part_of"] = dict(attempt.part_of)
    return details
