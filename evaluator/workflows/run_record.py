"""The record of a run's end: metrics, blobs and facts of its outcome."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import Descriptor
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.isolation.resource_limits import IsolatedFaultError, LimitExceededError
from benchlock.evaluator.evidence.recomputation import Recomputation, Subject
from benchlock.evaluator.evidence.run_examination import recompute_once
from benchlock.evaluator.records.run_types import SELF_REPORTED, Isolation, RunEnd, RunId, fit_end
from benchlock.evaluator.runner.energy import ENERGY
from benchlock.evaluator.runner.lock_verification import VerifiedFiles, find_evaluated
from benchlock.evaluator.runner.process_run import NOT_ENFORCED
from benchlock.evaluator.runner.run_outcome import FILES, RESULT, Failure, Result, failure_of, open_output, read_result
from benchlock.evaluator.runner.run_stages import StageOutcome
from benchlock.evaluator.runner.self_reported_times import find_overrun, list_self_reported
from benchlock.registry.lock.lockfile import Lock, LockedPlatform

_LOG = "log"
_RESULT = "result"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run whose platform, isolation and resources are decided."""

    id: RunId
    at: datetime
    lock: Lock
    platform: LockedPlatform
    isolation: Isolation
    cpus: tuple[int, ...]
    verified: VerifiedFiles
    accelerators: tuple[int, ...] = ()
    part_of: Mapping[str, Any] | None = None
    """The repetition or comparison that the run belongs to, with what was stated before it began."""
    energy: Mapping[str, Any] | None = None
    """The energy of the host during the run; None before its end."""


def make_interrupted_end(
    attempt: Attempt, failure: Failure | None, timings: Mapping[str, float], at: datetime
) -> RunEnd:
    """Return the end of a run without results: failed, or cancelled if there is no failure."""
    return fit_end(
        RunEnd(
            outcome="cancelled" if failure is None else "failed",
            failure_class=failure.kind if failure else None,
            failure_message=failure.message if failure else None,
            timings=dict(timings),
            details=describe_attempt(attempt),
            ended_at=at,
        )
    )


def make_run_end(
    attempt: Attempt,
    outcome: StageOutcome,
    timings: Mapping[str, float],
    store: BlobStore,
    scratch: Path | None,
    at: datetime,
) -> RunEnd:
    """Return the end of a run whose harness was started, and store its files.

    Every metric is recomputed from the stored blobs and compared with the harness's result. Quality comes from the
    stage without the model, if there was one. The caller must hold ``store.writing()`` until the record is stored.

    Args:
        attempt: The run.
        outcome: Its outcome.
        timings: Seconds by phase.
        store: The blob store.
        scratch: A folder on the store's file system for temporary files; None for any folder.
        at: The calendar time.
    """
    ending = outcome.ending
    result, document, fault = (None, {}, None) if ending.excess else _read(outcome.output)
    limits = attempt.lock.limits
    # The memory of a process is not limited.
    memory = None if attempt.isolation == "process" else limits.bytes
    failure = failure_of(ending, result, fault, limits.seconds, memory)
    if failure is None and result is not None and outcome.scored is not None:
        scored, failure = _read_score(outcome.scored, limits.seconds, memory)
        document = _merge_quality(result, document, scored)
    blobs = _store_files(outcome, document, store)
    recomputed = Recomputation()
    if "result" in blobs:
        subject = Subject(attempt.lock, attempt.platform, attempt.verified.manifests)
        try:
            recomputed = recompute_once(subject, blobs, store, scratch)
        except (LimitExceededError, IsolatedFaultError) as error:
            recomputed = Recomputation(failure=Failure("output", error.what))
    failure = (
        failure
        or recomputed.failure
        or find_overrun(recomputed.claimed, ending.ran, recomputed.claimed_cpu, ending.cpu)
    )
    done = failure is None
    return fit_end(
        RunEnd(
            outcome="done" if done else "failed",
            failure_class=failure.kind if failure else None,
            failure_message=outcome.translate(failure.message) if failure else None,
            metrics=recomputed.metrics if done else (),
            packages=recomputed.packages,
            blobs=blobs,
            timings={**timings, **recomputed.timings},
            details={
                **describe_attempt(attempt),
                "exit_code": ending.code,
                **recomputed.details,
                **(recomputed.calls if done else {}),
            },
            ended_at=at,
        )
    )


def _read_score(outcome: StageOutcome, seconds: float, memory: int | None) -> tuple[Result | None, Failure | None]:
    """Return the result of the stage ``score``, or why it has none."""
    result, _, fault = (None, {}, None) if outcome.ending.excess else _read(outcome.output)
    failure = failure_of(outcome.ending, result, fault, seconds, memory)
    return (result if failure is None else None), failure


def _merge_quality(result: Result, document: Mapping[str, Any], scored: Result | None) -> Mapping[str, Any]:
    """Return the result with the quality of ``scored``, without that of the model's own stage."""
    quality = {} if scored is None else scored.quality
    timings = (
        {} if scored is None else {name: value for name, value in scored.timings.items() if name.startswith("score")}
    )
    plain = {name: {key: value for key, value in msgspec.to_builtins(metric).items() if value is not None}
             for name, metric in quality.items()}  # fmt: skip
    return {**document, "quality": plain, "timings": {**result.timings, **timings}}


def _read(output: Path) -> tuple[Result | None, Mapping[str, Any], str | None]:
    try:
        contents = read_result(output)
    except InvalidInputError as error:
        return None, {}, error.what
    return (None, {}, None) if contents is None else (*contents, None)


def _store_files(outcome: StageOutcome, document: Mapping[str, Any], store: BlobStore) -> dict[str, Descriptor]:
    """Store the files of a run and its log, and return them by role.

    Predictions and measures of quality are those of the stage that ran no model. A run in stages has no ``result.json``
    of its own, so ``document`` is stored in its place.
    """
    outputs = dict.fromkeys(FILES, outcome)
    blobs = {}
    if outcome.scored is not None:
        outputs |= dict.fromkeys(("predictions", "quality"), outcome.scored)
        del outputs[_RESULT]
        blobs[_RESULT] = store.put(io.BytesIO(msgspec.json.encode(document)), name=RESULT)
    for role, output in outputs.items():
        path = FILES[role]
        stream = None if output.ending.excess else open_output(output.output, path)
        if stream is not None:
            with stream:
                blobs[role] = store.put(stream, name=path)
    log = outcome.ending.log + (outcome.scored.ending.log if outcome.scored is not None else b"")
    if log:
        blobs[_LOG] = store.put(io.BytesIO(log), name=_LOG)
    return blobs


def describe_attempt(attempt: Attempt) -> dict[str, Any]:
    """Return the details of a run that its attempt determines: CPUs, verified bytes and self-reported values."""
    details: dict[str, Any] = {
        "cpus": list(attempt.cpus),
        "verified": {"files": attempt.verified.files, "bytes": attempt.verified.size},
    }
    if attempt.accelerators:
        details["accelerators"] = list(attempt.accelerators)
    if attempt.isolation == "process":
        details["not_enforced"] = list(NOT_ENFORCED)
    model = find_evaluated(attempt.verified.manifests)
    if self_reported := list_self_reported(attempt.lock, model, attempt.isolation):
        details[SELF_REPORTED] = list(self_reported)
    if attempt.part_of is not None:
        details["part_of"] = dict(attempt.part_of)
    if attempt.energy is not None:
        details[ENERGY] = dict(attempt.energy)
    return details
