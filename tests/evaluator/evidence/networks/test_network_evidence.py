"""Metrics of parts from their blobs: values by hand, and results that contradict their lock or themselves."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.networks.network_evidence import NetworkEvidence, find_difference, measure_network
from benchlock.evaluator.statistics.metric_types import Interval, metric_faults
from tests.support.resolution.locks import request, shelf

SCENARIO = "{name: micro_batch, batch: 2, parts: [1, 2], warmup: 0, repeats: 6}"
METRICS = "[outputs_equal, outputs_difference, peak_memory, batch_latency]"
SCORES = np.array([[1, 2], [3, 4]], np.float32)


@dataclass
class Evidence:
    """The blobs and the result of a run, which a test may change."""

    folder: Path
    parts: list[dict[str, Any]]
    outputs: list[dict[str, NDArray[Any]] | None]

    def measure(self) -> NetworkEvidence:
        made = shelf()
        lock = made.lock(request(level="network", scenario=SCENARIO, metrics=METRICS))
        files = {}
        for place, tensors in enumerate(self.outputs):
            if tensors is not None:
                files[f"outputs-{place}"] = self.folder / str(place)
                save_file(tensors, files[f"outputs-{place}"])
        manifests = {manifest.kind: manifest for manifest in made.chosen.all()}
        return measure_network(lock, manifests, files, {"network": {"batch": 2, "parts": self.parts}})


def make_part(parts: int, first: int) -> dict[str, Any]:
    return {
        "parts": parts,
        "outcome": "done",
        "failure": None,
        "latency_ns": [first + 1000 * number for number in range(6)],
        "peak": {"bytes": 2000 + parts, "since": "first call"},
    }


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    parts = [make_part(1, 10_000), make_part(2, 20_000)]
    return Evidence(tmp_path, parts, [{"scores": SCORES}, {"scores": SCORES.copy()}])


def exhaust(evidence: Evidence) -> None:
    failure = {"class": "out-of-memory", "message": "limit reached"}
    evidence.parts[0] = {"parts": 1, "outcome": "failed", "failure": failure}
    evidence.outputs[0] = None


def test_metrics_follow_from_outputs_and_times(evidence: Evidence) -> None:
    measured = evidence.measure()
    values = {metric.key: metric for metric in measured.metrics}
    assert {key: metric.value for key, metric in values.items()} == pytest.approx(
        {
            "outputs_equal": 1,
            "outputs_difference": 0,
            "peak_memory@1": 2001,
            "peak_memory@2": 2002,
            "batch_latency@1": 12e-6,
            "batch_latency@2": 22e-6,
        }
    )
    # Of six values, the least and the largest bound the median at 97 %.
    assert values["batch_latency@1"].ci == Interval(pytest.approx(10e-6), pytest.approx(15e-6))  # type: ignore[arg-type]
    assert measured.claimed == pytest.approx(6 * 12.5e-6 + 6 * 22.5e-6)
    assert list(metric_faults(measured.metrics)) == []


def test_one_bit_makes_outputs_different(evidence: Evidence) -> None:
    evidence.outputs[1] = {"scores": np.nextafter(SCORES, np.float32(9))}
    values = {metric.key: metric.value for metric in evidence.measure().metrics}
    assert values["outputs_equal"] == 0
    assert 0 < values["outputs_difference"] < 1e-6


def test_memory_that_ran_out_leaves_nothing_to_compare(evidence: Evidence) -> None:
    exhaust(evidence)
    assert {metric.key for metric in evidence.measure().metrics} == {"peak_memory@2", "batch_latency@2"}


def fewer_samples(evidence: Evidence) -> None:
    evidence.outputs[1] = {"scores": SCORES[:1]}


def other_name(evidence: Evidence) -> None:
    evidence.outputs[1] = {"other": SCORES}


def no_file(evidence: Evidence) -> None:
    evidence.outputs[1] = None


def fewer_times(evidence: Evidence) -> None:
    evidence.parts[1]["latency_ns"] = [1, 2]


def a_time_of_zero(evidence: Evidence) -> None:
    evidence.parts[1]["latency_ns"][0] = 0


def a_crash(evidence: Evidence) -> None:
    exhaust(evidence)
    evidence.parts[0]["failure"]["class"] = "crash"


def a_failure_with_outputs(evidence: Evidence) -> None:
    exhaust(evidence)
    evidence.outputs[0] = {"scores": SCORES}


def a_failure_with_times(evidence: Evidence) -> None:
    exhaust(evidence)
    evidence.parts[0]["latency_ns"] = [1]


def other_parts(evidence: Evidence) -> None:
    evidence.parts[1]["parts"] = 3


def missing_part(evidence: Evidence) -> None:
    del evidence.parts[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (fewer_samples, "has no 2 samples on axis 0"),
        (other_name, "the outputs are other, not scores"),
        (no_file, "the blob outputs-1 is missing"),
        (fewer_times, "the batch in 2 parts has 2 times"),
        (a_time_of_zero, "malformed"),
        (a_crash, "malformed"),
        (a_failure_with_outputs, "the batch in 1 part ran out of memory, but has outputs"),
        (a_failure_with_times, "either a failure, or times and a peak"),
        (other_parts, "other numbers of parts"),
        (missing_part, "other numbers of parts"),
    ],
)
def test_evidence_that_contradicts_itself_is_refused(
    evidence: Evidence, change: Callable[[Evidence], None], words: str
) -> None:
    change(evidence)
    with pytest.raises(InvalidInputError, match=words):
        evidence.measure()


@pytest.mark.parametrize(
    ("first", "other", "difference"),
    [
        ([1.0, -4.0], [1.0, -3.0], 0.25),
        ([np.nan, np.inf], [np.nan, np.inf], 0.0),
        ([1.0, 2.0], [1.0, np.nan], np.inf),
        ([0.0, 0.0], [0.0, 1.0], np.inf),
        ([0.0], [0.0, 0.0], np.inf),
    ],
)
def test_a_difference_is_relative_to_the_largest_value(
    first: list[float], other: list[float], difference: float
) -> None:
    assert find_difference({"x": np.array(first)}, {"x": np.array(other)}) == difference
