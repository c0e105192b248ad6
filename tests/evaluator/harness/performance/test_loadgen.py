"""LoadGen behind its guards. Each run is in a process of its own, as it must be."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchlock.evaluator.harness.performance.loadgen_traces import read_log
from tests.evaluator.harness.conftest import Finished

SCRIPT = """
import sys, time
from pathlib import Path
from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job import Seeds
from benchlock.evaluator.harness.performance import loadgen
from benchlock.evaluator.harness.performance.loadgen import Settings, Source

folder, scenario, qps, break_in = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4]
seeds = Seeds(*map(int, sys.argv[5:]))
loaded, issued = [], []
several = 2 if scenario == "MultiStream" else 1
settings = Settings(scenario, 64, 0.2, qps, seeds, several, target_latency=0.1, traced=scenario == "Server")

def load(indices):
    loaded.extend(indices)
    if break_in == "load":
        raise ValueError("no picture")

def issue(indices):
    time.sleep(0.0 if break_in == "haste" else 0.25 if len(indices) > 2 else 0.001)
    issued.extend(indices)
    assert set(indices) <= set(loaded)
    if break_in == "issue":
        raise KeyboardInterrupt

completed = []
if break_in == "count":
    complete = loadgen.lg.QuerySamplesComplete
    respond = loadgen.lg.QuerySampleResponse
    loadgen.lg.QuerySampleResponse = lambda id, *more: (completed.append(id), respond(id, *more))[1]

try:
    log = loadgen.run(issue, Source(9, 5, load), settings, folder)
    print("done", log.valid, len(set(loaded)), len(loaded), len(issued) >= 64)
    if break_in == "count":
        print("completed once:", len(issued) == len(completed) == len(set(completed)))
    if break_in == "tell":
        print(*issued)
    if break_in == "twice":
        loadgen.run(issue, Source(9, 5, load), settings, folder)
except Failure as failure:
    print(failure.kind, failure.message)
except BaseException as error:
    print(type(error).__name__)
"""


def measure(
    folder: Path,
    qps: float,
    break_in: str = "",
    scenario: str = "SingleStream",
    seeds: tuple[int, int, int] = (1, 2, 3),
) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), scenario, str(qps), break_in, *map(str, seeds)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[4],
    )
    return done.stdout.strip()


# Of two contiguous samples a query the first of those loaded comes once more behind the last.
@pytest.mark.parametrize(
    ("scenario", "qps", "loaded"),
    [("SingleStream", 2000, 5), ("MultiStream", 2000, 6), ("Server", 400, 5)],
)
def test_only_the_samples_that_loadgen_chose_are_loaded(tmp_path: Path, scenario: str, qps: float, loaded: int) -> None:
    found = measure(tmp_path, qps, scenario=scenario).split()
    assert (found[0], found[2:]) == ("done", ["5", str(loaded), "True"])


def test_running_out_of_generated_queries_makes_a_run_invalid(tmp_path: Path) -> None:
    found = measure(tmp_path, 1, "haste")
    assert found.startswith("loadgen-invalid LoadGen logged")
    assert "Ran out of generated queries" in found


def test_an_offline_query_that_is_over_too_soon_makes_a_run_invalid(tmp_path: Path) -> None:
    found = measure(tmp_path, 1000, "haste", "Offline")
    assert found == "loadgen-invalid LoadGen logged 1 errors: result_min_duration_met: false"


@pytest.mark.parametrize(
    ("scenario", "qps"), [("SingleStream", 2000), ("MultiStream", 2000), ("Server", 400), ("Offline", 400)]
)
def test_each_query_is_completed_once(tmp_path: Path, scenario: str, qps: float) -> None:
    """What LoadGen does with a query that is completed again is undefined: it may end the process by a signal."""
    assert measure(tmp_path, qps, "count", scenario).splitlines()[-1] == "completed once: True"


def issued(folder: Path, scenario: str, *seeds: int) -> list[int]:
    """The samples of the first 64 queries, or the first 64 samples."""
    folder.mkdir()
    told = measure(folder, 400, "tell", scenario, (seeds[0], seeds[1], seeds[2])).splitlines()[-1]
    return [int(index) for index in told.split()][:64]


def test_of_all_seeds_the_one_that_chooses_the_samples_alone_changes_the_sequence_of_offline(tmp_path: Path) -> None:
    """It goes through the samples that it chose, in the order in which it did, over and over."""
    first = issued(tmp_path / "1", "Offline", 1, 2, 3)
    assert issued(tmp_path / "2", "Offline", 1, 20, 30) == first
    assert first[5:] == first[:-5]
    assert issued(tmp_path / "3", "Offline", 8, 2, 3) != first


def test_loadgen_logs_no_answers_while_it_times(ordinary: Finished) -> None:
    settings = ordinary.result["loadgen"]["settings"]
    assert (settings["test_mode"], settings["accuracy_log_probability"]) == ("PerformanceOnly", 0)


def test_a_second_run_in_one_process_is_refused(tmp_path: Path) -> None:
    """LoadGen would do it, with other seeds than it was told."""
    assert measure(tmp_path, 2000, "twice").split()[-1] == "RuntimeError"


def test_no_error_passes_through_loadgen_in_a_query_of_many_samples(tmp_path: Path) -> None:
    assert measure(tmp_path, 1000, "issue", "Offline") == "KeyboardInterrupt"


def test_a_duration_that_would_fill_the_memory_is_refused(
    run: Callable[[dict[str, Any]], Finished], job: dict[str, Any]
) -> None:
    job["scenario"]["min_duration"] = 36000
    job["metrics"] = ["latency_p50"]
    failure = run(job).result["failure"]
    assert failure["class"] == "loadgen-invalid"
    assert "lower min_duration (36000 s)" in failure["message"]


@pytest.mark.parametrize(("break_in", "error"), [("issue", "KeyboardInterrupt"), ("load", "ValueError")])
def test_no_error_passes_through_loadgen(tmp_path: Path, break_in: str, error: str) -> None:
    assert measure(tmp_path, 2000, break_in) == error


def test_a_sample_that_cannot_be_prepared_fails_the_performance_phase(
    run: Callable[[dict[str, Any]], Finished], job: dict[str, Any], tmp_path: Path
) -> None:
    pictures = tmp_path / "job" / "dataset" / "pictures"
    pictures.mkdir(parents=True)
    (pictures / "broken.png").write_bytes(b"no picture")
    (pictures.parent / "broken.csv").write_text("path,label\npictures/0.png,0\npictures/broken.png,0\n")
    job["dataset"]["split"] = {"index": "broken.csv", "samples": 2}
    job["metrics"] = ["latency_p50"]
    failure = run(job).result["failure"]
    assert (failure["class"], failure["phase"]) == ("step", "performance")
    assert failure["message"].startswith("sample 1 (pictures/broken.png)")


def log_of(folder: Path, **changes: Any) -> Path:  # noqa: ANN401 - JSON
    values = {"result_validity": "VALID", "result_min_duration_met": True, "result_min_queries_met": True} | changes
    lines = [json.dumps({"key": key, "value": value, "metadata": {"is_error": False}}) for key, value in values.items()]
    path = folder / "mlperf_log_detail.txt"
    path.write_text("\n".join(f":::MLLOG {line}" for line in lines) + "\nnot a log line\n")
    return path


def test_every_line_of_error_counts(tmp_path: Path) -> None:
    path = log_of(tmp_path)
    assert read_log(path).errors == ()
    line = {"key": "error_runtime", "value": "completed twice", "metadata": {"is_error": True}}
    path.write_text(path.read_text() + f":::MLLOG {json.dumps(line)}\n")
    assert read_log(path).errors == ("error_runtime: completed twice",)


@pytest.mark.parametrize("minimum", ["result_min_duration_met", "result_min_queries_met"])
def test_a_minimum_that_was_not_met_is_an_error(tmp_path: Path, minimum: str) -> None:
    assert read_log(log_of(tmp_path, **{minimum: False})).errors == (f"{minimum}: false",)


def test_a_log_without_a_verdict_is_incomplete(tmp_path: Path) -> None:
    path = log_of(tmp_path)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(ValueError, match="no result_validity"):
        read_log(path)
