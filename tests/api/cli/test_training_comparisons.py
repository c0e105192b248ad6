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
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.workflows.compare import compare_runs, compare_speeds
from benchlock.registry.lock.lockfile import Lock
from tests.support.evaluator.recorded import DONE, recorded
from tests.support.resolution.recipes import ask, recipes

SLOW = (12, 13, 14, 15, 12, 13, 14, 15, 13, 14)
FAST = (6, 7, 8, 6, 7, 8, 7, 6, 8, 7)
PARTS = recipes()
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
    assert "cnn 1.0.0 against cnn 1.0.0: fewer epochs (self-reported): 0.517 times the epochs" in shown
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
