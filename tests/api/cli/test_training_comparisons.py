"""Two trainings compared, from their stored samples to the printed answer: is one faster?"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from safetensors.numpy import save_file

from benchlock.api.cli.compare_command import print_comparison
from benchlock.api.schemas.run_documents import comparison_document
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.records.run_texts import label_trainings
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.statistics.metric_types import Interval, Metric
from benchlock.evaluator.workflows.compare import compare_runs, compare_speeds
from benchlock.registry.lock.lockfile import Lock
from tests.support.evaluator.recorded import DONE, recorded
from tests.support.resolution.recipes import ask, recipes

SLOW = (12, 13, 14, 15, 12, 13, 14, 15, 13, 14)
FAST = (6, 7, 8, 6, 7, 8, 7, 6, 8, 7)
PARTS = recipes()
MEASURED = Metric("time_to_quality", 3.0, "s", "lower", 10, Interval(2.0, 4.0), 1)
LOCK, OTHER = (PARTS.lock(ask(seed=seed)) for seed in ("1", "2"))


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "blobs")


def trained(store: LocalStore, folder: Path, lock: Lock, epochs: Sequence[int]) -> Run:
    """A done training whose repeats reached the target after so many epochs."""
    columns = {f"{number}/loss": np.asarray([2.0, number]) for number in range(len(epochs))}
    columns |= {f"{number}/evaluation": np.asarray([[reached, 2, 2]]) for number, reached in enumerate(epochs)}
    save_file(columns, folder / "samples")
    repeats = [{"weights": f"{lock.id}{number}", "reached": True} for number in range(len(epochs))]
    blobs = {"samples": store.put_file(folder / "samples")}
    end = structs.replace(DONE, metrics=(), blobs=blobs, details={"training": {"repeats": repeats}})
    return recorded(end, lock=lock.id)


def test_a_faster_training_is_found_with_all_tests_beside_each_other(
    store: LocalStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [(LOCK, trained(store, tmp_path, LOCK, SLOW)), (OTHER, trained(store, tmp_path, OTHER, FAST))]
    compared = compare_speeds(compare_runs(pairs), store)
    (speed,) = comparison_document(compared)["speeds"]
    assert json.dumps(speed, allow_nan=False)
    assert (speed["answer"], speed["repeats"], speed["missed"]) == ("fewer epochs", (10, 10), (0, 0))
    assert speed["welch_p"] < 0.001
    assert speed["permutation_p"] < 0.001
    assert speed["mlperf"]["too_fast"]
    print_comparison(compared)
    shown = " ".join(capsys.readouterr().out.split())
    assert "cnn, seed 2 against cnn, seed 1: fewer epochs (self-reported): 0.517 times the epochs" in shown
    low, high = speed["interval"]
    assert low < speed["ratio"] < high < 1
    assert f"0.517 times the epochs, 95 % interval [{low:.3g}, {high:.3g}], 10 repeats against 10" in shown
    assert "interleave" not in shown.replace("not interleaved", "")
    assert "Welch's test p = " in shown
    assert "permutation test p = 0.0001" in shown
    assert "MLPerf" not in shown
    print_comparison(compared, mlperf=True)
    shown = " ".join(capsys.readouterr().out.split())
    assert "MLPerf's check: converges too fast: olympic mean 7 epochs" in shown
    assert (
        "it rejects equal trainings in 8 to 22 % of cases, by the numbers of repeats, not in its nominal 5 %" in shown
    )
    turned = compare_speeds(compare_runs(pairs[::-1]), store)
    assert [speed.answer for speed in turned.speeds] == ["more epochs"]


def test_trainings_are_labelled_by_what_differs_between_their_locks() -> None:
    rates = [
        PARTS.lock(ask(settings=f"{{optimizer.lr: {rate}}}", seed=seed))
        for rate, seed in (("0.001", "1"), ("0.002", "2"))
    ]
    assert label_trainings(rates) == ["optimizer.lr 0.001", "optimizer.lr 0.002"]
    assert label_trainings([LOCK, OTHER]) == ["seed 1", "seed 2"]
    assert label_trainings([LOCK, LOCK]) == ["", ""]
    assert label_trainings([LOCK]) == [""]


def test_no_time_of_the_day_changes_a_number_of_epochs(store: LocalStore, tmp_path: Path) -> None:
    """Trainings that were not interleaved are told so of their times only."""
    runs = [trained(store, tmp_path, lock, epochs) for lock, epochs in ((LOCK, SLOW), (OTHER, FAST))]
    names = {"epochs_to_quality": "epochs", "time_to_quality": "s"}
    pairs = []
    for lock, run in zip((LOCK, OTHER), runs, strict=True):
        assert run.end is not None
        metrics = tuple(structs.replace(MEASURED, name=name, unit=unit) for name, unit in names.items())
        pairs.append((lock, structs.replace(run, end=structs.replace(run.end, metrics=metrics))))
    ((_, findings),) = compare_runs(pairs).findings
    reasons = {finding.metric: finding.reason for finding in findings}
    assert "interleave" not in reasons["epochs_to_quality"]
    assert "next: state more repeats in the request" in reasons["time_to_quality"]


def test_samples_that_changed_or_are_missing_are_refused(store: LocalStore, tmp_path: Path) -> None:
    runs = [trained(store, tmp_path, lock, SLOW) for lock in (LOCK, OTHER)]
    assert runs[1].end is not None
    without = structs.replace(runs[1], end=structs.replace(runs[1].end, blobs={}))
    compared = compare_runs([(LOCK, runs[0]), (OTHER, without)])
    with pytest.raises(InvalidInputError, match="samples"):
        compare_speeds(compared, store)
    path = store.path(runs[1].end.blobs["samples"].digest)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(IntegrityError):
        compare_speeds(compare_runs([(LOCK, runs[0]), (OTHER, runs[1])]), store)
