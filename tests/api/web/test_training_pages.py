"""Pages of what trainings made: promoted models, and trainings that have no trace."""

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from msgspec.structs import replace

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web import run_lists
from benchlock.api.web.page import Page, Viewer
from benchlock.api.web.pages import artifact_pages
from benchlock.api.web.pages.artifact_pages import make_artifact
from benchlock.api.web.pages.trace_pages import make_trace
from benchlock.api.web.pages.yank_pages import make_used_by, make_yank
from benchlock.api.web.rendering import render_page
from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.evaluator.records.run_types import RunId, new_run_id
from benchlock.evaluator.workflows.run_traces import explain_missing_trace
from benchlock.registry.artifact_names import parse_reference
from benchlock.registry.catalogue.catalogue_protocol import Provenance
from benchlock.registry.lock.lockfile import Lock
from tests.registry.lock.test_operator_locks import ask as ask_operator
from tests.registry.lock.test_operator_locks import operators
from tests.support.evaluator.evidence import CURRENT, IDX
from tests.support.evaluator.recorded import DONE, NOON, recorded
from tests.support.resolution.recipes import ask, recipes
from tests.support.resolution.variants import variant

RUN = RunId("run/01kam1v3mz4w0q3d5g7h9j2k4m")


def html(page: Page) -> str:
    return render_page(page, Viewer()).decode()


def words(page: Page) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html(page))).split())


def publish_promoted(registry: LocalRegistry, lock: str) -> str:
    """Publish a model that states a training as its origin; return the digest of its weights."""
    weights = digest_bytes(b"trained")
    trained = {"lock": lock, "repeat": 1, "seed": 11, "weights": weights}
    roles = {"model.onnx": "graph", "labels.txt": "labels", "model.safetensors": "weights"}
    files = [{"path": path, "role": role} for path, role in roles.items()]
    model = {"name": "promoted", "trained": trained, "files": files}
    made = variant(
        {
            "model": model,
            "files": {**IDX, "model/model.safetensors": "trained"},
            "lock": CURRENT,
            "request": {"model": {"name": "promoted", "version": "*"}},
        }
    )
    made.publish(registry.catalogue, registry.store, ("model",))
    return weights


def test_a_promoted_model_links_the_lock_the_recipe_and_the_run_that_made_it(
    registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = recipes()
    lock = parts.lock(ask())
    registry.catalogue.put_lock(lock)
    weights = publish_promoted(registry, lock.id)
    page = make_artifact(registry, "model/promoted", "")
    recipe = f"recipe/cnn@{lock.subject.version}"
    dataset = f"dataset/{lock.artifacts()['dataset'].name}@{lock.artifacts()['dataset'].version}"
    assert page.tables["trained"].rows == ((recipe, dataset, lock.id, None, 1, 11, weights),)
    assert f'href="/{dataset}"' in html(page)
    assert f'href="/locks/{lock.id}"' in html(page)
    assert f'href="/{recipe}"' in html(page)
    assert "No verified run in this registry shows it" in words(page)
    monkeypatch.setattr(artifact_pages, "find_origin", lambda *_: RUN)
    page = make_artifact(registry, "model/promoted", "")
    assert f'href="/runs/{RUN.removeprefix("run/")}"' in html(page)
    assert "No verified run" not in words(page)


def record_training(registry: LocalRegistry, lock: Lock, at: timedelta, weights: bytes = b"trained") -> RunId:
    """Record a done run of a lock whose repeat 1 has these weights; return its id."""
    run = recorded(None, lock=lock.id)
    begun = replace(run.start, id=new_run_id(NOON + at), started_at=NOON + at)
    registry.records.start(begun)
    blobs = {"weights-1": Descriptor(digest_bytes(weights), len(weights))}
    done = replace(DONE, ended_at=NOON + at, blobs=blobs, packages={"numpy": "2.4.0"}, timings={"run": 1.0})
    registry.records.finish(begun.id, done)
    return begun.id


@pytest.mark.databases
def test_a_recipe_and_a_dataset_name_their_runs_their_locks_and_the_models_promoted_from_them(
    registry: LocalRegistry,
) -> None:
    parts = recipes()
    for manifest in parts.chosen.all()[:2]:
        registry.catalogue.publish(manifest, Provenance("", {}))
    lock, other = parts.lock(ask()), parts.lock(ask(seed="8"))
    for one in (lock, other):
        registry.catalogue.put_lock(one)
    publish_promoted(registry, lock.id)
    targets = [f"{kind}/{part.name}@{part.version}" for kind, part in lock.artifacts().items()][:2]
    for target in targets:
        assert make_artifact(registry, target, "").tables["promoted"].rows == ()
    for number, weights in enumerate((b"trained", b"trained", b"others")):
        record_training(registry, lock, timedelta(minutes=number), weights)
    newest = record_training(registry, other, timedelta(minutes=3))
    runs = [run.id for run in registry.records.list()]
    assert runs[0] == newest
    for target in targets:
        page, uses = make_artifact(registry, target, ""), make_used_by(registry, parse_reference(target), "", "")
        assert [row[0] for row in page.tables["runs"].rows] == runs
        assert {row[0]: row[4] for row in page.tables["locks"].rows} == {lock.id: 3, other.id: 1}
        rows = (("model/promoted@1.0.0", lock.id, runs[2], "weights-1"),)
        assert page.tables["promoted"].rows == uses.tables["promoted"].rows == rows
        for shown in (html(page), html(uses)):
            assert 'href="/model/promoted@1.0.0"' in shown
            assert f'href="/runs/{runs[2].removeprefix("run/")}"' in shown
        kind, _, name = target.partition("/")
        assert f'href="/runs?{kind}={name.replace("@", "%40%3D")}"' in html(page)
        assert [row[0] for row in make_yank(registry, parse_reference(target), NOON).tables["runs"].rows] == runs
    assert "promoted" not in make_artifact(registry, "model/promoted", "").tables
    registry.records.hide(runs[2], "disturbed")
    assert make_artifact(registry, targets[0], "").tables["promoted"].rows[0][2] == runs[3]


def test_the_page_of_an_operator_lists_its_runs_and_its_locks(
    registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, training = operators(), recipes().lock(ask())
    registry.catalogue.publish(parts.chosen.all()[0], Provenance("", {}))
    lock = parts.lock(ask_operator())
    for one in (lock, training):
        registry.catalogue.put_lock(one)
    older, newer = (record_training(registry, lock, timedelta(minutes=number), bytes(number)) for number in (1, 2))
    record_training(registry, training, timedelta(minutes=3))
    page = make_artifact(registry, "operator/gemm", "")
    assert [row[0] for row in page.tables["runs"].rows] == [newer, older]
    assert [(row[0], row[4]) for row in page.tables["locks"].rows] == [(lock.id, 2)]
    assert f'href="/locks/{lock.id}"' in html(page)
    monkeypatch.setattr(run_lists, "OTHERS", 2)
    assert run_lists.list_others(registry, lock, registry.records.get(newer)) == (older,)


def test_a_training_says_why_it_has_no_trace_and_where_its_step_is(registry: LocalRegistry) -> None:
    lock = recipes().lock(ask())
    registry.catalogue.put_lock(lock)
    run = recorded(DONE, lock=lock.id)
    registry.records.start(run.start)
    text = words(make_trace(registry, run.id))
    assert "a training is timed as a whole and is not traced" in text
    assert "request the metric step_memory" in text
    assert "trace: framework" not in text
    details: dict[str, Any] = {"training": {"breakdown": {"operators": []}}}
    reason, where = explain_missing_trace(replace(run, end=replace(DONE, details=details)), lock)
    assert where == "the report on the run has the time and the memory within a step"
    assert "not traced" in reason


def test_the_lock_of_a_model_that_was_trained_elsewhere_is_no_link(registry: LocalRegistry) -> None:
    elsewhere = digest_bytes(b"a lock of another registry")
    publish_promoted(registry, elsewhere)
    page = make_artifact(registry, "model/promoted", "")
    assert page.tables["trained"].records()[0]["lock elsewhere"] == elsewhere
    assert f'href="/locks/{elsewhere}"' not in html(page)
    assert elsewhere in words(page)
