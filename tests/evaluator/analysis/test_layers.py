"""A2 to A7, A12 and A14 of a trace with known rows and times."""

from pathlib import Path
from typing import Any

import pytest

from benchlock.evaluator.analysis.call_profiles import Subject
from benchlock.evaluator.analysis.kernels import KERNEL_ANALYSES
from benchlock.evaluator.analysis.layers import LAYER_ANALYSES
from benchlock.evaluator.analysis.table_formats import format_cell
from benchlock.evaluator.analysis.tables import Table
from benchlock.evaluator.analysis.trace_types import Trace
from tests.support.evaluator.traces import LAYERS, ROOFS, conv, make_trace

TOOK = [layer["took"] * 1e-9 for layer in LAYERS]
TOTAL = sum(TOOK)


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return make_trace(tmp_path)


def analyze(id_: str, trace: Trace) -> Table:
    return LAYER_ANALYSES[id_](Subject(trace, {"run": "run/1"}, ROOFS))


def test_a2_has_every_layer(trace: Trace) -> None:
    table = analyze("A2", trace)
    assert table.id == "A2"
    assert table.column("name") == tuple(layer["name"] for layer in LAYERS)
    assert table.column("kind") == ("conv", "activation", "depthwise_conv", "layout", "dense", "softmax")
    assert table.column("latency") == pytest.approx(TOOK)
    assert table.column("share") == pytest.approx([took / TOTAL for took in TOOK])
    assert table.column("output_shape")[0] == "1x16x32x32"
    assert table.column("flops_executed") == (884_736, 0, 294_912, 0, 1_280, 0)
    assert table.column("flops_model") == table.column("flops_executed")
    assert table.facts["flops_model"] == table.facts["flops_executed"] == 884_736 + 294_912 + 1_280
    assert (table.facts["run"], table.facts["layers"], table.facts["layers_below_1_ms"]) == ("run/1", 6, 6)


def test_flops_of_the_model_and_those_executed_differ(tmp_path: Path) -> None:
    padded = [conv("conv1", (3, 16), 32, took=5)]
    table = analyze("A2", make_trace(tmp_path, layers=padded, graph=[conv("conv1", (3, 8), 32)]))
    assert (table.facts["flops_model"], table.facts["flops_executed"]) == (442_368, 884_736)
    assert table.column("flops_model") == (442_368,)


def test_an_unknown_shape_makes_the_sum_a_lower_bound(tmp_path: Path) -> None:
    unknown = {**LAYERS[0], "outputs": [{"shape": None}]}
    table = analyze("A2", make_trace(tmp_path, layers=(unknown, LAYERS[4])))
    assert table.column("flops_executed") == (None, 1_280)
    assert table.facts["flops_executed"] == "≥ 1280"


def test_a_trace_without_a_graph_has_no_flops_of_the_model(tmp_path: Path) -> None:
    table = analyze("A2", make_trace(tmp_path, graph=(), change=lambda document, _: document.update(graph=None)))
    assert table.facts["flops_model"] is None
    assert set(table.column("flops_model")) == {None}


def test_a3_and_a4_name_the_intensive_stage(trace: Trace) -> None:
    table = analyze("A3", trace)
    assert table.column("stage") == ("begin", "begin", "middle", "middle", "end", "end")
    assert table.facts["most_intensive_stage"] == "begin"
    memory = analyze("A4", trace)
    assert memory.column("output_bytes") == (65_536, 65_536, 65_536, 65_536, 40, 40)
    assert memory.facts["most_intensive_stage"] == "begin"


def test_a5_counts_layers_by_type(trace: Trace) -> None:
    table = analyze("A5", trace)
    assert table.rows[:2] == (("conv", "Conv", 1, 1 / 6), ("depthwise_conv", "Conv", 1, 1 / 6))
    assert sum(float(share or 0) for share in table.column("share_of_count")) == pytest.approx(1)


def test_a6_has_both_shares_and_the_remainder(trace: Trace) -> None:
    table = analyze("A6", trace)
    assert table.column("kind")[:2] == ("conv", "depthwise_conv")
    assert table.rows[-1][0] == "(remainder)"
    assert table.rows[-1][2] == table.facts["remainder_s"]
    assert sum(float(share or 0) for share in table.column("share")) == pytest.approx(1)
    base = table.facts["model_latency_s"]
    assert isinstance(base, float)
    assert table.column("share_of_model")[0] == pytest.approx(40e-6 / base)
    assert table.facts["conv_share_of_layers"] == pytest.approx(60e-6 / TOTAL)
    assert table.facts["conv_share_of_model"] == pytest.approx(60e-6 / base)


def test_a6_gives_no_share_of_a_call_that_its_layers_exceed(tmp_path: Path) -> None:
    def slow(_: object, tensors: dict[str, object]) -> None:
        tensors["none.call_duration"] = tensors["none.call_duration"] // 2  # type: ignore[operator]

    table = analyze("A6", make_trace(tmp_path, change=slow))
    assert set(table.column("share_of_model")) == {None}
    assert table.facts["conv_share_of_model"] is None
    assert any("longer than the untraced call" in note for note in table.notes)


def test_a7_adds_up_memory(tmp_path: Path) -> None:
    layers = [{**LAYERS[1], "allocated_bytes": 100}, {**LAYERS[1], "name": "b", "allocated_bytes": 200}, LAYERS[4]]
    table = analyze("A7", make_trace(tmp_path, layers=layers))
    assert table.rows == (("activation", 2, 131_072, 300), ("dense", 1, 40, None))


def test_a12_has_the_work_and_a14_its_place_under_the_roofs(trace: Trace) -> None:
    table = analyze("A12", trace)
    assert table.column("bytes_written") == (65_536, 65_536, 65_536, 65_536, 40, 40)
    assert table.column("bytes_read")[0] == 4 * (3 * 1024 + 432)
    roofline = analyze("A14", trace)
    assert roofline.column("name") == ("conv1", "depthwise", "dense")
    assert roofline.column("throughput")[0] == pytest.approx(884_736 / 40e-6)
    assert roofline.column("memory_bound") == ("no", "no", "yes")
    assert roofline.facts["bandwidth_working_set_B"] == 1 << 18


def test_roofs_of_other_threads_are_not_used(tmp_path: Path) -> None:
    table = analyze("A14", make_trace(tmp_path, threads=2))
    assert set(table.column("memory_bound")) == {None}
    assert table.facts["peak_flop_s"] is None
    assert any("measure the roofs" in note for note in table.notes)


def _coarse(document: dict[str, Any], _: dict[str, Any]) -> None:
    document["experiments"][-1]["resolution_ns"] = 1_000


def _trace_of_twins(folder: Path) -> Trace:
    """Two convolutions of one name on a clock of whole microseconds, the second of which is too short for it."""
    twins = (conv("conv", (3, 16), 32, took=40_000), conv("conv", (16, 16), 32, took=9), conv("last", (16, 16), 32))
    return make_trace(folder, layers=twins, change=_coarse)


def test_layers_of_one_name_are_numbered_by_their_place(tmp_path: Path) -> None:
    assert LAYER_ANALYSES["A2"](Subject(_trace_of_twins(tmp_path))).column("name") == ("conv #0", "conv #1", "last")


def test_a_layer_below_the_clock_is_not_in_the_roofline(tmp_path: Path) -> None:
    subject = Subject(_trace_of_twins(tmp_path), roofs=ROOFS)
    table = LAYER_ANALYSES["A14"](subject)
    assert table.column("name") == ("conv #0", "last")
    assert any("below the clock's step: conv #1." in note for note in table.notes)
    assert not any(note.startswith("conv #1 exceeds") for note in table.notes)
    kernels = KERNEL_ANALYSES["A9"](subject)
    assert kernels.column("index") == (0, 2)
    assert kernels.facts["peak_flop_s"] == table.facts["peak_flop_s"]


def test_times_below_the_clock_are_shown_as_such(tmp_path: Path) -> None:
    table = LAYER_ANALYSES["A2"](Subject(_trace_of_twins(tmp_path)))
    columns = {column.name: column for column in table.columns}
    first, short, _ = table.records()
    assert format_cell(columns["latency"], short["latency"]) == "< 1 µs"
    assert format_cell(columns["share"], short["share"]).startswith("< ")
    assert format_cell(columns["latency"], first["latency"]) == "40 µs"
    assert any("nor are means of 1 of them, which are below one step" in note for note in table.notes)
    fine = LAYER_ANALYSES["A2"](Subject(make_trace(tmp_path)))
    assert {column.least for column in fine.columns} == {0.0}
