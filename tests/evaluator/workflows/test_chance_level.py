"""Answers at chance are warned of; those of a model that is weak, but learned something, are not."""

import io

import numpy as np
import pytest
from msgspec.structs import replace
from safetensors.numpy import save

from benchlock.api.cli.run_history_commands import answer_document, print_answer
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.statistics.metric_types import Interval, Metric
from benchlock.evaluator.workflows.chance_level import find_guessing
from benchlock.registry.manifests import Model
from benchlock.registry.manifests.manifest_content import content
from tests.support.artifacts.memory_store import MemoryStore
from tests.support.evaluator.recorded import DONE, recorded
from tests.support.resolution.variants import variant

WHOLE = variant({})


@pytest.fixture
def store() -> MemoryStore:
    found = MemoryStore()
    for manifest in WHOLE.manifests.values():
        found.put(io.BytesIO(content(manifest)))
    return found


def run_with(store: MemoryStore, top1: float, n: int, classes: int = 10) -> Run:
    """A run that answered ``n`` samples with scores of ``classes`` classes."""
    (port,) = next(one for one in WHOLE.manifests.values() if isinstance(one, Model)).outputs
    blob = store.put(io.BytesIO(save({port.name: np.zeros((n, classes), np.float32)})))
    metric = Metric("top1", top1, "", "higher", n, Interval(None, None), 1)
    return recorded(replace(DONE, metrics=(metric,), blobs={"predictions": blob}), lock=WHOLE.lock.id)


@pytest.mark.parametrize(
    ("top1", "n", "classes", "warned"),
    [
        (0.1, 1000, 10, True),
        (0.1, 100, 10, True),
        (0.5, 1000, 2, True),
        (0.001, 5000, 1000, True),
        (0.2, 1000, 10, False),
        (0.15, 1000, 10, False),
        (0.6, 1000, 2, False),
        (0.01, 5000, 1000, False),
        (0.9, 1000, 10, False),
        (0.0, 1, 10, False),
    ],
)
def test_answers_at_chance_are_warned_of(store: MemoryStore, top1: float, n: int, classes: int, warned: bool) -> None:
    reason = find_guessing(WHOLE.lock, run_with(store, top1, n, classes), store)
    assert (reason is not None) == warned
    if reason is not None:
        right = f"{round(top1 * n)}/{n} samples predicted correctly"
        assert reason.startswith(f"no better than chance: {right}, which is no better than chance for {classes} ")


def test_the_warning_is_in_the_text_and_the_document(store: MemoryStore, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_with(store, 0.1, 1000)
    reason = find_guessing(WHOLE.lock, run, store)
    assert reason is not None
    print_answer(run, WHOLE.lock, (), (reason,))
    assert "warning: no better than chance: 100/1000 samples" in capsys.readouterr().out
    assert answer_document(run, WHOLE.lock, (), (reason,))["warnings"] == [reason]


@pytest.mark.parametrize(("right", "frequent", "warned"), [(38, 38, True), (34, 34, True), (35, 34, False)])
def test_top1_that_the_most_frequent_label_would_have_is_warned_of(right: int, frequent: int, warned: bool) -> None:
    count, store = (38).to_bytes(4), MemoryStore()
    files = {
        "dataset/images.idx": bytes([0, 0, 8, 3, *count, 0, 0, 0, 2, 0, 0, 0, 2]) + bytes(4 * 38),
        "dataset/labels.idx": bytes([0, 0, 8, 1, *count]) + bytes([2] * frequent + [1] * (38 - frequent)),
    }
    samples = {"splits.test.samples": 38, "splits.bare.samples": 38}
    skewed = variant({"dataset": samples, "files": files, "request": {"metrics": ["top1"]}})
    for manifest in skewed.manifests.values():
        for blob in (content(manifest), *skewed.files[manifest.kind].values()):
            store.put(io.BytesIO(blob))
    run = run_with(store, right / 38, 38)
    reason = find_guessing(skewed.lock, run, store)
    assert (reason is not None) == warned
    if reason is not None:
        assert reason.startswith("no better than always predicting the most frequent label: top1 is ")
        assert f"{frequent} of 38 samples ({frequent / 38:.1%}) have label 2;" in reason


def test_scores_that_are_not_stored_as_one_tensor_are_not_judged(store: MemoryStore) -> None:
    blob = store.put(io.BytesIO(save({"other": np.zeros((1000, 10), np.float32)})))
    run = run_with(store, 0.1, 1000)
    assert run.end is not None
    assert find_guessing(WHOLE.lock, replace(run, end=replace(run.end, blobs={"predictions": blob})), store) is None
