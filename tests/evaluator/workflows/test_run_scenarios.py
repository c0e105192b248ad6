"""Every scenario from a lock to the metrics on record, through the real runner and harness."""

from typing import Any

import pytest

from tests.evaluator.workflows.test_run import Bench
from tests.evaluator.workflows.test_run_failures import Author, author, bench, platform

__all__ = ["author", "bench", "platform"]

BATCHED = ("throughput", "latency_p50", "pipeline_throughput")
COLD = tuple(f"cold_start_{name}" for name in ("start", "import", "load", "prepare", "predict", "outputs"))


@pytest.mark.parametrize(
    ("scenario", "metrics", "expected"),
    [
        (
            {"name": "multi_stream", "min_queries": 50, "min_duration": 0, "samples_per_query": 3},
            ("top1", "latency_p50", "pipeline_latency_p90"),
            {"top1": 30, "latency_p50": 50, "pipeline_latency_p90": 50},
        ),
        (
            {"name": "server", "min_queries": 50, "min_duration": 0, "target_qps": 500, "target_latency": 5},
            ("latency_p99", "throughput"),
            {"latency_p99": 50, "throughput": 50},
        ),
        (
            {"name": "offline", "batch": 7, "min_samples": 100, "min_duration": 0},
            ("throughput", "pipeline_throughput"),
            {"throughput": 100, "pipeline_throughput": 100},
        ),
        (
            {"name": "batch_sweep", "batches": [1, 2]},
            ("optimal_batch", *BATCHED),
            dict.fromkeys(["optimal_batch", *(f"{name}@{batch}" for name in BATCHED for batch in (1, 2))]),
        ),
        ({"name": "cold_start", "repeats": 2}, ("cold_start", *COLD), dict.fromkeys(["cold_start", *COLD], 2)),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) and "name" in value else "",
)
def test_a_scenario_is_recorded(
    bench: Bench,
    author: Author,
    scenario: dict[str, Any],
    metrics: tuple[str, ...],
    expected: dict[str, int | None],
) -> None:
    made = author("linear")
    made.scenario = {**scenario, "warmup": 3, "seeds": made.scenario["seeds"]}
    lock = bench.stored(made.lock(metrics=metrics))
    run = bench.runner(None).run(lock, isolation="process")
    assert run.end is not None
    assert run.end.outcome == "done", (run.end.failure_message, bench.log(run))
    found = {metric.key: metric for metric in run.end.metrics}
    assert found.keys() == expected.keys()
    assert all(n is None or found[key].n >= n for key, n in expected.items())
    assert all(metric.value > 0 for metric in found.values())
    assert bench.records.get(run.id).end == run.end
    assert {"samples"} <= run.end.blobs.keys()
    assert ("pipeline-samples" in run.end.blobs) == any(name.startswith("pipeline_") for name in metrics)
