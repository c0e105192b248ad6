"""Matrices: which cells there are, in which order they run, and every problem at its place in the file."""

from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.requests.matrix_request import MAX_CELLS, parse_matrix, read_matrix
from tests.support.registry.matrices import MATRIX

ROOT = Path(__file__).resolve().parents[3]


def cells_of(text: str) -> list[str]:
    return [cell.name for cell in read_matrix(text, "matrix.yaml").cells]


def problems_of(text: str) -> dict[str, str]:
    """What is wrong, by place."""
    with pytest.raises(InvalidInputError) as caught:
        read_matrix(text, "matrix.yaml")
    return {one.where or "": one.what for one in caught.value.problems or (caught.value,)}


def grid(models: int, scenarios: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - keys of a matrix
    document = deepcopy(read_matrix(MATRIX, "matrix.yaml").document)
    del document["exclude"]
    document["axes"] = {
        "model": {f"m{number}": {"name": "digits", "version": f">=1.0.{number}"} for number in range(models)},
        "scenario": {
            f"s{number}": {"name": "single_stream", "min_queries": number + 1, "min_duration": "1s", "warmup": 8}
            for number in range(scenarios)
        },
    }
    return document | {"repeat": 1} | more


def test_the_cells_are_the_product_of_the_axes_without_the_excluded_ones() -> None:
    assert cells_of(MATRIX) == ["model=new,scenario=long", "model=new,scenario=short", "model=old,scenario=short"]


def test_a_cell_is_excluded_by_any_entry_whose_labels_it_has() -> None:
    exclude = [
        {"model": "m0"},
        {"scenario": "s1"},
        {"scenario": "s2", "model": "m1"},
        {"model": "m2", "scenario": "s0"},
    ]
    cells = parse_matrix(grid(4, 3, exclude=exclude), "matrix").cells
    every = [cell.labels for cell in parse_matrix(grid(4, 3), "matrix").cells]
    assert [cell.labels for cell in cells] == [
        labels for labels in every if not any(entry.items() <= labels.items() for entry in exclude)
    ]


def test_the_example_is_a_matrix() -> None:
    example = ROOT / "examples" / "digits" / "matrix.yaml"
    assert len(read_matrix(example.read_bytes(), example.name).cells) == 4


def test_numbers_in_labels_are_sorted_as_numbers() -> None:
    names = [cell.name for cell in parse_matrix(grid(12, 1), "matrix").cells]
    assert names == [f"model=m{number},scenario=s0" for number in range(12)]


def test_a_cell_is_the_request_with_the_values_of_its_labels() -> None:
    matrix = read_matrix(MATRIX, "matrix.yaml")
    cell = matrix.cells[0].request
    shared = matrix.document["request"]
    assert cell.document["model"] == {"name": "digits", "version": "~1.1"}
    assert cell.scenario.settings["min_queries"] == 1000
    assert cell.name == "digits-grid"
    assert {key: cell.document[key] for key in shared} == shared


def test_the_order_of_the_file_changes_neither_the_id_nor_the_cells() -> None:
    document = read_matrix(MATRIX, "matrix.yaml").document
    other = {key: document[key] for key in reversed(document)}
    axes = document["axes"]
    other["axes"] = {axis: {label: axes[axis][label] for label in reversed(axes[axis])} for axis in reversed(axes)}
    assert list(parse_matrix(other, "matrix").rounds()) == list(read_matrix(MATRIX, "matrix.yaml").rounds())
    assert parse_matrix(other, "matrix").id == read_matrix(MATRIX, "matrix.yaml").id
    assert parse_matrix(other, "matrix").cells == read_matrix(MATRIX, "matrix.yaml").cells
    assert parse_matrix(document | {"seed": 4}, "matrix").id != read_matrix(MATRIX, "matrix.yaml").id


def test_every_round_has_each_cell_once_and_the_seed_decides_the_order() -> None:
    matrix = parse_matrix(grid(4, 3, repeat=5), "matrix")
    rounds = list(matrix.rounds())
    assert [number for number, _ in rounds] == sorted([*range(1, 6)] * 12)
    assert Counter(rounds) == Counter((number, cell.name) for number in range(1, 6) for cell in matrix.cells)
    orders = {tuple(name for at, name in rounds if at == number) for number in range(1, 6)}
    assert len(orders) == 5, "rounds with the same order share their drift"
    assert list(matrix.rounds()) == rounds
    assert list(parse_matrix(grid(4, 3, repeat=5, seed=99), "matrix").rounds()) != rounds


def test_problems_of_all_cells_are_reported_at_once_each_at_its_place() -> None:
    text = MATRIX.replace("cpus: 1", "cpus: 0").replace("warmup: 8", "warmupp: 8").replace('"~1.1"', '"1.x.y"')
    assert problems_of(text) == {
        "request.limits.cpus (matrix.yaml, line 8)": "expected at least 1, found 0",
        "axes.model.new.version (matrix.yaml, line 14)": "invalid version constraint '1.x.y'",
        "axes.scenario.short.warmupp (matrix.yaml, line 16)": "unknown key 'warmupp'",
        "axes.scenario.long.warmupp (matrix.yaml, line 17)": "unknown key 'warmupp'",
    }


@pytest.mark.parametrize("label", ["²", "9" * 5000, "a b", ""])
def test_a_label_that_is_none_is_refused(label: str) -> None:
    document = read_matrix(MATRIX, "matrix.yaml").document
    axes = {**document["axes"], "model": {label: {"name": "digits", "version": "^1"}}}
    with pytest.raises(InvalidInputError, match="invalid label"):
        parse_matrix({**document, "axes": axes, "exclude": []}, "matrix")


def test_a_key_is_stated_once() -> None:
    text = MATRIX.replace("  seed: 7", '  seed: 7\n  name: b\n  model: {name: digits, version: "^1"}')
    assert problems_of(text) == {
        "request.name (matrix.yaml, line 11)": "every cell has the name of the matrix",
        "request.model (matrix.yaml, line 12)": "model is an axis, whose values replace it",
    }


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("{model: old, scenario: long}", "{model: older}", "the axis model has no value 'older'"),
        ("{model: old, scenario: long}", "{dataset: a}", "the axis dataset has no value 'a'"),
        ("{model: old, scenario: long}", "{}", "this excludes every cell"),
        ("{model: old, scenario: long}", "{model: old}, {model: new}", "every cell is excluded"),
        ("repeat: 2", "repeat: 0", "expected at least 1, found 0"),
        ("kind: matrix", "kind: evaluation", "evaluation"),
        ("old: {", "o/ld: {", "invalid label 'o/ld'"),
        ("seed: 3", "sead: 3", "unknown key 'sead'"),
    ],
)
def test_what_is_no_matrix_is_refused(before: str, after: str, what: str) -> None:
    assert before in MATRIX
    assert any(what in f"{place}: {problem}" for place, problem in problems_of(MATRIX.replace(before, after)).items())


def test_there_are_so_many_cells_and_no_more() -> None:
    assert len(parse_matrix(grid(100, 10), "matrix").cells) == 1000
    for document in (grid(100, 10, repeat=11), grid(101, 1)):
        with pytest.raises(InvalidInputError):
            parse_matrix(document, "matrix")
    document = grid(100, 100)
    document["axes"]["hardware"] = {"any": {}, "cpu": {"device": "cpu"}}
    del document["request"]["hardware"]
    with pytest.raises(InvalidInputError, match=f"20000 cells are too many: the maximum is {MAX_CELLS}"):
        parse_matrix(document, "matrix")
