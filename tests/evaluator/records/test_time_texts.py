"""What the times of a run include, with LoadGen's figures beside them."""

from typing import Any

import pytest
from msgspec.structs import replace

from benchlock.evaluator.records.run_types import RunEnd
from benchlock.evaluator.records.time_texts import list_time_notes
from benchlock.evaluator.statistics.metric_types import Interval, Metric
from tests.support.evaluator.recorded import DONE

DETAILS: dict[str, Any] = {
    "performance": {"queries": 1000, "duration_s": 0.0295, "overhead": {"around_ns": 3100.0, "timed_ns": 200.0}},
    "loadgen": {
        "valid": True,
        "percentiles": [
            {"share": 0.5, "own_ns": 17100, "loadgen_ns": 25400},
            {"share": 0.99, "own_ns": 30000, "loadgen_ns": 56500},
        ],
    },
}


def metric(name: str, value: float, unit: str) -> Metric:
    return replace(DONE.metrics[0], name=name, value=value, unit=unit, version=2, ci=Interval(None, None))


def ended(details: object) -> RunEnd:
    metrics = (metric("latency_p50", 17.1e-6, "s"), metric("throughput", 33_895.0, "samples/s"))
    return replace(DONE, metrics=metrics, details=details)


def test_notes_say_what_times_include_with_figures_of_the_record() -> None:
    latency, loadgen, throughput = list_time_notes(ended(DETAILS), "single_stream")
    assert latency.startswith(
        "latency (definition 2; its intervals allow for calls that depend on each other): the time"
    )
    assert "p50 25.4 µs, p99 56.5 µs" in loadgen
    assert "outside of benchlock's" in loadgen
    assert "From one query to the next are 29.5 µs on average: 17.1 µs are the median latency" in throughput
    assert "and 3.1 µs the harness's counters" in throughput


def test_a_query_of_a_server_begins_with_its_arrival_and_its_throughput_is_no_property_of_the_model() -> None:
    (latency,) = list_time_notes(ended(DETAILS), "server")
    assert "from its scheduled arrival to its answer" in latency


@pytest.mark.parametrize("details", [{}, {"performance": {"queries": 0, "duration_s": 1.0}}, {"performance": 3}])
def test_a_record_without_the_parts_has_the_definitions_alone(details: object) -> None:
    latency, throughput = list_time_notes(ended(details), "single_stream")
    assert latency.startswith("latency")
    assert throughput.endswith("LoadGen and benchlock's harness work.")


def test_a_run_without_times_has_no_notes() -> None:
    assert not list(list_time_notes(replace(DONE, metrics=(), details=DETAILS), "single_stream"))
