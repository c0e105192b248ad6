"""A lock that was run again: the run to compare with, and a verdict on predictions as they are kept."""

import dataclasses
import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from sqlalchemy import Engine, insert

from artifacts.digest import Descriptor
from artifacts.errors import IntegrityError, InvalidInputError
from artifacts.local import LocalStore
from evaluator.records.records import Records
from evaluator.records.runs import Outcome, Run, RunEnd, new_run_id
from evaluator.rerunning import PREDICTIONS, judge_rerun, latest_done
from registry.catalogue.database import writing
from registry.catalogue.tables import locks
from registry.manifests.identity import content
from tests.support.recorded import DONE, NOON, metric, recorded
from tests.support.variants import variant

SCORES = np.array([[0.1, 0.9], [0.8, 0.2]], np.float32)
WHOLE = variant({})
LOCK = WHOLE.lock


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
    return recorded(dataclasses.replace(DONE, metrics=metrics, blobs=blobs), lock=LOCK.id, **host)


MOVED = SCORES + np.float32(1e-6)
OTHER = {"cpu_model": "Another CPU"}


@pytest.mark.parametrize(
    ("before", "after", "host", "word", "predictions", "reason"),
    [
        (SCORES, SCORES, {}, "reproduced", "bit-equal", "all 2 samples are bit-equal"),
        (SCORES, MOVED, {}, "not reproduced", "different", "on the same kind of processor"),
        (SCORES, MOVED, OTHER, "reproduced", "same decisions", "every decision is the same"),
        (SCORES, SCORES[:, ::-1].copy(), OTHER, "not reproduced", "different", "2 decisions"),
        (SCORES, None, {}, "not reproduced", "different", "only one of the runs left predictions"),
        (None, None, {}, "reproduced", None, "no predictions were asked for"),
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
    with writing(database) as connection:
        columns = {column.name: "x" for column in locks.columns} | {"id": LOCK.id, "created_at": NOON}
        connection.execute(insert(locks).values(columns))
    return Records(database)


def kept(records: Records, minutes: int, outcome: Outcome) -> Run:
    at = NOON + timedelta(minutes=minutes)
    start = dataclasses.replace(recorded(lock=LOCK.id).start, id=new_run_id(at), started_at=at)
    records.start(start)
    named = {"packages": {"numpy": "2"}, "timings": {"run": 1.0}, "blobs": {"result": Descriptor(LOCK.id, 1)}}
    end = RunEnd(outcome=outcome, ended_at=at + timedelta(minutes=1), **named)  # type: ignore[arg-type]
    records.finish(start.id, end)
    return records.get(start.id)


def test_a_lock_is_held_against_its_latest_done_run(records: Records) -> None:
    kept(records, 0, "done")
    latest = kept(records, 1, "done")
    kept(records, 2, "cancelled")
    assert latest_done(records, LOCK) == latest


def test_a_lock_without_a_done_run_has_nothing_to_be_held_against(records: Records) -> None:
    kept(records, 0, "cancelled")
    with pytest.raises(InvalidInputError, match="nothing to compare with") as caught:
        latest_done(records, LOCK)
    assert caught.value.next_step is not None
    assert "--against" in caught.value.next_step
