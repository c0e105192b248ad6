"""What a run says of its model's claims: every answer, for figures of quality and of time."""

import io
from typing import Any

import pytest
from msgspec.structs import replace

from benchlock.evaluator.records.timing_validity import KEY, QUIET_HOST, calls_document
from benchlock.evaluator.statistics.metric_types import Calls, Interval, Metric
from benchlock.evaluator.workflows.claim_verdicts import ClaimVerdict, Conditions, claims_of, judge_claims
from benchlock.evaluator.workflows.repeat import summarize_metrics
from benchlock.registry.lock.lockfile import LockedDataset, dataset_of
from benchlock.registry.manifests.manifest_content import content
from benchlock.registry.manifests.manifest_types import Claim, ClaimDataset, Model
from tests.support.artifacts.memory_store import MemoryStore
from tests.support.evaluator.recorded import DONE, recorded
from tests.support.evaluator.releases import release
from tests.support.resolution.variants import variant

ON = {"name": "digits", "version": "^1.0", "split": "test"}
DATASET = LockedDataset(name="digits", version="1.2.0", digest=dataset_of(variant({}).lock).digest, split="test")
TOP1 = Metric("top1", 0.875, "fraction", "higher", 200, Interval(0.821, 0.917), 1)
P50 = Metric("latency_p50", 0.0020, "s", "lower", 900, Interval(0.0019, 0.0021), 1)

ADD = "; add it to the metrics of the request and run it again"


def model(*claims: dict[str, Any]) -> Model:
    """The model with claims of the dataset ``ON``, or as they say."""
    stated = [{"dataset": ON} | claim for claim in claims]
    manifests = variant({"model": {"claims": stated}}).manifests.values()
    return next(one for one in manifests if isinstance(one, Model))


ONE_RUN = Conditions()


def judged(
    metric: str, value: float, tolerance: float, measured: Metric, conditions: Conditions = ONE_RUN
) -> ClaimVerdict:
    stated = model({"metric": metric, "value": value, "tolerance": tolerance})
    (found,) = judge_claims(stated, DATASET, (measured,), conditions)
    return found


@pytest.mark.parametrize(
    ("value", "tolerance", "answer", "reason"),
    [
        (0.875, 0.0, "holds", "on these samples"),
        (0.87, 0.01, "holds", "on these samples"),
        (0.885, 0.01, "holds", "on these samples"),  # the very edge, which no binary number is
        (0.90, 0.01, "can't be said yet", "200 samples are too few"),
        (0.93, 0.01, "does not hold", "below the claim, which is worse"),
        (0.80, 0.02, "does not hold", "above the claim, which is better"),
    ],
)
def test_quality_is_exact_on_the_samples_that_were_seen(
    value: float, tolerance: float, answer: str, reason: str
) -> None:
    found = judged("top1", value, tolerance, TOP1)
    assert (found.answer, found.measured) == (answer, TOP1)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("version", "value", "tolerance", "answer", "reason"),
    [
        ("1.2.0", 0.9982, 0.0, "does not hold", "the value on these samples is below the claim, which is worse"),
        ("=1.2.0", 0.9982, 0.0, "does not hold", "below"),
        (">=1.2.0 <=1.2.0", 0.9962, 0.0, "does not hold", "above the claim, which is better"),
        ("1.2.0", 0.9982, 0.001, "holds", "on these samples"),
        ("1.2.0", 358 / 359, 0.0, "holds", "on these samples"),
        ("^1.0", 0.9982, 0.0, "can't be said yet", "the claim covers all versions ^1.0"),
        ("1.2.0 || 1.3.0", 0.9982, 0.0, "can't be said yet", "state one version"),
    ],
)
def test_a_claim_about_one_version_is_about_the_same_samples_and_has_no_sampling_error(
    version: str, value: float, tolerance: float, answer: str, reason: str
) -> None:
    measured = Metric("top1", 358 / 359, "fraction", "higher", 359, Interval(0.9846, 0.9999), 1)
    claim = {"metric": "top1", "value": value, "tolerance": tolerance, "dataset": ON | {"version": version}}
    (found,) = judge_claims(model(claim), DATASET, (measured,))
    assert (found.answer, found.measured) == (answer, measured)
    assert reason in found.reason


def test_a_claim_about_a_time_keeps_its_interval_where_one_version_is_named() -> None:
    claim = {"metric": "latency_p50", "value": 0.0023, "tolerance": 0.0002, "dataset": ON | {"version": "1.2.0"}}
    (found,) = judge_claims(model(claim), DATASET, (P50,), Conditions(runs=6))
    assert found.answer == "can't be said yet"


@pytest.mark.parametrize(
    ("value", "tolerance", "answer", "reason"),
    [
        (0.0020, 0.0002, "holds", "whole interval"),
        (0.0020, 0.00005, "can't be said yet", "exceeds"),
        (0.0023, 0.0002, "can't be said yet", "exceeds"),
        (0.0030, 0.0002, "does not hold", "below the claim, which is better"),
        (0.0010, 0.0002, "does not hold", "above the claim, which is worse"),
    ],
)
def test_a_time_is_known_as_well_as_its_interval_says(value: float, tolerance: float, answer: str, reason: str) -> None:
    found = judged("latency_p50", value, tolerance, P50, Conditions(runs=6))
    assert found.answer == answer
    assert reason in found.reason


@pytest.mark.parametrize("value", [0.0020, 0.0030])
@pytest.mark.parametrize("runs", [1, 5])
def test_a_time_is_never_decided_by_few_runs(value: float, runs: int) -> None:
    found = judged("latency_p50", value, 0.0002, P50, Conditions(runs=runs))
    assert found.answer == "can't be said yet"
    assert f"{runs} run(s) cannot decide a claim about time" in found.reason


@pytest.mark.parametrize("value", [101.0, 500.0])
def test_a_peak_of_one_run_cannot_be_said_since_its_bracket_is_no_confidence_interval(value: float) -> None:
    peak = Metric("peak_qps", 100.0, "queries/s", "higher", 9, Interval(100.0, 104.0), 1)
    found = judged("peak_qps", value, 5.0, peak)
    assert (found.answer, found.measured) == ("can't be said yet", peak)
    assert "several runs" in found.reason
    stated = model({"metric": "peak_qps", "value": value, "tolerance": 5.0})
    (over_runs,) = judge_claims(stated, DATASET, (peak,), Conditions(runs=6))
    assert over_runs.answer == ("holds" if value == 101 else "does not hold")


def test_an_end_that_nothing_bounds_decides_nothing_by_itself() -> None:
    open_above = replace(P50, ci=Interval(0.0019, None))
    assert judged("latency_p50", 0.0020, 0.01, open_above, Conditions(runs=6)).answer == "can't be said yet"
    assert judged("latency_p50", 0.0010, 0.0001, open_above, Conditions(runs=6)).answer == "does not hold"


def test_a_metric_that_was_not_measured_cannot_be_said_yet() -> None:
    found = judged("top5", 0.99, 0.01, TOP1)
    assert found == ClaimVerdict(found.claim, "can't be said yet", "this run did not measure top5" + ADD, None)


@pytest.mark.parametrize("other", [{"name": "letters"}, {"version": "^2.0"}, {"split": "bare"}])
def test_claims_of_other_samples_are_not_judged(other: dict[str, str]) -> None:
    claim = {"metric": "top1", "value": 0.1, "tolerance": 0.0}
    stated = model(claim | {"dataset": ON | other}, claim)
    (found,) = judge_claims(stated, DATASET, (TOP1,))
    assert found.claim == Claim(metric="top1", value=0.1, tolerance=0.0, dataset=ClaimDataset(**ON))


def test_a_model_without_claims_is_asked_for_none() -> None:
    assert judge_claims(model(), DATASET, (TOP1,)) == ()


@pytest.mark.parametrize("value", [0.0020, 0.0030])
def test_a_time_of_a_flagged_run_can_never_be_said(value: float) -> None:
    stated = model({"metric": "latency_p50", "value": value, "tolerance": 0.0002})
    (found,) = judge_claims(stated, DATASET, (P50,), Conditions(disturbed="this run is flagged: because"))
    assert found == ClaimVerdict(found.claim, "can't be said yet", "this run is flagged: because", P50)


def test_quality_of_a_flagged_run_is_what_it_is() -> None:
    stated = model({"metric": "top1", "value": 0.875, "tolerance": 0.0})
    (found,) = judge_claims(stated, DATASET, (TOP1,), Conditions(disturbed="this run is flagged: because"))
    assert found.answer == "holds"


def test_a_metric_that_the_scenario_cannot_give_is_told_from_one_that_was_not_measured() -> None:
    stated = model(*({"metric": name, "value": 1.0, "tolerance": 0.1} for name in ("peak_qps", "throughput")))
    never, unmeasured = judge_claims(stated, DATASET, (), Conditions(scenario="single_stream"))
    assert (never.possible, never.reason) == (False, "scenario single_stream does not measure peak_qps")
    assert (unmeasured.possible, unmeasured.reason) == (True, "this run did not measure throughput" + ADD)


def test_claims_of_a_run_ask_whether_it_or_one_of_those_repeated_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = variant({"model": {"claims": [{"metric": "latency_p50", "value": 0.002, "tolerance": 1, "dataset": ON}]}})
    release(monkeypatch, claimed.lock.harness)
    store = MemoryStore()
    for manifest in claimed.manifests.values():
        store.put(io.BytesIO(content(manifest)))
    calm, flagged = (
        recorded(
            replace(DONE, metrics=(P50,), details={KEY: calls_document(Calls(100, 1, "thread", wall=1.0, cpu=cpu))})
        )
        for cpu in (1.0, 0.5)
    )
    assert claims_of(claimed.lock, calm, store)[0].answer == "can't be said yet"
    assert claims_of(claimed.lock, calm, store, (P50,), (calm,) * 6)[0].answer == "holds"
    (alone,), (among,) = (
        claims_of(claimed.lock, flagged, store),
        claims_of(claimed.lock, calm, store, (P50,), (flagged, calm)),
    )
    assert "flagged: 1.0% of calls were pre-empted, off-CPU for 50.0% of call time" in alone.reason
    assert among.reason.startswith("1 of 2 runs have unusable times")
    assert alone.reason.endswith(QUIET_HOST)
    assert among.reason.endswith(QUIET_HOST)


def test_claims_of_a_peak_ask_over_how_many_runs_it_is() -> None:
    peak = Metric("peak_qps", 100.0, "queries/s", "higher", 9, Interval(99.0, 101.0), 1)
    claim = {"metric": "peak_qps", "value": 100.0, "tolerance": 5.0, "dataset": ON}
    claimed, store = variant({"model": {"claims": [claim]}}), MemoryStore()
    for manifest in claimed.manifests.values():
        store.put(io.BytesIO(content(manifest)))
    run = recorded(replace(DONE, metrics=(peak,)))
    alone, again, several = (claims_of(claimed.lock, run, store, (peak,), [run] * number)[0] for number in (0, 1, 6))
    assert alone.answer == again.answer == "can't be said yet"
    assert several.answer == "holds"


SEVEN = (0.890, 0.897, 0.899, 0.906, 0.908, 0.911, 0.912)


@pytest.mark.parametrize(
    ("version", "values", "value", "tolerance", "answer", "reason"),
    [
        ("1.0.0", SEVEN, 0.90, 0.005, "can't be said yet", "the runs disagree, and the interval over runs exceeds"),
        ("1.0.0", SEVEN, 0.90, 0.02, "holds", "the whole interval is within"),
        ("1.0.0", SEVEN, 0.95, 0.02, "does not hold", "the whole interval is below the claim"),
        ("1.0.0", SEVEN[:5], 0.95, 0.02, "can't be said yet", "more runs would narrow it"),
        ("^1.0", SEVEN, 0.95, 0.02, "can't be said yet", "state one version"),
        ("^1.0", SEVEN, 0.99, 0.01, "does not hold", "the whole interval is below the claim"),
        ("1.0.0", (0.906,) * 7, 0.90, 0.005, "does not hold", "the value on these samples is above"),
        ("^1.0", (0.906,) * 7, 0.90, 0.005, "can't be said yet", "200 samples are too few"),
    ],
)
def test_quality_on_which_repeated_runs_disagree_is_known_as_well_as_their_interval_says(
    version: str,
    values: tuple[float, ...],
    value: float,
    tolerance: float,
    answer: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claim = {"metric": "top1", "value": value, "tolerance": tolerance, "dataset": ON | {"version": version}}
    claimed, store = variant({"model": {"claims": [claim]}}), MemoryStore()
    release(monkeypatch, claimed.lock.harness)
    for manifest in claimed.manifests.values():
        store.put(io.BytesIO(content(manifest)))
    runs = [
        recorded(replace(DONE, metrics=(replace(TOP1, value=one, ci=Interval(one - 0.05, one + 0.05)),)))
        for one in values
    ]
    (over_runs,) = summarize_metrics(runs, {})
    (found,) = claims_of(claimed.lock, runs[-1], store, (over_runs.metric,), runs)
    assert found.answer == answer
    assert reason in found.reason
    assert "7 samples" not in found.reason
