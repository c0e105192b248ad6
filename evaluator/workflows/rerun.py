"""A rerun of a lock: the choice of the original run, and the comparison with it."""

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET

from benchlock.artifacts.blob_store import FileStore, verify
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.evaluator.harness_releases import is_released
from benchlock.evaluator.records.evidence_status import refuse_unverified
from benchlock.evaluator.records.prediction_agreement import PredictionAgreement, Terms, compare_predictions
from benchlock.evaluator.records.run_model import DamagedRun, RecordedRuns, Run, RunId
from benchlock.evaluator.records.runs_schema import drop_replays, is_replay
from benchlock.evaluator.records.verdicts import Sides, Verdict, differing_processors, host_differences, judge
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.evaluator.runner.self_reported import mark_run
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests import Model

PREDICTIONS = "predictions"
REPEATS = 12
"""New runs of a rerun whose request states an ``equivalence``, unless a number is named."""
_PAGE: Final = 100
"""Summaries of runs that are read at once."""
_FEW: Final = 8
"""Summaries that are read at once where one usually is enough."""
_MOST_SUMMARIES: Final = 1_000
"""Summaries of a lock's runs that are looked through, the newest first."""
_MOST_EXAMINED: Final = 100
"""Runs that are examined for a side, the newest first. Only a whole record says on which host it was."""
_MOST_COUNTED: Final = 40
"""Runs of a side that count beside the two that are compared: more narrow an interval little."""


@prepare_decoder
class RerunPart(msgspec.Struct, frozen=True, kw_only=True):
    """What a run's record says of the rerun that it belongs to."""

    kind: Literal["rerun"] = "rerun"
    id: str
    number: int
    of: int
    original: str


@dataclass(frozen=True, slots=True)
class LatestRun:
    """The latest done run of a lock that agrees with its evidence, and sentences on later ones that do not."""

    run: Run
    skipped: tuple[str, ...]


def find_latest_done(records: RecordedRuns, lock: Digest, before: Run | None = None) -> LatestRun:
    """Find the latest done run of a lock whose record is intact and agrees with its evidence.

    Args:
        records: The runs of the registry.
        lock: The lock's id.
        before: Only runs that are older than this one, and were recorded before it.

    Raises:
        InvalidInputError: There is none, or too many later ones are damaged.
    """
    skipped = list[str]()
    cursor = None if before is None else before.id
    for _ in range(0, _MOST_EXAMINED, _FEW):
        page = records.list_entries(lock=lock, outcome="done", before=cursor, limit=_FEW, examine=False)
        for entry in page:
            if isinstance(entry, DamagedRun):
                skipped.append(f"{entry.id} was skipped: its record is damaged")
                continue
            if before is not None and entry.order > before.order:
                continue
            run = records.get(entry.id)
            if _is_verified(run):
                return LatestRun(run, tuple(skipped))
            assert run.evidence is not None
            skipped.append(f"{run.id} was skipped: its record {run.evidence.sentence}")
        if len(page) < _FEW:
            break
        cursor = page[-1].id
    earlier = "" if before is None else f" before {before.id}"
    faults = f"; {'; '.join(skipped)}" if skipped else ""
    raise InvalidInputError(
        f"no run of {lock}{earlier} is done, so there is nothing to compare with{faults}",
        next_step="run it first (`benchlock run`), or name a run with --against",
    )


def margins_of(lock: Lock) -> dict[str, float]:
    """Return by metric the relative margin that the lock's request states as ``equivalence``."""
    return {str(name): float(margin) for name, margin in lock.request.get("equivalence", {}).items()}


def repeat_rerun(original: Run, once: Callable[[Mapping[str, Any]], Run], runs: int) -> tuple[Run, ...]:
    """Run a lock again up to ``runs`` times; fewer where a run is not done, or its host is not the original's like.

    Args:
        original: The run that the new ones are held against.
        once: Makes a run; it is handed what the run's record should say of the rerun.
        runs: How many.
    """
    identity, made = secrets.token_hex(8), list[Run]()
    for number in range(1, runs + 1):
        part = RerunPart(id=identity, number=number, of=runs, original=original.id)
        made.append(once(msgspec.to_builtins(part)))
        end = made[-1].end
        if end is None or end.outcome != "done" or host_differences(original, made[-1]):
            break
    return tuple(made)


def find_sides(records: RecordedRuns, lock: Lock, original: Run, again: Run) -> Sides:
    """Return the runs whose times say whether ``again`` reproduces ``original``.

    With the original count the runs of the lock that are done, on a host like the original's, no reruns, and recorded
    before the new ones; with the new run those of the same rerun. Of each the last recorded count; damaged ones are
    named, and runs with the samples of one that was recorded before.
    """
    if not margins_of(lock):
        return Sides((original,), (again,))
    found = _find_candidates(records, lock, original, again)

    def is_alike(run: Run) -> bool:
        return _part_of(run) is None and not host_differences(original, run)

    originals = (original, *_examine(records, found.earlier, is_alike))
    reruns = (again, *_examine(records, found.same, lambda _: True))
    kept, replays = drop_replays((*originals, *reruns))
    originals, reruns = (tuple(run for run in side if run in kept) for side in (originals, reruns))
    return Sides(_in_order(originals), _in_order(reruns), tuple(found.damaged), replays)


@dataclass(slots=True)
class _Candidates:
    """The orders of runs that may be of a side by their summaries, and the ids of those that are damaged."""

    earlier: list[tuple[int, RunId]] = field(default_factory=list)
    same: list[tuple[int, RunId]] = field(default_factory=list)
    damaged: list[RunId] = field(default_factory=list)


def _find_candidates(records: RecordedRuns, lock: Lock, original: Run, again: Run) -> _Candidates:
    """Look through summaries until enough earlier runs are found, beyond all runs of other reruns."""
    part, found = _part_of(again), _Candidates()
    before: RunId | None = None
    for _ in range(0, _MOST_SUMMARIES, _PAGE):
        page = records.list_entries(lock=lock.id, outcome="done", before=before, limit=_PAGE, examine=False)
        for entry in page:
            if isinstance(entry, DamagedRun):
                found.damaged.append(entry.id)
            elif entry.id in {original.id, again.id}:
                continue
            elif (other := _part_of(entry)) is None:
                found.earlier.append(entry.order)
            elif part is not None and other.id == part.id:
                found.same.append(entry.order)
        first = min((again.order, *found.same))
        found.earlier = [order for order in found.earlier if order < first]
        if len(page) < _PAGE or len(found.earlier) >= _MOST_EXAMINED:
            break
        before = page[-1].id
    return found


def _examine(
    records: RecordedRuns, candidates: Iterable[tuple[int, RunId]], counts: Callable[[Run], bool]
) -> tuple[Run, ...]:
    """Return the last recorded of the candidates that count, as examined."""
    examined = (records.get(run) for _, run in islice(sorted(candidates, reverse=True), _MOST_EXAMINED))
    return tuple(islice(filter(counts, examined), _MOST_COUNTED))


def _in_order(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    return tuple(sorted(runs, key=lambda run: run.order))


def _part_of(run: Run) -> RerunPart | None:
    """Return what a run's record says of the rerun that it belongs to; None where it says nothing readable."""
    try:
        return None if run.end is None else msgspec.convert(run.end.details.get("part_of"), RerunPart)
    except msgspec.ValidationError:
        return None


def judge_rerun(lock: Lock, original: Run, again: Run, store: FileStore, sides: Sides | None = None) -> Verdict:
    """Return the verdict on ``again``, which must have ended as ``original`` has.

    Args:
        lock: That of both.
        original: The run that is held against the new one.
        again: The new one.
        store: Has their predictions.
        sides: All runs whose times count; None where there are no others.

    Raises:
        IntegrityError: A record contradicts its evidence, or predictions are not what their digest says.
        InvalidInputError: Both have the same samples, so they are one measurement.
    """
    if is_replay(again, original):
        raise InvalidInputError(
            f"{again.id} has the samples of {original.id}, so it is the same measurement under another id",
            where=again.id,
            next_step="run the lock again (`benchlock rerun`), or name another run",
        )
    sides = sides or Sides((original,), (again,))
    for run in (original, again):
        refuse_unverified(run.id, run.evidence)
    agreed = _agreed(lock, original, again, store)
    originals, reruns = (
        tuple(mark_run(run, lock, store) for run in side if _is_verified(run))
        for side in (sides.originals, sides.reruns)
    )
    marked = replace(sides, originals=originals, reruns=reruns)
    before, after = mark_run(original, lock, store), mark_run(again, lock, store)
    verdict = judge(before, after, agreed, margins_of(lock), marked, lock.scenario["name"])
    return _restrict(verdict, lock, again)


def _restrict(verdict: Verdict, lock: Lock, again: Run) -> Verdict:
    """Return the verdict, undecided where runs of an unreleased harness agree.

    Such a harness can answer from the labels: equal predictions are a fact, and say nothing of the model. Different
    ones, and equal failures, are what they are.
    """
    is_done = again.end is not None and again.end.outcome == "done"
    if verdict.verdict != "reproduced" or not is_done or is_released(lock.harness):
        return verdict
    reason = (
        f"harness {lock.harness.version} ({lock.harness.digest}) is not a released one, "
        "so what its runs agree in says nothing of the model"
    )
    return replace(verdict, verdict="undecided", reasons=(reason,), reported=(*verdict.reasons, *verdict.reported))


def judge_reruns(lock: Lock, original: Run, sides: Sides, store: FileStore) -> tuple[Verdict, Run]:
    """Return the verdict on several new runs, and the one that it is about: the first that was not reproduced."""
    found = [(judge_rerun(lock, original, run, store, sides), run) for run in sides.reruns]
    return next((one for one in found if one[0].verdict == "not reproduced"), found[0])


def _is_verified(run: Run) -> bool:
    return run.evidence is None or run.evidence.state == "verified"


def _agreed(lock: Lock, original: Run, again: Run, store: FileStore) -> PredictionAgreement | None:
    blobs = [run.end.blobs.get(PREDICTIONS) if run.end is not None else None for run in (original, again)]
    if blobs == [None, None]:
        return None
    if None in blobs:
        return PredictionAgreement("different", ("only one of the runs left predictions",), 0, {})
    paths = []
    for run, blob in zip((original, again), blobs, strict=True):
        assert blob is not None
        verify(store, blob.digest, name=f"{run.id} {PREDICTIONS}", size=blob.size)
        paths.append(store.path(blob.digest))
    other = differing_processors(original, again)
    return compare_predictions(paths[0], paths[1], _terms(lock, store), other_processor=other)


def _terms(lock: Lock, store: FileStore) -> dict[str, Terms]:
    model = read_manifests(lock, store)["model"]
    assert isinstance(model, Model)
    terms = {
        output.name: Terms(
            output.type,
            None if output.tolerance is UNSET else (output.tolerance.absolute, output.tolerance.relative),
            None if output.threshold is UNSET else output.threshold,
            calls=output.reduce == "none",
        )
        for output in model.outputs
    }
    if model.predictions is not UNSET:
        sources = (model.predictions.boxes, model.predictions.scores)
        terms["detections"] = Terms("detections", derived=all(terms[name].tolerance is not None for name in sources))
    return terms
