"""Locks that give names of published artifacts to other files: they are refused, and their figures are withheld."""

import io
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.evaluator import harness_releases
from benchlock.evaluator.evidence.run_examination import ExaminedRecords
from benchlock.registry.lock.lockfile import Lock, dataset_of, dump, read
from benchlock.registry.manifests.manifest_content import content
from tests.api.http.conftest import Client
from tests.support.evaluator.evidence import IDX, make_run
from tests.support.evaluator.releases import release
from tests.support.resolution.variants import Variant, variant

HARNESS = "a harness"
OTHER_LABELS = IDX["dataset/labels.idx"][:-2] + bytes([2, 1])


def with_labels(labels: bytes) -> Variant:
    return variant({"files": IDX | {"dataset/labels.idx": labels}, "harness": HARNESS})


@pytest.fixture
def published(registry: LocalRegistry) -> Variant:
    shelf = with_labels(IDX["dataset/labels.idx"])
    shelf.publish(registry.catalogue, registry.store)
    for blob in (HARNESS.encode(), OTHER_LABELS):
        registry.store.put(io.BytesIO(blob))
    return shelf


def forge_labels(lock: Lock) -> Lock:
    """Return the lock with other labels among the files of the published dataset."""
    forged = next(file for file in dataset_of(with_labels(OTHER_LABELS).lock).files if file.path == "labels.idx")
    document: dict[str, Any] = deepcopy(dict(lock.document))
    for file in document["dataset"]["files"]:
        if file["path"] == "labels.idx":
            file["sha256"] = forged.sha256
    return read(document, "forged")


def test_a_lock_with_other_labels_than_its_dataset_is_refused(client: Client, published: Variant) -> None:
    refused = client.post("/v1/locks", json={"text": dump(forge_labels(published.lock))})
    assert refused.status_code == 422, refused.text
    assert "the lock contradicts the manifest of dataset/digits@1.0.0" in refused.json()["detail"]
    assert client.post("/v1/locks", json={"text": dump(published.lock)}).status_code == 201


@pytest.mark.usefixtures("published")
def test_a_lock_of_another_dataset_under_a_published_name_is_refused(client: Client, registry: LocalRegistry) -> None:
    """Its own manifest says the same, and is not the one that has the name here."""
    forged = with_labels(OTHER_LABELS)
    for manifest in forged.manifests.values():
        registry.store.put(io.BytesIO(content(manifest)))
    refused = client.post("/v1/locks", json={"text": dump(forged.lock)})
    assert refused.status_code == 409, refused.text
    assert "dataset/digits@1.0.0 is already published with different content" in refused.json()["detail"]


def test_a_lock_that_names_a_released_harness_under_a_false_version_is_refused(
    client: Client, published: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent as a text, and left to workers however it came to be stored."""
    lock = published.lock
    assert client.post("/v1/locks", json={"text": dump(lock)}).status_code == 201
    monkeypatch.setattr(harness_releases, "RELEASES", {lock.harness.digest: "9.9.9"})
    for refused in (
        client.post("/v1/locks", json={"text": dump(lock)}),
        client.post("/v1/jobs", json={"lock": lock.id, "isolation": "process"}),
    ):
        assert refused.status_code == 422, refused.text
        assert "with the digest of harness 9.9.9" in refused.json()["detail"]


def test_a_run_with_a_harness_that_nobody_released_is_marked_over_http(
    client: Client, published: Variant, registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quality too, although the client that ran it says nothing of it: its build may know the harness."""
    lock = published.lock
    registry.catalogue.put_lock(lock)
    with monkeypatch.context() as known:
        release(known, lock.harness)
        run = make_run(lock, registry.store, isolation="container")
    assert run.end is not None
    assert not any(metric.self_reported for metric in run.end.metrics)
    assert client.post("/v1/runs", json=msgspec.to_builtins(run.start)).status_code == 201
    path = f"/v1/runs/{run.id.removeprefix('run/')}"
    answer = client.put(f"{path}/end", json=msgspec.to_builtins(run.end))
    assert answer.status_code == 200, answer.text
    metrics = answer.json()["end"]["metrics"]
    assert "top1" in {metric["name"] for metric in metrics}
    assert all(metric["self_reported"] for metric in metrics)
    read = ExaminedRecords(registry.database, registry.examiner).get(run.id)
    assert read.end is not None
    assert all(metric.self_reported for metric in read.end.metrics)


def test_a_lock_without_the_files_of_its_dataset_is_refused(client: Client, published: Variant) -> None:
    document: dict[str, Any] = deepcopy(dict(published.lock.document))
    del document["dataset"]["files"]
    refused = client.post("/v1/locks", json={"text": dump(read(document, "forged"))})
    assert refused.status_code == 422, refused.text


def test_a_run_of_such_a_lock_is_refused_and_its_figures_are_withheld(
    client: Client, registry: LocalRegistry, published: Variant
) -> None:
    """However the lock came to be there: by a version that did not compare it, for example."""
    forged = forge_labels(published.lock)
    registry.catalogue.put_lock(forged)
    run = make_run(forged, registry.store, right=2)
    assert run.end is not None
    assert client.post("/v1/runs", json=msgspec.to_builtins(run.start)).status_code == 201
    path = f"/v1/runs/{run.id.removeprefix('run/')}"
    refused = client.put(f"{path}/end", json=msgspec.to_builtins(run.end))
    assert refused.status_code == 422, refused.text
    registry.records.finish(run.id, run.end)
    found = registry.examiner.examine(registry.records.get(run.id))
    assert found.evidence is not None
    assert found.end is not None
    assert (found.evidence.state, found.end.metrics) == ("contradicted", ())
    assert "contradicts the manifest" in found.evidence.reasons[0]
