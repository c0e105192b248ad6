"""What a record says of its calls: read as it was written, and not believed where it cannot be."""

from typing import Any

import pytest
from msgspec.structs import replace

from benchlock.evaluator.records.run_document import decode_run, encode_run
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.records.timing_validity import (
    CLOCKS_DISAGREE,
    KEY,
    QUIET_HOST,
    Validity,
    calls_document,
    calls_of,
    describe_clocks,
    flag_of,
    list_flags,
)
from benchlock.evaluator.statistics.metric_types import Calls, Interval, Metric
from tests.evaluator.records.test_run_store import end, start

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
        {"n": 100, "preempted": 1, "scope": "thread", "wall": -1.0, "cpu": 0.5},
        {"n": 100, "preempted": 1, "scope": "thread", "wall": 1.0, "cpu": "much"},
        {"n": 100, "preempted": 1, "scope": "thread", "wall": float("inf"), "cpu": 0.5},
        {"n": 100, "preempted": 1, "scope": "thread", "undisturbed": [{"name": "p50"}]},
    ],
)
def test_what_cannot_be_understood_says_nothing(said: Any) -> None:  # noqa: ANN401 - whatever a record may say
    assert calls_of(run(said)) is None


def test_a_record_from_before_the_time_was_counted_is_flagged_by_its_calls_alone() -> None:
    before = {"n": 100, "preempted": 6, "scope": "thread", "undisturbed": [], "cpu_time": []}
    assert flag_of(run(before)) == "6.0% of calls were pre-empted (limit 5%)"
    assert flag_of(run(before | {"preempted": 5})) is None


def test_a_flag_names_both_shares() -> None:
    found = flag_of(run(calls_document(Calls(1000, 19, "thread", wall=0.53, cpu=0.09))))
    often, long = "1.9% of calls were pre-empted", "off-CPU for 83.0% of call time"
    assert found == f"{often}, {long} (limit 5% each)"


@pytest.mark.parametrize(("reported", "flagged"), [(0.0023, False), (0.0025, True)])
def test_a_latency_that_the_host_delayed_flags_the_run(reported: float, *, flagged: bool) -> None:
    """More than 10 % and 0.1 ms above 2 ms is more than 2.3 ms."""
    calls = replace(CALLS, preempted=0, undelayed=(replace(P50, value=0.002),))
    record = Run(start(), replace(end(), metrics=(replace(P50, value=reported),), details={KEY: calls_document(calls)}))
    assert calls_of(record) == calls
    expected = "latency_p50 is 2.5 ms, and 2 ms without the host's delay" if flagged else None
    assert flag_of(record) == expected


def test_a_run_is_flagged_for_all_reasons() -> None:
    calls = replace(CALLS, undelayed=(replace(P50, value=0.002),))
    record = Run(start(), replace(end(), metrics=(replace(P50, value=1.0),), details={KEY: calls_document(calls)}))
    assert flag_of(record) == (
        "10.0% of calls were pre-empted (limit 5%); latency_p50 is 1 s, and 2 ms without the host's delay"
    )


def test_each_flag_has_a_cause_a_meaning_and_a_next_step() -> None:
    calls = replace(CALLS, undelayed=(replace(P50, value=0.002),))
    record = Run(start(), replace(end(), metrics=(replace(P50, value=1.0),), details={KEY: calls_document(calls)}))
    disturbed, late = list_flags(record)
    assert disturbed.cause == "10.0% of calls were pre-empted (limit 5%)"
    assert disturbed.advice.startswith("Other processes used the CPUs of the run, so timings are unreliable. More runs")
    assert late.advice.startswith("The host issued queries late, so timings are unreliable.")
    assert late.advice.endswith(QUIET_HOST.partition("more")[2] + ".")


@pytest.mark.parametrize(
    ("percentiles", "words"),
    [
        (
            [{"share": share, "own_ns": 1e6, "loadgen_ns": 3e6 * share} for share in (0.5, 0.9)],
            ": 1.5 ms by LoadGen's clock, 1 ms by benchlock's",
        ),
        ([{"share": 0.5, "own_ns": "x"}], ""),
        (None, ""),
    ],
)
def test_clocks_that_disagree_are_described_by_their_medians(percentiles: Any, words: str) -> None:  # noqa: ANN401 - as above
    account = {"clocks_agree": False, "percentiles": percentiles}
    for details in ({"loadgen": account}, {"loadgen": {"clocks_agree": True}, "pipeline": {"loadgen": account}}):
        flag = describe_clocks(Run(start(), replace(end(), details=details)))
        assert flag is not None
        assert flag.cause == CLOCKS_DISAGREE + words
    assert describe_clocks(Run(start(), end())) is None


def test_an_invalid_run_says_what_would_make_it_valid_where_that_is_known() -> None:
    assert "scenario.min_queries" in Validity(valid=False, cause="early stopping").next_step
    assert "scenario.target_qps" in Validity(valid=False, cause="latency bound").next_step
    assert not Validity(valid=False, cause="other").next_step


def test_a_record_without_such_latencies_is_written_as_it_was_before_there_were_any() -> None:
    assert "undelayed" not in calls_document(CALLS)


def test_a_run_without_an_end_has_no_calls() -> None:
    assert calls_of(Run(start(), None)) is None
    assert calls_of(Run(start(), end())) is None
