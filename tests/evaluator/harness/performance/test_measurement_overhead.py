"""The overhead of measuring, which every run measures of itself."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from benchlock.evaluator.harness.performance.measurement_overhead import NullPredictor
from benchlock.evaluator.harness.predictors import Tensors
from tests.evaluator.harness.conftest import Finished

Run = Callable[[dict[str, Any]], Finished]


class Counting:
    """Answers with how often it was called."""

    in_caller = True
    device = "cpu"
    threads: Mapping[str, int] = {"threads": 1}

    def __init__(self) -> None:
        self.calls = 0

    def predict(self, _batch: Tensors) -> Tensors:
        self.calls += 1
        return {"calls": np.array([self.calls])}

    def close(self) -> None:
        self.calls = -1


def test_the_null_predictor_asks_the_other_once_and_is_one_like_it() -> None:
    counting = Counting()
    null = NullPredictor(counting)
    answers = [null.predict({})["calls"][0] for _ in range(3)]
    null.close()
    assert (answers, counting.calls) == ([1, 1, 1], 1)
    assert (null.in_caller, null.device, null.threads) == (True, "cpu", {"threads": 1})


def check(overhead: dict[str, Any]) -> None:
    assert set(overhead) == {"calls", "timed_ns", "timed_p99_ns", "around_ns"}
    assert overhead["calls"] == 1000
    assert 0 < overhead["timed_ns"] <= overhead["timed_p99_ns"]
    assert overhead["around_ns"] > 0


def test_the_overhead_is_stored_with_the_result(ordinary: Finished) -> None:
    check(ordinary.result["performance"]["overhead"])


@pytest.mark.parametrize(
    "scenario",
    [
        {"name": "multi_stream", "warmup": 3, "min_queries": 70, "min_duration": 0, "samples_per_query": 4},
        {"name": "batch_sweep", "warmup": 3, "batches": [1, 2]},
    ],
)
def test_whatever_is_timed_at_once(run: Run, job: dict[str, Any], scenario: dict[str, Any]) -> None:
    job["scenario"] = scenario
    job["metrics"] = ["latency_p50"]
    check(run(job).result["performance"]["overhead"])
