"""The formula of early stopping, compared with LoadGen itself: each of its runs is in a process of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchlock.evaluator.harness.performance.loadgen_traces import Log, read_log
from benchlock.evaluator.statistics.early_stopping import CONFIDENCE, SHARES, count_discarded, find_risk
from tests.support.evaluator.loadgen_logs import LOGS

RUN = """
import sys
import mlperf_loadgen as lg
folder, scenario, queries = sys.argv[1], sys.argv[2], int(sys.argv[3])
settings, output = lg.TestSettings(), lg.LogSettings()
settings.scenario = getattr(lg.TestScenario, scenario)
settings.min_query_count = settings.max_query_count = queries
settings.min_duration_ms = 0
settings.multi_stream_samples_per_query = 2
settings.server_target_qps = 20_000
settings.server_target_latency_ns = int(sys.argv[4])
output.log_output.outdir = folder
output.enable_trace = False
def issue(samples):
    lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, 0, 0) for sample in samples])
system = lg.ConstructSUT(issue, lambda: None)
library = lg.ConstructQSL(9, 5, lambda _: None, lambda _: None)
lg.StartTestWithLogSettings(system, library, settings, output, "")
"""


def run_loadgen(folder: Path, scenario: str, queries: int, target_ns: int = 10**9) -> Log:
    command = [sys.executable, "-c", RUN, str(folder), scenario, str(queries), str(target_ns)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return read_log(folder / "mlperf_log_detail.txt")


@pytest.mark.parametrize("queries", [63, 64, 149, 661, 662, 3000])
def test_as_many_queries_are_discarded_as_loadgen_discards(queries: int, tmp_path: Path) -> None:
    results = run_loadgen(tmp_path, "SingleStream", queries).results
    assert results["result_query_count"] == queries
    place, place_of_99 = (count_discarded(queries, SHARES[name]) for name in ("single_stream", "multi_stream"))
    text = results["early_stopping_result"]
    found = re.search(r"Would discard (\d+) highest", text)
    assert place == (0 if found is None else int(found[1]) + 1)
    assert results["early_stopping_met"] == (place > 0)
    assert (results["early_stopping_latency_ms"] > 0) == (place_of_99 > 0)


@pytest.mark.parametrize("queries", [661, 662, 2000])
def test_as_many_queries_of_several_samples_are_discarded(queries: int, tmp_path: Path) -> None:
    results = run_loadgen(tmp_path, "MultiStream", queries).results
    found = re.search(r"Would discard (\d+) highest", results["early_stopping_result"])
    assert count_discarded(queries, SHARES["multi_stream"]) == (0 if found is None else int(found[1]) + 1)


@pytest.mark.parametrize("queries", [458, 459, 1500])
@pytest.mark.parametrize("target_ns", [10**9, 1])
def test_the_target_latency_of_server_is_met_as_loadgen_says(queries: int, target_ns: int, tmp_path: Path) -> None:
    results = run_loadgen(tmp_path, "Server", queries, target_ns).results
    over = results["result_overlatency_query_count"]
    assert over == (queries if target_ns == 1 else 0)
    assert results["early_stopping_met"] == (find_risk(queries, over, SHARES["server"]) < 1 - CONFIDENCE)


def test_the_estimate_of_a_stored_log_is_the_latency_at_the_discarded_place() -> None:
    results = read_log(LOGS / "single_stream.txt").results
    assert count_discarded(results["result_query_count"], SHARES["single_stream"]) == 6
    assert "Would discard 5 highest" in results["early_stopping_result"]
