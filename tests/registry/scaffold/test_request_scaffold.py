"""Generated requests: every setting is written out, and what only the user knows is a TODO line."""

from dataclasses import replace

import pytest
from msgspec import UNSET, structs

from benchlock.registry.manifests import Dataset, Model
from benchlock.registry.manifests.authored_manifests import examine
from benchlock.registry.requests.evaluation_request import read_request
from benchlock.registry.scaffold.request_scaffold import (
    RequestedDataset,
    RequestedModel,
    scaffold_request,
    suggest_metrics,
)
from benchlock.registry.text.yaml import list_todos
from tests.support.registry.digits import DIGITS

PLATFORM = {"os": "linux", "arch": "amd64", "device": "cpu"}


def read(path: str) -> Model | Dataset:
    manifest = examine((DIGITS / path).read_text(), path).manifest
    assert isinstance(manifest, Model | Dataset)
    return manifest


@pytest.fixture
def model() -> RequestedModel:
    manifest = read("models/digits-onnx.yaml")
    assert isinstance(manifest, Model)
    return RequestedModel(manifest, "^1.0.0")


@pytest.fixture
def dataset() -> RequestedDataset:
    """The digits with the test split alone."""
    manifest = read("dataset.yaml")
    assert isinstance(manifest, Dataset)
    return RequestedDataset(structs.replace(manifest, splits={"test": manifest.splits["test"]}), "^1.0.0")


def test_a_request_is_complete_and_states_what_decides_its_result(
    model: RequestedModel, dataset: RequestedDataset
) -> None:
    scaffold = scaffold_request(model, dataset, PLATFORM)
    request = read_request(scaffold.text, "request")
    assert scaffold.todos == 0
    assert request.document["dataset"] == {"name": "digits", "version": "^1.0.0", "split": "test"}
    assert request.document["hardware"] == PLATFORM
    assert request.document.keys() >= {"limits", "scenario", "metrics", "seed"}
    assert set(request.document["scenario"]) == {"name", "min_queries", "min_duration", "warmup"}
    assert request.metrics == ("top1", "top5", "latency_p50", "latency_p90", "latency_p99", "throughput")
    for finding in scaffold.findings:
        assert finding.what in scaffold.text or finding.path in {"name", "dataset.split"}


@pytest.mark.parametrize(
    ("scenario", "times"),
    [
        ("single_stream", ["latency", "throughput"]),
        ("batch_sweep", ["latency", "throughput", "optimal_batch"]),
        ("cold_start", ["cold_start"]),
    ],
)
def test_a_form_suggests_what_its_scenario_measures(model: RequestedModel, scenario: str, times: list[str]) -> None:
    assert suggest_metrics(model.manifest, None, scenario) == ["top1", "top5", *times]


def test_a_split_is_never_guessed(model: RequestedModel) -> None:
    manifest = read("dataset.yaml")
    assert isinstance(manifest, Dataset)
    scaffold = scaffold_request(model, RequestedDataset(manifest, "*"), PLATFORM)
    (finding,) = (finding for finding in scaffold.findings if finding.todo)
    assert (finding.path, finding.what) == ("dataset.split", "the dataset has several: train, test")


def test_without_labels_only_times_are_measured(model: RequestedModel, dataset: RequestedDataset) -> None:
    split = structs.replace(dataset.manifest.splits["test"], labels=UNSET)
    unlabelled = replace(dataset, manifest=structs.replace(dataset.manifest, splits={"test": split}))
    text = scaffold_request(model, unlabelled, PLATFORM).text
    assert read_request(text, "request").document["metrics"] == ["latency", "throughput"]


def test_five_classes_have_no_top5(model: RequestedModel, dataset: RequestedDataset) -> None:
    (output,) = model.manifest.outputs
    few = structs.replace(model.manifest, outputs=(structs.replace(output, shape=(None, 5)),))
    text = scaffold_request(replace(model, manifest=few), dataset, PLATFORM).text
    assert "top5" not in read_request(text, "request").metrics


def test_without_model_and_dataset_a_request_asks_for_them() -> None:
    scaffold = scaffold_request(None, None, PLATFORM)
    assert len(list_todos(scaffold.text)) == scaffold.todos == 4
