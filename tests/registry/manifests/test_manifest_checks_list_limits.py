"""Lists of a manifest: each has a limit, and what breaks a rule often is not told without end."""

from typing import Any

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.publishing.remote_publication import parse_received_manifest
from benchlock.registry.text.collected_problems import MAX_PROBLEMS, Problems

FILE = {"path": "m.onnx", "role": "graph", "sha256": "0" * 64, "size": 1}


def model(**changed: object) -> dict[str, Any]:
    port = {"name": "y", "type": "tensor", "dtype": "float32", "shape": [None, 2]}
    return {
        "schema": 1, "kind": "model", "name": "a/b", "version": "1.0.0", "license": "MIT", "task": "tensor",
        "framework": {"name": "onnxruntime", "version": "*"}, "format": "onnx",
        "inputs": [{"type": "tensor", "name": "x", "dtype": "float32", "shape": [None, 4]}],
        "outputs": [port], "files": [FILE],
    } | changed  # fmt: skip


def problems_of(manifest: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInputError) as raised:
        parse_received_manifest(manifest)
    found = raised.value.problems or (raised.value,)
    return [((one.where or "").partition(" (")[0], one.what) for one in found]


@pytest.mark.parametrize(
    ("key", "value", "limit"),
    [
        ("files", [FILE] * 10_001, 10_000),
        ("inputs", [model()["inputs"][0]] * 257, 256),
        ("outputs", [model()["outputs"][0]] * 257, 256),
        ("tags", [f"tag{number}" for number in range(17)], 16),
    ],
)
def test_a_list_beyond_its_limit_is_one_problem(key: str, value: list[Any], limit: int) -> None:
    assert problems_of(model(**{key: value})) == [(key, f"{len(value)} elements; the limit is {limit}")]


@pytest.mark.parametrize(
    ("tags", "where", "what"),
    [
        ([], "tags", "it must not be empty"),
        (["a", "b", "a"], "tags[2]", "duplicate tag 'a'"),
        (["a", "B"], "tags[1]", "invalid tag 'B'"),
        (["a b"], "tags[0]", "invalid tag 'a b'"),
        (["a" * 33], "tags[0]", f"invalid tag '{'a' * 33}'"),
        ([1], "tags[0]", "expected text, found a whole number: 1"),
        ("a", "tags", "expected a list, found text: 'a'"),
    ],
)
def test_tags_are_few_short_and_different(tags: object, where: str, what: str) -> None:
    assert problems_of(model(tags=tags)) == [(where, what)]


def test_axes_of_a_step_are_bounded() -> None:
    steps = [{"reshape": {"shape": [1] * 33}}]
    inputs = [model()["inputs"][0] | {"steps": steps}]
    ((where, what),) = problems_of(model(inputs=inputs))
    assert (where, what) == ("inputs[0].steps[0].reshape.shape", "33 elements; the limit is 32")


def test_problems_are_bounded() -> None:
    problems = Problems()
    for number in range(3 * MAX_PROBLEMS):
        problems.add(InvalidInputError(f"{number}"))
        problems.add(InvalidInputError(f"{number}"))
    assert [error.what for error in problems.found] == [f"{number}" for number in range(MAX_PROBLEMS)]
