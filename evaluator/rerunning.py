"""Running a lock again: which run it is held against, and what the comparison comes to."""

from msgspec import UNSET

from artifacts.errors import InvalidInputError
from artifacts.store import FileStore, verify
from evaluator.evidence.status import refuse_unverified
from evaluator.records.kept import KeptRuns
from evaluator.records.predictions import Agreed, Terms, compare_predictions
from evaluator.records.runs import Run
from evaluator.records.verdicts import Verdict, differing_processors, judge
from evaluator.runner.trust import mark_run
from evaluator.runner.verification import read_manifests
from registry.lockfile import Lock
from registry.manifests import Model

PREDICTIONS = "predictions"


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


def judge_rerun(lock: Lock, original: Run, again: Run, store: FileStore) -> Verdict:
    """The verdict on ``again``, which must have ended as ``original`` has.

    Raises:
        IntegrityError: a record contradicts its evidence, or predictions are not what their digest says.
    """
    for run in (original, again):
        refuse_unverified(run.id, run.evidence)
    equivalence = {str(name): float(margin) for name, margin in lock.request.get("equivalence", {}).items()}
    agreed = _agreed(lock, original, again, store)
    return judge(mark_run(original, lock, store), mark_run(again, lock, store), agreed, equivalence)


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
