"""Layers of two traces side by side, whose differences add up to that of the calls."""

from math import fsum
from pathlib import Path

import pytest

from benchlock.evaluator.analysis.call_profiles import Subject, profile
from benchlock.evaluator.analysis.layer_comparison import compare_layers, join_layers
from tests.support.evaluator.traces import LAYERS, conv, make_trace, row, tensor

PADDED = (
    row("pad", "Pad", (1, 3, 34, 34), tensor(1, 3, 32, 32), took=30_000),
    {**LAYERS[0], "took": 41_000},
    *LAYERS[1:3],
    conv("wide", (16, 24), 32, took=8_000),
    *LAYERS[3:],
)


def test_the_differences_add_up_exactly(tmp_path: Path) -> None:
    first, second = (
        Subject(make_trace(tmp_path, layers=layers), {"run": name}) for layers, name in ((LAYERS, "a"), (PADDED, "b"))
    )
    kinds, layers = compare_layers(first, second)
    for table in (kinds, layers):
        differences = [float(value or 0) for value in table.column("difference")]
        assert fsum(differences) == pytest.approx(table.facts["traced_difference_s"], rel=1e-12, abs=1e-18)
        assert table.rows[-1][0] == "(remainder)"
    assert kinds.facts["largest_difference"] == "layout"
    assert kinds.rows[0][:1] == ("layout",)
    assert kinds.rows[0][3] == pytest.approx(30e-6)
    assert (kinds.facts["first_run"], kinds.facts["second_run"]) == ("a", "b")
    calls = [profile(subject.trace, "framework", "layer").call for subject in (first, second)]
    assert layers.facts["traced_difference_s"] == calls[1] - calls[0]


def test_layers_are_joined_by_shape_then_by_order(tmp_path: Path) -> None:
    first, second = (profile(make_trace(tmp_path, layers=layers), "framework", "layer") for layers in (LAYERS, PADDED))
    joins = {(pair.first, pair.second): pair.join for pair in join_layers(first, second)}
    assert joins == {
        (0, 1): "shape", (1, 2): "shape", (2, 3): "shape", (3, 5): "shape", (4, 6): "shape", (5, 7): "shape",
        (None, 0): "second only", (None, 4): "second only",
    }  # fmt: skip
    padded = profile(make_trace(tmp_path, layers=(conv("a", (3, 8), 32), *LAYERS[1:])), "framework", "layer")
    assert {pair.join for pair in join_layers(first, padded) if pair.first == 0} == {"order"}


def test_the_order_of_axes_is_ignored(tmp_path: Path) -> None:
    last = row("relu", "RELU", (1, 32, 32, 16), tensor(1, 32, 32, 16), took=6_000)
    first, second = (
        profile(make_trace(tmp_path, layers=(layer,)), "framework", "layer") for layer in (LAYERS[1], last)
    )
    assert [pair.join for pair in join_layers(first, second)] == ["shape"]


def test_a_trace_compared_with_itself_has_no_differences(tmp_path: Path) -> None:
    subject = Subject(make_trace(tmp_path))
    for table in compare_layers(subject, subject):
        assert set(table.column("difference")) == {0.0}
