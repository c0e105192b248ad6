"""What a record says of its calls: read as it was written, and not believed where it cannot be."""

from dataclasses import replace
from typing import Any

import pytest

from evaluator.records.calls import KEY, calls_document, calls_of
from evaluator.records.documents import decode_run, encode_run
from evaluator.records.runs import Run
from evaluator.statistics.figures import Calls, Interval, Metric

from .test_records import end, start

P50 = Metric("latency_p50", 0.001, "s", "lower", 90, Interval(0.0009, None), 1)
CALLS = Calls(100, 10, "thread", (P50,), (P50,))


def run(calls: Any) -> Run:  # noqa: ANN401 - whatever a record may say
    return Run(start(), replace(end(), details={KEY: calls}))


def test_calls_survive_the_record() -> None:
    assert calls_of(run(calls_document(CALLS))) == CALLS
    assert calls_of(decode_run(encode_run(run(calls_document(CALLS))), "run")) == CALLS


@pytest.mark.parametrize(
    "said",
    [
        {},
        [],
        "many",
        {"n": 100, "preempted": 101, "scope": "thread"},
        {"n": 0, "preempted": 0, "scope": "thread"},
        {"n": 100, "preempted": 1, "scope": "thread", "undisturbed": [{"name": "p50"}]},
    ],
)
def test_what_cannot_be_understood_says_nothing(said: Any) -> None:  # noqa: ANN401 - whatever a record may say
    assert calls_of(run(said)) is None


def test_a_run_without_an_end_has_no_calls() -> None:
    assert calls_of(Run(start(), None)) is None
    assert calls_of(Run(start(), end())) is None
