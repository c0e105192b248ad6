"""What the formats can say and this version cannot run."""

from pathlib import Path

import pytest

from benchlock.registry.lock.lock_feasibility import find_unsupported
from benchlock.registry.requests.evaluation_request import read_request
from tests.support.registry.authored import read_authored

CASES = Path(__file__).resolve().parents[2] / "cases"
REQUEST = (CASES / "requests" / "good" / "full.yaml").read_text()


def reasons(name: str) -> tuple[str, ...]:
    return find_unsupported(
        read_authored((CASES / "manifests" / "good" / f"{name}.yaml").read_bytes(), "manifest.yaml")
    )


@pytest.mark.parametrize(
    "name", ["resnet8-onnx", "mobilenet-quantized", "savedmodel-tree", "dataset", "dataset-idx", "framework", "image"]
)
def test_what_is_built_has_no_reasons(name: str) -> None:
    assert reasons(name) == ()


def test_what_is_not_built_is_named_with_its_path() -> None:
    assert reasons("everything-else") == ("predictions: boxes without an input of type image is not supported yet",)
    assert reasons("dataset-npz") == ()
    assert reasons("image-finished") == ()


def test_a_request_for_more_than_is_built_is_named() -> None:
    assert find_unsupported(read_request(REQUEST, "request.yaml")) == ()
    text = REQUEST.replace("trace: none", "trace: model")
    assert text != REQUEST
    assert find_unsupported(read_request(text, "request.yaml")) == ("trace: model is not supported yet",)
