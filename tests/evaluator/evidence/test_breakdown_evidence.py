"""The memory of a training step, from every change of memory that the harness wrote."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import save_file

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.breakdown_evidence import check_ranking, measure_breakdown
from benchlock.evaluator.harness.training import GRADIENTS, SAVED, TRANSIENT
from benchlock.evaluator.harness.training.breakdown_phase import MOST_KINDS, STEPS, count_kinds
from benchlock.evaluator.statistics.metric_types import metric_faults

PARTS = ("memory_weights", "memory_optimizer", "memory_gradients", "memory_saved", "memory_transient")
STEP = ([100, 40, -40, 30, 8, -100], [SAVED, TRANSIENT, TRANSIENT, GRADIENTS, TRANSIENT, SAVED])
"""A step that saves 100 bytes, needs 40 and then 8 more, and leaves 30 of gradients and 8 that leak."""


def columns_of(steps: list[tuple[list[int], list[int]]]) -> dict[str, NDArray[Any]]:
    columns = {"held": np.asarray([1000, 2000], np.int64)}
    for number, (changes, categories) in enumerate(steps):
        columns[f"{number}/bytes"] = np.asarray(changes, np.int64)
        columns[f"{number}/category"] = np.asarray(categories, np.int64)
    return columns


def measure(path: Path, columns: dict[str, NDArray[Any]]) -> dict[str, float]:
    save_file(columns, path)
    return {name: metric.value for name, metric in measure_breakdown(path).items()}


def test_the_parts_are_those_at_the_peak_and_the_growth_is_what_stays(tmp_path: Path) -> None:
    assert measure(tmp_path / "b", columns_of([STEP] * STEPS)) == {
        "step_memory": 3140,
        "memory_weights": 1000,
        "memory_optimizer": 2000,
        "memory_saved": 100,
        "memory_transient": 40,
        "memory_gradients": 0,
        "memory_growth": 8,
    }


@given(
    steps=st.lists(
        st.lists(st.tuples(st.integers(0, 1000), st.sampled_from([TRANSIENT, GRADIENTS, SAVED])), max_size=20),
        min_size=STEPS,
        max_size=STEPS,
    )
)
def test_the_parts_sum_to_the_largest_amount(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[tuple[int, int]]]
) -> None:
    split = [([size for size, _ in step], [kind for _, kind in step]) for step in steps]
    values = measure(tmp_path_factory.mktemp("breakdown") / "b", columns_of(split))
    assert sum(values[name] for name in PARTS) == values["step_memory"]
    peaks = [max(0, *np.cumsum([0, *changes])) for changes, _ in split]
    assert values["step_memory"] == 3000 + max(peaks)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("held", np.asarray([1000], np.int64)),
        ("0/bytes", np.asarray([1.0] * 6)),
        ("1/bytes", np.asarray([1, 2], np.int64)),
        ("1/category", np.asarray([7] * 6, np.int64)),
        ("2/category", np.asarray([[0] * 6], np.int64)),
        ("held", np.asarray([1000, -1], np.int64)),
        ("2/category", np.asarray([TRANSIENT, TRANSIENT, SAVED, GRADIENTS, TRANSIENT, TRANSIENT], np.int64)),
        ("2/bytes", np.asarray([2**62] * 6, np.int64)),
    ],
)
def test_a_malformed_column_is_refused(tmp_path: Path, name: str, value: NDArray[Any]) -> None:
    with pytest.raises(InvalidInputError, match="breakdown"):
        measure(tmp_path / "b", columns_of([STEP] * STEPS) | {name: value})


def test_parts_may_be_nothing(tmp_path: Path) -> None:
    """SGD without momentum has no state, and a linear network no gradients at its peak."""
    columns = columns_of([([10, -10, 4], [TRANSIENT, TRANSIENT, GRADIENTS])] * STEPS)
    save_file(columns | {"held": np.asarray([1000, 0], np.int64)}, tmp_path / "b")
    measured = measure_breakdown(tmp_path / "b")
    assert (measured["memory_optimizer"].value, measured["memory_gradients"].value) == (0, 0)
    assert list(metric_faults(measured.values())) == []


def test_a_missing_step_and_another_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="lacks 2/bytes"):
        measure(tmp_path / "b", columns_of([STEP] * (STEPS - 1)))
    (tmp_path / "other").write_bytes(b"no tensors")
    with pytest.raises(InvalidInputError, match="missing or malformed"):
        measure_breakdown(tmp_path / "other")


CONV, MATMUL = {"kind": "conv", "share": 0.85}, {"kind": "mm", "share": 0.1}
RANKED = {"operators": [CONV, MATMUL], "kinds": 3, "kinds_for_90_percent": 2}


@pytest.mark.parametrize(
    "breakdown",
    [
        None,
        {},
        RANKED | {"operators": []},
        RANKED | {"operators": [CONV] * (MOST_KINDS + 1)},
        RANKED | {"operators": [{"kind": 1, "share": 0.5}]},
        RANKED | {"operators": [{"kind": "k" * 201, "share": 0.5}]},
        RANKED | {"operators": [{"kind": "conv", "share": 1.5}]},
        RANKED | {"operators": [MATMUL, CONV]},
        RANKED | {"operators": [CONV, CONV]},
        RANKED | {"kinds": 1},
        RANKED | {"kinds": "many"},
        RANKED | {"kinds_for_90_percent": 1},
        RANKED | {"kinds_for_90_percent": 4},
        RANKED | {"operators": [CONV, MATMUL, {"kind": "relu", "share": 0.01}], "kinds_for_90_percent": 3},
    ],
)
def test_operators_are_ranked_by_shares_and_counted(breakdown: object) -> None:
    check_ranking({"training": {"breakdown": RANKED}})
    with pytest.raises(InvalidInputError, match=r"operators|kinds"):
        check_ranking({"training": {"breakdown": breakdown}})


def test_kinds_are_counted_from_the_largest_share() -> None:
    assert count_kinds([0.61, 0.3, 0.05, 0.04]) == 2
    assert count_kinds([0.25] * 4) == 4
    assert count_kinds([0.5, 0.3]) == 2
