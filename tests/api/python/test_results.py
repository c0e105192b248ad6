"""Results of the Python API: their values, their rows, and what a notebook shows of them."""

import sys
from typing import Any

import pytest
from msgspec.structs import replace

import benchlock
from benchlock.api.client.lock_runs import RerunResult
from benchlock.api.python import results
from benchlock.evaluator.records.comparison_types import Verdict
from benchlock.evaluator.records.evidence_status import EvidenceStatus
from benchlock.evaluator.records.run_types import RunEnd
from benchlock.evaluator.statistics.metric_types import Interval
from benchlock.evaluator.workflows.claim_verdicts import ClaimVerdict
from benchlock.evaluator.workflows.compare import compare_runs
from benchlock.registry.lock.lockfile import load
from benchlock.registry.manifests.manifest_types import Claim, ClaimDataset
from tests.support.evaluator.recorded import DONE, METRICS, NOON, metric, recorded
from tests.support.resolution.variants import variant

LOCK = variant({}).lock
TOP1 = replace(METRICS[0], ci=Interval(0.72, None))
ATTACK = "<script>alert(1)</script>\u202e"


def run(**changes: Any) -> benchlock.Run:  # noqa: ANN401 - fields of any type
    end = replace(DONE, metrics=(TOP1, *METRICS[1:]))
    return results.Run(recorded(replace(end, **changes), lock=LOCK.id), LOCK)


def html(result: object) -> str:
    text: str = getattr(result, "_repr_html_")()  # noqa: B009 - what a notebook calls
    return text


def test_a_run_has_its_metrics_by_name() -> None:
    found = run()
    assert found.metrics["top1"] == benchlock.Metric(0.751, "fraction", (0.72, None), 1000, self_reported=False)
    assert (found.outcome, found.failure, found.metrics_withheld) == ("done", None, None)
    assert found.versions["model"] == f"{LOCK.subject.name}@{LOCK.subject.version}"
    assert (found.lock, found.to_dict()["run"], found.started_at) == (LOCK.id, found.id, NOON)
    assert str(found.metrics["top1"]) == "0.7510 [0.7200, -]"
    with pytest.raises(TypeError):
        found.metrics["top1"] = found.metrics["top5"]  # type: ignore[index]


def test_a_run_without_an_end_is_running() -> None:
    found = results.Run(recorded(None), None)
    assert (found.outcome, dict(found.metrics), found.failure, dict(found.versions)) == ("running", {}, None, {})
    assert found.id in html(found)


def test_a_record_that_contradicts_its_evidence_tells_why_it_has_no_metrics() -> None:
    record = recorded(replace(DONE, metrics=()))
    evidence = EvidenceStatus("contradicted", ("top1 differs",))
    found = results.Run(replace(record, evidence=evidence), LOCK)
    assert found.metrics_withheld == "the record contradicts its evidence: top1 differs"
    assert "top1 differs" in html(found)


def test_runs_are_rows_with_the_same_keys() -> None:
    failed = RunEnd(outcome="failed", ended_at=NOON, failure_class="timeout", failure_message="too slow")
    runs = results.Runs((results.Run(recorded(failed), None), run(), run(metrics=(metric("throughput", 8.0),))))
    rows = runs.to_dicts()
    assert {tuple(row) for row in rows} == {tuple(rows[0])}
    assert [row["top1"] for row in rows] == [None, 0.751, None]
    assert [row["top1_low"] for row in rows] == [None, 0.72, None]
    assert [row["throughput"] for row in rows] == [None, None, 8.0]
    assert [row["model"] for row in rows] == [None, LOCK.model.name, LOCK.model.name]
    assert (rows[1]["split"], rows[1]["started_at"]) == ("test", NOON)
    assert [one.id for one in runs[1:]] == [runs[1].id, runs[2].id]
    assert len(runs) == 3


def test_rows_become_an_arrow_table() -> None:
    table = results.Runs((results.Run(recorded(None), None), run())).to_arrow()
    assert table.column("top1").to_pylist() == [None, 0.751]
    assert table.column("started_at").to_pylist() == [NOON, NOON]
    assert table.num_columns == len(run().metrics) * 3 + 14


@pytest.mark.parametrize(("name", "method"), [("pandas", "to_pandas"), ("pyarrow", "to_arrow")])
def test_a_missing_library_is_named_with_the_next_step(monkeypatch: pytest.MonkeyPatch, name: str, method: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(benchlock.UnavailableError) as caught:
        getattr(results.Runs(()), method)()
    assert str(caught.value) == (
        f"{name} is not installed\n  where: {name}\n  next: pip install {name}, or use to_dicts()"
    )


def test_rows_become_a_data_frame() -> None:
    frame = results.Runs((results.Run(recorded(None), None), run())).to_pandas()
    assert frame.shape == (2, len(run().metrics) * 3 + 14)
    assert str(frame["started_at"].dtype).startswith("datetime64")
    assert (frame["top1"][1], frame["top1_low"][1]) == (0.751, 0.72)
    assert frame["top1"].isna().tolist() == [True, False]


def test_a_table_shows_its_fields_but_no_empty_column() -> None:
    held = results.Claim("top1", 0.75, 0.01, 0.7512345, (0.7, None), "holds", "within", self_reported=False)
    table = results.Table([held])
    assert tuple(table) == (held,)
    assert table.to_dicts()[0]["interval"] == (0.7, None)
    shown = html(table)
    assert "<th>measured</th>" in shown
    assert "<td>0.7512</td><td>[0.7, -]</td><td>holds</td><td>within</td><td>no</td>" in shown
    published = html(results.Table([results.ArtifactVersion("model", "x", "1.0.0", "sha256:0", NOON)]))
    assert f"<td>{NOON:%Y-%m-%d %H:%M}</td>" in published
    assert "yanked" not in published
    assert html(results.Table(())) == "<table><tbody></tbody></table>"


def test_a_claim_that_was_not_measured_has_no_value() -> None:
    claim = Claim(
        metric="top1", value=0.75, tolerance=0.01, dataset=ClaimDataset(name="digits", version="^1", split="test")
    )
    found = results.convert_claim(ClaimVerdict(claim, "can't be said yet", "not measured", None))
    assert (found.metric, found.measured, found.interval) == ("top1", None, (None, None))


def test_a_lock_is_saved_as_its_lockfile(tmp_path: Any) -> None:  # noqa: ANN401 - the type of the fixture
    found = results.Lock(LOCK, ["model/x@1.0.0 is yanked"])
    path = found.save(tmp_path / "x.lock")
    assert load(path.read_text(), "x.lock") == LOCK
    assert found.warnings == ("model/x@1.0.0 is yanked",)
    assert found.to_dict()["lock"] == found.id
    with pytest.raises(benchlock.UnavailableError, match="cannot write"):
        found.save(tmp_path / "missing" / "x.lock")


def test_a_comparison_has_a_finding_for_each_metric() -> None:
    found = results.Comparison(compare_runs([(LOCK, recorded(lock=LOCK.id)), (LOCK, recorded(lock=LOCK.id))]))
    assert found.comparable
    assert [(one.id,) for one in found.runs] == [arm["runs"] for arm in found.to_dict()["arms"]]
    assert {finding.metric for finding in found.findings} == {"top1", "top5", "latency_p50"}
    assert "latency_p50" in html(found)
    assert "<th>model</th><th>ratio</th>" in html(found)
    assert not found.interleaved


def test_a_comparison_of_many_runs_has_a_column_for_each_lock() -> None:
    other = {"model": {"name": "other"}, "request": {"model": {"name": "other", "version": "*"}}}
    locks = (LOCK, variant(other).lock)
    runs = [(lock, recorded(lock=lock.id)) for _ in range(3) for lock in locks]
    shown = html(results.Comparison(compare_runs(runs)))
    model = f"{LOCK.subject.name}@{LOCK.subject.version} (3 runs)"
    assert f"<tr><th>metric</th><th>{model}</th><th>other@{LOCK.subject.version} (3 runs)</th></tr>" in shown


def test_all_foreign_text_is_escaped_in_html() -> None:
    failed = RunEnd(outcome="failed", ended_at=NOON, failure_class="crash", failure_message=ATTACK)
    named = replace(LOCK, model=replace(LOCK.subject, name=ATTACK))
    ran = results.Run(recorded(failed, lock=LOCK.id), named)
    verdict = Verdict("not reproduced", (ATTACK,), (ATTACK,), ran.id, ran.id, None)  # type: ignore[arg-type]
    rerun = results.Rerun(RerunResult(verdict, recorded(failed), (recorded(failed),)), named)
    other = compare_runs([(named, recorded(lock=LOCK.id)), (named, recorded(lock=LOCK.id))])
    comparison = results.Comparison(replace(other, reasons=(ATTACK,)))
    runs = results.Runs((ran,), {"run/x": ATTACK})
    claims = results.Table([results.Claim(ATTACK, 1.0, 0.1, None, (None, None), "holds", ATTACK, self_reported=False)])
    for result in (ran, runs, rerun, comparison, claims, results.Lock(named, [ATTACK])):
        shown = html(result)
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u202e" in shown
        assert "<script" not in shown
        assert "\u202e" not in shown
    assert (rerun.verdict, rerun.original, len(rerun.runs)) == ("not reproduced", ran.id, 1)
