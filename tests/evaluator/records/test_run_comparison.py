"""Verdicts on reruns, and what may be compared: every reason for and against."""

import re
from typing import Any

import pytest
from msgspec import structs

from benchlock.artifacts.digest import digest_bytes
from benchlock.evaluator.records.comparison_types import Agreement, Verdict
from benchlock.evaluator.records.prediction_agreement import PredictionAgreement
from benchlock.evaluator.records.run_comparison import (
    Sides,
    differing_processors,
    host_differences,
    judge,
    list_incomparabilities,
)
from benchlock.evaluator.records.run_types import Outcome, Run, RunEnd
from benchlock.evaluator.records.timing_validity import KEY, QUIET_HOST, calls_document
from benchlock.evaluator.statistics.metric_types import Calls, Metric
from benchlock.registry.lock.lockfile import (
    Lock,
    LockContent,
    LockedArtifact,
    LockedDataset,
    LockedHarness,
    LockedImage,
    LockedLimits,
    from_content,
)
from tests.support.evaluator.recorded import DONE, METRICS, NOON, metric
from tests.support.evaluator.recorded import recorded as run


def ended(*metrics: Metric) -> Run:
    return run(end=structs.replace(DONE, metrics=metrics))


def agreed(agreement: Agreement | None = "bit-equal", top1: int = 0, top5: int = 0) -> PredictionAgreement:
    reasons = () if agreement == "bit-equal" else ("output p: because",)
    return PredictionAgreement(agreement, reasons, 1000, {1: top1, 5: top5})


def verdict(again: Run, found: PredictionAgreement | None = None, **equivalence: float) -> Verdict:
    return judge(run(), again, agreed() if found is None else found, equivalence)


def test_bit_equal_predictions_and_equal_metrics_are_reproduced() -> None:
    original, again = run(), run()
    assert judge(original, again, agreed(), {}) == Verdict(
        "reproduced",
        ("the predictions of all 1000 samples are bit-equal",),
        ("latency_p50 was 2 ms, and is 2 ms (0.0%)",),
        original.id,
        again.id,
        "bit-equal",
    )


def test_one_sample_is_not_called_all_samples() -> None:
    assert verdict(run(), PredictionAgreement("bit-equal", (), 1, {1: 0})).reasons == (
        "the predictions of the 1 sample are bit-equal",
    )


@pytest.mark.parametrize("agreement", ["within tolerance", "same decisions", None])
def test_weaker_agreement_is_reproduced_and_says_why(agreement: Agreement | None) -> None:
    found = verdict(run(), agreed(agreement))
    assert (found.verdict, found.reasons, found.predictions) == ("reproduced", ("output p: because",), agreement)


def test_different_predictions_are_not_reproduced() -> None:
    found = verdict(run(), agreed("different"))
    assert (found.verdict, found.reasons, found.predictions) == (
        "not reproduced",
        ("output p: because",),
        "different",
    )


def test_without_predictions_the_metrics_decide() -> None:
    found = judge(run(), run(), None, {})
    assert (found.verdict, found.predictions) == ("reproduced", None)
    assert "no predictions were requested" in found.reasons[0]


@pytest.mark.parametrize("value", [0.750, 0.752])
def test_another_quality_is_not_reproduced(value: float) -> None:
    found = verdict(ended(metric("top1", value), *METRICS[1:]))
    assert found.verdict == "not reproduced"
    assert found.reasons == (f"top1 was 0.751 of 1000, and is {value:g} of 1000",)


def test_quality_may_move_by_as_many_samples_as_changed() -> None:
    moved = ended(metric("top1", 0.749), *METRICS[1:])
    assert verdict(moved, agreed("within tolerance", top1=2)).verdict == "reproduced"
    assert verdict(moved, agreed("within tolerance", top1=1, top5=9)).verdict == "not reproduced"


def test_the_five_best_may_move_where_the_best_may_not() -> None:
    moved = ended(METRICS[0], metric("top5", 0.899), METRICS[2])
    assert verdict(moved, agreed("same decisions", top5=1)).verdict == "reproduced"
    assert verdict(moved, agreed("same decisions")).verdict == "not reproduced"


def test_another_number_of_samples_is_not_reproduced() -> None:
    assert verdict(ended(metric("top1", 0.751, n=999), *METRICS[1:])).verdict == "not reproduced"


def test_a_metric_of_one_run_alone_is_not_reproduced() -> None:
    found = verdict(ended(*METRICS[:2]))
    assert found.reasons == ("latency_p50 was measured in only one of the runs",)


def test_times_are_reported_and_decide_nothing_of_themselves() -> None:
    found = verdict(ended(*METRICS[:2], metric("latency_p50", 0.004)))
    assert (found.verdict, found.reported) == ("reproduced", ("latency_p50 was 2 ms, and is 4 ms (+100.0%)",))


@pytest.mark.parametrize(
    ("value", "word"), [(0.00221, "not reproduced"), (0.00179, "not reproduced"), (0.0021, "reproduced")]
)
def test_times_decide_where_the_request_says_so_and_there_are_runs_enough(value: float, word: str) -> None:
    originals, reruns = several(0.002), several(value)
    found = judge(originals[0], reruns[0], agreed(), {"latency_p50": 0.1}, Sides(originals, reruns))
    assert found.verdict == word
    text = (*found.reasons, *found.reported)[-1 if word == "reproduced" else 0]
    assert "of 6 original and 6 new runs with usable times" in text
    assert "the margin of 10.0%" in text
    assert [one.margin for one in found.times] == [0.1]


def several(seconds: float, runs: int = 6, **details: Any) -> tuple[Run, ...]:  # noqa: ANN401 - parts of a record
    """Runs whose median latency is about so many seconds."""
    values = (seconds * (1 + 0.001 * (number % 3)) for number in range(runs))
    ends = (
        structs.replace(DONE, metrics=(*METRICS[:2], metric("latency_p50", value)), details=details) for value in values
    )
    return tuple(run(end=end) for end in ends)


@pytest.mark.parametrize(("originals", "reruns"), [(1, 1), (1, 6), (6, 1), (5, 6)])
def test_nothing_about_time_is_decided_by_few_runs_a_side(originals: int, reruns: int) -> None:
    before, after = several(0.002, originals), several(0.004, reruns)
    found = judge(before[0], after[0], agreed(), {"latency_p50": 0.1}, Sides(before, after))
    assert (found.verdict, found.times) == ("undecided", ())
    assert f"of {originals} original and {reruns} new runs with usable times, but at least 6" in found.reasons[-1]
    earlier = {1: "run the lock 5 more times, then ", 5: "run the lock 1 more time, then ", 6: ""}[originals]
    assert found.reasons[-1].endswith(f"; next: {earlier}rerun it 6 times")


def test_the_rate_of_arrival_of_a_server_is_never_judged() -> None:
    before, after = (
        tuple(ended(*METRICS[:2], metric("throughput", rate)) for _ in range(6)) for rate in (100.0, 200.0)
    )
    found, other = (
        judge(before[0], after[0], agreed(), {"throughput": 0.1}, Sides(before, after), scenario)
        for scenario in ("server", "offline")
    )
    assert (found.verdict, found.times, other.verdict) == ("undecided", (), "not reproduced")
    assert "throughput of `server` is the arrival rate; next: a request with" in found.reasons[-1]


def test_runs_with_unusable_times_do_not_count() -> None:
    """A flagged run, and one whose clocks disagree, are named and left out."""
    flagged = several(0.004, 2, **{KEY: calls_document(Calls(100, 6, "thread"))})
    unclear = several(0.004, 2, loadgen={"valid": True, "clocks_agree": False})
    before, after = several(0.002), several(0.002)
    found = judge(before[0], after[0], agreed(), {"latency_p50": 0.1}, Sides(before, (*after, *flagged, *unclear)))
    assert found.verdict == "reproduced"
    assert any("of 6 original and 6 new runs" in one for one in found.reported)
    assert sum("are flagged" in one for one in found.reported) == 2
    assert sum("clock and benchlock's own disagree" in one for one in found.reported) == 2
    few = judge(before[0], after[0], agreed(), {"latency_p50": 0.1}, Sides(before, (*after[:5], *flagged)))
    assert few.verdict == "undecided"
    assert "at least 6 per side are required; 2 more have flagged times, such as: the times of" in few.reasons[-1]
    assert few.reasons[-1].endswith(QUIET_HOST)


def test_few_originals_say_what_is_missing_and_why_and_show_the_values() -> None:
    """Six new runs are required and one original: the sentence says how many are there and why others do not count."""
    busy = {KEY: calls_document(Calls(100, 6, "thread"))}
    originals, flagged = several(0.002, 1), several(0.004, 12, **busy)
    none = judge(
        originals[0], flagged[0], agreed(), {"latency_p50": 0.1}, Sides(originals, flagged, few_originals=True)
    )
    assert "of 1 original and 0 new runs with usable times, but at least 6 new ones are required" in none.reasons[-1]
    assert "12 more have flagged times, such as: the times of" in none.reasons[-1]
    assert "per side" not in none.reasons[-1]
    assert "latency_p50 was 2 ms, and is 4 ms (flagged) (+100.0%)" in none.reported
    some = (*several(0.002, 4), *flagged[:2])
    few = judge(originals[0], some[0], agreed(), {"latency_p50": 0.1}, Sides(originals, some, few_originals=True))
    assert "and 4 new runs with usable times, but at least 6 new ones are required" in few.reasons[-1]
    assert any("over the runs that count the ratio is 1.001, 95 % interval [" in one for one in few.reported)
    alone = judge(originals[0], some[0], agreed(), {"latency_p50": 0.1}, Sides(originals, some[:4], few_originals=True))
    assert alone.reasons[-1].endswith("next: run the lock 2 more times with this margin")


def test_a_flagged_original_is_named_first() -> None:
    """Its own times cannot be confirmed, even if runs of its lock agree."""
    cited = several(0.004, 1, **{KEY: calls_document(Calls(100, 6, "thread"))})[0]
    others, again = several(0.002), several(0.002)
    found = judge(cited, again[0], agreed(), {"latency_p50": 0.1}, Sides((cited, *others), again))
    assert found.reported[0].startswith("the original's own times cannot be confirmed, only those of other runs")
    assert f"the times of {cited.id} are flagged: 6.0% of calls" in found.reported[0]


def test_an_undecided_verdict_says_how_many_runs_would_decide() -> None:
    wide = tuple(ended(*METRICS[:2], metric("latency_p50", 0.002 * (1 + 0.05 * (number % 3)))) for number in range(6))
    found = judge(wide[0], wide[1], agreed(), {"latency_p50": 0.03}, Sides(wide, wide))
    assert found.verdict == "undecided"
    told = re.search("about ([0-9]+) runs per side would decide; next: (.*)", found.reasons[-1])
    assert told is not None
    number = int(told[1])
    assert told[2] == f"run the lock {number - 6} more times, then rerun it {number} times"
    none = judge(wide[0], wide[1], agreed(), {"latency_p50": 0.0001}, Sides(wide, wide))
    assert none.reasons[-1].endswith("; next: a request with a wider `equivalence`, or a quieter host")


def test_times_decide_nothing_on_hosts_that_are_not_comparable() -> None:
    again = run(end=structs.replace(DONE, metrics=(*METRICS[:2], metric("latency_p50", 0.004))), kernel="Linux 6.2")
    found = verdict(again, latency_p50=0.1)
    assert found.verdict == "reproduced"
    assert found.reported[-1] == "these times are not comparable: the host's kernel differs: Linux 6.1, Linux 6.2"


MAE = (metric("mae", 1.5), metric("latency_p50", 0.002))


def regression(value: float, **host: Any) -> Run:  # noqa: ANN401 - facts of any type
    """A run of which the mean error is ``value``."""
    return run(structs.replace(DONE, metrics=(metric("mae", value), MAE[1])), **host)


def test_a_margin_is_of_a_metric_in_every_batch() -> None:
    at = [structs.replace(metric("throughput", value), batch=batch) for batch, value in ((1, 100.0), (8, 400.0))]
    slower = [structs.replace(one, value=one.value / 3) for one in at]
    before, after = ((ended(*METRICS[:2], *metrics),) * 6 for metrics in (at, slower))
    found = judge(before[0], after[0], agreed(), {"throughput": 0.1}, Sides(before, after))
    assert (found.verdict, len(found.reasons)) == ("not reproduced", 2)
    assert found.reasons[1].startswith("throughput@8 of 6 original and 6 new runs with usable times: -66.7%")


@pytest.mark.parametrize(
    ("agreement", "value", "word"),
    [
        ("bit-equal", 1.5, "reproduced"),
        ("bit-equal", 1.5000001, "not reproduced"),
        ("within tolerance", 1.52, "reproduced"),
        ("same decisions", 1.52, "reproduced"),
        ("different", 1.5, "not reproduced"),
    ],
)
def test_a_metric_that_follows_from_the_predictions_moves_with_them(
    agreement: Agreement, value: float, word: str
) -> None:
    found = judge(regression(1.5), regression(value), agreed(agreement), {})
    assert found.verdict == word
    moved = f"mae was 1.5 of 1000, and is {value:.6g} of 1000"
    assert (moved in found.reported) is (value != 1.5 and word == "reproduced")
    assert (moved in found.reasons) is (value != 1.5 and word == "not reproduced")


@pytest.mark.parametrize(
    ("value", "host", "word"),
    [
        (1.5, {}, "reproduced"),
        (1.501, {}, "not reproduced"),
        (1.501, {"cpu_flags": ["sse"]}, "reproduced"),
        (1.503, {"cpu_flags": ["sse"]}, "not reproduced"),
    ],
)
@pytest.mark.parametrize("without", [True, False])
def test_a_metric_that_decides_alone_is_equal_but_for_the_processor(
    value: float, host: dict[str, Any], word: str, *, without: bool
) -> None:
    found = judge(regression(1.5), regression(value, **host), None if without else agreed(None), {})
    assert found.verdict == word


@pytest.mark.parametrize("found", [None, PredictionAgreement(None, ("output p: because",), 1000, {})])
def test_where_nothing_but_the_outcome_decides_that_is_said(found: PredictionAgreement | None) -> None:
    timed = ended(METRICS[2])
    assert judge(timed, timed, found, {}).reasons[-1] == (
        "no quality metric was requested, so the outcome alone decides"
    )


def test_times_of_a_disturbed_run_are_flagged() -> None:
    calls = calls_document(Calls(100, 6, "thread"))
    disturbed = run(structs.replace(DONE, details={KEY: calls}))
    found = verdict(disturbed)
    assert (found.verdict, found.reported[-1]) == (
        "reproduced",
        f"the times of {disturbed.id} are flagged: 6.0% of calls were pre-empted (limit 5%)",
    )


def test_a_run_that_loadgen_calls_invalid_is_named_with_the_reason() -> None:
    told = {"valid": False, "results": {"early_stopping_met": False, "early_stopping_result": " * Only 70 queries."}}
    invalid = run(structs.replace(DONE, details={"loadgen": told}))
    found = verdict(invalid)
    assert found.verdict == "reproduced"
    assert found.reported[-1].startswith(f"LoadGen calls {invalid.id} INVALID: too few queries for early stopping")
    assert found.reported[-1].endswith("Only 70 queries.")


def failed(kind: str) -> Run:
    return run(end=RunEnd(outcome="failed", ended_at=NOON, failure_class=kind, failure_message="it broke"))


@pytest.mark.parametrize(
    ("original", "again", "word"),
    [
        (failed("load"), failed("load"), "reproduced"),
        (failed("load"), failed("out-of-memory"), "not reproduced"),
        (failed("load"), run(), "not reproduced"),
        (run(), failed("timeout"), "not reproduced"),
    ],
)
def test_outcomes_are_compared_with_their_classes(original: Run, again: Run, word: str) -> None:
    found = judge(original, again, None, {})
    assert (found.verdict, found.predictions) == (word, None)
    assert original.id in found.reasons[0]


@pytest.mark.parametrize("outcome", ["cancelled", "abandoned"])
def test_what_has_no_answer_reproduces_nothing(outcome: Outcome) -> None:
    cut = run(end=RunEnd(outcome=outcome, ended_at=NOON))
    assert judge(cut, cut, None, {}).verdict == "not reproduced"


@pytest.mark.parametrize(
    ("host", "differ"),
    [({}, False), ({"cpu_model": "Another"}, True), ({"cpu_flags": ["sse"]}, True), ({"kernel": "Linux 7"}, False)],
)
def test_processors_differ_in_model_or_flags(host: dict[str, Any], *, differ: bool) -> None:
    assert differing_processors(run(), run(**host)) is differ


def test_devices_are_processors_too() -> None:
    on_gpu = [
        structs.replace(one, start=structs.replace(one.start, platform={**one.start.platform, "device": "cuda12"}))
        for one in (run(accelerator="A"), run(accelerator="A"), run(accelerator="B"))
    ]
    assert differing_processors(run(), on_gpu[0])
    assert not differing_processors(on_gpu[0], on_gpu[1])
    assert differing_processors(on_gpu[0], on_gpu[2])
    assert not differing_processors(run(accelerator="A"), run(accelerator="B"))  # neither ran on it


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (run(isolation="process"), "the isolation differs: container, process"),
        (run(platform={"device": "cuda"}), "device differs: cpu, cuda"),
        (run(platform={"arch": "arm64"}), "arch differs: amd64, arm64"),
        (run(cpu_model="Another CPU"), "the host's cpu model differs: A CPU, Another CPU"),
        (run(cpu_flags=["avx2", "avx512f", "sse"]), "the host's cpu flags differ in avx512f"),
        (run(cores=4), "the host's cores differ"),
        (run(governor="powersave"), "the host's governor differs: None, powersave"),
        (run(driver="550"), "the host's driver differs: None, 550"),
    ],
)
def test_where_and_how_it_ran_must_be_the_same(other: Run, reason: str) -> None:
    (found,) = host_differences(run(), other)
    assert reason in found


def test_another_engine_makes_no_difference() -> None:
    assert host_differences(run(), run(engine="Engine 28")) == ()


def lock(**changes: Any) -> Lock:  # noqa: ANN401 - parts of any type
    artifact = LockedArtifact(name="a", version="1.0.0", digest=digest_bytes(b"a"))
    parts: dict[str, Any] = {
        "schema": "1.0",
        "request": {},
        "model": artifact,
        "dataset": LockedDataset(name="d", version="1.0.0", digest=digest_bytes(b"d"), split="test"),
        "framework": artifact,
        "image": LockedImage(name="i", version="1.0.0", digest=digest_bytes(b"i"), platforms=()),
        "harness": LockedHarness(version="1", digest=digest_bytes(b"h"), size=1),
        "limits": LockedLimits(seconds=60, bytes=1 << 30, cpus=1, processes=64),
        "scenario": {"name": "accuracy", "batch": 1},
        "metrics": {"top1": 1},
    }
    return from_content(LockContent(**(parts | changes)))


def test_other_models_frameworks_and_images_are_what_is_compared() -> None:
    other = LockedArtifact(name="b", version="2.0.0", digest=digest_bytes(b"b"))
    assert list_incomparabilities((lock(), run()), (lock(model=other, framework=other), run())) == ()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dataset": LockedDataset(name="d", version="1.0.0", digest=digest_bytes(b"d"), split="dev")}, "the dataset"),
        ({"dataset": LockedDataset(name="d", version="1.0.0", digest=digest_bytes(b"e"), split="test")}, "the dataset"),
        ({"scenario": {"name": "accuracy", "batch": 2}}, "the scenario"),
        ({"limits": LockedLimits(seconds=60, bytes=1 << 30, cpus=2, processes=64)}, "the limits"),
        ({"metrics": {"top1": 2}}, "the definitions of metrics"),
        ({"harness": LockedHarness(version="2", digest=digest_bytes(b"i"), size=1)}, "the harness"),
        ({"request": {"trace": "model"}}, "the trace"),
    ],
)
def test_the_question_must_be_the_same(changes: dict[str, Any], reason: str) -> None:
    (found,) = list_incomparabilities((lock(), run()), (lock(**changes), run()))
    assert found.startswith(reason)


@pytest.mark.parametrize("change", [{"currency": "EUR"}, {"amount": 0.2}, {"date": "2026-11-21"}])
def test_costs_at_different_prices_are_not_compared(change: dict[str, Any]) -> None:
    price = {"amount": 0.1, "currency": "USD", "per": "hour", "date": "2026-11-20", "source": "a price list"}
    costs = {"cost_per_million": 1}
    first, other = (lock(metrics=costs, request={"price": each}) for each in (price, price | change))
    expected = () if "date" in change else ("the price of the machine differs",)
    assert list_incomparabilities((first, run()), (other, run())) == expected
    assert list_incomparabilities((first, run()), (lock(), run())) == ()


def test_locks_that_differ_in_their_seeds_alone_are_comparable() -> None:
    timed = {"name": "single_stream", "warmup": 3, "min_queries": 64, "min_duration": 1.0}
    scenarios = [timed | {"seeds": {"qsl": seed, "sample_index": 2, "schedule": 3}} for seed in (1, 9)]
    first, other = (lock(request={"seed": seed}, scenario=one) for seed, one in enumerate(scenarios))
    assert first.id != other.id
    assert list_incomparabilities((first, run()), (other, run())) == ()
    model = LockedArtifact(name="b", version="2.0.0", digest=digest_bytes(b"b"))
    for more in (
        lock(request={"seed": 1}, scenario=scenarios[1] | {"warmup": 4}),
        lock(request={"seed": 1}, scenario=scenarios[1], model=model),
    ):
        assert list_incomparabilities((first, run()), (more, run())) == ("the scenario differs",)


def test_metrics_that_only_one_asks_for_are_no_difference() -> None:
    assert list_incomparabilities((lock(), run()), (lock(metrics={"top1": 1, "top5": 7}), run())) == ()


def test_a_run_without_a_result_is_comparable_with_none() -> None:
    cut = run(end=None)
    assert list_incomparabilities((lock(), run()), (lock(), cut)) == (f"{cut.id} has no result",)
