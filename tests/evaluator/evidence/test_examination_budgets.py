"""Evidence that is made to exhaust whoever reads it costs a child process with limits, and never the one that asks."""

import gzip
import io
from collections import OrderedDict
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchlock.artifacts.isolation.resource_limits import Limits
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.evidence import recomputation, run_examination
from benchlock.evaluator.evidence.run_examination import Examiner
from benchlock.evaluator.records.run_types import Run
from benchlock.registry.lock.lockfile import Lock, dump
from benchlock.registry.manifests.manifest_content import content
from tests.support.evaluator.evidence import IDX, make_run
from tests.support.resolution.variants import Variant, variant

UNPACKED = 600 << 20
SMALL = Limits(memory=512 << 20, cpu_seconds=60, seconds=120.0)
NONE = Limits(memory=1 << 20, cpu_seconds=60, seconds=120.0)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "blobs")


@pytest.fixture
def lock(store: LocalStore) -> Lock:
    return kept(variant({"files": IDX, "request": {"metrics": ["top1", "latency"]}}), store)


@pytest.fixture
def run(lock: Lock, store: LocalStore) -> Run:
    return make_run(lock, store)


def kept(made: Variant, store: LocalStore) -> Lock:
    for manifest in made.manifests.values():
        for blob in (content(manifest), *made.files[manifest.kind].values()):
            store.put(io.BytesIO(blob))
    return made.lock


def examiner_of(lock: Lock, store: LocalStore, home: Path) -> Examiner:
    return Examiner(store, home, {lock.id: dump(lock)}.__getitem__)


def packed_zeros(size: int) -> bytes:
    target = io.BytesIO()
    with gzip.GzipFile(fileobj=target, mode="wb", compresslevel=1) as stream:
        for _ in range(size >> 20):
            stream.write(bytes(1 << 20))
    return target.getvalue()


def test_labels_that_unpack_to_more_than_the_limit_leave_the_record_unverified(
    run: Run, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {**IDX, "dataset/labels.idx": packed_zeros(UNPACKED)}
    bomb = kept(variant({"files": files, "request": {"metrics": ["top1", "latency"]}}), store)
    monkeypatch.setattr(recomputation, "LIMITS", SMALL)
    record = replace(run, start=replace(run.start, lock=bomb.id))
    examined = examiner_of(bomb, store, tmp_path).examine(record)
    assert examined.evidence is not None
    assert examined.evidence.state == "unverified"
    assert "needs more than its limit of 512 MiB of memory" in examined.evidence.reasons[0]
    assert examined.end is not None
    assert examined.end.metrics == ()


def test_a_blob_that_is_too_large_is_not_read(
    run: Run, lock: Lock, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_examination, "recent_recomputations", OrderedDict())
    monkeypatch.setattr(recomputation, "LARGEST_BLOB", {"samples": 1000})
    status = examiner_of(lock, store, tmp_path).compare(run)
    assert status.state == "unverified"
    assert "the maximum is 1000" in status.reasons[0]


def test_a_run_whose_evidence_is_too_large_is_recorded_as_failed_and_verified_as_such(
    run: Run, lock: Lock, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_examination, "recent_recomputations", OrderedDict())
    monkeypatch.setattr(recomputation, "LIMITS", NONE)
    with pytest.raises(AssertionError, match="needs more than its limit of 1 MiB of memory"):
        make_run(lock, store)  # it asserts that the run is done
    assert run.end is not None
    details = {name: run.end.details[name] for name in ("cpus", "exit_code", "not_enforced", "verified")}
    end = replace(
        run.end,
        outcome="failed",
        failure_class="output",
        failure_message="the recomputation of metrics needs more than its limit",
        metrics=(),
        packages={},
        details=details,
        timings={"run": 1.5},
    )
    examiner = examiner_of(lock, store, tmp_path)
    assert examiner.compare(replace(run, end=end)).reasons == ()
    assert examiner.compare(run).state == "unverified"


def test_a_record_is_recalled_once_it_was_compared(run: Run, lock: Lock, store: LocalStore, tmp_path: Path) -> None:
    examiner = examiner_of(lock, store, tmp_path)
    assert examiner.recall(run) is None
    examined = examiner.examine(run)
    assert examined.evidence is not None
    assert examiner.recall(run) == examined
    running = replace(run, end=None)
    assert examiner_of(lock, store, tmp_path / "new").recall(running) is running
