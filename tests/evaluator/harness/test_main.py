"""Whole runs of the zipapp, with a predictor that it did not ship with."""

import hashlib
import json
import re
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from benchlock.evaluator.harness.inference.predictions import PREDICTIONS
from tests.evaluator.harness.conftest import CELLS, SAMPLES, Finished, mark, run_in, write_job

Run = Callable[[dict[str, Any]], Finished]
BreakAt = Callable[[int, str], dict[str, Any]]


def test_a_run_counts_right_samples_and_measures_each_call(ordinary: Finished) -> None:
    assert (ordinary.code, ordinary.result["outcome"], ordinary.result["failure"]) == (0, "done", None), ordinary.errors
    # Of three wrong labels two are among the five best, by the rule for ties alone.
    assert ordinary.result["quality"] == {"top1": {"correct": 27, "n": 30}, "top5": {"correct": 29, "n": 30}}
    samples = load_file(ordinary.output / "samples.safetensors")
    queries = ordinary.result["performance"]["queries"]
    assert queries >= 70
    assert {name: (str(found.dtype), len(found)) for name, found in samples.items()} == {
        "latency_ns": ("int64", queries),
        "cpu_ns": ("int64", queries),
        "preempted": ("uint8", queries),
        "index": ("int64", queries),
        "samples": ("int64", queries),
        "start_ns": ("int64", queries),
        "before_ns": ("int64", queries),
        "end_ns": ("int64", queries),
        "warmup_ns": ("int64", 4),
    }
    assert samples["latency_ns"].min() > 0
    assert samples["cpu_ns"].min() > 0
    assert set(samples["preempted"]) <= {0, 1}
    assert ordinary.result["performance"]["preempted"] == samples["preempted"].sum()
    assert ordinary.result["performance"]["duration_s"] >= samples["latency_ns"].sum() / 1e9
    assert set(samples["index"]) <= set(range(SAMPLES))


def test_predictions_are_after_the_output_steps_in_index_order(ordinary: Finished) -> None:
    scores = load_file(ordinary.output / "predictions.safetensors")["scores"]
    assert scores.shape == (SAMPLES, len(CELLS))
    np.testing.assert_allclose(scores.sum(axis=1), 1, atol=1e-6)
    assert scores.argmax(axis=1).tolist() == [number % len(CELLS) for number in range(SAMPLES)]


def test_cpu_time_is_the_threads_own_where_one_thread_works(ordinary: Finished) -> None:
    assert ordinary.result["performance"]["cpu_scope"] == "thread"


def test_with_more_threads_every_runtime_is_told_and_cpu_time_is_the_processs(run: Run, job: dict[str, Any]) -> None:
    job["threads"] = 2
    result = run(job).result
    assert result["performance"]["cpu_scope"] == "process"
    environment = result["environment"]
    versions = {package["name"].lower(): package["version"] for package in environment["packages"]}
    assert versions["numpy"] == np.__version__
    assert environment["threads"]["requested"] == 2
    assert environment["threads"]["variables"]["OPENBLAS_NUM_THREADS"] == "2"
    assert environment["threads"]["predictor"] == {"OMP_NUM_THREADS": 2}


def test_phases_start_anew_where_their_order_would_be_random(
    ordinary: Finished, zipapp: Path, tmp_path: Path, job: dict[str, Any]
) -> None:
    other = run_in(tmp_path, zipapp, job, PYTHONHASHSEED="random")
    assert (other.code, other.result["outcome"]) == (0, "done")
    assert (other.output / PREDICTIONS).read_bytes() == (ordinary.output / PREDICTIONS).read_bytes()


def test_the_result_says_on_which_device_the_model_ran(ordinary: Finished) -> None:
    assert ordinary.result["environment"]["device"] == "cpu"


def test_what_runs_on_another_device_than_asked_is_no_result(run: Run, job: dict[str, Any]) -> None:
    """A figure of a CPU is never called one of an accelerator."""
    job["device"] = "cuda12"
    result = run(job).result
    assert (result["outcome"], result["failure"]["class"], result["performance"]) == ("failed", "load", None)
    assert result["failure"]["message"].endswith("it runs on device cpu, but cuda12 was requested")


def test_what_the_environment_lacks_is_named(zipapp: Path, tmp_path: Path, job: dict[str, Any]) -> None:
    """As in an image that others made: nothing is installed but Python itself."""
    write_job(tmp_path / "job", job)
    bare = tmp_path / "venv"
    venv.create(bare, with_pip=False)
    command = [str(bare / "bin" / "python"), str(zipapp), "job", "out"]
    subprocess.run(command, check=True, cwd=tmp_path, env={}, capture_output=True)
    failure = json.loads((tmp_path / "out" / "result.json").read_bytes())["failure"]
    assert failure == {
        "class": "load",
        "message": "missing packages that the harness imports: numpy, PIL, safetensors, mlperf_loadgen",
        "phase": "accuracy",
    }


def test_loadgen_says_what_it_did(ordinary: Finished) -> None:
    log = ordinary.result["loadgen"]
    assert log["version"].startswith("6.0.17")
    assert (log["valid"], log["errors"]) == (True, [])
    assert log["settings"]["scenario"] == "SingleStream"
    assert log["settings"]["min_query_count"] == 70
    assert [log["settings"][f"{name}_rng_seed"] for name in ("qsl", "sample_index", "schedule")] == [1, 2, 3]
    index = load_file(ordinary.output / "samples.safetensors")["index"]
    assert log["sequence_sha256"] == hashlib.sha256(index.astype("<i8").tobytes()).hexdigest()
    assert (ordinary.output / "loadgen" / "mlperf_log_trace.json").stat().st_size == 0


def test_the_sample_index_seed_alone_decides_the_traffic(ordinary: Finished, run: Run, job: dict[str, Any]) -> None:
    def traffic() -> list[int]:
        return load_file(run(job).output / "samples.safetensors")["index"][:70].tolist()  # type: ignore[no-any-return]

    first = load_file(ordinary.output / "samples.safetensors")["index"][:70].tolist()
    assert traffic() == first
    job["seeds"]["sample_index"] += 1
    assert traffic() != first


def test_too_few_queries_for_early_stopping_are_done_but_not_valid(run: Run, job: dict[str, Any]) -> None:
    job["scenario"] |= {"min_queries": 5, "min_duration": 0, "warmup": 0}
    job["metrics"] = ["latency_p50"]
    result = run(job).result
    # Something is called before the first query, whatever is asked.
    assert (result["performance"]["queries"], result["performance"]["warmup_calls"]) == (5, 3)
    assert (result["outcome"], result["loadgen"]["valid"]) == ("done", False)
    assert "64 queries" in result["loadgen"]["results"]["early_stopping_result"]
    assert mark(result["loadgen"]) == "INVALID (early stopping)"


def test_queries_go_on_until_the_time_is_over(run: Run, job: dict[str, Any]) -> None:
    job["scenario"] |= {"min_queries": 1, "min_duration": 0.7}
    job["metrics"] = ["latency_p50"]
    performance = run(job).result["performance"]
    # LoadGen's clock starts before the first call.
    assert 0.6 <= performance["duration_s"] < 1.4
    assert performance["queries"] > 1000


def test_an_audit_file_in_the_working_folder_changes_nothing(run: Run, job: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "audit.config").write_text("*.SingleStream.min_query_count = 999\n*.*.mode = 2\n")
    assert run(job).result["loadgen"]["settings"]["min_query_count"] == 70


def test_only_latency_is_asked_of_unlabelled_samples(run: Run, job: dict[str, Any]) -> None:
    job["metrics"] = ["latency_p50"]
    done = run(job)
    assert (done.result["outcome"], done.result["quality"]) == ("done", {})
    assert not (done.output / "predictions.safetensors").exists()


def test_the_accuracy_scenario_is_that_phase_alone_in_its_batches(run: Run, job: dict[str, Any]) -> None:
    job["scenario"] = {"name": "accuracy", "warmup": 2, "batch": 8}
    job["metrics"] = ["top1"]
    job["model"]["outputs"].append({"name": "calls", "type": "tensor", "dtype": "int64"})
    done = run(job)
    assert (done.result["quality"], done.result["performance"]) == ({"top1": {"correct": 27, "n": 30}}, None)
    # The predictor says how many samples its call had: three calls of eight and the rest.
    calls = load_file(done.output / "predictions.safetensors")["calls"]
    assert calls[:, 0].tolist() == [8] * 24 + [6] * 6


def test_samples_prepared_ahead_give_the_same_predictions(run: Run, job: dict[str, Any]) -> None:
    job["scenario"] = {"name": "accuracy", "warmup": 0, "batch": 4}
    job["metrics"] = ["top1"]
    found = {}
    for threads, ahead in ((1, 0), (3, 3)):
        job["threads"] = threads
        done = run(job)
        assert done.result["accuracy"] == {"batch": 4, "threads_ahead": ahead}
        found[threads] = (done.output / "predictions.safetensors").read_bytes()
    assert found[1] == found[3]


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_sample_that_fails_is_told_however_many_are_prepared_ahead(
    run: Run, job: dict[str, Any], tmp_path: Path, threads: int
) -> None:
    dataset = tmp_path / "job" / "dataset"
    (dataset / "pictures").mkdir(parents=True)
    (dataset / "pictures" / "broken.png").write_bytes(b"no picture")
    names = ["0.png", "1.png", "broken.png", "broken.png", "absent.png", "2.png"]
    (dataset / "some.csv").write_text("\n".join(["path,label", *(f"pictures/{name},0" for name in names)]))
    job["dataset"]["split"] = {"index": "some.csv", "samples": len(names)}
    job["threads"] = threads
    failure = run(job).result["failure"]
    assert failure["class"] == "step"
    assert failure["message"].startswith("sample 2 (pictures/broken.png), input picture, steps[0].decode: ")


@pytest.mark.parametrize("metrics", [["top1"], ["latency_p50"]])
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ([1, 99], r"a sample is \[6\], but the manifest states \[99\]"),
        ([], r"a sample is \[1, 6\], but the manifest states \[\]"),
    ],
)
def test_an_output_of_another_shape_than_the_manifests_fails_the_run(
    run: Run, job: dict[str, Any], metrics: list[str], shape: list[int], message: str
) -> None:
    job["metrics"] = metrics
    job["model"]["inputs"][0] |= {"shape": [1, 1, 8, 12], "batch_axis": 0}
    job["model"]["outputs"][0] |= {"shape": shape, "steps": []}
    failure = run(job).result["failure"]
    assert failure["class"] == "predict"
    assert re.search(message, failure["message"])


def test_a_fixed_batch_is_filled_with_its_last_sample(run: Run, job: dict[str, Any]) -> None:
    job["model"]["inputs"][0] |= {"shape": [7, 1, 8, 12], "batch_axis": 0}
    job["model"]["outputs"].append({"name": "calls", "type": "tensor", "dtype": "int64"})
    done = run(job)
    assert done.result["quality"]["top1"] == {"correct": 27, "n": 30}
    assert load_file(done.output / "predictions.safetensors")["calls"][:, 0].tolist() == [7] * 30


def test_progress_is_a_json_line_at_each_end_of_a_phase(ordinary: Finished) -> None:
    lines = [json.loads(line) for line in ordinary.lines]
    seen = {line["phase"]: line for line in lines}
    assert list(seen) == ["accuracy", "score", "prepare", "performance"]
    assert seen["accuracy"] == {"phase": "accuracy", "done": SAMPLES, "total": SAMPLES}
    assert all(0 <= line["done"] <= line["total"] for line in lines)


def test_seconds_are_told_apart(ordinary: Finished) -> None:
    timings = ordinary.result["timings"]
    stages = ("load", "open", "prepare", "wait", "stack", "predict", "outputs", "record", "save")
    assert {"accuracy", *(f"accuracy.{stage}" for stage in stages)} <= timings.keys()
    assert {"performance", "performance.load", "performance.warmup", "performance.queries"} <= timings.keys()
    assert timings["accuracy"] > sum(timings[f"accuracy.{stage}"] for stage in stages)
    assert timings["performance.queries"] >= 0.05


@pytest.mark.parametrize(
    ("call", "how", "phase", "failure_class", "message"),
    [
        (0, "", "accuracy", "load", "bad magic"),
        (3, "error", "accuracy", "predict", "samples 2 to 2: RuntimeError: node Conv_3: no kernel for it"),
        (3, "memory", "accuracy", "out-of-memory", "MemoryError"),
        (3, "allocator", "accuracy", "out-of-memory", "can't allocate memory"),
        (3, "exit", "accuracy", "crash", "ended with exit code 7"),
        (3, "kill", "accuracy", "crash", "killed by SIGKILL"),
        (3, "segfault", "accuracy", "crash", "killed by SIGSEGV"),
        (5, "error", "performance", "predict", "RuntimeError: node Conv_3: no kernel for it"),
        # After warm-up, audit and estimate, less than 240 calls, LoadGen asks: an error there must not end the process.
        (300, "error", "performance", "predict", "a query: RuntimeError: node Conv_3: no kernel for it"),
        (300, "segfault", "performance", "crash", "the performance phase was killed by SIGSEGV"),
    ],
)
def test_a_failure_is_a_result_with_a_class_and_one_line(
    run: Run, break_at: BreakAt, call: int, how: str, phase: str, failure_class: str, message: str
) -> None:
    document = break_at(call, how)
    if phase == "performance":
        document["metrics"] = ["latency_p50"]
    done = run(document)
    assert (done.code, done.result["outcome"]) == (0, "failed")
    failure = done.result["failure"]
    assert (failure["class"], failure["phase"]) == (failure_class, phase), failure
    assert message in failure["message"]
    assert "\n" not in failure["message"]


def test_an_answer_that_cannot_be_judged_names_its_sample(run: Run, job: dict[str, Any]) -> None:
    job["model"]["outputs"][0] |= {"type": "value", "steps": []}
    failure = run(job | {"task": "regression", "metrics": ["mae"]}).result["failure"]
    assert failure["class"] == "predict"
    said = "sample 0 (pictures/0.png): output scores: 6 values per sample, but the label has 1"
    assert failure["message"] == said


def test_a_failed_performance_phase_keeps_what_came_before(run: Run, break_at: BreakAt) -> None:
    document = break_at(31, "kill")
    done = run(document)
    assert (done.result["failure"]["phase"], done.result["failure"]["class"]) == ("performance", "crash")
    assert done.result["quality"]["top1"]["n"] == SAMPLES
    assert (done.output / "predictions.safetensors").exists()


def test_a_picture_that_cannot_be_decoded_is_named(run: Run, job: dict[str, Any], tmp_path: Path) -> None:
    pictures = tmp_path / "job" / "dataset" / "pictures"
    pictures.mkdir(parents=True)
    (pictures / "broken.png").write_bytes(b"no picture")
    (pictures.parent / "broken.csv").write_text("path,label\npictures/broken.png,0\n")
    job["dataset"]["split"] = {"index": "broken.csv", "samples": 1}
    failure = run(job).result["failure"]
    assert failure["class"] == "step"
    assert failure["message"].startswith("sample 0 (pictures/broken.png), input picture, steps[0].decode: ")


def test_a_job_that_cannot_be_understood_is_no_result(run: Run, job: dict[str, Any]) -> None:
    job["schema"] = 2
    done = run(job)
    assert (done.code, done.result) == (2, {})
    assert done.errors.strip().endswith("schema 2, this harness reads 1")
