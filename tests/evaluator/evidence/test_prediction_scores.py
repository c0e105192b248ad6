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
from benchlock.evaluator.evidence.stored_results import StoredResults
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
    found = compare_runs(pairs_of(store, 300, 200), PredictionPairs(store, tmp_path / "scratch").compare_all)
    ((_, (finding,)),) = found.findings
    assert finding.test is not None
    assert (finding.test.method, finding.test.n, finding.test.comparisons) == ("mcnemar", SAMPLES, 1)
    assert (finding.test.only_first, finding.test.only_second) == (300, 200)
    assert finding.test.p == pytest.approx(8.94e-6, rel=1e-3)
    assert (finding.answer, finding.metric) == ("different", "top1")
    assert "300 only the first predicts correctly, 200 only the second (p = 8.9e-06)" in finding.reason
    assert "the second is worse" in finding.reason
    assert not any((tmp_path / "scratch").iterdir())


def test_without_predictions_the_intervals_decide_and_the_reason_is_said(store: LocalStore, tmp_path: Path) -> None:
    (a, one), (b, other) = pairs_of(store, 300, 200)
    assert other.end is not None
    lost = replace(other, end=replace(other.end, blobs={"predictions": Descriptor(digest_bytes(b"lost"), 4)}))
    without = replace(other, end=replace(other.end, blobs={}))
    for run, reason in ((lost, f"the predictions of {other.id} are missing"), (without, "has no stored predictions")):
        ((_, (finding,)),) = compare_runs([(a, one), (b, run)], PredictionPairs(store, tmp_path).compare_all).findings
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
    assert (found.tests, found.reason) == ({}, "the runs have different samples")


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
    assert found.reason == "time limit of 0 seconds for sample-by-sample comparisons exceeded"
    monkeypatch.setattr(prediction_scores, "LIMITS", Limits(memory=64 << 20, seconds=60.0))
    found = PredictionPairs(store, tmp_path).compare(pairs[0], pairs[1])
    assert found.tests == {}
    assert "the sample-by-sample comparison" in (found.reason or "")
    assert "64 MiB of memory" in (found.reason or "")


def test_runs_that_are_compared_together_have_the_tests_of_each_pair(store: LocalStore, tmp_path: Path) -> None:
    (a, one), (b, other) = pairs_of(store, 300, 200)
    (_, third) = pairs_of(store, 20, 10)[1]
    others = [(b, other), (b, third), (b, replace(third, end=None))]
    together = PredictionPairs(store, tmp_path / "together").compare_all((a, one), others)
    apart = PredictionPairs(store, tmp_path / "apart")
    assert together == [apart.compare((a, one), pair, len(others)) for pair in others]
    assert together[0] != together[1]
    assert together[2].reason is not None


def test_one_run_that_cannot_be_compared_does_not_stop_the_others(store: LocalStore, tmp_path: Path) -> None:
    (a, one), (b, other) = pairs_of(store, 300, 200)
    assert other.end is not None
    blob = store.put(io.BytesIO(b"no predictions"))
    broken = replace(other, end=replace(other.end, blobs={"predictions": blob}))
    found = PredictionPairs(store, tmp_path).compare_all((a, one), [(b, broken), (b, other)])
    assert (found[0].tests, bool(found[0].reason)) == ({}, True)
    assert found[1].tests["top1"].only_first == 300


def test_stored_tests_are_read_instead_of_predictions(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pairs_of(store, 30, 20)
    results = tmp_path / "results"
    found = PredictionPairs(store, tmp_path / "one", results=results).compare_all(first, [second])
    monkeypatch.setattr(prediction_scores, "LIMITS", Limits(memory=1 << 20, seconds=60.0))
    again = PredictionPairs(store, tmp_path / "two", results=results)  # of another scratch, nothing is in memory
    assert again.compare_all(first, [second]) == found
    assert found[0].tests["top1"].only_first == 30
    for file in (tmp_path / "results").iterdir():
        file.write_bytes(b"{")
    assert PredictionPairs(store, tmp_path / "three", results=results).compare_all(first, [second])[0].tests == {}


def test_stored_results_are_bounded_in_number(tmp_path: Path) -> None:
    results = StoredResults(tmp_path)
    for number in range(6000):
        results.write((number,), [number])
    stored = [results.read((number,), list[int]) for number in range(6000)]
    assert all(value in (None, [number]) for number, value in enumerate(stored))
    assert sum(value is not None for value in stored) == len(list(tmp_path.iterdir())) <= 4096
