"""The table of metrics: who gives which."""

import re
from pathlib import Path

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.harness.core.job import QUALITY_METRICS
from benchlock.registry.manifests.metric_definitions import DECIDED, DEFINITIONS, GROUPS, SCORED, check_metrics, expand
from benchlock.registry.requests.metric_meanings import MEANINGS, describe_metric

DOCUMENTED = Path(__file__).resolve().parents[3] / "docs" / "reference" / "metrics.md"


def test_latency_stands_for_its_percentiles() -> None:
    assert expand(["top1", "latency", "latency_p50"]) == ("top1", "latency_p50", "latency_p90", "latency_p99")


def test_every_metric_says_what_it_means() -> None:
    assert all(definition.unit and definition.version >= 1 for definition in DEFINITIONS.values())
    assert {name for name, definition in DEFINITIONS.items() if definition.direction == "lower"} >= {
        "latency_p50", "latency_p90", "latency_p99", "pipeline_latency_p99", "mae", "rmse", "cold_start",
    }  # fmt: skip


def test_the_documentation_has_every_metric_as_it_is_defined() -> None:
    """A row of a table names them, their version, unit and direction."""
    found: dict[str, tuple[str, ...]] = {}
    for line in DOCUMENTED.read_text().splitlines():
        if match := re.fullmatch(r"\| (`.*`) \| ([0-9]+) \| ([^|]+) \| (higher|lower|none) \|.*", line):
            found |= dict.fromkeys(re.findall("`([a-z0-9_]+)`", match[1]), match.groups()[1:])
    assert found == {name: (str(one.version), one.unit, one.direction) for name, one in DEFINITIONS.items()}


def test_quality_is_of_predictions_and_time_is_not() -> None:
    quality = {name for name, definition in DEFINITIONS.items() if definition.is_quality}
    assert quality == {"top1", "top5", "map", "map_50", "miou", "mae", "rmse", *DECIDED, *SCORED}
    assert set(QUALITY_METRICS) == quality


@pytest.mark.parametrize(
    ("task", "scenario", "metric"),
    [
        ("image-classification", "accuracy", "top1"),
        ("audio-classification", "offline", "top5"),
        ("object-detection", "single_stream", "map_50"),
        ("tensor", "single_stream", "latency"),
        ("regression", "offline", "throughput"),
        (None, "batch_sweep", "optimal_batch"),
        ("tensor", None, "pipeline_latency_p90"),
    ],
)
def test_a_metric_that_can_be_had(task: str | None, scenario: str | None, metric: str) -> None:
    check_metrics(task, scenario, [metric])


@pytest.mark.parametrize(
    ("task", "scenario", "metric", "message"),
    [
        (None, None, "top2", "unknown metric 'top2'"),
        ("regression", None, "top1", "the task regression does not give the metric top1"),
        ("tensor", "accuracy", "latency", "the scenario accuracy does not give the metric latency_p50"),
        (None, "offline", "latency_p99", "the scenario offline does not give the metric latency_p99"),
        (None, "single_stream", "cold_start", "the scenario single_stream does not give the metric cold_start"),
    ],
)
def test_a_metric_that_cannot_be_had(task: str | None, scenario: str | None, metric: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_metrics(task, scenario, [*expand(()), metric])
    assert caught.value.what == message
    assert caught.value.where == "metrics[0]"
    assert caught.value.next_step


def test_every_metric_that_cannot_be_had_is_told_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_metrics("regression", "single_stream", ["top1", "mae", "map"])
    assert [one.where for one in caught.value.problems] == ["metrics[0]", "metrics[2]"]


def test_each_metric_that_a_request_can_name_is_explained_once() -> None:
    named = {name for name, definition in DEFINITIONS.items() if not definition.automatic} | set(GROUPS)
    assert set(MEANINGS) == named
    assert len(set(MEANINGS.values())) == len(MEANINGS)
    assert describe_metric("throughput") == f"{MEANINGS['throughput']} (samples/s, higher is better)"
    assert describe_metric("latency") == f"{MEANINGS['latency']} (s, lower is better)"
    assert describe_metric("optimal_batch").endswith("(samples)")
    assert describe_metric("no-metric") == ""
