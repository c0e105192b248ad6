"""Figures that code of a model could have made: which they are, how they are shown, and that they decide nothing."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import structs

from benchlock.api.cli.compare_command import print_comparison
from benchlock.api.cli.run_tables import print_outcome, print_runs
from benchlock.api.schemas.run_documents import claim_document, comparison_document, run_document
from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.records.evidence_status import EvidenceStatus
from benchlock.evaluator.records.prediction_agreement import PredictionAgreement
from benchlock.evaluator.records.run_comparison import Sides, judge
from benchlock.evaluator.records.run_document import decode_run, encode_run
from benchlock.evaluator.records.run_types import CALLS, SELF_REPORTED, Isolation, Run
from benchlock.evaluator.records.timing_validity import calls_document
from benchlock.evaluator.runner.self_reported_times import check_probes, check_times, find_overrun, list_self_reported
from benchlock.evaluator.statistics.metric_types import Calls, Interval, Metric
from benchlock.evaluator.statistics.time_metrics import Performance, Phases, Samples
from benchlock.evaluator.workflows.claim_verdicts import judge_claims
from benchlock.evaluator.workflows.compare import compare_runs, interleave
from benchlock.evaluator.workflows.repeat import repeat
from benchlock.registry.lock.lockfile import Lock, dataset_of
from benchlock.registry.manifests.manifest_types import Model
from tests.support.evaluator.recorded import DONE, METRICS, metric, recorded
from tests.support.evaluator.releases import release
from tests.support.resolution.variants import variant

EQUAL = PredictionAgreement("bit-equal", (), 1000, {1: 0, 5: 0})


def marked(*names: str, slower: float = 1.0, part_of: Mapping[str, Any] | None = None) -> Run:
    metrics = (*METRICS[:2], metric("latency_p50", 0.002 * slower))
    details = {SELF_REPORTED: list(names), "part_of": part_of}
    return recorded(structs.replace(DONE, metrics=metrics, details=details))


def locked(harness: str, **model: Any) -> tuple[Lock, Model]:  # noqa: ANN401 - keys of a manifest
    made = variant({"model": model})
    lock = msgspec.structs.replace(
        made.lock,
        harness=msgspec.structs.replace(made.lock.harness, version=harness),
        metrics={"top1": 1, "latency_p50": 1},
    )
    return lock, next(one for one in made.manifests.values() if isinstance(one, Model))


@pytest.mark.parametrize(
    ("harness", "unsafe", "isolation", "names"),
    [
        ("1.1.0", False, "container", ()),
        ("1.0.0", False, "process", ()),
        ("1.1.0", True, "container", ("latency_p50",)),
        ("1.1.0", True, "process", ("top1", "latency_p50")),
        ("1.0.0", True, "container", ("top1", "latency_p50")),
        ("1", True, "container", ("top1", "latency_p50")),
    ],
)
def test_what_code_could_have_made(
    harness: str, unsafe: bool, isolation: Isolation, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, model = locked(harness, **({"unsafe": True} if unsafe else {}))
    assert list_self_reported(lock, model, isolation) == ("top1", "latency_p50")  # its harness is no released one
    release(monkeypatch, lock.harness)
    assert list_self_reported(lock, model, isolation) == names


def test_a_record_keeps_the_mark_wherever_it_goes() -> None:
    run = marked("latency_p50")
    assert run.end is not None
    blobs = {"result": Descriptor(digest_bytes(b"{}"), 2)}
    run = structs.replace(run, end=structs.replace(run.end, packages={"numpy": "2"}, blobs=blobs, timings={"run": 1.0}))
    single = Calls(
        1, 0, "thread", (Metric("latency_p50", 1.0, "s", "lower", 1, Interval(None, None), 1),), (), 1.0, 1.0
    )
    assert run.end is not None
    details = {**run.end.details, CALLS: calls_document(single)}
    run = structs.replace(run, end=structs.replace(run.end, details=details))
    shown = {"top1": False, "top5": False, "latency_p50": True}
    for one in (run, decode_run(encode_run(run), "run"), msgspec.convert(msgspec.to_builtins(run), Run)):
        assert one.end is not None
        assert {found.name: found.self_reported for found in one.end.metrics} == shown
    assert {found["name"]: found["self_reported"] for found in run_document(run)["end"]["metrics"]} == shown
    full = run_document(run)["end"]["details"][CALLS]["undisturbed"]
    assert [found["self_reported"] for found in full] == [True]


def test_a_remote_client_knows_what_is_known_of_the_evidence_here() -> None:
    status = EvidenceStatus("unverified", ("a blob is missing",), damaged=True, self_reported=("top1",))
    run = structs.replace(marked("latency_p50"), evidence=status)
    assert msgspec.convert(msgspec.to_builtins(run), Run).evidence == status


def test_tables_say_it_beside_the_figure(capsys: pytest.CaptureFixture[str]) -> None:
    run = marked("latency_p50")
    print_outcome(run)
    print_runs([run], {})
    text = capsys.readouterr().out
    assert text.count("2 ms (self-reported)") == 2
    assert text.count("self-reported") == 2


def test_a_claim_about_it_cannot_be_said() -> None:
    on = {"name": "digits", "version": "*", "split": "test"}
    claims = [{"metric": name, "value": 0.002, "tolerance": 1, "dataset": on} for name in ("latency_p50", "top1")]
    made = variant({"model": {"claims": claims}})
    model = next(one for one in made.manifests.values() if isinstance(one, Model))
    run = marked("latency_p50")
    assert run.end is not None
    time, quality = judge_claims(model, dataset_of(made.lock), run.end.metrics)
    assert (time.answer, quality.answer) == ("can't be said yet", "holds")
    assert "code of the model" in time.reason
    assert claim_document(time)["self_reported"] is True


def test_a_rerun_reports_it_and_is_not_decided_by_it() -> None:
    margin = {"latency_p50": 0.05}
    originals = tuple(recorded() for _ in range(6))
    plain, reported = (tuple(marked(*names, slower=3) for _ in range(6)) for names in ((), ("latency_p50",)))
    assert judge(originals[0], plain[0], EQUAL, margin, Sides(originals, plain)).verdict == "not reproduced"
    found = judge(originals[0], reported[0], EQUAL, margin, Sides(originals, reported))
    assert found.verdict == "reproduced"
    assert "latency_p50 was 2 ms, and is 6 ms (+200.0%), self-reported" in found.reported


def test_one_marked_run_of_several_marks_what_is_made_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [marked(), marked("latency_p50", slower=1.5)]
    lock = variant({}).lock
    print_comparison(compare_runs([(lock, run) for run in runs]))
    assert "(self-reported)" in capsys.readouterr().out
    for order in (runs, runs[::-1]):
        following = iter(order)
        found = repeat(lambda _, following=following: next(following), {"latency_p50": 0.01}, 2)  # type: ignore[misc]
        shown = {one.metric.name: one.metric.self_reported for one in found.metrics}
        assert shown == {"top1": False, "top5": False, "latency_p50": True}
        assert "(self-reported, so informational), requested 1.0%" in found.reason


def test_a_comparison_is_undecided(capsys: pytest.CaptureFixture[str]) -> None:
    lock = variant({"request": {"equivalence": {"latency_p50": 0.5}}}).lock
    asked = {"model": {"name": "other", "version": "*"}, "equivalence": {"latency_p50": 0.5}}
    other = variant({"model": {"name": "other"}, "request": asked}).lock
    pairs = [(lock, marked(slower=1 + 0.001 * n)) for n in range(5)]
    pairs += [(other, marked("latency_p50", slower=3 + 0.001 * n)) for n in range(5)]
    found = compare_runs(pairs)
    answers = {one["metric"]: (one["answer"], one["reason"]) for one in comparison_document(found)["findings"]}
    assert answers["latency_p50"][0] == "undecided"
    assert "self-reported" in answers["latency_p50"][1]
    marks = {one["metric"]: one["self_reported"] for one in comparison_document(found)["findings"]}
    assert marks == {"top1": False, "top5": False, "latency_p50": True}
    print_comparison(found)
    assert "(self-reported)" in capsys.readouterr().out

    def once(one: Lock, part_of: Mapping[str, Any]) -> Run:
        return marked(slower=(1 if one.id == lock.id else 3) + 0.001 * part_of["round"], part_of=part_of)

    plain = interleave([lock, other], once, 6, {})
    assert {one["metric"]: one["answer"] for one in comparison_document(plain)["findings"]}[
        "latency_p50"
    ] == "different"


def phases(duration: float, latency: float, queries: int = 100) -> Phases:
    return Phases(Performance(Samples(np.full(queries, latency)), 1, duration), None, None)


SCENARIO = {"name": "single_stream", "min_queries": 64, "min_duration": 1}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (phases(2, 1.0), "sequential calls of 100 s in total, but a phase of 2 s"),
        (phases(2, 0.001, 63), "63 queries; the minimum"),
        (phases(0.5, 0.001), "0.5 s, which is too short"),
    ],
)
def test_times_that_cannot_be_true_are_refused(found: Phases, message: str) -> None:
    lock, _ = locked("1.1.0")
    lock = msgspec.structs.replace(lock, scenario=SCENARIO)
    with pytest.raises(InvalidInputError, match=message):
        check_times(lock, found)
    check_times(lock, phases(2, 0.001))


def measured(queries: int, duration: float = 10, **more: list[int]) -> Phases:
    columns = {name: np.asarray(values, np.int64) for name, values in more.items()}
    samples = Samples(np.full(queries, 0.001), more=columns)
    return Phases(None, Performance(samples, 1, duration), None)


SERVER = {"name": "server", "min_queries": 300, "min_duration": 2, "target_qps": 100, "target_latency": 0.1}
OFFLINE = {"name": "offline", "batch": 4, "min_samples": 100, "min_duration": 2}


@pytest.mark.parametrize(
    ("scenario", "honest", "found", "message"),
    [
        (SERVER, measured(300), measured(12), "12 queries; the minimum is 300"),
        (SERVER, measured(300), measured(300, 0.5), "0.5 s, which is too short"),
        (OFFLINE, measured(25, samples=[4] * 25), measured(25, samples=[3] * 25), "75 samples; the minimum is 100"),
        (OFFLINE, measured(25), measured(24), "96 samples; the minimum is 100"),
        (OFFLINE, measured(25), measured(25, 0.5), "0.5 s, which is too short"),
        ({"name": "cold_start", "repeats": 5}, measured(5), measured(4), "4 process starts; the minimum is 5"),
        (
            {"name": "batch_sweep", "batches": [1, 2]},
            measured(20, batch=[1] * 10 + [2] * 10),
            measured(20, batch=[1] * 11 + [2] * 9),
            "9 calls of batch size 2; the minimum is 10",
        ),
        ({"name": "accuracy", "batch": 1}, measured(1), None, ""),
    ],
)
def test_a_phase_with_less_than_its_scenario_demands_is_refused(
    scenario: dict[str, Any], honest: Phases, found: Phases | None, message: str
) -> None:
    lock = msgspec.structs.replace(locked("1.1.0")[0], scenario=scenario)
    check_times(lock, honest)
    if found is not None:
        with pytest.raises(InvalidInputError, match=message):
            check_times(lock, found)


def test_a_probe_that_counts_needs_its_queries() -> None:
    check_probes(SERVER, [{"valid": True, "queries": 300}, {"valid": False, "queries": 10}])
    with pytest.raises(InvalidInputError, match="299 queries for a probe; the minimum is 300"):
        check_probes(SERVER, [{"valid": True, "queries": 299}])


def test_a_run_that_measured_for_longer_than_it_ran_has_failed() -> None:
    failure = find_overrun(20, 10)
    assert failure is not None
    assert "20 s of measurement, but the runner observed a run of 10 s" in failure.message
    assert find_overrun(9, 10) is None


def test_no_more_cpu_time_than_the_container_had() -> None:
    failure = find_overrun(9, 10, 9, 5)
    assert failure is not None
    assert failure.message == "the harness reports 9 s of CPU time in calls, but the container used 5 s"
    assert find_overrun(9, 10, 9, 8) is None
    assert find_overrun(9, 10, 9, None) is None
