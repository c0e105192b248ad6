"""The pages of recipes and operators have a request that is valid, and that a lock accepts."""

import io
import re
from collections.abc import Iterable
from html import unescape

import pytest

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.page import Viewer
from benchlock.api.web.pages.artifact_pages import make_artifact
from benchlock.api.web.rendering import render_page
from benchlock.registry.catalogue.catalogue_protocol import Provenance
from benchlock.registry.manifests import Manifest
from benchlock.registry.manifests.manifest_content import content
from benchlock.registry.requests.evaluation_request import Request, read_request
from tests.registry.lock.test_operator_locks import CODE, OPERATOR, operators
from tests.support.resolution.locks import published
from tests.support.resolution.recipes import recipes
from tests.support.resolution.variants import variant

GRADIENT = OPERATOR.replace("linf: 1.0}", "linf: 1.0, gradient: 1.0e-6}")


def publish(registry: LocalRegistry, manifests: Iterable[Manifest]) -> None:
    for manifest in manifests:
        registry.store.put(io.BytesIO(content(manifest)))
        registry.catalogue.publish(manifest, Provenance("", {}))


def show(registry: LocalRegistry, target: str) -> str:
    return unescape(render_page(make_artifact(registry, target, ""), Viewer()).decode())


def read(text: str) -> Request:
    shown = re.search(r"As request.yaml</h3>.*?<pre data-copy[^>]*><code>(.*?)</code>", text, re.DOTALL)
    assert shown is not None
    return read_request(shown[1], "request.yaml")


def test_the_request_of_a_recipe_trains_it_on_a_dataset_that_suits_it(registry: LocalRegistry) -> None:
    shelf = recipes()
    publish(registry, shelf.chosen.all())
    text = show(registry, "recipe/cnn")
    lock = shelf.lock(read(text))
    assert (lock.subject.name, lock.dataset.split) == ("cnn", "train")  # type: ignore[union-attr]
    assert lock.request["target"]["split"] == "test"
    assert "benchlock lock request.yaml\nbenchlock run cnn.lock" in text
    assert "No published dataset" not in text


def test_without_a_dataset_the_request_of_a_recipe_says_what_to_replace(registry: LocalRegistry) -> None:
    variant({}).publish(registry.catalogue, registry.store)  # one of its two splits has no labels
    publish(registry, [one for one in recipes().chosen.all() if one.kind == "recipe"])
    text = show(registry, "recipe/cnn")
    assert read(text).document["dataset"]["name"] == "name-of-a-dataset"
    assert "No published dataset has two splits that suit this recipe" in text


@pytest.mark.parametrize("template", [OPERATOR, GRADIENT])
def test_the_request_of_an_operator_measures_what_its_manifest_has_tolerances_for(
    registry: LocalRegistry, template: str
) -> None:
    shelf = operators()
    operator = published(template, CODE, version="1.0.0")
    publish(registry, [*shelf.chosen.all()[1:], operator])
    text = show(registry, "operator/gemm")
    request = read(text)
    is_derived = template == GRADIENT
    assert ("gradient_error" in request.metrics, "gradient" in request.document["scenario"]) == (is_derived,) * 2
    assert request.document["framework"]["name"] == "onnxruntime"
    if not is_derived:
        assert shelf.lock(request).subject.name == "gemm"
    assert "benchlock lock request.yaml\nbenchlock run gemm.lock" in text


def test_other_kinds_have_no_request(registry: LocalRegistry) -> None:
    publish(registry, [one for one in recipes().chosen.all() if one.kind == "dataset"])
    assert "As request.yaml" not in show(registry, "dataset/digits")
