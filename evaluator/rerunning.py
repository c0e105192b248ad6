"""Running a lock again: which run it is held against, and what the comparison comes to."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from artifacts.errors import InvalidInputError
from artifacts.readable import readable
from artifacts.store import FileStore, verify
from evaluator.evidence.status import refuse_unverified
from evaluator.records.comparison import host_differences
from evaluator.records.kept import KeptRuns
from evaluator.records.predictions import Agreed, Terms, compare_predictions
from evaluator.records.runs import Run
from evaluator.records.verdicts import Sides, Verdict, differing_processors, judge
from evaluator.runner.trust import mark_run
from evaluator.runner.verification import read_manifests
from registry.lockfile import Lock
from registry.manifests import Model

PREDICTIONS = "predictions"
REPEATS = 12
"""New runs of a rerun whose request states an ``equivalence``, unless a number is named."""
_MOST = 100
"""Runs of a lock that are looked through, the newest first."""


@readable
class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What a run's record says of the rerun that it belongs to."""

    kind: Literal["rerun"] = "rerun"
    id: str
    number: int
    of: int
    original: str


def latest_done(records: KeptRuns, lock: Lock) -> Run:
    """The latest run of ``lock`` that is done.

    Raises:
        InvalidInputError: there is none.
    """
    found = records.list(lock=lock.id, outcome="done", limit=1)
    if not found:
        raise InvalidInputError(
            f"no run of {lock.id} is done, so there is nothing to compare with",
            next_step="run it first (`benchlock run`), or name a run with --against",
        )
    return records.get(found[0].id)


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
        part = Part(id=identity, number=number, of=runs, original=original.id)
        made.append(once(msgspec.to_builtins(part)))
        end = made[-1].end
        if end is None or end.outcome != "done" or host_differences(original, made[-1]):
            break
    return tuple(made)


def find_sides(records: KeptRuns, lock: Lock, original: Run, again: Run) -> Sides:
    """Return the runs whose times say whether ``again`` reproduces ``original``.

    With the original count the earlier runs of the lock that are done, on a host like the original's, and no reruns;
    with the new run those of the same rerun.
    """
    if not margins_of(lock):
        return Sides((original,), (again,))
    part = _part_of(again)
    listed = records.list(lock=lock.id, outcome="done", limit=_MOST)
    named = (original.id, again.id)
    others = [records.get(run.id) for run in listed if run.id not in named]
    same = [run for run in others if part is not None and (other := _part_of(run)) is not None and other.id == part.id]
    reruns = sorted((again, *same), key=lambda run: run.id)
    earlier = [run for run in others if _part_of(run) is None and run.id < reruns[0].id]
    alike = [run for run in earlier if not host_differences(original, run)]
    return Sides(tuple(sorted((original, *alike), key=lambda run: run.id)), tuple(reruns))


def _part_of(run: Run) -> Part | None:
    """Return what a run's record says of the rerun that it belongs to; None where it says nothing readable."""
    try:
        return None if run.end is None else msgspec.convert(run.end.details.get("part_of"), Part)
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
    """
    sides = sides or Sides((original,), (again,))
    for run in (original, again):
        refuse_unverified(run.id, run.evidence)
    agreed = _agreed(lock, original, again, store)
    marked = Sides(
        *(
            tuple(mark_run(run, lock, store) for run in side if _is_verified(run))
            for side in (sides.originals, sides.reruns)
        )
    )
    return judge(mark_run(original, lock, store), mark_run(again, lock, store), agreed, margins_of(lock), marked)


def judge_reruns(lock: Lock, original: Run, sides: Sides, store: FileStore) -> tuple[Verdict, Run]:
    """Return the verdict on several new runs, and the one that it is about: the first that was not reproduced."""
    found = [(judge_rerun(lock, original, run, store, sides), run) for run in sides.reruns]
    return next((one for one in found if one[0].verdict == "not reproduced"), found[0])


def _is_verified(run: Run) -> bool:
    return run.evidence is None or run.evidence.state == "verified"


def _agreed(lock: Lock, original: Run, again: Run, store: FileStore) -> Agreed | None:
    blobs = [run.end.blobs.get(PREDICTIONS) if run.end is not None else None for run in (original, again)]
    if blobs == [None, None]:
        return None
    if None in blobs:
        return Agreed("different", ("only one of the runs left predictions",), 0, {})
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
