"""Means over the middle calls add up to the call, and readers are warned."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchlock.evaluator.analysis.call_profiles import (
    MissingLevelError,
    Subject,
    find_middle,
    match_positions,
    model_latency,
    profile,
    profile_facts,
    profile_notes,
    trimmed_mean,
)
from benchlock.evaluator.statistics.trace_overheads import select_calls
from tests.support.evaluator.traces import LAYERS, make_trace


def test_ten_values_lose_two_at_each_end() -> None:
    values = [100.0, 1, 2, 3, 4, 5, 6, 7, 8, -100]
    assert trimmed_mean(values) == np.mean([2, 3, 4, 5, 6, 7])
    assert find_middle(np.array(values)).tolist() == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_fewer_than_five_values_lose_none(n: int) -> None:
    values = [float(2**power) for power in range(n)]
    assert trimmed_mean(values) == sum(values) / n


def test_positions_with_equal_keys_are_matched_in_order() -> None:
    assert match_positions({0: "a", 1: "b", 2: "a", 3: "a"}, {0: "a", 5: "a", 6: "c"}) == {0: 0, 2: 5}


def test_the_call_is_the_sum_of_its_layers_and_the_remainder(tmp_path: Path) -> None:
    trace = make_trace(tmp_path)
    layers = profile(trace, "framework", "layer")
    assert layers.call == pytest.approx(layers.total + layers.remainder, rel=1e-12)
    assert layers.latencies == pytest.approx([row["took"] * 1e-9 for row in LAYERS])
    assert layers.call == pytest.approx(trimmed_mean(trace.experiments["framework"].call_duration) * 1e-9)
    assert (layers.preempted, layers.middle) == (0, 120)
    assert layers.remainder > 0


def test_the_model_latency_is_of_untraced_calls(tmp_path: Path) -> None:
    trace = make_trace(tmp_path)
    assert model_latency(trace) == (profile(trace, "none", "model").call, "none")
    assert model_latency(trace)[0] < profile(trace, "framework", "model").call - 50e-6
    assert model_latency(make_trace(tmp_path, levels=("framework",)))[1] == "framework"


def preempt(_: dict[str, Any], tensors: dict[str, Any]) -> None:
    tensors["framework.preempted"][::2] = 1
    tensors["framework.call_duration"][::2] = 10**9
    tensors["framework.duration"][::2] = 10**8


def test_preempted_calls_are_left_out_and_counted(tmp_path: Path) -> None:
    trace = make_trace(tmp_path, change=preempt)
    layers = profile(trace, "framework", "layer")
    assert (layers.preempted, layers.middle) == (100, 60)
    assert layers.latencies == pytest.approx([row["took"] * 1e-9 for row in LAYERS])
    notes = tuple(profile_notes(Subject(trace), layers))
    assert "Only 100 calls were not preempted: a mean of fewer than 200 calls may differ in the next run." in notes
    assert profile_facts(Subject(trace), layers)["preempted_calls"] == 100


def test_if_all_calls_were_preempted_all_count(tmp_path: Path) -> None:
    def preempt_all(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors["framework.preempted"][:] = 1

    trace = make_trace(tmp_path, change=preempt_all)
    assert len(select_calls(trace.series["framework"])) == 200


def test_an_unknown_time_is_unknown_and_in_the_remainder(tmp_path: Path) -> None:
    def lose(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors["framework.duration"][:, 3] = -1

    layers = profile(make_trace(tmp_path, change=lose), "framework", "layer")
    assert layers.latencies[0] is None
    assert layers.call == pytest.approx(layers.total + layers.remainder, rel=1e-12)


def test_a_call_without_some_time_is_left_out(tmp_path: Path) -> None:
    def lose(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors["framework.duration"][7:12, 3] = -1

    whole, trace = make_trace(tmp_path), make_trace(tmp_path, change=lose)
    layers = profile(trace, "framework", "layer")
    assert layers.partial == 5
    assert layers.latencies == profile(whole, "framework", "layer").latencies
    assert any("5 calls are left out" in note for note in profile_notes(Subject(trace), layers))


def test_layers_inside_of_layers_do_not_count_twice(tmp_path: Path) -> None:
    inner = {**LAYERS[1], "parent": 3}
    trace = make_trace(tmp_path, layers=(LAYERS[0], inner, LAYERS[2]), graph=())
    layers = profile(trace, "framework", "layer")
    assert [row.name for row in layers.rows] == ["conv1", "depthwise"]


def test_a_missing_level_is_an_error_with_the_reason_of_the_gap(tmp_path: Path) -> None:
    model = make_trace(tmp_path, levels=("none", "model"), graph=())
    with pytest.raises(MissingLevelError, match="no rows of level `framework`; its level is `model`") as caught:
        profile(model, "framework", "layer")
    assert caught.value.next_step == "set `trace: framework` in the request, lock it and run it"
    gap = {"experiment": "system", "reason": "PMU not available", "next_step": "use another host"}
    with pytest.raises(MissingLevelError, match="PMU not available") as caught:
        profile(make_trace(tmp_path, gaps=[gap]), "system", "kernel")
    assert caught.value.next_step == "use another host"


def coarse(document: dict[str, Any], _: dict[str, Any]) -> None:
    document["experiments"][2] |= {
        "resolution_ns": 1000,
        "start_source": "accumulated",
        "incomplete": "18 of 20 rows",
        "notes": ["own note"],
    }


def test_readers_are_warned(tmp_path: Path) -> None:
    caps = {"calls": 4, "reason": "a trace has at most 64 MiB"}
    trace = make_trace(tmp_path, change=coarse, calls=4, caps=caps)
    text = "\n".join(profile_notes(Subject(trace), profile(trace, "framework", "layer")))
    for words in (
        "The number of calls is limited: a trace has at most 64 MiB",
        "The trace is incomplete: 18 of 20 rows",
        "Only 4 calls: the trimmed mean is the plain mean.",
        "2 rows are shorter than 5 steps of the profiler's clock, which counts 1000 ns",
        "the profiler dominates the shares of layers",
        "laid end to end",
        "own note",
    ):
        assert words in text, words
    assert "than the untraced call" not in text
    assert not re.search(r"\d+\s?%", text)  # `overhead` alone has the figure of the cost


def test_layers_that_exceed_the_untraced_call_are_noted(tmp_path: Path) -> None:
    def slow(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors["none.call_duration"] = tensors["none.call_duration"] // 2

    trace = make_trace(tmp_path, change=slow)
    notes = tuple(profile_notes(Subject(trace), profile(trace, "framework", "layer")))
    assert any("longer than the untraced call, so shares of it are not given" in note for note in notes)
    assert not any("overlap" in note for note in notes)
    overlapping = make_trace(
        tmp_path, change=lambda _, tensors: tensors.update({"framework.call_duration": np.full(200, 50_000)})
    )
    notes = tuple(profile_notes(Subject(overlapping), profile(overlapping, "framework", "layer")))
    assert any("overlap or are rounded up" in note for note in notes)
