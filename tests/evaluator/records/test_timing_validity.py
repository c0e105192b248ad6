"""LoadGen's own verdict on a run: its reason in words, and what no record may say of it."""

from typing import Any

import pytest
from msgspec.structs import replace

from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.records.timing_validity import Validity, validity_of
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
