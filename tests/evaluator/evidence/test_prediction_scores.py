"""Two runs compared in quality sample by sample: from their stored predictions and the labels, in a child process."""

import io
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.isolation.resource_limits import Limits
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.evidence import prediction_scores
from benchlock.evaluator.evidence.prediction_scores import PredictionPairs
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.workflows.compare import compare_runs
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.manifest_content import content
from tests.support.evaluator.evidence import CURRENT, make_run
from tests.support.evaluator.releases import release
from tests.support.resolution.variants import variant

SAMPLES = 10_000
_COUNT = SAMPLES.to_bytes(4)
FILES = {
    "dataset/images.idx": bytes([0, 0, 8, 3, *_COUNT, 0, 0, 0, 2, 0, 0, 0, 2]) + bytes(4 * SAMPLES),
    "dataset/labels.idx": bytes([0, 0, 8, 1, *_COUNT]) + bytes(number % 3 for number in range(SAMPLES)),
}


@pytest.fixture(autouse=True)
def released(monkeypatch: pytest.MonkeyPatch) -> None:
    release(monkeypatch, variant({"lock": CURRENT}).lock.harness)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "blobs")


def lock_of(store: LocalStore, name: str, **case: Any) -> Lock:  # noqa: ANN401 - parts of a case
    """Return the lock of the model ``name`` on 10,000 samples, with what it names in the store."""
    request = {"metrics": ["top1"], "model": {"name": name, "version": "*"}}
    dataset = {"splits.test.samples": SAMPLES, "splits.bare.samples": SAMPLES}
    parts = {"model": {"name": name}, "dataset": dataset, "files": FILES, "request": request, "lock": CURRENT}
    made = variant(parts | case)
    for manifest in made.manifests.values():
        for blob in (content(manifest), *made.files[manifest.kind].values()):
            store.put(io.BytesIO(blob))
    return made.lock


def pairs_of(store: LocalStore, first: int, second: int) -> list[tuple[Lock, Run]]:
    """Return two runs: so many samples are right in one alone, 1000 in none, and the others in both."""
    a, b = lock_of(store, "digits"), lock_of(store, "other")
    both = range(1000 + first + second, SAMPLES)
    return [
        (a, make_run(a, store, right={*range(first), *both})),
        (b, make_run(b, store, right={*range(first, first + second), *both})),
    ]


def test_300_against_200_of_10000_samples_are_different(store: LocalStore, tmp_path: Path) -> None:
    """The intervals of both values meet: they speak of other samples, and these are the same of both."""
    found = compare_runs(pairs_of(store, 300, 200), PredictionPairs(store, tmp_path / "scratch").compare)
    ((_, (finding,)),) = found.findings
    assert finding.test is not None
    assert (finding.test.method, finding.test.n, finding.test.comparisons) == ("mcnemar", SAMPLES, 1)
    assert (finding.test.only_first, finding.test.only_second) == (300, 200)
    assert finding.test.p == pytest.approx(8.94e-6, rel=1e-3)
    assert (finding.answer, finding.metric) == ("different", "top1")
    assert "300 only the first decides right, 200 only the second (p = 8.9e-06)" in finding.reason
    assert "the second is worse" in finding.reason
    assert not any((tmp_path / "scratch").iterdir())


def test_without_predictions_the_intervals_decide_and_the_reason_is_said(store: LocalStore, tmp_path: Path) -> None:
    (a, one), (b, other) = pairs_of(store, 300, 200)
    assert other.end is not None
    lost = replace(other, end=replace(other.end, blobs={"predictions": Descriptor(digest_bytes(b"lost"), 4)}))
    without = replace(other, end=replace(other.end, blobs={}))
    for run, reason in ((lost, f"the predictions of {other.id} are missing"), (without, "has no stored predictions")):
        ((_, (finding,)),) = compare_runs([(a, one), (b, run)], PredictionPairs(store, tmp_path).compare).findings
        assert (finding.answer, finding.test) == ("undecided", None)
        assert reason in finding.reason


@pytest.mark.parametrize(
    "case",
    [
        {"files": FILES | {"dataset/labels.idx": FILES["dataset/labels.idx"][:-1] + b"\1"}},
        {"dataset": {"version": "1.1.0", "splits.test.samples": SAMPLES, "splits.bare.samples": SAMPLES}},
        {"lock": CURRENT | {"dataset.split": "bare"}},
    ],
    ids=["labels", "version", "split"],
)
def test_runs_of_different_samples_are_never_paired(case: dict[str, Any], store: LocalStore, tmp_path: Path) -> None:
    (a, one), (_, other) = pairs_of(store, 300, 200)
    found = PredictionPairs(store, tmp_path).compare((a, one), (lock_of(store, "other", **case), other))
    assert (found.tests, found.reason) == ({}, "the runs are of different samples")


def test_predictions_that_were_changed_are_refused(store: LocalStore, tmp_path: Path) -> None:
    pairs = pairs_of(store, 2, 1)
    assert pairs[1][1].end is not None
    path = store.path(pairs[1][1].end.blobs["predictions"].digest)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(IntegrityError):
        PredictionPairs(store, tmp_path).compare(pairs[0], pairs[1])


def test_the_time_and_the_memory_of_a_comparison_are_bounded(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = pairs_of(store, 2, 1)
    found = PredictionPairs(store, tmp_path, seconds=0).compare(pairs[0], pairs[1])
    assert found.reason == "the 0 seconds for comparisons sample by sample are used up"
    monkeypatch.setattr(prediction_scores, "LIMITS", Limits(memory=64 << 20, seconds=60.0))
    found = PredictionPairs(store, tmp_path).compare(pairs[0], pairs[1])
    assert found.tests == {}
    assert "the comparison sample by sample" in (found.reason or "")
    assert "64 MiB of memory" in (found.reason or "")
