"""A batch in several numbers of parts in whole runs of the zipapp: running out of memory is a result."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.evaluator.harness.conftest import Finished

Run = Callable[[dict[str, Any]], Finished]
Break = Callable[[int, str], dict[str, Any]]


def ask(job: dict[str, Any], parts: list[int], **settings: object) -> dict[str, Any]:
    scenario = {"name": "micro_batch", "batch": 10, "parts": parts, "warmup": 1, "repeats": 3, **settings}
    return job | {"scenario": scenario, "metrics": ["outputs_equal", "peak_memory", "batch_latency"]}


def test_each_number_of_parts_leaves_outputs_times_and_a_peak(run: Run, job: dict[str, Any]) -> None:
    """The matrix product of one sample alone rounds otherwise than that of several."""
    finished = run(ask(job, [1, 3, 10]))
    result = finished.result
    assert result["outcome"] == "done", (result["failure"], finished.errors)
    parts = result["network"]["parts"]
    assert [(part["parts"], part["outcome"], len(part["latency_ns"])) for part in parts] == [
        (1, "done", 3),
        (3, "done", 3),
        (10, "done", 3),
    ]
    assert all(part["peak"]["bytes"] > 1 << 20 for part in parts)
    whole, third, single = (load_file(finished.output / f"outputs-{place}.safetensors")["scores"] for place in range(3))
    assert whole.shape == (10, 6)
    assert np.array_equal(whole, third)
    assert np.allclose(whole, single, rtol=1e-6, atol=0)
    assert [int(row.argmax()) for row in whole] == [number % 6 for number in range(10)]


def test_memory_that_runs_out_is_a_result_and_other_parts_still_run(run: Run, break_at: Break) -> None:
    """A process makes two batches: two calls at once, and eight calls in four parts, of which the third breaks."""
    finished = run(ask(break_at(3, "allocator"), [1, 4], warmup=0, repeats=1))
    result = finished.result
    assert result["outcome"] == "done", (result["failure"], finished.errors)
    done, failed = result["network"]["parts"]
    assert (done["parts"], done["outcome"], done["failure"]) == (1, "done", None)
    assert (failed["parts"], failed["outcome"], failed["failure"]["class"]) == (4, "failed", "out-of-memory")
    assert "can't allocate memory" in failed["failure"]["message"]
    assert not (finished.output / "outputs-1.safetensors").exists()


def test_a_later_number_of_parts_runs_after_one_whose_memory_ran_out(run: Run, job: dict[str, Any]) -> None:
    """Only a batch at once is larger than what this predictor takes."""
    job["model"]["predictor"] = "greedy"
    result = run(ask(job, [1, 2, 5])).result
    assert [part["outcome"] for part in result["network"]["parts"]] == ["failed", "done", "done"]


@pytest.mark.parametrize(("how", "kind"), [("error", "predict"), ("segfault", "crash")])
def test_any_other_failure_fails_the_run(run: Run, break_at: Break, how: str, kind: str) -> None:
    result = run(ask(break_at(3, how), [1, 4], warmup=0, repeats=1)).result
    assert (result["outcome"], result["failure"]["class"], result["failure"]["phase"]) == ("failed", kind, "parts-1")


def test_a_run_whose_memory_always_runs_out_failed(run: Run, break_at: Break) -> None:
    result = run(ask(break_at(1, "memory"), [1, 2])).result
    assert (result["outcome"], result["failure"]["class"]) == ("failed", "out-of-memory")


def test_a_model_with_a_fixed_batch_is_refused(run: Run, job: dict[str, Any]) -> None:
    job["model"]["inputs"][0] |= {"shape": [3, 1, 8, 12], "batch_axis": 0}
    failure = run(ask(job, [1, 2])).result["failure"]
    assert (failure["class"], failure["phase"]) == ("load", "parts-0")
    assert "does not take batches of any size" in failure["message"]


def test_more_parts_than_samples_are_a_malformed_job(run: Run, job: dict[str, Any]) -> None:
    finished = run(ask(job, [1, 11]))
    assert finished.code == 2
    assert "scenario.parts" in finished.errors
