"""What LoadGen says is held against our own account: each guard on a right one and on a wrong one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.scenarios import LoadGenScenario, MultiStream, Offline, Server, SingleStream
from benchlock.evaluator.harness.performance.call_meter import Columns, Meter, collect_columns
from benchlock.evaluator.harness.performance.loadgen_traces import (
    TRACE,
    Log,
    clocks_agree,
    describe_account,
    read_trace,
)

SINGLE = SingleStream(3, 4, 0)
MULTI = MultiStream(3, 2, 0, 2)
SERVER = Server(3, 4, 0, 100, 0.1)
OFFLINE = Offline(3, 2, 4, 0)
INDEX = [5, 0, 5, 7]
P50, P90 = "result_50.00_percentile_latency_ns", "result_90.00_percentile_latency_ns"


class Measured:
    """In place of a meter: four queries, of a millisecond each and a microsecond before it."""

    def columns(self) -> Columns:
        return {
            "latency_ns": np.full(4, 1_000_000),
            "before_ns": np.full(4, 1_000),
            "start_ns": np.arange(4) * 2_000_000,
            "end_ns": np.arange(4) * 2_000_000 + 1_001_000,
            "index": np.array(INDEX),
        }


def log(results: Mapping[str, Any], samples: int = 0) -> Log:
    """Of four queries, unless ``results`` say else; in ``offline`` of so many ``samples``."""
    settings = {"samples_per_query": samples}
    return Log("6", valid=True, errors=(), settings=settings, results={"result_query_count": 4, **results})


def columns(scenario: LoadGenScenario, told: Log, folder: Path) -> tuple[Columns, list[dict[str, float]]]:
    return collect_columns(cast(Meter, Measured()), scenario, told, folder)


def traced(folder: Path, index: list[int], latency: list[int]) -> Path:
    """A trace as LoadGen writes it, with other events between those of the samples; one is scheduled each 2.5 ms."""
    lines = [
        '{"name":"QuerySamples","ph":"X","ts":1.000,"dur":2.000,"args":{"sample_idx":5}},',
        *(
            f'{{"name":"Sample","cat":"default","ph":"b","pid":1,"tid":2,"ts":{1000 + 2500 * number}.125,"id":{number},'
            f'"args":{{"sample_seq":{number},"query_seq":{number},"sample_idx":{sample},'
            f'"issue_start_ns":{300 + number},"complete_ns":{took}}}}},'
            for number, (sample, took) in enumerate(zip(index, latency, strict=True))
        ),
        '{"name":"Sample","cat":"default","ph":"e","ts":9000.000,"id":0},',
    ]
    path = folder / TRACE
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("scenario", [SINGLE, MULTI])
def test_other_queries_than_were_answered_are_no_account(scenario: LoadGenScenario, tmp_path: Path) -> None:
    columns(scenario, log({}), tmp_path)
    with pytest.raises(Failure, match=r"LoadGen's account: .*it counts 5, but 4 were answered") as caught:
        columns(scenario, log({"result_query_count": 5}), tmp_path)
    assert caught.value.kind == "loadgen-invalid"


def test_of_its_one_query_the_samples_are_counted(tmp_path: Path) -> None:
    found, agreed = columns(OFFLINE, log({"result_query_count": 1}, 4), tmp_path)
    assert (found["index"].tolist(), agreed) == (INDEX, [])
    with pytest.raises(Failure, match="it counts 3, but 4 were answered"):
        columns(OFFLINE, log({"result_query_count": 1}, 3), tmp_path)


def test_in_server_a_latency_is_that_of_the_trace(tmp_path: Path) -> None:
    path = traced(tmp_path, INDEX, [4_000, 2_000, 3_000, 1_000])
    found, agreed = columns(SERVER, log({P50: 3_000, P90: 4_000}), tmp_path)
    assert agreed == [
        {"share": 0.5, "own_ns": 3_000, "loadgen_ns": 3_000},
        {"share": 0.9, "own_ns": 4_000, "loadgen_ns": 4_000},
    ]
    assert found["latency_ns"].tolist() == [4_000, 2_000, 3_000, 1_000]
    assert found["service_ns"].tolist() == [1_000_000] * 4
    assert found["start_ns"].tolist() == [0, 2_500_000, 5_000_000, 7_500_000]
    assert found["end_ns"].tolist() == [4_000, 2_502_000, 5_003_000, 7_501_000]
    assert found["issue_delay_ns"].tolist() == [300, 301, 302, 303]
    assert not path.exists()


@pytest.mark.parametrize("percentile", [P50, P90])
@pytest.mark.parametrize("away", [-1, 1])
def test_a_percentile_that_its_trace_does_not_have_is_no_account(tmp_path: Path, percentile: str, away: int) -> None:
    traced(tmp_path, INDEX, [4_000, 2_000, 3_000, 1_000])
    told = {P50: 3_000, P90: 4_000}
    told[percentile] += away
    with pytest.raises(Failure, match=f"percentile is {told[percentile]} ns, that of its trace") as caught:
        columns(SERVER, log(told), tmp_path)
    assert caught.value.kind == "loadgen-invalid"


@pytest.mark.parametrize("index", [[5, 0, 5], [5, 0, 5, 7, 7], [5, 0, 7, 5], [5, 0, 5, 8], []])
def test_a_trace_of_other_queries_is_refused(tmp_path: Path, index: list[int]) -> None:
    path = traced(tmp_path, index, [1_000] * len(index))
    message = f"LoadGen's trace has {len(index)} queries, which differ from the 4 issued"
    with pytest.raises(ValueError, match=message):
        read_trace(path, np.array(INDEX))
    with pytest.raises(Failure, match=message):
        columns(SERVER, log({P50: 1_000}), tmp_path)


def test_its_clock_is_outside_of_ours(tmp_path: Path) -> None:
    """Ours had 1001 microseconds; its median may be half a per cent and two microseconds less, since clocks drift."""
    least = round(1_001_000 * 0.995) - 2_000
    columns(SINGLE, log({P50: least + 1}), tmp_path)
    with pytest.raises(
        Failure, match=r"its median of a query is .* ns, less than that of our clock inside, 1001000 ns"
    ):
        columns(SINGLE, log({P50: least - 1}), tmp_path)


def test_a_percentile_beyond_the_median_may_be_another_querys(tmp_path: Path) -> None:
    _, agreed = columns(SINGLE, log({P50: 1_001_000, P90: 1}), tmp_path)
    assert [one["loadgen_ns"] for one in agreed] == [1_001_000, 1]


def test_of_several_samples_the_percentile_of_a_query_is_compared(tmp_path: Path) -> None:
    told = log({P50: 1, "result_50.00_percentile_per_query_latency_ns": 1_001_000})
    assert columns(MULTI, told, tmp_path)[1] == [{"share": 0.5, "own_ns": 1_001_000, "loadgen_ns": 1_001_000}]


@pytest.mark.parametrize(("more", "agree"), [(0, True), (199_000, True), (202_000, False)])
def test_clocks_disagree_where_others_had_the_processor_between_them(tmp_path: Path, more: int, agree: bool) -> None:
    """A tenth and 0.1 ms above ours, which is 1001 microseconds."""
    told = log({P50: 1_001_000 + more, P90: 9_000_000})
    found, agreed = columns(SINGLE, told, tmp_path)
    assert (clocks_agree(agreed), describe_account(told, found, agreed)["clocks_agree"]) == (agree, agree)
