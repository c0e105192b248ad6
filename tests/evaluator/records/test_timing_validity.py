"""LoadGen's own verdict on a run: its reason in words, and what no record may say of it."""

from dataclasses import asdict
from typing import Any

import pytest
from msgspec.structs import replace

from benchlock.evaluator.harness.performance.loadgen_traces import read_log
from benchlock.evaluator.records.evidence_status import EvidenceStatus
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.records.timing_validity import Validity, list_early_stopping, validity_of
from tests.support.evaluator.loadgen_logs import LOGS
from tests.support.evaluator.recorded import DONE, recorded

EARLY = " * Run unsuccessful.  * Processed 100 queries.  * Would need to run at least 359 more queries,  with ..."
MISSED: dict[str, Any] = {
    "valid": False,
    "settings": {"target_latency_ns": 100_000},
    "results": {
        "result_perf_constraints_met": False,
        "early_stopping_met": False,
        "early_stopping_result": EARLY,
        "result_invalid_reason": "Reduce target QPS to improve latency. ",
        "result_query_count": 470,
        "result_overlatency_query_count": 464,
    },
}
FEW: dict[str, Any] = {
    "valid": False,
    "results": {"result_perf_constraints_met": True, "early_stopping_met": False, "early_stopping_result": EARLY},
}


def of(**details: Any) -> Validity | None:  # noqa: ANN401 - whatever a record may say
    return validity_of(recorded(replace(DONE, details=details)))


def test_a_missed_bound_is_told_with_the_bound_and_loadgens_advice() -> None:
    found = of(loadgen=MISSED)
    assert found is not None
    assert (found.valid, found.mark) == (False, "INVALID (latency bound)")
    assert found.words == (
        "INVALID: its latency bound was missed: 464 of 470 queries took longer than 100 µs (1 % may) "
        "(LoadGen: Reduce target QPS to improve latency.)"
    )


def test_early_stopping_is_told_apart_from_the_bound() -> None:
    found = of(loadgen=FEW)
    assert found is not None
    assert found.mark == "INVALID (early stopping)"
    assert found.words == (
        "INVALID: too few queries for early stopping at 99 % confidence: "
        "Run unsuccessful. Processed 100 queries. Would need to run at least 359 more queries, with ..."
    )


def test_the_pipeline_phase_is_judged_too() -> None:
    assert of(loadgen={"valid": True}, pipeline={"loadgen": {"valid": True}}) == Validity(valid=True)
    found = of(loadgen={"valid": True}, pipeline={"loadgen": FEW})
    assert found is not None
    assert (found.valid, found.cause) == (False, "early stopping")
    assert str(found.reason).startswith("pipeline: too few queries")


def test_a_record_without_loadgens_results_has_the_verdict_alone() -> None:
    assert of(loadgen={"valid": True, "errors": []}) == Validity(valid=True)
    assert of(loadgen={"valid": False}) == Validity(
        valid=False, cause="no reason given", reason="the record states no reason"
    )


def test_another_reason_of_loadgens_stands_in_its_words() -> None:
    found = of(loadgen={"valid": False, "results": {"result_invalid_reason": "Some queries did not complete. "}})
    assert found == Validity(valid=False, cause="other", reason="Some queries did not complete.")
    assert found.mark == "INVALID (other)"


@pytest.mark.parametrize("loadgen", [[], None, "valid", {"valid": 1}, {}, {"valid": True, "results": []}])
def test_what_cannot_be_understood_says_nothing(loadgen: Any) -> None:  # noqa: ANN401 - as above
    assert of(loadgen=loadgen) is None


def test_facts_of_other_types_are_left_out_of_the_reason() -> None:
    odd = {"target_latency_ns": "soon"}
    results = MISSED["results"] | {"result_query_count": "many", "result_invalid_reason": 7}
    found = of(loadgen=MISSED | {"settings": odd, "results": results})
    assert found is not None
    assert found.words == "INVALID: its latency bound was missed"


def test_where_loadgen_drove_nothing_there_is_no_verdict() -> None:
    assert of() is None
    assert of(pipeline={"queries": 3}) is None
    run: Run = recorded(None)
    assert validity_of(run) is None


def test_a_failed_run_has_no_verdict() -> None:
    failed = replace(DONE, outcome="failed", failure_class="crash", failure_message="it fell", metrics=())
    assert validity_of(recorded(replace(failed, details={"loadgen": {"valid": True}}))) is None


def run_of_log(name: str, **details: Any) -> Run:  # noqa: ANN401 - whatever a record may say
    return recorded(replace(DONE, details={"loadgen": asdict(read_log(LOGS / f"{name}.txt")), **details}))


def test_the_estimates_of_early_stopping_are_those_of_loadgens_log() -> None:
    (found,) = list_early_stopping(run_of_log("single_stream"))
    # 149 queries are too few for the 99th percentile, so LoadGen writes 0.
    assert found.estimates == {"90": 4572729 / 1e9, "99": None}
    assert (found.phase, found.met, found.queries, found.over) == ("performance", True, 149, None)
    assert found.words == "with 99% confidence, 90% of queries take at most 4.57 ms"


def test_early_stopping_of_server_is_about_its_target_latency() -> None:
    log = asdict(read_log(LOGS / "server.txt"))
    queries, over = (log["results"][f"result_{name}_count"] for name in ("query", "overlatency_query"))
    results = log["results"] | {"early_stopping_met": True}
    pipeline = {"loadgen": log | {"results": results}}
    (found,) = list_early_stopping(recorded(replace(DONE, details={"pipeline": pipeline})))
    assert (found.phase, found.met, found.queries, found.estimates) == ("pipeline", True, queries, {})
    assert found.words == (
        f"with 99% confidence, 99% of queries meet the target latency ({over} of {queries} exceeded it)"
    )
    pipeline["loadgen"]["results"] = results | {"early_stopping_met": False}
    assert list_early_stopping(recorded(replace(DONE, details={"pipeline": pipeline})))[0].words == ""


def test_no_estimate_is_shown_of_a_record_that_differs_from_its_evidence() -> None:
    run = run_of_log("single_stream")
    assert list_early_stopping(replace(run, evidence=EvidenceStatus("verified")))
    assert list_early_stopping(replace(run, evidence=EvidenceStatus("contradicted", ("it differs",)))) == ()


@pytest.mark.parametrize(
    "results",
    [
        {},
        {"result_query_count": "many"},
        {"result_query_count": True},
        {"result_query_count": 9, "early_stopping_latency_ss": 10**400},
        {"result_query_count": 9, "early_stopping_latency_ss": -1},
    ],
)
def test_early_stopping_that_cannot_be_understood_is_left_out(results: dict[str, Any]) -> None:
    account = {"valid": True, "settings": {"scenario": "SingleStream"}, "results": results}
    assert list_early_stopping(recorded(replace(DONE, details={"loadgen": account}))) == ()
