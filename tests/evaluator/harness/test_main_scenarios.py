"""Every scenario in whole runs of the zipapp: what is timed, what is kept of it, what LoadGen says."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from benchlock.evaluator.evidence.loadgen_checks import read_probe_logs
from benchlock.evaluator.harness.performance.loadgen_traces import describe_probe
from tests.evaluator.harness.conftest import SAMPLES, Finished, mark

Run = Callable[[dict[str, Any]], Finished]
Columns = Mapping[str, NDArray[Any]]

TIMED = ["latency_p50", "throughput"]
PIPED = ["pipeline_latency_p50", "pipeline_throughput"]
FEW = {"min_queries": 100, "min_duration": 0}


def asked(job: dict[str, Any], name: str, metrics: list[str], **settings: object) -> dict[str, Any]:
    return job | {"scenario": {"name": name, "warmup": 3, **settings}, "metrics": metrics}


def done(finished: Finished) -> dict[str, Any]:
    assert finished.result["outcome"] == "done", (finished.result["failure"], finished.errors)
    return finished.result


def samples(finished: Finished, name: str = "samples.safetensors") -> Columns:
    return load_file(finished.output / name)


def test_multi_stream_times_queries_of_several_samples(run: Run, job: dict[str, Any]) -> None:
    finished = run(asked(job, "multi_stream", [*TIMED, *PIPED], min_queries=700, min_duration=0.1, samples_per_query=4))
    result, columns = done(finished), samples(finished)
    performance = result["performance"]
    assert (performance["queries"], performance["samples_per_query"], performance["batch"]) == (
        len(columns["latency_ns"]),
        4,
        4,
    )
    assert performance["queries"] >= 700
    assert (performance["samples"], set(columns["samples"])) == (4 * performance["queries"], {4})
    assert len(columns["index"]) == performance["samples"]
    log = result["loadgen"]
    assert (log["settings"]["scenario"], log["settings"]["samples_per_query"]) == ("MultiStream", 4)
    # 662 queries bound the 99th percentile, which decides here.
    assert log["valid"]
    assert "early_stopping_latency_ms" in log["results"]
    own = {one["share"]: one for one in log["percentiles"]}
    assert own[0.5]["own_ns"] <= own[0.5]["loadgen_ns"] * 1.005 + 2000
    assert isinstance(log["clocks_agree"], bool)
    whole = samples(finished, "pipeline-samples.safetensors")
    assert result["pipeline"]["samples"] == 4 * len(whole["latency_ns"])
    parts = whole["prepare_ns"] + whole["predict_ns"] + whole["outputs_ns"]
    assert (parts <= whole["latency_ns"]).all()


def test_a_query_of_more_samples_than_the_graph_takes_is_several_calls(run: Run, job: dict[str, Any]) -> None:
    job["model"]["inputs"][0] |= {"shape": [3, 1, 8, 12], "batch_axis": 0}
    metrics = ["top1", *TIMED, *PIPED]
    result = done(run(asked(job, "multi_stream", metrics, min_queries=10, min_duration=0, samples_per_query=7)))
    assert (result["performance"]["batch"], result["performance"]["samples_per_query"]) == (3, 7)
    assert result["audits"]["answers"]["answers"] == 7 * 10
    assert not result["loadgen"]["valid"]


def test_server_times_from_the_scheduled_arrival(run: Run, job: dict[str, Any]) -> None:
    metrics = [*TIMED, "pipeline_latency_p90"]
    finished = run(
        asked(job, "server", metrics, min_queries=500, min_duration=0.2, target_qps=500, target_latency=0.05)
    )
    result, columns = done(finished), samples(finished)
    queries = result["performance"]["queries"]
    assert queries >= 500
    assert set(columns["samples"]) == {1}
    # The wait until a query is issued is a part of its latency, and predict's own time is kept beside it.
    assert (columns["latency_ns"] >= columns["issue_delay_ns"] + columns["service_ns"]).all()
    assert (np.diff(columns["start_ns"]) >= 0).all()
    assert (columns["end_ns"] == columns["start_ns"] + columns["latency_ns"]).all()
    log = result["loadgen"]
    assert {one["share"] for one in log["percentiles"]} == {0.5, 0.9, 0.95, 0.97, 0.99, 0.999}
    assert all(one["own_ns"] == one["loadgen_ns"] for one in log["percentiles"])
    assert log["trace_cost"].keys() == {"cpu_ns", "latency_p50_ns", "with", "without"}
    assert log["trace_cost"]["with"]["queries"] >= 200
    assert not (finished.output / "loadgen" / "mlperf_log_trace.json").exists()
    assert "scheduled arrival" in result["performance"]["timed"]
    assert result["pipeline"]["queries"] == len(samples(finished, "pipeline-samples.safetensors")["latency_ns"])


def test_a_server_that_is_too_slow_is_done_and_not_valid(run: Run, job: dict[str, Any]) -> None:
    settings = {"min_queries": 460, "min_duration": 0, "target_qps": 2000, "target_latency": 1e-6}
    log = done(run(asked(job, "server", ["latency_p99"], **settings)))["loadgen"]
    assert not log["valid"]
    assert log["results"]["result_perf_constraints_met"] is False
    assert mark(log) == "INVALID (latency bound)"


def test_offline_answers_all_samples_in_batches(run: Run, job: dict[str, Any]) -> None:
    settings = {"min_samples": 1001, "min_duration": 0.1, "batch": 16}
    finished = run(asked(job, "offline", ["top1", "throughput", "pipeline_throughput"], **settings))
    result, columns = done(finished), samples(finished)
    performance = result["performance"]
    assert performance["samples"] == len(columns["index"]) == columns["samples"].sum() >= 1001
    assert (performance["batch"], set(columns["samples"][:-1])) == (16, {16})
    assert result["loadgen"]["settings"]["samples_per_query"] == performance["samples"]
    assert performance["duration_s"] >= 0.09
    # The loaded samples over and over, as often one as the other; no seed of the job changes that.
    counts = np.bincount(columns["index"])
    assert len(counts) == SAMPLES
    assert counts.max() - counts.min() <= 1
    whole = samples(finished, "pipeline-samples.safetensors")
    # One processor does all: nobody prepares ahead.
    assert result["pipeline"]["preparing_threads"] == 0
    assert len(whole["index"]) == result["pipeline"]["samples"] >= 1001
    assert (whole["predict_ns"] + whole["outputs_ns"] <= whole["latency_ns"]).all()
    # The accuracy phase went in the same batches.
    assert result["quality"]["top1"]["n"] == SAMPLES


@pytest.mark.parametrize(
    ("scenario", "settings", "size"),
    [
        ("offline", {"min_samples": 500, "min_duration": 0, "batch": 8}, 8),
        ("multi_stream", {**FEW, "samples_per_query": 4}, 4),
    ],
)
def test_with_two_threads_samples_are_prepared_at_once_and_answered_in_order(
    run: Run, job: dict[str, Any], scenario: str, settings: dict[str, Any], size: int
) -> None:
    """No two samples have the same scores, so that the audits tell which sample an answer is of."""
    job["threads"] = 2
    finished = run(asked(job, scenario, ["top1", "throughput", *PIPED], **settings))
    result, columns = done(finished), samples(finished)
    whole = samples(finished, "pipeline-samples.safetensors")
    assert (result["pipeline"]["preparing_threads"], result["pipeline"]["cpu_scope"]) == (2, "process")
    assert set(whole["samples"][:-1]) == {size}
    assert whole["samples"].sum() == len(whole["index"]) == result["pipeline"]["samples"]
    assert set(whole["index"]) == set(range(SAMPLES))
    # The same seeds give the same traffic to either phase, however long each lasts.
    shared = min(len(whole["index"]), len(columns["index"])) if scenario == "multi_stream" else SAMPLES
    assert whole["index"][:shared].tolist() == columns["index"][:shared].tolist()
    for found in (result["audits"]["answers"], result["audits"]["pipeline"]["answers"]):
        assert found["answers"] >= 16 * size
        assert not found["caught"]
    scores = load_file(finished.output / "predictions.safetensors")["scores"]
    apart = np.abs(scores[:, None] - scores[None]).max(axis=2) + np.eye(SAMPLES)
    assert apart.min() > 4 * 1e-3 * scores.max()


def test_batch_sweep_times_every_batch_in_turns(run: Run, job: dict[str, Any]) -> None:
    finished = run(asked(job, "batch_sweep", ["top1", "optimal_batch", *TIMED, *PIPED], batches=[1, 4, 2]))
    result, columns = done(finished), samples(finished)
    assert sorted(set(columns["batch"])) == [1, 2, 4]
    assert (columns["samples"] == columns["batch"]).all()
    starts = [columns["start_ns"][columns["batch"] == batch] for batch in (1, 2, 4)]
    # Ten turns each, and at least five calls a turn.
    assert all(len(one) >= 50 for one in starts)
    assert result["loadgen"] is None
    assert result["performance"]["rounds"] == 10
    whole = samples(finished, "pipeline-samples.safetensors")
    assert sorted(set(whole["batch"])) == [1, 2, 4]
    check_told(result["audits"])


def test_a_batch_that_the_graph_cannot_take_is_refused(run: Run, job: dict[str, Any]) -> None:
    job["model"]["inputs"][0] |= {"shape": [4, 1, 8, 12], "batch_axis": 0}
    failure = run(asked(job, "batch_sweep", TIMED, batches=[4, 8])).result["failure"]
    assert failure["class"] == "load"
    assert failure["message"] == "the model takes only batches of 4, but the sweep requests 8"


def test_cold_start_is_split_by_phase_and_measured_in_fresh_processes(run: Run, job: dict[str, Any]) -> None:
    finished = run(asked(job, "cold_start", ["top1", "cold_start", "cold_start_load"], repeats=3))
    result, columns = done(finished), samples(finished)
    phases = [f"{name}_ns" for name in ("start", "import", "load", "prepare", "predict", "outputs")]
    assert sum(columns[name] for name in phases).tolist() == columns["latency_ns"].tolist()  # type: ignore[union-attr]
    assert (len(columns["latency_ns"]), len(columns["warmup_ns"])) == (3, 3)
    assert result["audits"] == {"answers": {"answers": 6, "outputs": ["scores"], "caught": False}}
    # An interpreter does not start in less than a millisecond, nor numpy.
    assert all(columns[name].min() > 1_000_000 for name in ("start_ns", "import_ns"))
    assert result["performance"]["queries"] == 3


def test_a_process_that_dies_at_its_start_is_the_runs_failure(
    run: Run, break_at: Callable[[int, str], dict[str, Any]]
) -> None:
    failure = run(asked(break_at(1, "segfault"), "cold_start", ["cold_start"], repeats=2)).result["failure"]
    assert (failure["class"], failure["message"]) == ("crash", "the cold phase was killed by SIGSEGV")


@pytest.fixture
def cheat(job: dict[str, Any], tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """The job with a model that cheats in the way named."""

    def cheating(how: str) -> dict[str, Any]:
        job["model"] |= {"predictor": "cheating"}
        (tmp_path / "job" / "model").mkdir(parents=True)
        (tmp_path / "job" / "model" / "cheat.json").write_text(f'{{"how": "{how}"}}')
        return job

    return cheating


Cheat = Callable[[str], dict[str, Any]]


def test_the_peak_is_between_a_rate_that_is_answered_and_one_that_is_not(run: Run, cheat: Cheat) -> None:
    # A call sleeps for 2 milliseconds: all at once, 460 queries take three times the bound on every machine.
    settings = {"min_queries": 460, "min_duration": 0, "target_qps": 400, "target_latency": 0.3}
    finished = run(asked(cheat("honest"), "server", ["top1", "peak_qps"], **settings))
    result = done(finished)
    peak = result["peak"]
    assert peak["qps"] < peak["failed_qps"] <= peak["qps"] * 1.05
    verdicts = {probe["qps"]: probe["valid"] for probe in peak["probes"]}
    assert (verdicts[peak["qps"]], verdicts[peak["failed_qps"]]) == (True, False)
    assert all(probe["queries"] >= 460 for probe in peak["probes"])
    assert result["audits"].keys() == {"caching", "answers", "peak"}
    first, *others = peak["probes"]
    assert (first["phase"], first["qps"], first["valid"]) == ("performance", 400, result["loadgen"]["valid"])
    assert {probe["phase"] for probe in others} == {"peak"}
    logs = read_probe_logs("peak-loadgen-detail", finished.output / "peak-loadgen-detail.txt")
    logged = [describe_probe(probe["qps"], log) for probe, log in zip(others, logs, strict=True)]
    assert [{"phase": "peak", **one} for one in logged] == others
    tries = Counter(probe["qps"] for probe in peak["probes"] if not probe["valid"])
    assert tries[peak["failed_qps"]] == 2
    assert result["audits"]["peak"]["answers"]["answers"] >= 16 * len(others)


def test_too_few_queries_for_a_verdict_end_the_search(run: Run, job: dict[str, Any]) -> None:
    settings = {"min_queries": 100, "min_duration": 0, "target_qps": 1000, "target_latency": 5}
    failure = run(asked(job, "server", ["peak_qps"], **settings)).result["failure"]
    assert (failure["class"], failure["phase"]) == ("loadgen-invalid", "peak")
    assert "increase min_queries (at least 459)" in failure["message"]


@pytest.mark.parametrize("how", ["cache", "last"])
def test_a_model_that_answers_from_a_cache_is_caught(run: Run, cheat: Cheat, how: str) -> None:
    failure = run(asked(cheat(how), "single_stream", TIMED, min_queries=64, min_duration=0)).result["failure"]
    assert (failure["class"], failure["phase"]) == ("loadgen-invalid", "performance")
    assert "TEST04" in failure["message"]
    assert failure["message"].endswith("the model answers from a cache")


@pytest.mark.parametrize("how", ["shirk", "late"])
@pytest.mark.parametrize("scenario", ["single_stream", "offline"])
def test_a_model_that_answers_otherwise_where_it_is_timed_is_caught(
    run: Run, cheat: Cheat, how: str, scenario: str
) -> None:
    least = {"min_samples": 400, "batch": 1} if scenario == "offline" else {"min_queries": 400}
    failure = run(asked(cheat(how), scenario, ["top1", "throughput"], min_duration=0, **least)).result["failure"]
    assert (failure["class"], failure["phase"]) == ("loadgen-invalid", "performance")
    assert "TEST01" in failure["message"]
    assert "answer [0.166667, 0.166667, 0.166667, 0.166667, …] when timed" in failure["message"]


@pytest.mark.parametrize("how", ["shirk", "late", "batched"])
def test_a_sweep_of_other_answers_is_caught(run: Run, cheat: Cheat, how: str) -> None:
    failure = run(asked(cheat(how), "batch_sweep", ["top1", "throughput"], batches=[1, 2])).result["failure"]
    assert (failure["class"], failure["phase"]) == ("loadgen-invalid", "performance")
    assert "TEST01" in failure["message"]


def test_a_sweep_of_a_model_that_answers_from_a_cache_is_caught(run: Run, cheat: Cheat) -> None:
    failure = run(asked(cheat("cache"), "batch_sweep", TIMED, batches=[1, 2])).result["failure"]
    assert (failure["class"], failure["phase"]) == ("loadgen-invalid", "performance")
    assert "TEST04" in failure["message"]


@pytest.mark.parametrize(
    ("how", "phase", "scenario", "metric", "settings"),
    [
        ("pipeline", "pipeline", "single_stream", PIPED[0], {"min_queries": 64, "min_duration": 0}),
        ("pipeline", "pipeline", "offline", PIPED[1], {"min_samples": 64, "min_duration": 0, "batch": 2}),
        ("pipeline", "pipeline", "batch_sweep", PIPED[1], {"batches": [1, 2]}),
        ("probe", "peak", "server", "peak_qps", {**FEW, "target_qps": 400, "target_latency": 0.3}),
        ("cold", "performance", "cold_start", "cold_start", {"repeats": 1}),
    ],
)
def test_other_answers_in_any_phase_that_is_timed_are_caught(
    run: Run, cheat: Cheat, how: str, phase: str, scenario: str, metric: str, settings: dict[str, Any]
) -> None:
    failure = run(asked(cheat(how), scenario, ["top1", metric], **settings)).result["failure"]
    assert (failure["class"], failure["phase"]) == ("loadgen-invalid", phase), failure
    assert "TEST01" in failure["message"]


def test_the_audit_of_the_pipeline_is_told(run: Run, job: dict[str, Any]) -> None:
    check_told(done(run(asked(job, "single_stream", ["top1", PIPED[0]], **FEW)))["audits"])


def check_told(audits: dict[str, Any]) -> None:
    assert audits.keys() == {"caching", "answers", "pipeline"}
    assert audits["pipeline"].keys() == {"answers"}
    for found in (audits["answers"], audits["pipeline"]["answers"]):
        assert found["answers"] >= 16
        assert (found["outputs"], found["caught"]) == (["scores"], False)


def test_an_honest_model_passes_the_audits(run: Run, cheat: Cheat) -> None:
    job = asked(cheat("honest"), "single_stream", ["top1", *TIMED], min_queries=100, min_duration=0)
    audits = done(run(job))["audits"]
    assert not audits["caching"]["caught"]
    assert (audits["caching"]["samples"], audits["answers"]["outputs"]) == (SAMPLES, ["scores"])
    assert audits["answers"]["answers"] >= 16
