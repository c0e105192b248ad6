"""Stored predictions that are not finite: a failure, unless the harness is one that took them for numbers."""

import io
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.evidence.run_examination import Examiner
from benchlock.registry.lock.lockfile import Lock, dump
from benchlock.registry.manifests.manifest_content import content
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.resolution.variants import variant


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "blobs")


def lock_of(store: LocalStore, patch: dict[str, str]) -> Lock:
    kept = variant({"lock": patch, "files": IDX, "request": {"metrics": ["top1"]}})
    for manifest in kept.manifests.values():
        for blob in (content(manifest), *kept.files[manifest.kind].values()):
            store.put(io.BytesIO(blob))
    return kept.lock


def test_a_harness_that_calls_nan_done_is_not_believed(store: LocalStore, tmp_path: Path) -> None:
    lock = lock_of(store, CURRENT)
    run, honest = make_run(lock, store, has_nan=True, outcome="failed"), make_run(lock, store)
    assert run.end is not None
    assert honest.end is not None
    assert (run.end.failure_class, run.end.metrics) == ("non-finite", ())
    assert "20 of 20 values are not finite (20 NaN, 0 infinite), in 2 of 2 samples" in (run.end.failure_message or "")
    examiner = Examiner(store, tmp_path, {lock.id: dump(lock)}.__getitem__)
    assert examiner.compare(run).state == "verified"
    end = replace(run.end, outcome="done", failure_class=None, failure_message=None, metrics=honest.end.metrics)
    forged = examiner.compare(replace(run, end=end))
    assert forged.state == "contradicted"
    assert any("non-finite" in reason for reason in forged.reasons)


@pytest.mark.parametrize("version", ["1.0.0", "1.2.0"])
def test_a_record_of_an_earlier_harness_stays_what_it_was(version: str, store: LocalStore, tmp_path: Path) -> None:
    lock = lock_of(store, {"harness.version": version})
    run = make_run(lock, store, has_nan=True)
    status = Examiner(store, tmp_path, {lock.id: dump(lock)}.__getitem__).compare(run)
    assert (status.state, status.reasons) == ("verified", ())
