"""A rerun of a lock: the choice of the original run, and the comparison with it."""

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from benchlock.artifacts.blob_store import FileStore, verify
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.evaluator.evidence.distributed.distributed_agreement import (
    find_departure,
    find_different_ranks,
    load_ranks,
)
from benchlock.evaluator.evidence.networks.network_evidence import is_micro_batch
from benchlock.evaluator.harness_releases import is_released
from benchlock.evaluator.records.comparison_types import Conclusion, Verdict, read_turn
from benchlock.evaluator.records.evidence_status import refuse_unverified
from benchlock.evaluator.records.prediction_agreement import PredictionAgreement, Terms, compare_predictions
from benchlock.evaluator.records.replayed_runs import drop_replays, is_replay
from benchlock.evaluator.records.run_comparison import Sides, differing_processors, host_differences, judge
from benchlock.evaluator.records.run_types import DamagedRun, RecordedRuns, Run, RunFilter, RunId
from benchlock.evaluator.records.training_agreement import compare_distributions, find_different_bits, load_training
from benchlock.evaluator.runner.lock_verification import find_evaluated, read_manifests
from benchlock.evaluator.runner.self_reported_times import mark_run
from benchlock.evaluator.workflows.network_agreement import compare_networks, list_equal_failures
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests import Model, Operator
from benchlock.registry.manifests.field_types import Positive
from benchlock.registry.requests.evaluation_request import EPOCHS

PREDICTIONS = "predictions"
SAMPLES = "samples"
UNRELEASED: Final = "is not a released harness"
"""A phrase of the reason why equal predictions do not count."""
REPEATS = 12
"""The default number of new runs if the request states an ``equivalence``."""
RUNS_PER_PAGE: Final = 100
"""The number of summaries that are read at once."""
_FEW: Final = 8
"""The number of summaries that are read at once if one is usually enough."""
_MAX_SUMMARIES: Final = 1_000
"""The maximum number of summaries that are searched, the newest first."""
_MAX_EXAMINED: Final = 100
"""The maximum number of runs that are examined for a side, the newest first; summaries do not name the host."""
MAX_COUNTED: Final = 40
"""The maximum number of further runs of a side; more would hardly narrow an interval."""


@prepare_decoder
class RerunPart(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a run in a rerun, as its record states it."""

    kind: Literal["rerun"] = "rerun"
    id: str
    number: int
    of: int
    original: str


@dataclass(frozen=True, slots=True)
class LatestRun:
    """The latest finished run of a lock that agrees with its evidence, and sentences on later ones that do not."""

    run: Run
    skipped: tuple[str, ...]


def find_latest_done(records: RecordedRuns, lock: Digest, before: Run | None = None) -> LatestRun:
    """Find the latest finished run of a lock whose record is intact and agrees with its evidence.

    Args:
        records: The runs of the registry.
        lock: The lock's id.
        before: Only runs that are older than this one, were recorded before it, and are not of the same repetition.

    Raises:
        InvalidInputError: There is none, or too many later ones are damaged.
    """
    skipped = list[str]()
    cursor, done = None if before is None else before.id, RunFilter(lock=lock, outcome="done")
    for _ in range(0, _MAX_EXAMINED, _FEW):
        page = records.list_entries(chosen=done, before=cursor, limit=_FEW, examine=False)
        for entry in page:
            if isinstance(entry, DamagedRun):
                skipped.append(f"skipped {entry.id}: its record is damaged")
                continue
            if before is not None and (entry.order > before.order or is_same_repetition(entry, before)):
                continue
            run = records.get(entry.id)
            if _is_verified(run):
                return LatestRun(run, tuple(skipped))
            assert run.evidence is not None
            skipped.append(f"skipped {run.id}: its record {run.evidence.sentence}")
        if len(page) < _FEW:
            break
        cursor = page[-1].id
    earlier = "" if before is None else f" before {before.id}"
    faults = f"; {'; '.join(skipped)}" if skipped else ""
    raise InvalidInputError(
        f"no completed run of {lock}{earlier} to compare with{faults}",
        next_step="run the lock first, or choose the run to compare with",
    )


def find_original(records: RecordedRuns, lock: Digest, against: RunId | None, again: Run | None = None) -> LatestRun:
    """Return the ended run that runs of ``lock`` are compared with.

    Args:
        records: The runs of the registry.
        lock: The lock's id.
        against: The run; None for the latest one, as by ``find_latest_done``.
        again: The run that is compared with it, if it is recorded already.

    Raises:
        InvalidInputError: The run has another lock or has not ended, or there is none.
    """
    if against is None:
        return find_latest_done(records, lock, again)
    original = records.get(against)
    if original.start.lock != lock:
        raise InvalidInputError(
            f"{original.id} is a run of another lock, {original.start.lock}",
            where="against",
            next_step="choose a run of the same lock",
        )
    refuse_open(original)
    return LatestRun(original, ())


def refuse_open(run: Run) -> None:
    """Raise unless the run has ended."""
    if run.end is None:
        raise InvalidInputError(
            f"{run.id} has not ended", where=run.id, next_step="wait until it has ended, or choose another run"
        )


def margins_of(lock: Lock) -> dict[str, float]:
    """Return the relative margins by metric that the lock's request states as ``equivalence``.

    Raises:
        InvalidInputError: A margin is not a positive number.
    """
    try:
        return msgspec.convert(lock.request.get("equivalence", {}), dict[str, Positive])
    except msgspec.ValidationError as error:
        raise InvalidInputError(
            f"invalid margins in the lock: {error}",
            where="request.equivalence",
            next_step="lock the request again; this lock was edited by hand",
        ) from error


def find_margins(lock: Lock, again: Run) -> dict[str, float]:
    """Return the margins that decide on the times of a new run.

    They are the margins that the lock states. A lock without margins may have been repeated with those of a reviewer:
    then the record of each run states them, since before the first run.
    """
    turn = read_turn(again)
    return margins_of(lock) or ({} if turn is None else dict(turn.margins))


def repeat_rerun(original: Run, once: Callable[[Mapping[str, Any]], Run], runs: int) -> tuple[Run, ...]:
    """Run a lock again up to ``runs`` times; stop at a run that is not done or has another kind of host.

    Args:
        original: The run that the new ones are compared with.
        once: Makes a run; its argument goes into the run's record.
        runs: The maximum number of runs.
    """
    identity, completed = secrets.token_hex(8), list[Run]()
    for number in range(1, runs + 1):
        part = RerunPart(id=identity, number=number, of=runs, original=original.id)
        completed.append(once(msgspec.to_builtins(part)))
        end = completed[-1].end
        if end is None or end.outcome != "done" or host_differences(original, completed[-1]):
            break
    return tuple(completed)


def find_sides(records: RecordedRuns, lock: Lock, original: Run, again: Run) -> Sides:
    """Return the runs whose times decide whether ``again`` reproduces ``original``.

    The original's side has the finished runs of the lock on a similar host that are not reruns and were recorded before
    the new ones. The new side has the runs of the same rerun, or those of the same comparison that a margin was stated
    for. On each side the runs recorded last count. Damaged runs are listed, and so are runs with the samples of an
    earlier one.
    """
    if not find_margins(lock, again):
        return Sides((original,), (again,))
    candidates = _find_candidates(records, lock, original, again)

    def is_alike(run: Run) -> bool:
        return find_rerun_part(run) is None and not host_differences(original, run)

    originals = (original, *_examine(records, candidates.earlier, is_alike))
    reruns = (again, *_examine(records, candidates.same, lambda _: True))
    distinct, replays = drop_replays((*originals, *reruns))
    originals, reruns = (tuple(run for run in side if run in distinct) for side in (originals, reruns))
    few = not margins_of(lock)
    return Sides(_sort_runs(originals), _sort_runs(reruns), tuple(candidates.damaged), replays, few)


@dataclass(slots=True)
class _Candidates:
    """The orders of runs that may belong to a side, by their summaries, and the ids of damaged runs."""

    earlier: list[tuple[int, RunId]] = field(default_factory=list)
    same: list[tuple[int, RunId]] = field(default_factory=list)
    damaged: list[RunId] = field(default_factory=list)


def _find_candidates(records: RecordedRuns, lock: Lock, original: Run, again: Run) -> _Candidates:
    """Search summaries until enough earlier runs are found, past all runs of other reruns and of other margins."""
    part, turn, candidates = find_rerun_part(again), read_turn(again), _Candidates()
    before: RunId | None = None
    done = RunFilter(lock=lock.id, outcome="done")
    for _ in range(0, _MAX_SUMMARIES, RUNS_PER_PAGE):
        page = records.list_entries(chosen=done, before=before, limit=RUNS_PER_PAGE, examine=False)
        for entry in page:
            if isinstance(entry, DamagedRun):
                candidates.damaged.append(entry.id)
            elif entry.id in {original.id, again.id}:
                continue
            elif (its := read_turn(entry)) is not None and its.margins:
                if turn is not None and its.id == turn.id:
                    candidates.same.append(entry.order)
            elif (other := find_rerun_part(entry)) is None:
                candidates.earlier.append(entry.order)
            elif part is not None and other.id == part.id:
                candidates.same.append(entry.order)
        first = min((again.order, *candidates.same))
        candidates.earlier = [order for order in candidates.earlier if order < first]
        if len(page) < RUNS_PER_PAGE or len(candidates.earlier) >= _MAX_EXAMINED:
            break
        before = page[-1].id
    return candidates


def _examine(
    records: RecordedRuns, candidates: Iterable[tuple[int, RunId]], counts: Callable[[Run], bool]
) -> tuple[Run, ...]:
    """Return the candidates that count, examined, the last recorded first."""
    examined = (records.get(run) for _, run in islice(sorted(candidates, reverse=True), _MAX_EXAMINED))
    return tuple(islice(filter(counts, examined), MAX_COUNTED))


def _sort_runs(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    return tuple(sorted(runs, key=lambda run: run.order))


def find_rerun_part(run: Run) -> RerunPart | None:
    """Return the part of a run in a rerun; None if its record has none that is valid."""
    try:
        return None if run.end is None else msgspec.convert(run.end.details.get("part_of"), RerunPart)
    except msgspec.ValidationError:
        return None


def is_same_repetition(run: Run, other: Run) -> bool:
    """Whether two runs are of one rerun or of one interleaved comparison, so that neither is the other's original."""
    parts = [find_rerun_part(one) or read_turn(one) for one in (run, other)]
    return parts[0] is not None and parts[1] is not None and parts[0].id == parts[1].id


def judge_rerun(lock: Lock, original: Run, again: Run, store: FileStore, sides: Sides | None = None) -> Verdict:
    """Return the verdict on ``again``, which must end as ``original`` did.

    Args:
        lock: The lock of both.
        original: The original run.
        again: The new run.
        store: The store of their predictions.
        sides: All runs whose times count; None if there are no others.

    Raises:
        IntegrityError: A record contradicts its evidence, or predictions do not match their digest.
        InvalidInputError: Both have the same samples, so they are one measurement.
    """
    if is_replay(again, original):
        raise InvalidInputError(
            f"{again.id} has the same timing samples as {original.id}, so it is the same measurement under another id",
            where=again.id,
            next_step="rerun the lock, or choose another run",
        )
    sides = sides or Sides((original,), (again,))
    for run in (original, again):
        refuse_unverified(run.id, run.evidence)
    agreement = _compare_stored_predictions(lock, original, again, store)
    originals, reruns = (
        tuple(mark_run(run, lock, store) for run in side if _is_verified(run))
        for side in (sides.originals, sides.reruns)
    )
    if lock.distribution is not UNSET and _is_done(original) and _is_done(again):
        return _restrict(_judge_distributed(lock, original, again, store), lock, again)
    if lock.recipe is not UNSET and _is_done(original) and _is_done(again):
        return _restrict(_judge_training(lock, original, again, store), lock, again)
    marked_sides = replace(sides, originals=originals, reruns=reruns)
    before, after = mark_run(original, lock, store), mark_run(again, lock, store)
    verdict = judge(before, after, agreement, find_margins(lock, again), marked_sides, lock.scenario["name"])
    if is_micro_batch(lock):
        verdict = replace(verdict, reasons=(*verdict.reasons, *list_equal_failures(original, again)))
    return _restrict(verdict, lock, again)


def _is_done(run: Run) -> bool:
    return run.end is not None and run.end.outcome == "done"


def _judge_distributed(lock: Lock, original: Run, again: Run, store: FileStore) -> Verdict:
    """Return the verdict on a distributed training: on the bits of losses and weights, on equal processors alone."""
    ids = (original.id, again.id)
    sides = [(run, load_ranks(run, lock, store)) for run in (original, again)]
    if departure := find_departure(again):
        return Verdict("not reproduced", (departure,), (), *ids, "different")
    difference = find_different_ranks(sides[0], sides[1])
    if difference is None:
        text = f"weights and losses of {sides[1][1].loss.shape[1]} ranks and of their reference are bit-equal"
        return Verdict("reproduced", (text,), (), *ids, "bit-equal")
    if differing_processors(original, again):
        return Verdict("undecided", (f"the processors differ, so bits decide nothing: {difference}",), (), *ids, None)
    return Verdict("not reproduced", (difference,), (), *ids, "different")


def _judge_training(lock: Lock, original: Run, again: Run, store: FileStore) -> Verdict:
    """Return the verdict on a training: on its bits, or on the distribution of its epochs.

    Equal bits always decide, different ones on the same kind of processor alone. On another one, a request for bits is
    undecided unless it states the margin of epochs.
    """
    trainings = [load_training(run, store) for run in (original, again)]
    ids = (original.id, again.id)
    difference = find_different_bits(trainings[0], trainings[1])
    margin = margins_of(lock).get(EPOCHS)
    if difference is None:
        text = f"weights and losses of {len(trainings[0].weights)} repeats are bit-equal"
        return Verdict("reproduced", (text,), (), *ids, "bit-equal")
    if lock.request.get("reproduce") == "bits":
        if not differing_processors(original, again):
            return Verdict("not reproduced", (difference,), (), *ids, "different")
        processors = f"the processors differ, so bits decide nothing: {difference}"
        if margin is None:
            step = f"add equivalence: {{{EPOCHS}: 0.25}} to the request to compare distributions"
            return Verdict("undecided", (processors, step), (), *ids, None)
    if margin is None:
        raise InvalidInputError(
            f"the lock compares distributions without a margin of {EPOCHS}",
            where="request.equivalence",
            next_step=f"add equivalence: {{{EPOCHS}: 0.25}} to the request, and lock it again",
        )
    compared = compare_distributions(trainings[0], trainings[1], margin)
    word = _TRAINING_VERDICTS[compared.answer]
    return Verdict(word, (compared.reason,), (difference,), *ids, None)


_TRAINING_VERDICTS: Final[Mapping[str, Conclusion]] = {
    "equivalent": "reproduced",
    "different": "not reproduced",
    "inconclusive": "undecided",
}


def _restrict(verdict: Verdict, lock: Lock, again: Run) -> Verdict:
    """Return the verdict, undecided if runs of an unreleased harness agree.

    Such a harness can copy the labels, so equal predictions say nothing about the model. Different predictions and
    equal failures stand.
    """
    is_done = again.end is not None and again.end.outcome == "done"
    if verdict.verdict != "reproduced" or not is_done or is_released(lock.harness):
        return verdict
    reason = (
        f"harness {lock.harness.version} ({lock.harness.digest}) {UNRELEASED}, "
        "so agreement of its runs proves nothing about the model"
    )
    return replace(verdict, verdict="undecided", reasons=(reason,), reported=(*verdict.reasons, *verdict.reported))


def judge_recorded_run(
    records: RecordedRuns, store: FileStore, read_lock: Callable[[Digest], Lock], id_: RunId, against: RunId | None
) -> Verdict:
    """Return the verdict on a recorded run, compared with an earlier run of its lock.

    Args:
        records: The runs of the registry.
        store: The store of their predictions.
        read_lock: Returns the lock with an id.
        id_: The run.
        against: The earlier run; None for the latest one.

    Raises:
        As ``find_original`` and ``judge_rerun``.
    """
    again = records.get(id_)
    refuse_open(again)
    lock = read_lock(again.start.lock)
    original = find_original(records, lock.id, against, again)
    sides = find_sides(records, lock, original.run, again)
    verdict = judge_rerun(lock, original.run, again, store, sides)
    return replace(verdict, reported=(*verdict.reported, *original.skipped))


def judge_reruns(lock: Lock, original: Run, sides: Sides, store: FileStore) -> tuple[Verdict, Run]:
    """Return the verdict on several new runs, with its run: the first one that was not reproduced."""
    verdicts = [(judge_rerun(lock, original, run, store, sides), run) for run in sides.reruns]
    return next((entry for entry in verdicts if entry[0].verdict == "not reproduced"), verdicts[0])


def _is_verified(run: Run) -> bool:
    return run.evidence is None or run.evidence.state == "verified"


def _compare_stored_predictions(lock: Lock, original: Run, again: Run, store: FileStore) -> PredictionAgreement | None:
    if lock.recipe is not UNSET:
        return None
    if is_micro_batch(lock):
        return compare_networks(original, again, store, _terms(lock, store))
    blobs = [run.end.blobs.get(PREDICTIONS) if run.end is not None else None for run in (original, again)]
    if blobs == [None, None]:
        return None
    if None in blobs:
        return PredictionAgreement("different", ("only one of the runs has predictions",), 0, {})
    paths = []
    for run, blob in zip((original, again), blobs, strict=True):
        assert blob is not None
        verify(store, blob.digest, name=f"{run.id} {PREDICTIONS}", size=blob.size)
        paths.append(store.path(blob.digest))
    other = differing_processors(original, again)
    agreement = compare_predictions(paths[0], paths[1], _terms(lock, store), other_processor=other)
    if lock.operator is UNSET or agreement.agreement is not None:
        return agreement
    reason = "the processors differ, and so do bits of the outputs; both runs are within the tolerance of the reference"
    return PredictionAgreement("within tolerance", (reason,), 0, {})


def _terms(lock: Lock, store: FileStore) -> dict[str, Terms]:
    model = find_evaluated(read_manifests(lock, store))
    if isinstance(model, Operator):
        return {case.name: Terms("operator") for case in model.cases}
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
