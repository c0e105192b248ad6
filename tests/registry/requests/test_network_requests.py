"""Requests of the level network: what they say, and what is refused before anything runs."""

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.requests.evaluation_request import read_request
from benchlock.registry.requests.request_types import RequestDocument

REQUEST = """
schema: 1
kind: evaluation
level: network
name: memory
model: {name: digits, version: "^1.0"}
dataset: {name: digits, version: "^1.0", split: test}
hardware: {os: linux, arch: amd64, device: cpu}
limits: {time: 10m, memory: 500MiB, cpus: 1, processes: 256}
scenario: {name: micro_batch, batch: 256, parts: [1, 4, 16], warmup: 1, repeats: 6}
metrics: [outputs_equal, outputs_difference, peak_memory, batch_latency]
seed: 7
"""


def test_a_request_has_the_settings_of_its_scenario() -> None:
    request = read_request(REQUEST, "request.yaml")
    assert isinstance(request.content, RequestDocument)
    assert request.content.level == "network"
    assert request.scenario.settings == {"batch": 256, "parts": [1, 4, 16], "warmup": 1, "repeats": 6}


@pytest.mark.parametrize(
    ("before", "after", "where", "words"),
    [
        ("[1, 4, 16]", "[4, 1]", "scenario.parts", "not ascending"),
        ("[1, 4, 16]", "[1, 4, 4]", "scenario.parts", "not ascending, or one is repeated"),
        ("[1, 4, 16]", "[1, 300]", "scenario.parts", "a batch of 256 has no 300 parts"),
        ("[1, 4, 16]", "[0, 1]", "scenario.parts", ""),
        ("[1, 4, 16]", "[]", "scenario.parts", ""),
        ("[outputs_equal,", "[top1, outputs_equal,", "metrics[0]", "the level network does not give the metric top1"),
        ("[outputs_equal,", "[throughput, outputs_equal,", "metrics[0]", "micro_batch does not give the metric"),
        ("seed: 7", "trace: model\nseed: 7", "trace", "has no trace"),
        ("level: network\n", "", "", "the scenario micro_batch is of the level network"),
        (
            "{name: micro_batch, batch: 256, parts: [1, 4, 16], warmup: 1, repeats: 6}",
            "{name: batch_sweep, batches: [1], warmup: 0}",
            "scenario.name",
            "has the scenario micro_batch only",
        ),
    ],
)
def test_what_a_batch_cannot_be_is_refused(before: str, after: str, where: str, words: str) -> None:
    assert before in REQUEST
    with pytest.raises(InvalidInputError) as caught:
        read_request(REQUEST.replace(before, after), "request.yaml")
    problems = caught.value.problems or (caught.value,)
    text = " | ".join(f"{problem.where}: {problem.what}" for problem in problems)
    assert words in text
    assert where in text
