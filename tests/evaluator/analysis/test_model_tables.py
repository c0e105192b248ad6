"""A1, the cost of tracing and the timeline of a start."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchlock.evaluator.analysis.call_profiles import MissingLevelError, Seconds, Subject
from benchlock.evaluator.analysis.model_tables import (
    tabulate_batches,
    tabulate_counters,
    tabulate_overheads,
    tabulate_start,
    untraced_seconds,
)
from tests.support.evaluator.traces import make_trace


def times(latency: float, spread: float = 0.0, calls: int = 100) -> Seconds:
    return latency + spread * np.random.default_rng(7).normal(size=calls)


def test_each_level_costs_what_it_adds(tmp_path: Path) -> None:
    trace = make_trace(tmp_path, levels=("none", "model", "framework", "system"))
    table = tabulate_overheads(Subject(trace))
    none, *records = table.records()
    assert none["overhead"] is None
    for record, (level, cost) in zip(records, (("model", 1e-6), ("framework", 59e-6), ("system", 19e-6)), strict=True):
        assert record["level"] == level
        assert record["overhead"] == pytest.approx(cost, abs=5e-7), level
        assert float(record["low"] or 0) <= float(record["overhead"] or 0) <= float(record["high"] or 0)
    assert table.column("distinguishable") == (None, "yes", "yes", "yes")
    assert table.column("overhead") == (None, *(pytest.approx(cost, abs=5e-7) for cost in (1e-6, 59e-6, 19e-6)))
    for low, cost, high in zip(*(table.column(name)[1:] for name in ("low", "overhead", "high")), strict=True):
        assert isinstance(low, float)
        assert isinstance(cost, float)
        assert isinstance(high, float)
        assert low <= cost <= high


def test_an_overhead_within_the_noise_is_not_distinguishable(tmp_path: Path) -> None:
    def disturb(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        for level in ("none", "model"):
            tensors[f"{level}.call_duration"] = np.random.default_rng(len(level)).integers(50_000, 90_000, 200)

    gap = {"experiment": "framework", "reason": "no symbol"}
    trace = make_trace(tmp_path, levels=("none", "model"), graph=(), change=disturb, gaps=[gap])
    table = tabulate_overheads(Subject(trace))
    assert table.column("distinguishable") == (None, "no")
    assert table.notes == ("framework: no symbol",)


def test_the_optimal_batch_is_the_first_whose_doubling_gains_little(tmp_path: Path) -> None:
    sweep = {1: times(1.0), 2: times(1.5), 4: times(2.9), 8: times(5.0)}
    table = tabulate_batches(Subject(make_trace(tmp_path), sweep=sweep))
    assert table.column("batch") == (1, 2, 4, 8)
    assert table.column("throughput") == pytest.approx([1.0, 2 / 1.5, 4 / 2.9, 8 / 5.0])
    assert table.title.endswith("by the median call")
    assert any("samples by the wall clock" in note for note in table.notes)
    assert table.column("speedup")[-1] == pytest.approx(1.6)
    assert (table.facts["optimal_batch"], table.facts["batch_of_max_throughput"], table.facts["flat"]) == (2, 8, "no")


def test_batches_that_cannot_be_told_apart_are_flat(tmp_path: Path) -> None:
    sweep = {1: times(1.0, 0.3), 2: times(2.01, 0.6)}
    facts = tabulate_batches(Subject(make_trace(tmp_path), sweep=sweep)).facts
    assert (facts["optimal_batch"], facts["flat"]) == (1, "yes")


def test_one_batch_size_has_no_optimum(tmp_path: Path) -> None:
    trace = make_trace(tmp_path, batch=2)
    table = tabulate_batches(Subject(trace))
    assert table.column("batch") == (2,)
    latency, throughput = table.column("latency")[0], table.column("throughput")[0]
    assert isinstance(latency, float)
    assert throughput == pytest.approx(2 / latency)
    assert "optimal_batch" not in table.facts
    assert any("One batch size" in note for note in table.notes)
    assert len(untraced_seconds(trace)) == 200


def test_further_traces_are_further_batch_sizes(tmp_path: Path) -> None:
    others = (make_trace(tmp_path, batch=8, calls=3),)
    table = tabulate_batches(Subject(make_trace(tmp_path), others=others))
    assert table.column("batch") == (1, 8)
    assert table.column("throughput_low")[1] is None  # three calls bound no median


def test_the_phases_of_a_start_follow_one_another(tmp_path: Path) -> None:
    table = tabulate_start(Subject(make_trace(tmp_path)))
    assert table.column("phase") == ("import", "load", "first_call", "second_call")
    assert table.column("begin") == pytest.approx((0.0, 0.030, 0.032, 0.0324))
    steady = table.facts["steady_call_s"]
    assert isinstance(steady, float)
    assert [ratio is None for ratio in table.column("ratio")] == [True, True, False, True]
    assert table.column("ratio")[2] == pytest.approx(400e-6 / steady)
    assert tabulate_start(Subject(make_trace(tmp_path, phases={}))).notes == ("The trace has no phases of a start.",)


def test_counters_are_shown_over_all_calls_and_by_call(tmp_path: Path) -> None:
    def count(document: dict[str, Any], _: dict[str, Any]) -> None:
        counters = {"minor_faults": 400, "cycles": None, "reason": "PMU not available"}
        document["experiments"][2]["counters"] = counters

    trace = make_trace(tmp_path, levels=("none", "model", "system"), level="system", change=count)
    table = tabulate_counters(Subject(trace))
    assert table.rows == (("minor_faults", 400, 2.0), ("cycles", None, None))
    assert table.notes == ("Unknown: PMU not available: cycles.",)


def test_counters_need_the_level_system(tmp_path: Path) -> None:
    with pytest.raises(MissingLevelError, match="no rows of level `system`"):
        tabulate_counters(Subject(make_trace(tmp_path)))
