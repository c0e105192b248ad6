"""Locks of operators: their content, what changes them, and conflicts that name the operator."""

from typing import Any, cast

import pytest
from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.lock.lock_assembly import change_seed, check_lock, preferences_of, question_of
from benchlock.registry.lock.lock_diff import diff
from benchlock.registry.lock.lock_feasibility import ChosenOperator
from benchlock.registry.lock.lockfile import Lock, dataset_of, dump, load, read
from benchlock.registry.lock.selection_reasons import explain_selection
from benchlock.registry.manifests import Framework, Image, Operator
from benchlock.registry.requests.evaluation_request import Request, derive_seed
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.resolution.resolver import resolve
from benchlock.registry.resolution.version_search import Search
from benchlock.registry.versions.semantic_version import parse_version
from tests.support.resolution.locks import FILES, FRAMEWORK, IMAGE, Shelf, published, request, shelf
from tests.support.resolution.universe import Universe

OPERATOR = """
schema: 1
kind: operator
name: gemm
version: {version}
license: Apache-2.0
op: {{type: Gemm, opset: 21}}
dtype: float32
inputs: [{{name: A}}, {{name: B}}]
reference: {{file: reference.py, function: gemm}}
fill: {{kind: normal, generator: pcg64}}
tolerance: {{l2: 1.0, linf: 1.0}}
cases:
  - {{name: small, shapes: {{A: [2, 3], B: [3, 4]}}, arguments: {{}}, reduction: 3}}
  - {{name: large, shapes: {{A: [64, 64], B: [64, 64]}}, arguments: {{}}, reduction: 64}}
files: [{{path: reference.py, role: code, source: ./reference.py}}]
"""
REQUEST = """
schema: 1
kind: evaluation
level: operator
name: gemm
operator: {name: gemm, version: "^1.0"}
framework: {name: onnxruntime, version: ">=1.20 <2"}
hardware: {os: linux, arch: amd64, device: cpu}
limits: {time: 10m, memory: 2GiB, cpus: 1, processes: 256}
scenario: {name: paired, blocks: 20, calls: auto, order: abba, warmup: 3}
metrics: [operator_latency, error_l2]
seed: 7
"""
CODE = {"reference.py": b"def gemm(inputs, arguments): ..."}


def ask(**replaced: str) -> Request:
    return request(REQUEST, **replaced)


def operators(version: str = "1.0.0") -> Shelf:
    """The shelf with an operator in place of model and dataset."""
    operator = published(OPERATOR, CODE, version=version)
    framework, image = published(FRAMEWORK, {}, version="1.31.1"), published(IMAGE, FILES["image"], version="1.0.0")
    assert isinstance(operator, Operator)
    assert isinstance(framework, Framework)
    assert isinstance(image, Image)
    chosen = cast("Any", ChosenOperator(operator, framework, image))
    return Shelf(chosen, {"operator": CODE, "image": FILES["image"]}, {})


@pytest.fixture
def lock() -> Lock:
    return operators().lock(ask())


def test_the_lock_has_the_operator_in_place_of_model_and_dataset(lock: Lock) -> None:
    assert (lock.schema, lock.model, lock.dataset) == ("1.1", UNSET, UNSET)
    assert list(lock.artifacts()) == ["operator", "framework", "image"]
    assert [file.path for file in lock.subject.files] == ["reference.py"]
    assert lock.inputs == (lock.subject.digest, "")
    assert load(dump(lock), "gemm.lock") == lock
    assert operators().lock(ask()).id == lock.id
    with pytest.raises(InvalidInputError, match="operator/gemm is evaluated without a dataset"):
        dataset_of(lock)


def test_the_seed_of_a_case_follows_from_the_request_and_its_name(lock: Lock) -> None:
    assert lock.scenario["seeds"] == {case: derive_seed(7, f"case {case}") for case in ("small", "large")}
    assert len(set(lock.scenario["seeds"].values())) == 2
    assert change_seed(lock, 8).id == operators().lock(ask(seed="8")).id != lock.id


def test_a_lock_has_a_model_with_a_dataset_or_an_operator(lock: Lock) -> None:
    both = {**lock.document, "model": lock.document["operator"]}
    neither = {name: part for name, part in lock.document.items() if name != "operator"}
    for document, words in ((both, "a lock of an operator has no model"), (neither, "missing required field `model`")):
        with pytest.raises(InvalidInputError, match=words):
            read(document, "gemm.lock")


def test_a_lock_of_a_model_keeps_its_schema() -> None:
    assert shelf().lock(request()).schema == "1.0"


def test_a_newer_operator_is_chosen_unless_the_lock_has_an_older_one(lock: Lock) -> None:
    others = [operators(version).snapshot().of("operator", "gemm") for version in ("1.1.0", "2.0.0")]
    universe = Universe([*operators().snapshot().rows, *(candidate for rows in others for candidate in rows)])
    question = question_of(ask())
    assert str(resolve(question, universe, {}).model) == "operator/gemm 1.1.0"
    assert str(resolve(question, universe, preferences_of(lock)).model) == "operator/gemm 1.0.0"


def test_a_conflict_names_the_operator_and_the_request() -> None:
    with pytest.raises(ConflictError) as caught:
        operators().resolution(ask(framework='{name: onnxruntime, version: ">=1.40"}'))
    text = str(caught.value)
    assert "the request requires framework/onnxruntime >=1.40" in text
    assert 'framework.version: "=1.31.1"' in text or 'framework.version: "1.31.1"' in text, text
    with pytest.raises(ConflictError) as caught:
        operators().resolution(ask(operator='{name: gemm, version: "^2.0"}'))
    assert "operator/gemm 1.0.0: outside ^2.0 (the request)" in str(caught.value)
    assert "operator.version" in str(caught.value)


def test_why_and_check_and_diff_know_operators(lock: Lock) -> None:
    search = Search.of(question_of(ask()), operators().snapshot(), {})
    assert explain_selection(lock.artifacts(), "operator", "gemm", search).version == parse_version("1.0.0")
    reason = explain_selection(lock.artifacts(), "framework", "onnxruntime", search)
    assert [requirement.text for requirement in reason.requirements] == [
        "the request requires framework/onnxruntime >=1.20 <2"
    ]
    assert check_lock(lock, ask(), operators().snapshot()).fresh
    assert not check_lock(lock, ask(seed="8"), operators().snapshot()).fresh
    assert not check_lock(lock, request(), shelf().snapshot()).fresh
    changes = {change.subject: (change.before, change.after) for change in diff(lock, shelf().lock(request()), {})}
    assert (changes["operator"], changes["model"]) == (("gemm 1.0.0", None), (None, "digits 1.0.0"))


def test_a_gradient_without_a_tolerance_is_refused() -> None:
    gradient = "{dtype: float64, step: 1.0e-6, elements: 2}"
    scenario = f"{{name: paired, blocks: 2, calls: 1, order: abba, warmup: 3, gradient: {gradient}}}"
    with pytest.raises(InvalidInputError, match="operator/gemm states no tolerance of gradients"):
        operators().lock(ask(scenario=scenario, metrics="[gradient_error]"))
