"""A batch in several numbers of parts through the real runner: its metrics, its verdict, and its sentences."""

from typing import Any

import pytest
from msgspec.structs import replace

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.networks.network_texts import describe_network
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.workflows.network_agreement import compare_networks, list_equal_failures
from benchlock.evaluator.workflows.rerun import judge_rerun
from benchlock.registry.lock.lockfile import Lock
from tests.evaluator.workflows.test_run import Bench
from tests.evaluator.workflows.test_run_failures import Author, author, bench, platform
from tests.support.evaluator.releases import release

__all__ = ["author", "bench", "platform"]

METRICS = ("outputs_equal", "outputs_difference", "peak_memory", "batch_latency")


def make_run(bench: Bench, author: Author, parts: list[int], predictor: str = "linear") -> tuple[Lock, Run]:
    made = author(predictor)
    seeds = made.scenario["seeds"]
    made.scenario = {"name": "micro_batch", "batch": 12, "parts": parts, "warmup": 1, "repeats": 8, "seeds": seeds}
    lock = bench.stored(made.lock(metrics=METRICS))
    run = bench.runner(None).run(lock, isolation="process")
    assert run.end is not None
    assert run.end.outcome == "done", (run.end.failure_message, bench.log(run))
    return lock, run


def change_parts(run: Run, place: int, part: dict[str, Any]) -> Run:
    """The run with another result for one number of parts."""
    assert run.end is not None
    parts = list(run.end.details["network"]["parts"])
    parts[place] = part
    return replace(run, end=replace(run.end, details={**run.end.details, "network": {"parts": parts}}))


EXHAUSTED = {"parts": 1, "outcome": "failed", "failure": {"class": "out-of-memory", "message": "limit reached"}}


def test_parts_are_recorded_and_a_rerun_is_bit_equal(
    bench: Bench, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, run = make_run(bench, author, [1, 4])
    release(monkeypatch, lock.harness)
    assert run.end is not None
    values = {metric.key: metric for metric in run.end.metrics}
    parted = {f"{name}@{parts}" for name in ("peak_memory", "batch_latency") for parts in (1, 4)}
    assert values.keys() == {"outputs_equal", "outputs_difference", *parted}
    assert (values["outputs_equal"].value, values["outputs_difference"].value) == (1, 0)
    assert (values["batch_latency@4"].n, values["peak_memory@4"].unit) == (8, "B")
    assert values["batch_latency@4"].ci.low is not None
    assert bench.records.get(run.id).end == run.end
    assert (describe_network(run.end, lock) or "").startswith("12 samples: ")
    again = bench.runner(None).run(lock, isolation="process")
    verdict = judge_rerun(lock, run, again, bench.store)
    assert (verdict.verdict, verdict.predictions) == ("reproduced", "bit-equal"), verdict
    assert "the outputs of all 12 samples are bit-equal" in verdict.reasons

    exhausted = change_parts(again, 0, EXHAUSTED)
    agreement = compare_networks(run, exhausted, bench.store, {})
    assert agreement is not None
    assert (agreement.agreement, agreement.reasons) == (
        "different",
        ("at once: the original was done, the rerun was out-of-memory",),
    )
    both = (change_parts(run, 0, EXHAUSTED), exhausted)
    equal = compare_networks(*both, bench.store, {})
    assert equal is not None
    assert equal.agreement == "bit-equal"
    assert list(list_equal_failures(*both)) == ["at once: out-of-memory in both runs"]
    text = describe_network(both[0].end, lock) if both[0].end is not None else None
    assert text is not None
    assert "at once the limit of 512.0 MiB is too small (out-of-memory)" in text
    assert "no other outputs to compare" in text
    with pytest.raises(InvalidInputError, match="malformed"):
        compare_networks(run, change_parts(again, 0, EXHAUSTED | {"outcome": "done"}), bench.store, {})


def test_outputs_that_differ_have_a_difference(bench: Bench, author: Author) -> None:
    """The matrix product of one sample alone rounds otherwise than that of several."""
    lock, run = make_run(bench, author, [1, 12])
    assert run.end is not None
    values = {metric.key: metric.value for metric in run.end.metrics}
    assert values["outputs_equal"] == 0
    assert 0 < values["outputs_difference"] < 1e-6
    assert "outputs differ by" in (describe_network(run.end, lock) or "")


def test_a_batch_whose_memory_ran_out_has_no_metrics(bench: Bench, author: Author) -> None:
    _, run = make_run(bench, author, [1, 3], "greedy")
    assert run.end is not None
    assert {metric.key for metric in run.end.metrics} == {"peak_memory@3", "batch_latency@3"}
    assert "outputs-0" not in run.end.blobs
    assert run.end.details["network"]["parts"][0]["failure"]["class"] == "out-of-memory"
