"""What the formats can say and this version cannot run."""

from pathlib import Path

import pytest

from registry.manifests import read_authored
from registry.requests import read_request
from registry.support import unsupported

CASES = Path(__file__).resolve().parent.parent / "cases"
REQUEST = (CASES / "requests" / "good" / "full.yaml").read_text()


def reasons(name: str) -> tuple[str, ...]:
    return unsupported(read_authored((CASES / "manifests" / "good" / f"{name}.yaml").read_bytes(), "manifest.yaml"))


@pytest.mark.parametrize(
    "name", ["resnet8-onnx", "mobilenet-quantized", "savedmodel-tree", "dataset", "dataset-idx", "framework", "image"]
)
def test_what_is_built_has_no_reasons(name: str) -> None:
    assert reasons(name) == ()


def test_what_is_not_built_is_named_with_its_path() -> None:
    assert reasons("everything-else") == ("predictions: boxes without an input of type image is not built yet",)
    assert reasons("dataset-npz") == ()
    assert reasons("image-finished") == ()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("trace: none", "trace: model", "trace: model"),
        ("[top1, top5, latency]", "[latency, pipeline_throughput]", "metrics: pipeline_throughput"),
        (
            "{name: single_stream, min_queries: 662, min_duration: 1s, warmup: 8}",
            "{name: multi_stream, min_queries: 9, min_duration: 1s, samples_per_query: 2, warmup: 8}",
            "scenario.name: multi_stream",
        ),
    ],
)
def test_a_request_for_more_than_is_built_is_named(old: str, new: str, reason: str) -> None:
    assert unsupported(read_request(REQUEST, "request.yaml")) == ()
    assert old in REQUEST
    assert unsupported(read_request(REQUEST.replace(old, new), "request.yaml")) == (f"{reason} is not built yet",)
