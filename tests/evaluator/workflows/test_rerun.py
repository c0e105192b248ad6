"""A lock that was run again: the run to compare with, and a verdict on predictions as they are kept."""

import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from safetensors.numpy import save_file
from sqlalchemy import Engine, insert, text

from benchlock.artifacts.digest import Descriptor
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.records.evidence_status import EvidenceStatus
from benchlock.evaluator.records.run_comparison import Sides
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import DamagedRun, Outcome, Run, RunEnd, RunId, new_run_id
from benchlock.evaluator.workflows import rerun
from benchlock.evaluator.workflows.rerun import (
    PREDICTIONS,
    SAMPLES,
    LatestRun,
    find_latest_done,
    find_margins,
    find_sides,
    judge_rerun,
    judge_reruns,
    margins_of,
    repeat_rerun,
)
from benchlock.registry.database.engine import write_transaction
from benchlock.registry.database.registry_schema import locks
from benchlock.registry.lock.lockfile import Lock, read
from benchlock.registry.manifests.manifest_content import content
from tests.support.evaluator.recorded import DONE, NOON, metric, recorded
from tests.support.evaluator.releases import release
from tests.support.resolution.recipes import ask, ask_distributed, recipes
from tests.support.resolution.variants import variant

SCORES = np.array([[0.1, 0.9], [0.8, 0.2]], np.float32)
WHOLE = variant({})
LOCK = WHOLE.lock


@pytest.fixture(autouse=True)
def released(monkeypatch: pytest.MonkeyPatch) -> None:
    release(monkeypatch, LOCK.harness)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A store with the manifests of the lock."""
    kept = LocalStore(tmp_path / "blobs")
    for manifest in WHOLE.manifests.values():
        kept.put(io.BytesIO(content(manifest)))
    return kept


def predicted(store: LocalStore, folder: Path, scores: np.ndarray | None, **host: Any) -> Run:  # noqa: ANN401 - facts of any type
    """A run that left these predictions, none where they are None."""
    blobs: dict[str, Descriptor] = {}
    if scores is not None:
        save_file({"scores": scores}, folder / "predictions")
        blobs[PREDICTIONS] = store.put_file(folder / "predictions")
    metrics = (metric("top1", 0.5, n=2),)
    return recorded(structs.replace(DONE, metrics=metrics, blobs=blobs), lock=LOCK.id, **host)


MOVED = SCORES + np.float32(1e-6)
OTHER = {"cpu_model": "Another CPU"}


@pytest.mark.parametrize(
    ("before", "after", "host", "word", "predictions", "reason"),
    [
        (SCORES, SCORES, {}, "reproduced", "bit-equal", "all 2 samples are bit-equal"),
        (SCORES, MOVED, {}, "not reproduced", "different", "on the same kind of processor"),
        (SCORES, MOVED, OTHER, "reproduced", "same decisions", "every decision is the same"),
        (SCORES, SCORES[:, ::-1].copy(), OTHER, "not reproduced", "different", "2 decisions"),
        (SCORES, None, {}, "not reproduced", "different", "only one of the runs has predictions"),
        (None, None, {}, "reproduced", None, "no predictions were requested"),
    ],
)
def test_the_verdict_is_on_what_is_kept(  # noqa: PLR0917 - a case
    store: LocalStore, tmp_path: Path, before: np.ndarray | None, after: np.ndarray | None, host: dict[str, str],
    word: str, predictions: str | None, reason: str,
) -> None:  # fmt: skip
    original, again = predicted(store, tmp_path, before), predicted(store, tmp_path, after, **host)
    found = judge_rerun(LOCK, original, again, store)
    assert (found.verdict, found.predictions) == (word, predictions)
    assert reason in found.reasons[0]


def test_a_tolerance_is_the_manifests(store: LocalStore, tmp_path: Path) -> None:
    tolerant = variant({"model": {"outputs.0.tolerance": {"absolute": 1e-5, "relative": 0}}})
    for manifest in tolerant.manifests.values():
        store.put(io.BytesIO(content(manifest)))
    original, again = predicted(store, tmp_path, SCORES), predicted(store, tmp_path, MOVED)
    found = judge_rerun(tolerant.lock, original, again, store)
    assert (found.verdict, found.predictions) == ("reproduced", "within tolerance")


def test_predictions_that_were_damaged_are_judged_by_nobody(store: LocalStore, tmp_path: Path) -> None:
    original, again = predicted(store, tmp_path, SCORES), predicted(store, tmp_path, MOVED)
    assert again.end is not None
    path = store.path(again.end.blobs[PREDICTIONS].digest)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(IntegrityError, match=PREDICTIONS):
        judge_rerun(LOCK, original, again, store)


@pytest.fixture
def records(database: Engine) -> Records:
    with write_transaction(database) as connection:
        columns = {column.name: "x" for column in locks.columns} | {"id": LOCK.id, "created_at": NOON}
        connection.execute(insert(locks).values(columns))
    return Records(database)


def kept(records: Records, minutes: int, outcome: Outcome) -> Run:
    at = NOON + timedelta(minutes=minutes)
    start = structs.replace(recorded(lock=LOCK.id).start, id=new_run_id(at), started_at=at)
    records.start(start)
    named = {"packages": {"numpy": "2"}, "timings": {"run": 1.0}, "blobs": {"result": Descriptor(LOCK.id, 1)}}
    end = RunEnd(outcome=outcome, ended_at=at + timedelta(minutes=1), **named)  # type: ignore[arg-type]
    records.finish(start.id, end)
    return records.get(start.id)


def test_a_lock_is_held_against_its_latest_done_run(records: Records) -> None:
    kept(records, 0, "done")
    latest = kept(records, 1, "done")
    kept(records, 2, "cancelled")
    assert find_latest_done(records, LOCK.id) == LatestRun(latest, ())


def damage(database: Engine, run: Run) -> None:
    with database.begin() as connection:
        query = text("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'run_ends'")
        for name in connection.execute(query).scalars().all():
            connection.execute(text(f'DROP TRIGGER "{name}"'))
        connection.execute(text("UPDATE run_ends SET timings = '{}' WHERE run = :run"), {"run": run.id})


class Contradicted(Records):
    """Records of which some contradict their evidence."""

    contradicted: tuple[RunId, ...] = ()

    def get(self, run: RunId) -> Run:
        status = EvidenceStatus("contradicted" if run in self.contradicted else "verified", ("top1 differs",))
        return structs.replace(super().get(run), evidence=status)


def test_damaged_and_contradicted_runs_are_skipped_and_named(records: Records, database: Engine) -> None:
    assert records.count(LOCK.id) == 0
    runs = Contradicted(database)
    sound = kept(runs, 0, "done")
    forged = [kept(runs, minute, "done") for minute in range(1, 10)]
    damaged = kept(runs, 10, "done")
    damage(database, damaged)
    runs.contradicted = tuple(run.id for run in forged)
    latest = find_latest_done(runs, LOCK.id)
    assert latest.run == sound
    assert latest.skipped == (
        f"skipped {damaged.id}: its record is damaged",
        *(
            f"skipped {run.id}: its record contradicts its evidence: top1 differs"
            for run in sorted(forged, key=lambda run: run.id, reverse=True)
        ),
    )
    runs.contradicted += (sound.id,)
    with pytest.raises(InvalidInputError, match="to compare with") as caught:
        find_latest_done(runs, LOCK.id)
    assert damaged.id in caught.value.what


def test_a_run_that_is_recorded_later_under_an_older_id_is_not_the_latest_one_before(records: Records) -> None:
    original, again = kept(records, 0, "done"), kept(records, 9, "done")
    backdated = kept(records, 5, "done")
    assert find_latest_done(records, LOCK.id, again).run == original
    assert find_latest_done(records, LOCK.id, kept(records, 10, "done")).run == again
    assert backdated.order > again.order


def test_a_lock_without_a_done_run_has_nothing_to_be_held_against(records: Records) -> None:
    kept(records, 0, "cancelled")
    with pytest.raises(InvalidInputError, match="to compare with") as caught:
        find_latest_done(records, LOCK.id)
    assert caught.value.next_step is not None
    assert "the run to compare with" in caught.value.next_step


def timed(records: Records, lock: Lock, minutes: int, part_of: Mapping[str, Any] | None = None) -> Run:
    """A run that is kept, of a lock that states an equivalence."""
    at = NOON + timedelta(minutes=minutes)
    start = structs.replace(recorded(lock=lock.id).start, id=new_run_id(at), started_at=at)
    records.start(start)
    named = {"packages": {"numpy": "2"}, "timings": {"run": 1.0}, "blobs": {"result": Descriptor(lock.id, 1)}}
    details = {} if part_of is None else {"part_of": dict(part_of)}
    end = RunEnd(outcome="done", ended_at=at + timedelta(minutes=1), details=details, **named)  # type: ignore[arg-type]
    records.finish(start.id, end)
    return records.get(start.id)


def test_the_sides_are_the_earlier_runs_and_those_of_the_same_rerun(database: Engine) -> None:
    lock = variant({"request": {"equivalence": {"latency_p50": 0.05}}}).lock
    with write_transaction(database) as connection:
        columns = {column.name: "x" for column in locks.columns} | {"id": lock.id, "created_at": NOON}
        connection.execute(insert(locks).values(columns))
    records = Records(database)
    earlier = [timed(records, lock, minute) for minute in range(3)]
    original = earlier[1]
    minutes = iter(range(10, 40))
    timed(records, lock, 9, {"kind": "rerun", "id": "another", "number": 1, "of": 1, "original": original.id})
    made = repeat_rerun(original, lambda part_of: timed(records, lock, next(minutes), part_of), 4)
    timed(records, lock, 50)  # a run that came later is of no side
    assert len(made) == 4
    found = find_sides(records, lock, original, made[2])
    assert [run.id for run in found.originals] == [run.id for run in earlier]
    assert [run.id for run in found.reruns] == [run.id for run in made]


def test_a_run_that_is_recorded_later_under_an_older_id_is_of_no_side(database: Engine, equivalent: Lock) -> None:
    records = Records(database)
    original = timed(records, equivalent, 1)
    slow = timed(records, equivalent, -60)  # the clock of its host was slow, and it was recorded in time
    again = timed(records, equivalent, 9, rerun_of(original, "one", 1))
    timed(records, equivalent, 0)  # recorded last, under an id older than that of the original
    second = timed(records, equivalent, 2, rerun_of(original, "one", 2))
    found = find_sides(records, equivalent, original, again)
    assert [run.id for run in found.originals] == [original.id, slow.id]
    assert [run.id for run in found.reruns] == [again.id, second.id]


@pytest.fixture
def equivalent(database: Engine) -> Lock:
    """A lock that states an equivalence."""
    lock = variant({"request": {"equivalence": {"latency_p50": 0.05}}}).lock
    with write_transaction(database) as connection:
        columns = {column.name: "x" for column in locks.columns} | {"id": lock.id, "created_at": NOON}
        connection.execute(insert(locks).values(columns))
    return lock


class Counting(Records):
    """Counts what is examined, and calls some records damaged."""

    examined: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()

    def get(self, run: RunId) -> Run:
        self.examined += (run,)
        return super().get(run)

    def _examine(self, runs: Iterable[Run]) -> Iterable[Run]:
        for run in runs:
            self.examined += (run.id,)
            yield run

    def _load_some(self, ids: Sequence[str]) -> tuple[Run | DamagedRun, ...]:
        return tuple(
            DamagedRun(one.id, "a damaged record") if one.id in self.damaged else one for one in super()._load_some(ids)
        )


def rerun_of(original: Run, identity: str, number: int) -> dict[str, Any]:
    return {"kind": "rerun", "id": identity, "number": number, "of": 12, "original": original.id}


def test_a_damaged_record_is_left_out_and_named(database: Engine, equivalent: Lock, store: LocalStore) -> None:
    records = Counting(database)
    earlier = [timed(records, equivalent, minute) for minute in range(3)]
    again = timed(records, equivalent, 9)
    records.damaged = (earlier[0].id,)
    found = find_sides(records, equivalent, earlier[1], again)
    assert [run.id for run in found.originals] == [earlier[1].id, earlier[2].id]
    assert found.damaged == (earlier[0].id,)
    verdict = judge_rerun(equivalent, earlier[1], again, store, found)
    assert any(earlier[0].id in reason and "damaged" in reason for reason in verdict.reported)


def test_reruns_never_hide_the_original_runs(
    database: Engine, equivalent: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerun, "RUNS_PER_PAGE", 4)
    records = Counting(database)
    earlier = [timed(records, equivalent, minute) for minute in range(3)]
    for number in range(1, 10):
        timed(records, equivalent, 10 + number, rerun_of(earlier[0], "another", number))
    again = timed(records, equivalent, 30)
    records.examined = ()
    found = find_sides(records, equivalent, earlier[0], again)
    assert [run.id for run in found.originals] == [run.id for run in earlier]
    assert sorted(records.examined) == [run.id for run in earlier[1:]]


def test_the_newest_runs_alone_are_examined(
    database: Engine, equivalent: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rerun, "MAX_COUNTED", 2)
    records = Counting(database)
    earlier = [timed(records, equivalent, minute) for minute in range(6)]
    again = timed(records, equivalent, 30)
    records.examined = ()
    found = find_sides(records, equivalent, earlier[0], again)
    assert [run.id for run in found.originals] == [earlier[0].id, earlier[4].id, earlier[5].id]
    assert sorted(records.examined) == [earlier[4].id, earlier[5].id]


@pytest.mark.parametrize("edited", [{"latency_p50": "5 %"}, {"latency_p50": -0.1}, [0.1]])
def test_margins_that_are_no_positive_numbers_are_refused(edited: object) -> None:
    document = {**LOCK.document, "request": {**LOCK.request, "equivalence": edited}}
    with pytest.raises(InvalidInputError, match="invalid margins in the lock") as caught:
        margins_of(read(document, "edited"))
    assert caught.value.where == "request.equivalence"


def test_a_request_without_an_equivalence_compares_two_runs(records: Records) -> None:
    kept(records, 0, "done")
    original, again = kept(records, 1, "done"), kept(records, 2, "done")
    assert find_sides(records, LOCK, original, again) == Sides((original,), (again,))


def turn_of(number: int, *, control: bool) -> dict[str, Any]:
    """A turn of a lock that a reviewer runs in turn with itself."""
    part = {"kind": "comparison", "id": "5f0c3a9d1b22e47a", "round": number, "rounds": 6, "arm": 0}
    return part | {"control": control, "margins": {"latency_p50": 0.05}}


def test_the_runs_that_a_reviewer_made_with_a_margin_are_the_new_ones(records: Records) -> None:
    earlier = timed(records, LOCK, 0)
    timed(records, LOCK, 5, turn_of(1, control=False) | {"id": "0" * 16})  # another comparison, which is of no side
    turns = [(number, control) for number in range(1, 7) for control in (False, True)]
    made = [timed(records, LOCK, 10 + at, turn_of(turn[0], control=turn[1])) for at, turn in enumerate(turns)]
    for again in (made[0], made[-1]):
        assert find_margins(LOCK, again) == {"latency_p50": 0.05}
        found = find_sides(records, LOCK, earlier, again)
        assert [run.id for run in found.originals] == [earlier.id]
        assert [run.id for run in found.reruns] == [run.id for run in made]
    assert find_margins(LOCK, earlier) == {}


def test_runs_of_one_repetition_are_no_originals_of_each_other(records: Records) -> None:
    earlier = timed(records, LOCK, 0)
    made = [timed(records, LOCK, 10 + number, turn_of(number, control=False)) for number in (1, 2, 3)]
    assert find_latest_done(records, LOCK.id, made[-1]).run.id == earlier.id
    later = timed(records, LOCK, 20)
    assert find_latest_done(records, LOCK.id, later).run.id == made[-1].id


def slowed(slowness: float, count: int) -> tuple[Run, ...]:
    """Runs that differ by a thousandth, and state the margin of a reviewer."""
    values = (metric("latency_p50", 0.01 * slowness + 1e-5 * place) for place in range(count))
    end = structs.replace(DONE, details={"part_of": turn_of(1, control=True)})
    return tuple(recorded(structs.replace(end, metrics=(value,)), lock=LOCK.id) for value in values)


@pytest.mark.parametrize(
    ("originals", "news", "slowness", "word", "answers"),
    [
        (6, 6, 1.01, "reproduced", ["equivalent"]),
        (6, 6, 2.0, "not reproduced", ["different"]),
        (1, 12, 1.0, "reproduced", ["equivalent"]),
        (1, 12, 1.05, "undecided", ["undecided"]),
        (1, 12, 2.0, "undecided", ["undecided"]),  # a single run may have been disturbed
        (1, 5, 1.0, "undecided", []),
    ],
)
def test_the_margin_of_a_reviewer_decides_on_the_runs_that_state_it(
    store: LocalStore, originals: int, news: int, slowness: float, word: str, answers: list[str]
) -> None:
    before, after = slowed(1, originals), slowed(slowness, news)
    found = judge_rerun(LOCK, before[0], after[0], store, Sides(before, after, few_originals=True))
    assert (found.verdict, [finding.answer for finding in found.times]) == (word, answers)
    assert {finding.margin for finding in found.times} <= {0.05}


def test_a_rerun_ends_at_a_run_that_is_not_done_or_on_another_host() -> None:
    original = recorded(lock=LOCK.id)
    failed = structs.replace(DONE, outcome="failed", failure_class="load", failure_message="broken", metrics=())
    for last in (recorded(failed, lock=LOCK.id), recorded(lock=LOCK.id, kernel="Linux 7")):
        following = iter([recorded(lock=LOCK.id), last, recorded(lock=LOCK.id)])
        assert len(repeat_rerun(original, lambda _, following=following: next(following), 3)) == 2  # type: ignore[misc]


def test_of_several_new_runs_the_one_that_is_not_reproduced_decides(store: LocalStore, tmp_path: Path) -> None:
    original, same = (predicted(store, tmp_path, SCORES) for _ in range(2))
    moved = predicted(store, tmp_path, MOVED)
    verdict, run = judge_reruns(LOCK, original, Sides((original,), (same, moved)), store)
    assert (verdict.verdict, run) == ("not reproduced", moved)
    verdict, run = judge_reruns(LOCK, original, Sides((original,), (same, same)), store)
    assert (verdict.verdict, run) == ("reproduced", same)


def test_a_rerun_of_a_server_does_not_judge_its_throughput(store: LocalStore) -> None:
    scenario = {
        "name": "server", "target_qps": 100, "target_latency": "10ms",
        "min_queries": 100, "min_duration": "1s", "warmup": 3,
    }  # fmt: skip
    asked = {"scenario": scenario, "metrics": ["throughput"], "equivalence": {"throughput": 0.1}}
    lock = variant({"request": asked}).lock
    before, after = (
        tuple(recorded(structs.replace(DONE, metrics=(metric("throughput", rate),)), lock=lock.id) for _ in range(6))
        for rate in (100.0, 200.0)
    )
    found = judge_rerun(lock, before[0], after[0], store, Sides(before, after))
    assert (found.verdict, found.times) == ("undecided", ())


def trained(store: LocalStore, folder: Path, lock: Lock, losses: Sequence[float], seconds: float) -> Run:
    """A done training whose repeats all reached the target in 3 epochs, with these last losses and this time."""
    columns = {f"{number}/loss": np.asarray([2.0, loss]) for number, loss in enumerate(losses)}
    columns |= {"seconds": np.asarray([seconds])}
    columns |= {f"{number}/evaluation": np.asarray([[3, 2, 2]]) for number in range(len(losses))}
    save_file(columns, folder / "samples")
    details = {"training": {"repeats": [{"weights": str(loss), "reached": True} for loss in losses]}}
    end = structs.replace(DONE, metrics=(), blobs={SAMPLES: store.put_file(folder / "samples")}, details=details)
    return recorded(end, lock=lock.id)


@pytest.mark.parametrize("reproduce", ["bits", "distribution"])
def test_a_bit_equal_training_is_reproduced_however_the_request_compares(
    monkeypatch: pytest.MonkeyPatch, store: LocalStore, tmp_path: Path, reproduce: str
) -> None:
    parts = recipes()
    for manifest in parts.chosen.all():
        store.put(io.BytesIO(content(manifest)))
    lock = parts.lock(ask(reproduce=reproduce, equivalence="{epochs_to_quality: 0.2}"))
    release(monkeypatch, lock.harness)
    original, again = (trained(store, tmp_path, lock, [1.0, 1.1], seconds) for seconds in (5.0, 6.0))
    verdict = judge_rerun(lock, original, again, store)
    assert (verdict.verdict, verdict.predictions) == ("reproduced", "bit-equal")
    assert verdict.reasons == ("weights and losses of 2 repeats are bit-equal",)
    moved = judge_rerun(lock, original, trained(store, tmp_path, lock, [1.0, 1.5], 5.5), store)
    assert moved.verdict == ("not reproduced" if reproduce == "bits" else "reproduced")
    document = {**lock.document, "request": {**lock.request, "reproduce": "distribution", "equivalence": {}}}
    with pytest.raises(InvalidInputError, match="without a margin of epochs_to_quality"):
        judge_rerun(read(document, "edited"), original, trained(store, tmp_path, lock, [1.0, 1.5], 5.6), store)


def distributed(store: LocalStore, folder: Path, lock: Lock, loss: float, *, is_bit_equal: bool = True) -> Run:
    """A done training of two ranks with this last loss; each call has other times."""
    losses = np.asarray([[2.0, 2.0]] * 4 + [[1.0, loss]])
    times = np.full(5, len(list(folder.iterdir())) + 1)
    save_file({"loss": losses, "step_ns": times}, folder / "single")
    for rank in range(2):
        columns = dict.fromkeys(("step_ns", "sent", "logical"), times)
        save_file({"loss": losses[:, rank].copy(), **columns}, folder / f"rank-{rank}")
    each = {"seconds": 1.0, "sent": 1.0, "gradients": 1.0, "loss": loss}
    ranks = {"ranks": [each, each], "is_bit_equal": is_bit_equal, "loss_difference": 0.0, "ratio": 1.0}
    details = {"distributed": {"reference": str(loss), "ranks": [str(loss)] * 2}, "ranks": ranks}
    blobs = {role: store.put_file(folder / role) for role in ("single", "rank-0", "rank-1")}
    return recorded(structs.replace(DONE, metrics=(), blobs=blobs, details=details), lock=lock.id)


def test_a_distributed_training_is_judged_by_the_bits_of_its_ranks_and_of_its_reference(
    monkeypatch: pytest.MonkeyPatch, store: LocalStore, tmp_path: Path
) -> None:
    parts = recipes()
    for manifest in parts.chosen.all():
        store.put(io.BytesIO(content(manifest)))
    lock = parts.lock(ask_distributed())
    release(monkeypatch, lock.harness)
    original, again, moved = (distributed(store, tmp_path, lock, loss) for loss in (1.0, 1.0, 1.5))
    verdict = judge_rerun(lock, original, again, store)
    assert (verdict.verdict, verdict.predictions) == ("reproduced", "bit-equal")
    verdict = judge_rerun(lock, original, moved, store)
    assert verdict.verdict == "not reproduced"
    assert verdict.reasons == ("the losses of rank 1 differ from step 4 on (1.0, 1.5)",)
    apart = distributed(store, tmp_path, lock, 1.0, is_bit_equal=False)
    verdict = judge_rerun(lock, original, apart, store)
    assert verdict.verdict == "not reproduced"
    assert "2 ranks must have the bits of one process" in verdict.reasons[0]
