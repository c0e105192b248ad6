"""The page of a run explains its flags and lists its sections; that of a model sums up its claims and runs."""

import re

import pytest

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.web.page import Page, Viewer
from benchlock.api.web.pages import artifact_pages
from benchlock.api.web.pages.artifact_pages import make_artifact
from benchlock.api.web.pages.run_pages import make_run
from benchlock.api.web.rendering import render_page
from benchlock.evaluator.records.timing_validity import calls_of
from benchlock.evaluator.statistics import metric_types
from benchlock.evaluator.workflows.claim_verdicts import RULE
from tests.api.web.conftest import Seeds
from tests.support.evaluator.evidence import CURRENT, IDX
from tests.support.evaluator.releases import release
from tests.support.resolution.variants import variant

ON = {"name": "digits", "version": "1.0.0", "split": "test"}
CLAIMS = [{"metric": name, "value": 1.0, "tolerance": 1.0, "dataset": ON} for name in ("top1", "latency_p50")]
NEVER = {"metric": "peak_qps", "value": 1.0, "tolerance": 1.0, "dataset": ON}


def html(page: Page) -> str:
    return render_page(page, Viewer(path="/")).decode()


def test_a_flagged_run_has_the_cause_the_next_step_and_the_figures_without_disturbed_calls(
    seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = seeds.run(seeds.lock())
    queue = open_queue(seeds.registry)
    calm = html(make_run(seeds.registry, queue, run.id))
    assert '<details id="calls"><summary>' in calm
    assert 'href="#calls"' not in calm
    monkeypatch.setattr(metric_types, "DISTURBED_AT_MOST", 0.01)  # fewer than its pre-empted calls
    page = make_run(seeds.registry, queue, run.id)
    text = html(page)
    assert 0 < text.index("Flagged: 2.0% of calls") < text.index("use a quieter host") < text.index('href="#calls"')
    assert '<details id="calls" open><summary>' in text
    calls = calls_of(run)
    assert run.end is not None
    assert calls is not None
    reported = {metric.key: metric.value for metric in run.end.metrics}
    shown = [(row[0], row[1], row[2]) for row in page.tables["calls"].rows]
    assert shown == [(one.key, reported.get(one.key), one.value) for one in calls.undisturbed]
    assert any(row[1] is not None for row in shown)


def test_the_contents_of_a_run_lead_to_each_of_its_sections(seeds: Seeds) -> None:
    text = html(make_run(seeds.registry, open_queue(seeds.registry), seeds.run(seeds.lock()).id))
    contents = text.partition('<nav class="toc" aria-label="Sections">')[2].partition("</nav>")[0]
    links = re.findall(r'<a href="#([^"]+)">([^<]+)</a>', contents)
    assert links == re.findall(r'<h2 id="([^"]+)">([^<]+)</h2>', text)
    assert len(links) == text.count("<h2")
    assert {"results", "repeat", "evidence", "section-1"} <= {id_ for id_, _ in links}
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))


def test_a_model_sums_up_its_claims_and_runs_and_says_by_which_rule_a_claim_holds(
    seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = seeds.registry
    made = variant({"model": {"claims": [*CLAIMS, NEVER]}, "files": IDX, "lock": CURRENT})
    release(monkeypatch, made.lock.harness)
    made.publish(registry.catalogue, registry.store)
    registry.catalogue.put_lock(made.lock)
    summary = html(make_artifact(registry, "model/digits", "")).partition('<a href="#claims">')[2]
    assert summary.startswith('3 claims: 3 not measured here</a>; <a href="#runs">0 runs</a>')
    run = seeds.run(made.lock)
    page = make_artifact(registry, "model/digits", "")
    top1, latency, never = page.tables["claims"].rows
    assert top1[-3:] == ("holds", "the value on these samples is within the tolerance", run.id)
    assert latency[-3] == "can't be said yet"
    assert "runs are needed" in str(latency[-2])
    assert never[-3:] == ("not measured here", "evaluate the model on this dataset with this metric", None)
    text = html(page)
    counts = "3 claims: 1 holds, 1 can&#39;t be said yet, 1 not measured here"
    assert f'<p><a href="#claims">{counts}</a>; <a href="#runs">1 run</a></p>' in text
    assert RULE in text
    assert '<h2 id="claims">' in text
    assert '<h2 id="runs">' in text
    assert "All runs" in text
    monkeypatch.setattr(artifact_pages, "RUNS", 1)
    seeds.run(made.lock)
    text = html(make_artifact(registry, "model/digits", ""))
    assert "1 not measured by the newest 1 runs" in text
    assert "more than 1 runs" in text
    assert '<a href="/runs?model=digits%40' in text
