"""What the formats can say and this version cannot run."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.lock.lock_feasibility import check_class_output, find_unsupported
from benchlock.registry.manifests import Model
from tests.support.registry.authored import read_authored
from tests.support.resolution.variants import variant

CASES = Path(__file__).resolve().parents[2] / "cases"


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


@pytest.mark.parametrize(
    ("changes", "metric", "message"),
    [
        ({"type": "class-index"}, "auroc", "auroc needs scores of classes, which the output [a-z]+ does not have"),
        ({"reduce": "none"}, "f1_macro", "f1_macro needs one decision per sample, which"),
    ],
)
def test_a_metric_of_classes_needs_their_scores_and_one_decision(
    changes: dict[str, str], metric: str, message: str
) -> None:
    (model,) = (manifest for manifest in variant({}).manifests.values() if isinstance(manifest, Model))
    check_class_output([metric, "top1"], model)
    other = replace(model, outputs=tuple(replace(port, **changes) for port in model.outputs))
    check_class_output(["top1"], other)
    with pytest.raises(InvalidInputError, match=message):
        check_class_output([metric], other)
