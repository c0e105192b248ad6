"""The page of wrong samples: from the stored predictions and labels of a run, the worst first."""

import io
from html import unescape

import numpy as np
import pytest
from msgspec.structs import replace
from safetensors.numpy import load, save

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.page import Page, Viewer
from benchlock.api.web.pages.run_pages import SAMPLES, make_samples
from benchlock.api.web.rendering import render_page
from benchlock.artifacts.errors import UnknownNameError
from benchlock.artifacts.isolation.resource_limits import Limits
from benchlock.evaluator.evidence import wrong_samples
from benchlock.evaluator.evidence.wrong_samples import MOST_LISTED, find_wrong_samples
from benchlock.evaluator.records.run_types import Run, RunEnd, parse_run_id
from benchlock.registry.lock.lockfile import Lock
from tests.api.web.conftest import Seeds
from tests.support.api.html_tables import read_cells
from tests.support.evaluator.evidence import CURRENT, make_run
from tests.support.evaluator.recorded import NOON, recorded
from tests.support.resolution.variants import variant

COUNT = 1_100
_HEADER = COUNT.to_bytes(4)
FILES = {
    "dataset/images.idx": bytes([0, 0, 8, 3, *_HEADER, 0, 0, 0, 2, 0, 0, 0, 2]) + bytes(4 * COUNT),
    "dataset/labels.idx": bytes([0, 0, 8, 1, *_HEADER]) + bytes(number % 3 for number in range(COUNT)),
}
NAMED = {0: "Zero", 1: "one", 2: "two"}
"""The names of the dataset's classes; the model decides for more."""


def text(page: Page, path: str = "/") -> str:
    return unescape(render_page(page, Viewer(path=path)).decode())


@pytest.fixture
def lock(registry: LocalRegistry) -> Lock:
    sizes = {"splits.test.samples": COUNT, "splits.bare.samples": COUNT}
    made = variant({"dataset": sizes, "files": FILES, "lock": CURRENT})
    made.publish(registry.catalogue, registry.store)
    registry.catalogue.put_lock(made.lock)
    return made.lock


def with_scores(registry: LocalRegistry, run: Run, scores: np.ndarray) -> Run:
    """The run with other predictions."""
    assert run.end is not None
    blob = run.end.blobs["predictions"]
    (name,) = load(registry.store.path(blob.digest).read_bytes())
    stored = registry.store.put(io.BytesIO(save({name: scores.astype(np.float32)})))
    return replace(run, end=replace(run.end, blobs={**run.end.blobs, "predictions": stored}))


def test_the_samples_of_a_page_are_wrong_and_the_csv_has_all_that_are_listed(seeds: Seeds, lock: Lock) -> None:
    run = seeds.run(lock, right=range(5))
    pages = {number: make_samples(seeds.registry, run.id, number) for number in (1, 2, MOST_LISTED // SAMPLES)}
    rows = pages[1].tables["samples"].rows
    assert [row[0] for row in rows] == list(range(5, 5 + MOST_LISTED))
    for number, row in enumerate(rows, 5):
        assert row[2:4] == tuple(NAMED.get(label, label) for label in (number % 3, number % 3 + 1))
    path = f"/runs/{run.id[4:]}/samples"
    for number, page in pages.items():
        first = 5 + (number - 1) * SAMPLES
        html = text(page, path)
        assert [int(row[0].replace(",", "")) for row in read_cells(html, "samples")] == list(
            range(first, first + SAMPLES)
        )
        assert ('rel="next"' in html) == (first + SAMPLES < len(rows))
    assert f'href="{path}?page=2"' in text(pages[1], path)
    assert "1,095 of 1,100 samples predicted wrongly" in text(pages[1], path)
    assert "The list has the first 1,000." in text(pages[1], path)
    assert pages[1].facts["wrong"] == COUNT - 5
    names = [column.name for column in pages[1].tables["samples"].columns]
    assert names == ["index", "sample", "expected", "predicted", "score of predicted", "score of expected"]


def test_those_are_first_whose_wrong_class_won_most_clearly(registry: LocalRegistry, lock: Lock) -> None:
    random = np.random.default_rng(0)
    scores = random.random((COUNT, 10), np.float32)
    run = with_scores(registry, make_run(lock, registry.store), scores)
    found = find_wrong_samples(lock, run, registry.store, registry.home)
    labels = np.arange(COUNT) % 3
    gaps = scores.max(axis=1) - scores[np.arange(COUNT), labels]
    expected = [place for place in np.argsort(-gaps, kind="stable").tolist() if scores[place].argmax() != labels[place]]
    assert [sample.place for sample in found.samples] == expected[:MOST_LISTED]
    assert (found.wrong, found.total) == (len(expected), COUNT)
    for sample in found.samples:
        decided = int(scores[sample.place].argmax())
        assert (sample.expected, sample.predicted) == (NAMED[labels[sample.place]], NAMED.get(decided, decided))
        assert sample.score == pytest.approx(scores[sample.place].max())
        assert sample.label_score == pytest.approx(scores[sample.place, labels[sample.place]])


def test_what_cannot_be_listed_is_said(
    seeds: Seeds, registry: LocalRegistry, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = RunEnd(outcome="failed", ended_at=NOON, failure_class="golden", failure_message="no")
    failed, run = seeds.run(lock, end=end), make_run(lock, registry.store)
    page = make_samples(registry, failed.id)
    assert "The run has no results." in text(page)
    assert page.tables["samples"].rows == ()
    assert run.end is not None
    without = replace(run, end=replace(run.end, blobs={}))
    assert "stored no predictions" in find_wrong_samples(lock, without, registry.store, None).reason
    unmeasured = replace(lock, metrics={"latency_p50": 1})
    assert "no quality metric" in find_wrong_samples(unmeasured, run, registry.store, None).reason
    malformed = with_scores(registry, run, np.zeros((COUNT - 1, 10)))
    assert "1099 samples" in find_wrong_samples(lock, malformed, registry.store, None).reason
    monkeypatch.setattr(wrong_samples, "LIMITS", Limits(memory=64 << 20, seconds=60.0))
    failure = find_wrong_samples(lock, run, registry.store, None)
    assert "cannot be compared here" in failure.reason
    monkeypatch.undo()
    assert find_wrong_samples(lock, run, registry.store, None) is failure  # for a few minutes
    registry.store.path(run.end.blobs["predictions"].digest).unlink()
    assert "missing from the store" in find_wrong_samples(lock, run, registry.store, None).reason


def test_a_page_after_the_last_one_says_so(seeds: Seeds, lock: Lock) -> None:
    page = make_samples(seeds.registry, seeds.run(lock, right=0).id, 1000)
    assert "The list ends before this page." in text(page)


def test_an_unknown_run_is_unknown(registry: LocalRegistry) -> None:
    with pytest.raises(UnknownNameError):
        make_samples(registry, parse_run_id("run/01kam1v3mz4w0q3d5g7h9j2k4m"))


def test_numbers_are_listed_by_their_errors(registry: LocalRegistry) -> None:
    rows = "path,label\n" + "".join(f"{number}.png,{number}.5\n" for number in range(4))
    value = {"name": "value", "type": "value", "dtype": "float32", "shape": [1, 1], "batch_axis": 0}
    made = variant({
        "model": {"task": "regression", "outputs": [value]},
        "dataset": {
            "format": "image-index",
            "splits": {"test": {"index": "values.csv", "samples": 4}},
            "labels": None,
            "files": [{"path": "values.csv"}],
        },
        "files": {"dataset/values.csv": rows},
        "lock": CURRENT,
        "request": {"metrics": ["mae", "rmse"]},
    })  # fmt: skip
    made.publish(registry.catalogue, registry.store)
    predictions = np.asarray([[[0.5]], [[3.5]], [[2.5]], [[3.0]]], np.float32)
    blob = registry.store.put(io.BytesIO(save({"value": predictions})))
    end = RunEnd(outcome="done", ended_at=NOON, blobs={"predictions": blob})
    run = replace(recorded(lock=made.lock.id), end=end)
    found = find_wrong_samples(made.lock, run, registry.store, registry.home)
    assert (found.reason, found.wrong, found.total, found.has_classes) == ("", 2, 4, False)
    assert [tuple(sample)[:5] for sample in found.samples[:2]] == [
        (1, "1.png", 1.5, 3.5, 2.0),
        (3, "3.png", 3.5, 3.0, 0.5),
    ]
