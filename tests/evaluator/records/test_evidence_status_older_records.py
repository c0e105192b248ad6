"""Records as older builds wrote them stay readable: long texts, and no mark on figures of models with code."""

import dataclasses
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from benchlock.artifacts import size_limits
from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.evidence.recomputation import Evidence
from benchlock.evaluator.evidence.run_examination import Examiner
from benchlock.evaluator.records.evidence_status import EvidenceStatus, UnverifiedError, refuse_unverified
from benchlock.evaluator.records.run_types import SELF_REPORTED, Run, RunEnd
from benchlock.evaluator.statistics.confidence_intervals import mean_iou_interval, share_interval
from benchlock.evaluator.statistics.quality_metrics import QualityEstimate, bootstrap_mean_iou, bootstrap_share
from benchlock.evaluator.statistics.time_metrics import Performance, Phases, Samples
from benchlock.registry.lock.lockfile import Lock, dump
from benchlock.registry.manifests.manifest_content import content
from benchlock.registry.manifests.metric_definitions import DEFINITIONS
from tests.support.evaluator.evidence import IDX, make_run
from tests.support.evaluator.releases import release
from tests.support.resolution.variants import variant

LONG = "it fell: " + "x" * 20_000


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "blobs")


@pytest.fixture(autouse=True)
def released(monkeypatch: pytest.MonkeyPatch) -> None:
    release(monkeypatch, variant({}).lock.harness)


def made(store: LocalStore, tmp_path: Path) -> tuple[Run, Examiner, Lock]:
    kept = variant({"files": IDX, "request": {"metrics": ["top1", "latency"]}})
    for manifest in kept.manifests.values():
        for blob in (content(manifest), *kept.files[manifest.kind].values()):
            store.put(io.BytesIO(blob))
    return make_run(kept.lock, store), Examiner(store, tmp_path, {kept.lock.id: dump(kept.lock)}.__getitem__), kept.lock


def test_a_record_by_an_earlier_definition_is_recomputed_by_that_definition(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its intervals take calls for independent, which the definitions of today do not."""
    with monkeypatch.context() as earlier:
        for name in ("latency_p50", "latency_p90", "latency_p99"):
            earlier.setitem(DEFINITIONS, name, dataclasses.replace(DEFINITIONS[name], version=1))
        run, examiner, lock = made(store, tmp_path)
        assert lock.metrics["latency_p50"] == 1
    status = examiner.compare(run)
    assert (status.state, status.reasons) == ("verified", ())
    today, _, _ = made(store, tmp_path)
    for one, version in ((run, 1), (today, DEFINITIONS["latency_p50"].version)):
        assert one.end is not None
        assert {metric.version for metric in one.end.metrics if metric.name != "top1"} == {version}
    assert run.end is not None
    renamed = tuple(
        replace(metric, version=2) if metric.name == "latency_p50" else metric for metric in run.end.metrics
    )
    forged = examiner.compare(replace(run, end=replace(run.end, metrics=renamed)))
    assert (forged.state, len(forged.reasons)) == ("contradicted", 1)


@pytest.mark.parametrize(("metric", "version"), [("miou", 1), ("miou", 2), ("top1", 1), ("top1", 2)])
def test_quality_is_recomputed_by_the_definition_of_the_lock(metric: str, version: int) -> None:
    rows = np.array([[sample, label, 5 + sample % 3, 10] for sample in range(20) for label in range(3)])
    counts = np.array([[sample % 4, 3] for sample in range(20)])
    measures = {"miou": rows, "top1": counts}
    ends = {
        ("miou", 1): bootstrap_mean_iou(rows, 20),
        ("miou", 2): mean_iou_interval(rows, 20),
        ("top1", 1): bootstrap_share(counts),
        ("top1", 2): share_interval(counts),
    }
    scores = {"miou": {"value": float(rows[:, 2].mean() / 10), "n": 20}, "top1": {"value": 0.5, "n": 60}}
    subject: Any = SimpleNamespace(lock=SimpleNamespace(metrics={metric: version}))
    result: Any = None
    evidence = Evidence(subject, result, {"quality": {metric: scores[metric]}}, {})
    found = evidence.quality({metric: scores[metric]}, measures)[metric]
    assert isinstance(found, QualityEstimate)
    assert found.ci == ends[metric, version]
    assert len(set(ends.values())) == len(ends)


@pytest.mark.parametrize(("harness", "undelayed"), [("1.2.0", None), ("1.3.0", ["latency_p50"])])
def test_no_latency_without_the_hosts_delay_is_expected_of_an_older_harness(
    harness: str, undelayed: list[str] | None
) -> None:
    lock = SimpleNamespace(metrics={"latency_p50": 2}, harness=SimpleNamespace(version=harness))
    subject: Any = SimpleNamespace(lock=lock, platform=SimpleNamespace(device="cpu"))
    result: Any = None
    more = {name: np.array([7], np.int64) for name in ("start_ns", "end_ns", "issue_delay_ns", "service_ns")}
    samples = Samples(np.ones(1), np.ones(1), np.zeros(1, np.bool_), more)
    evidence = Evidence(subject, result, {"performance": {"cpu_scope": "thread"}}, {})
    calls = evidence.calls(Phases(Performance(samples, 1, 1.0)))["calls"]
    found = [one["name"] for one in calls["undelayed"]] if "undelayed" in calls else None
    assert found == undelayed


def test_a_failure_message_that_is_longer_than_the_limit_contradicts_nothing(store: LocalStore, tmp_path: Path) -> None:
    assert len(LONG) > size_limits.FAILURE_MESSAGE
    run, examiner, _ = made(store, tmp_path)
    assert run.end is not None
    details = {name: value for name, value in run.end.details.items() if name != "calls"}
    end = replace(run.end, outcome="failed", failure_class="engine", failure_message=LONG, metrics=(), details=details)
    status = examiner.compare(replace(run, end=end))
    assert (status.state, status.reasons) == ("verified", ())


@pytest.mark.parametrize("has_stages", [False, True])
def test_figures_without_a_mark_are_marked_on_reading_where_the_harness_is_older_than_marks(
    has_stages: bool, store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, examiner, _ = made(store, tmp_path)
    assert run.end is not None
    assert SELF_REPORTED not in run.end.details
    monkeypatch.setattr("benchlock.evaluator.runner.self_reported_times.carries_code", lambda _: True)
    for module in ("runner.self_reported_times", "runner.run_stages", "evidence.discrepancies"):
        monkeypatch.setattr(f"benchlock.evaluator.{module}.has_stages", lambda _: has_stages)
    for _ in range(2):  # compared, and remembered
        examined = examiner.examine(run)
        assert examined.evidence is not None
        assert examined.end is not None
        if has_stages:
            assert examined.evidence.state == "contradicted"
            assert any("details.self_reported" in reason for reason in examined.evidence.reasons)
            assert examined.end.metrics == ()
        else:
            assert examined.evidence.state == "verified"
            assert [metric.name for metric in examined.end.metrics] == [metric.name for metric in run.end.metrics]
            assert all(metric.self_reported for metric in examined.end.metrics)
            calls = examined.end.details["calls"]
            assert all(one["self_reported"] for one in (*calls["undisturbed"], *calls["cpu_time"]))


def test_an_exported_program_that_was_run_before_it_counted_as_code_is_marked_on_reading(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, examiner, _ = made(store, tmp_path)
    assert run.end is not None
    assert SELF_REPORTED not in run.end.details
    monkeypatch.setattr(
        "benchlock.evaluator.runner.host_platform.EXPORTED", "onnx"
    )  # the format of the model of this run
    for _ in range(2):  # compared, and remembered
        examined = examiner.examine(run)
        assert examined.evidence is not None
        assert examined.end is not None
        assert examined.evidence.state == "verified", examined.evidence.reasons
        assert all(metric.self_reported for metric in examined.end.metrics)


def test_a_start_that_fits_no_lock_and_was_abandoned_contradicts_nothing(store: LocalStore, tmp_path: Path) -> None:
    """Whoever may record runs could otherwise make every later verification of the registry fail."""
    run, examiner, _ = made(store, tmp_path)
    assert run.end is not None
    start = replace(run.start, platform={**run.start.platform, "device": "cuda12"})
    end = RunEnd(outcome="abandoned", ended_at=run.end.ended_at)
    assert examiner.compare(Run(start, end)).state == "verified"
    assert examiner.compare(Run(start, run.end)).state == "contradicted"
    assert examiner.compare(Run(start, replace(end, details={"flags": []}))).state == "contradicted"


def test_only_contradictions_and_damage_are_faults_of_integrity() -> None:
    with pytest.raises(UnverifiedError):
        refuse_unverified("run", EvidenceStatus("unverified", ("a library is missing",)))
    for status in (EvidenceStatus("contradicted"), EvidenceStatus("unverified", damaged=True)):
        with pytest.raises(IntegrityError):
            refuse_unverified("run", status)
    refuse_unverified("run", EvidenceStatus("verified"))
