"""What of ``job.json`` is read, and what is refused by the path of the key."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchlock.evaluator.harness.core.job import Axes, Job
from benchlock.evaluator.harness.core.job_parser import parse_job, read_job
from benchlock.evaluator.harness.core.scenarios import Accuracy, JobError, SingleStream
from benchlock.registry.manifests import Output
from benchlock.registry.manifests.tensor_shapes import batch_axis as axis_of_manifest
from benchlock.registry.text.parsed_text import Document, Place


def test_a_job_is_read_in_full(job: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps(job))
    read = read_job(tmp_path / "job.json")
    assert isinstance(read, Job)
    assert read.scenario == SingleStream(warmup=4, min_queries=70, min_duration=0.05)
    assert read.model.inputs[0].axes == Axes(axis=0, size=None, sample=(1, 8, 12))
    assert [step.name for step in read.model.inputs[0].steps] == ["decode", "cast", "transpose"]
    assert read.model.outputs[0].axes == Axes(axis=0, size=None, sample=None)
    assert read.model.batch is None
    assert read.phases == ("accuracy", "score", "performance")


@pytest.mark.parametrize(
    ("shape", "batch_axis", "axes"),
    [
        ([None, 3, "width"], None, Axes(0, None, (3, None))),
        ([3, None, 5], None, Axes(1, None, (3, 5))),
        ([1, 3, 5], 0, Axes(0, 1, (3, 5))),
        ([3, 8, 5], 1, Axes(1, 8, (3, 5))),
        (["batch", 3], 0, Axes(0, None, (3,))),
        ([3, 5], "none", Axes(None, 1, (3, 5))),
    ],
)
def test_the_batch_is_where_the_manifest_says(
    job: dict[str, Any], shape: list[Any], batch_axis: int | str | None, axes: Axes
) -> None:
    job["model"]["inputs"][0]["shape"] = shape
    if batch_axis is not None:
        job["model"]["inputs"][0]["batch_axis"] = batch_axis
    assert parse_job(job).model.inputs[0].axes == axes


@pytest.mark.parametrize(
    ("port", "axes"),
    [
        ({}, Axes(0, None, None)),
        ({"shape": [1, 10]}, Axes(0, 1, (10,))),
        ({"shape": ["rows", 10]}, Axes(0, None, (10,))),
        ({"shape": [10, None]}, Axes(1, None, (10,))),
        ({"shape": []}, Axes(None, 1, ())),
        ({"shape": [1, 10], "batch_axis": "none"}, Axes(None, 1, (1, 10))),
    ],
)
def test_an_output_has_its_batch_where_the_manifest_has_it(
    job: dict[str, Any], port: dict[str, Any], axes: Axes
) -> None:
    """The registry and the harness read the batch axis of an output by one rule."""
    job["model"]["outputs"] = [{"name": "scores", "type": "class-scores", **port}]
    assert parse_job(job).model.outputs[0].axes == axes
    output = msgspec.convert({"name": "scores", "type": "class-scores", "dtype": "float32", **port}, Output)
    assert axis_of_manifest(output, Place(Document(None, "manifest"))) == axes.axis


@pytest.mark.parametrize(
    ("metrics", "scenario", "phases"),
    [
        (["latency_p50"], "single_stream", ("performance",)),
        (["top5"], "single_stream", ("accuracy", "score", "performance")),
        ([], "accuracy", ("accuracy",)),
    ],
)
def test_the_accuracy_phase_is_run_when_quality_is_asked(
    job: dict[str, Any], metrics: list[str], scenario: str, phases: tuple[str, ...]
) -> None:
    job["metrics"] = metrics
    if scenario == "accuracy":
        job["scenario"] = {"name": "accuracy", "warmup": 0, "batch": 4}
        assert parse_job(job).scenario == Accuracy(warmup=0, batch=4)
    assert parse_job(job).phases == phases


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["threads"], 0, "threads: 0 is less than 1"),
        (["threads"], True, "threads: True has the wrong type"),
        (["seeds", "qsl"], 1 << 32, "seeds.qsl: 4294967296 is not a 32-bit number"),
        (["seeds", "schedule"], -1, "seeds.schedule: -1 is not a 32-bit number"),
        (["trace"], "deep", "trace: 'deep' is not supported"),
        (["metrics"], ["top1", "bleu"], r"metrics\[1\]: 'bleu' is not supported"),
        (["metrics"], ["top1", "map"], "metrics: map needs predictions of type detections"),
        (["metrics"], ["miou"], "metrics: miou needs an output of type mask"),
        (["scenario", "name"], "interactive", "scenario.name: 'interactive' is not supported"),
        (["scenario", "min_queries"], None, "scenario.min_queries: absent"),
        (["model", "predictor"], "../evil", "model.predictor: unknown predictor '../evil'"),
        (["model", "inputs", 0, "type"], "video", r"model.inputs\[0\].type: 'video' is not supported"),
        (["model", "inputs", 0, "type"], "constant", r"model.inputs\[0\].value: absent"),
        (["model", "inputs", 0, "type"], "state", r"model.inputs\[0\].initial: absent"),
        (["model", "inputs", 0, "field"], 1, r"model.inputs\[0\].field: 1 has the wrong type"),
        (["model", "inputs", 0, "shape"], [1, 2], r"model.inputs\[0\].shape: no axis is null"),
        (["model", "inputs", 0, "batch_axis"], 4, r"model.inputs\[0\].batch_axis: 4 is not an axis"),
        (["model", "inputs", 0, "steps"], [{"a": {}, "b": {}}], r"model.inputs\[0\].steps\[0\]: a step has one key"),
        (["model", "outputs", 0, "type"], "song", r"model.outputs\[0\].type: 'song' is not supported"),
        (["model", "outputs", 0, "reduce"], "sum", r"model.outputs\[0\].reduce: 'sum' is not supported"),
        (["model", "outputs", 0, "type"], "tensor", "metrics: top1 needs an output of type class"),
        (["model", "files"], [{"path": "x"}], r"model.files\[0\].role: absent"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(
    job: dict[str, Any], path: list[str | int], value: object, message: str
) -> None:
    table: Any = job
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = value
    with pytest.raises(JobError, match=message):
        parse_job(job)


def test_inputs_agree_on_a_fixed_batch(job: dict[str, Any]) -> None:
    first = job["model"]["inputs"][0]
    first |= {"shape": [2, 1, 8, 12], "batch_axis": 0}
    job["model"]["inputs"].append(first | {"name": "other", "shape": [3, 1, 8, 12]})
    with pytest.raises(JobError, match=r"batch sizes differ: \[2, 3\]"):
        parse_job(job)


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"schema": 2}', b"{}"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "job.json").write_bytes(content)
    with pytest.raises(JobError, match=r"job\.json"):
        read_job(tmp_path / "job.json")


def test_a_trace_is_a_phase_after_the_timed_ones_and_needs_timed_calls(job: dict[str, Any]) -> None:
    job["trace"] = "model"
    parsed = parse_job(job)
    assert (parsed.trace, parsed.phases) == ("model", ("accuracy", "score", "performance", "trace"))
    job["scenario"] = {"name": "accuracy", "warmup": 0, "batch": 4}
    with pytest.raises(JobError, match="trace: a scenario that times calls is needed"):
        parse_job(job)
