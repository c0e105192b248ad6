"""One measurement under several ids is refused, and where it is recorded already it counts once."""

import io
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from safetensors import safe_open
from safetensors.numpy import load, save
from sqlalchemy import Engine, insert

from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.evidence.recomputation import digest_latencies
from benchlock.evaluator.evidence.run_examination import Examiner
from benchlock.evaluator.records.replayed_runs import SAMPLES, ReplayedRunError, drop_replays, is_replay
from benchlock.evaluator.records.run_store import Records, keep_imported
from benchlock.evaluator.records.run_types import Run, RunEnd, new_run_id
from benchlock.evaluator.workflows.compare import compare_runs
from benchlock.evaluator.workflows.rerun import find_sides, judge_rerun
from benchlock.registry.database.engine import write_transaction
from benchlock.registry.database.registry_schema import locks
from benchlock.registry.lock.lockfile import Lock, dump
from benchlock.registry.manifests.manifest_content import content
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.recorded import DONE, NOON, metric, recorded
from tests.support.resolution.variants import variant

LOCK = variant({"request": {"metrics": ["latency"], "equivalence": {"latency_p50": 0.05}}}).lock
OTHER = variant({"request": {"metrics": ["latency"], "seed": 9}}).lock
SOME, MORE = (Descriptor(digest_bytes(text), 5) for text in (b"some samples", b"other samples"))


@pytest.fixture
def records(database: Engine) -> Records:
    with write_transaction(database) as connection:
        for lock in (LOCK, OTHER):
            columns = {column.name: "x" for column in locks.columns} | {"id": lock.id, "created_at": NOON}
            connection.execute(insert(locks).values(columns))
    return Records(database)


def timed(samples: Descriptor | None, minutes: int, lock: Lock = LOCK) -> Run:
    at = NOON + timedelta(minutes=minutes)
    blobs = {"result": SOME} | ({} if samples is None else {SAMPLES: samples})
    metrics = (metric("latency_p50", 0.002 + minutes / 1e6),)
    end = replace(
        DONE,
        metrics=metrics,
        blobs=blobs,
        packages={"numpy": "2"},
        timings={"run": 1.0},
        ended_at=at + timedelta(minutes=1),
    )
    run = recorded(end, lock=lock.id)
    return replace(run, start=replace(run.start, id=new_run_id(at), started_at=at))


def finish(records: Records, run: Run) -> None:
    records.start(run.start)
    assert run.end is not None
    records.finish(run.id, run.end)


def take(records: Records, run: Run) -> None:
    with write_transaction(records._engine) as connection:
        keep_imported(connection, run, NOON)


@pytest.mark.databases
@pytest.mark.parametrize("keep", [finish, take])
def test_a_run_with_the_samples_of_another_one_is_refused(
    keep: Callable[[Records, Run], None], records: Records
) -> None:
    first = timed(SOME, 0)
    finish(records, first)
    with pytest.raises(ReplayedRunError, match=f"has the samples of {first.id}") as caught:
        keep(records, timed(SOME, 1))
    assert isinstance(caught.value, IntegrityError)
    keep(records, timed(MORE, 2))
    take(records, first)  # the same run again changes nothing
    assert records.get(first.id).end == first.end


@pytest.mark.databases
@pytest.mark.parametrize("keep", [finish, take])
def test_a_hidden_run_blocks_no_run_and_is_not_named(keep: Callable[[Records, Run], None], records: Records) -> None:
    forgery, genuine, third = timed(SOME, 0), timed(SOME, 1), timed(SOME, 2)
    finish(records, forgery)
    records.hide(forgery.id, "forged")
    keep(records, genuine)
    with pytest.raises(ReplayedRunError, match=f"has the samples of {genuine.id}") as caught:
        keep(records, third)
    assert forgery.id not in str(caught.value)


def test_runs_without_samples_may_be_equal(records: Records) -> None:
    """Those of the scenario ``accuracy``: their results may be the same to the byte."""
    for minutes in range(3):
        finish(records, timed(None, minutes))
    assert len(records.list()) == 3


def test_samples_of_another_lock_are_left_to_the_comparison_with_the_blobs(records: Records) -> None:
    finish(records, timed(SOME, 0))
    finish(records, timed(SOME, 1, OTHER))
    assert len(records.list()) == 2


def test_the_earliest_of_equal_runs_is_kept_and_the_others_are_named() -> None:
    first, later, other, without = timed(SOME, 0), timed(SOME, 1), timed(MORE, 2), timed(None, 3)
    kept, sentences = drop_replays([later, without, other, first])
    assert kept == (without, other, first)
    assert sentences == (f"{later.id} has the samples of {first.id}, so they count once",)


def test_a_replay_that_is_recorded_counts_once_in_a_comparison() -> None:
    """It was recorded before replays were refused."""
    first, later, other = timed(SOME, 0), timed(SOME, 1), timed(MORE, 2, OTHER)
    found = compare_runs([(LOCK, first), (OTHER, other), (LOCK, later)])
    assert [run.id for arm in found.arms for run in arm.runs] == [first.id, other.id]
    assert found.replays == (f"{later.id} has the samples of {first.id}, so they count once",)
    with pytest.raises(InvalidInputError, match="these runs are copies of one measurement"):
        compare_runs([(LOCK, first), (LOCK, later)])


def test_equal_latencies_count_once_whatever_else_differs_in_the_samples(tmp_path: Path) -> None:
    made = variant({"lock": CURRENT, "files": IDX, "request": {"metrics": ["top1", "latency"]}})
    store = LocalStore(tmp_path / "blobs")
    for manifest in made.manifests.values():
        for blob in (content(manifest), *made.files[manifest.kind].values()):
            store.put(io.BytesIO(blob))
    run, other = (make_run(made.lock, store, at=NOON + timedelta(hours=hours)) for hours in (0, 1))
    assert run.end is not None
    samples = store.path(run.end.blobs[SAMPLES].digest).read_bytes()
    columns = load(samples)
    with safe_open(store.path(run.end.blobs[SAMPLES].digest), framework="numpy") as file:
        metadata = file.metadata()
    size = int.from_bytes(samples[:8], "little")
    copies = [
        (size + 8).to_bytes(8, "little") + samples[8 : 8 + size] + b" " * 8 + samples[8 + size :],
        save({**columns, "more": np.zeros(3)}, metadata),
        save(columns, {**metadata, "more": "text"}),
        save({**columns, "warmup_ns": columns["warmup_ns"] + 1}, metadata),
    ]
    examiner = Examiner(store, tmp_path, lambda _: dump(made.lock))
    examined = [examiner.examine(run), examiner.examine(other)]
    for copy in copies:
        end = replace(run.end, blobs={**run.end.blobs, SAMPLES: store.put(io.BytesIO(copy))})
        replayed = replace(run, start=replace(run.start, id=new_run_id(NOON)), end=end)
        for _ in range(2):  # compared, and remembered
            examined.append(replace(examiner.examine(replayed), position=len(examined)))
    assert {one.evidence.state for one in examined if one.evidence is not None} == {"verified"}
    kept, sentences = drop_replays(examined)
    assert kept == tuple(examined[:2])
    assert len(sentences) == len(copies)
    told = msgspec.convert(msgspec.to_builtins(examined[2]), Run)
    assert is_replay(told, examined[0])


@pytest.mark.parametrize(("count", "is_known"), [(0, False), (1, False), (15, False), (16, True)])
def test_few_latencies_are_no_measurement_that_is_known_again(count: int, *, is_known: bool) -> None:
    """Two runs of one query have the same nanoseconds once in some thousand times."""
    phase: Any = SimpleNamespace(samples=SimpleNamespace(latency=np.arange(count)))
    assert (digest_latencies(phase) is not None) == is_known


def test_a_replay_that_is_recorded_counts_once_in_a_rerun(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    first, later, again = timed(SOME, 0), timed(SOME, 1), timed(MORE, 2)
    with monkeypatch.context() as before:
        before.setattr("benchlock.evaluator.records.run_store.refuse_replay", lambda *_: None)
        for run in (first, later, again):
            finish(records, run)
    found = find_sides(records, LOCK, records.get(later.id), records.get(again.id))
    assert [run.id for run in found.originals] == [first.id]
    assert [run.id for run in found.reruns] == [again.id]
    assert found.replays == (f"{later.id} has the samples of {first.id}, so they count once",)


def test_of_equal_runs_the_first_recorded_counts_when_a_hidden_one_is_shown_again(records: Records) -> None:
    """The copy claims an older time, and was recorded while the original was hidden."""
    hidden, copy, other, again = timed(SOME, 1), timed(SOME, 0), timed(None, 2), timed(MORE, 3)
    finish(records, hidden)
    records.hide(hidden.id, "under review")
    for run in (copy, other, again):
        finish(records, run)
    records.unhide(hidden.id)
    loaded = [(LOCK, records.get(run.id)) for run in (copy, hidden, other)]
    named = (f"{copy.id} has the samples of {hidden.id}, so they count once",)
    found = compare_runs(loaded)
    assert [run.id for arm in found.arms for run in arm.runs] == [hidden.id, other.id]
    assert found.replays == named
    sides = find_sides(records, LOCK, records.get(other.id), records.get(again.id))
    assert [run.id for run in sides.originals] == [hidden.id, other.id]
    assert sides.replays == named


def test_a_rerun_that_replays_an_earlier_run_has_no_times_of_its_own(
    records: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other, again = timed(SOME, 0), timed(MORE, 1), timed(SOME, 2)
    with monkeypatch.context() as before:
        before.setattr("benchlock.evaluator.records.run_store.refuse_replay", lambda *_: None)
        for run in (first, other, again):
            finish(records, run)
    store = LocalStore(tmp_path / "blobs")
    for manifest in variant({}).manifests.values():
        store.put(io.BytesIO(content(manifest)))
    original, rerun = records.get(other.id), records.get(again.id)
    sides = find_sides(records, LOCK, original, rerun)
    assert sides.reruns == ()
    verdict = judge_rerun(LOCK, original, rerun, store, sides)
    assert verdict.verdict == "undecided"
    assert f"{again.id} has the samples of {first.id}, so they count once" in verdict.reported


def test_a_run_is_not_judged_against_its_own_replay(tmp_path: object) -> None:
    with pytest.raises(InvalidInputError, match="the same measurement under another id"):
        judge_rerun(LOCK, timed(SOME, 0), timed(SOME, 1), tmp_path)  # type: ignore[arg-type]


def test_a_failed_run_may_not_repeat_samples_either(records: Records) -> None:
    finish(records, timed(SOME, 0))
    again = timed(SOME, 1)
    assert again.end is not None
    failed = RunEnd(
        outcome="failed",
        failure_class="crash",
        failure_message="it fell",
        blobs=again.end.blobs,
        ended_at=again.end.ended_at,
    )
    with pytest.raises(ReplayedRunError):
        finish(records, replace(again, end=failed))
