"""The front page, the catalogue, artifacts and runs, as functions of a registry."""

import json
import re
from datetime import datetime, timedelta
from hashlib import sha256
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import name_run_file
from benchlock.api.web.page import Page, Viewer
from benchlock.api.web.pages import artifact_pages
from benchlock.api.web.pages.artifact_pages import make_artifact
from benchlock.api.web.pages.catalogue_pages import NAMES, CatalogueQuery, make_catalogue, make_home
from benchlock.api.web.pages.lock_pages import make_lock
from benchlock.api.web.pages.provenance_pages import describe_source, make_provenance
from benchlock.api.web.pages.run_pages import RUNS, RunQuery, make_run, make_runs, tabulate_classes
from benchlock.api.web.rendering import load_assets, render_page
from benchlock.api.web.run_lists import list_others
from benchlock.artifacts.blob_store import read
from benchlock.artifacts.errors import UnknownNameError
from benchlock.evaluator.analysis.table_formats import format_cell
from benchlock.evaluator.evidence.class_details import ClassDetails, ClassResult
from benchlock.evaluator.records.run_texts import select_headline
from benchlock.evaluator.records.run_types import ALL_RUNS, RunEnd, RunFilter, parse_run_id
from benchlock.evaluator.statistics.metric_types import Interval, Metric
from benchlock.registry.artifact_names import parse_name, parse_reference
from benchlock.registry.auth.permissions import ANONYMOUS, use_actor
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import ContentFilter
from benchlock.registry.catalogue.version_lists import VersionFilter
from benchlock.registry.lock.lockfile import dataset_of
from tests.api.web.conftest import Seeds
from tests.support.api.html_tables import read_cells
from tests.support.evaluator.evidence import CURRENT, IDX
from tests.support.evaluator.recorded import NOON
from tests.support.registry.frameworks import publish_framework
from tests.support.resolution.variants import variant

HEBREW = "\u05e9\u05dc\u05d5\u05dd"
HOSTILE = '"><script>alert(1)</script><b onload=x>'


def text(page: Page, **viewer: Any) -> str:  # noqa: ANN401 - fields of a viewer
    html = render_page(page, Viewer(**viewer)).decode()
    assert "<script>" not in html
    return unescape(html)


def frameworks(registry: LocalRegistry, name: str, *versions: str) -> None:
    for version in versions:
        publish_framework(registry.catalogue, registry.store, name, version)


def test_a_card_has_the_direction_of_its_own_text(registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    frameworks(registry, "acme", "1.0.0")
    monkeypatch.setattr(artifact_pages, "read_card", lambda *_: SimpleNamespace(text=f"# {HEBREW}\n\n{HEBREW}"))
    page = text(make_artifact(registry, "framework/acme", ""))
    assert '<div class="card" dir="auto"><h' in page
    assert page.count(HEBREW) == 2


def test_empty_pages_say_the_next_step(registry: LocalRegistry) -> None:
    home = text(make_home(registry))
    assert home.index("registry of models") < home.index("This registry is empty") < home.index("benchlock eval MODEL")
    assert "benchlock publish MANIFEST" in home
    assert "Nothing is published yet" in text(make_catalogue(registry, CatalogueQuery(), VersionFilter()))
    assert "No evaluation ran yet" in text(make_runs(registry, RunQuery(), ALL_RUNS))
    query, listing = CatalogueQuery(search="x"), VersionFilter(content=ContentFilter(search="x"))
    assert "Nothing matches." in text(make_catalogue(registry, query, listing))


def test_the_front_page_leads_to_everything(registry: LocalRegistry) -> None:
    frameworks(registry, "acme", "1.0.0")
    main = text(make_home(registry)).partition("<main")[2]
    assert all(f'href="{path}"' in main for path in ("/artifacts", "/new", "/runs", "/leaderboards"))
    assert "This registry is empty" not in main


def test_the_newest_version_is_neither_yanked_nor_a_pre_release(registry: LocalRegistry) -> None:
    frameworks(registry, "acme", "1.0.0", "1.1.0", "1.2.0", "2.0.0-rc.1")
    registry.catalogue.yank(parse_reference("framework/acme@1.2.0"), HOSTILE)
    (row,) = make_catalogue(registry, CatalogueQuery(), VersionFilter()).tables["artifacts"].rows
    assert (row[0], row[-1]) == ("framework/acme@1.1.0", "")
    page = text(make_artifact(registry, "framework/acme@1.2.0", ""))
    assert f'Yanked</strong> on <time datetime="{NOON.isoformat()}">' in page
    assert "</time> by embedded. " in page
    with use_actor(ANONYMOUS):
        anonymous = text(make_artifact(registry, "framework/acme@1.2.0", ""))
    assert "embedded" not in anonymous
    assert HOSTILE in anonymous
    assert HOSTILE in page
    assert "they choose" in page
    assert "1.1.0" in page
    assert "The newest version is" in text(make_artifact(registry, "framework/acme@1.0.0", ""))
    assert make_artifact(registry, "framework/acme", "").title == "acme 1.1.0"
    versions = make_artifact(registry, "framework/acme@^1.0", "").tables["versions"]
    assert [row[0].partition("@")[2] for row in versions.rows] == ["2.0.0-rc.1", "1.2.0", "1.1.0", "1.0.0"]  # type: ignore[union-attr]
    assert [row[-1] for row in versions.rows] == ["pre-release", f"yanked: {HOSTILE}", "", ""]


def test_names_and_versions_come_in_pages_that_join(registry: LocalRegistry) -> None:
    names = [f"name-{number:03}" for number in range(NAMES + 7)]
    for name in names:
        frameworks(registry, name, "1.0.0")
    first = make_catalogue(registry, CatalogueQuery(), VersionFilter())
    cursor = first.context["next"].partition("cursor=")[2].replace("%3D", "=")
    second = make_catalogue(registry, CatalogueQuery(cursor=cursor), VersionFilter())
    found = [row[0] for page in (first, second) for row in page.tables["artifacts"].rows]
    assert found == [f"framework/{name}@1.0.0" for name in names]
    assert second.context["next"] is None
    assert 'rel="first"' not in text(first, path="/artifacts?kind=framework")
    path = f"/artifacts?kind=framework&cursor={cursor}"
    assert '<a rel="first" href="/artifacts?kind=framework">' in text(second, path=path)
    many = [f"1.{minor}.0" for minor in range(60)]
    frameworks(registry, "many", *many)
    top = make_artifact(registry, "framework/many", "")
    assert top.context["next"].endswith("?below=1.10.0")
    rest = make_artifact(registry, "framework/many", "1.10.0")
    assert '<a rel="first" href="/framework/many">' in text(rest, path="/framework/many?below=1.10.0")
    shown = [row[0] for page in (top, rest) for row in page.tables["versions"].rows]
    assert shown == [f"framework/many@{version}" for version in reversed(many)]


def test_versions_are_filtered_by_a_range_and_a_wrong_one_leaves_the_rest_of_the_page(registry: LocalRegistry) -> None:
    many = [f"1.{minor}.0" for minor in range(60)]
    frameworks(registry, "acme", *many, "2.0.0-rc.1", "2.0.0", "3.0.0-rc.1")
    registry.catalogue.yank(parse_reference("framework/acme@1.4.0"), "wrong labels")

    def listed(range_: str, below: str = "") -> list[str]:
        rows = make_artifact(registry, "framework/acme", below, range_).tables["versions"].rows
        return [str(row[0]).partition("@")[2] for row in rows]

    assert listed(">=1.2 <1.6") == ["1.5.0", "1.4.0", "1.3.0", "1.2.0"]
    assert listed("<1.2 || 1.58.0 || >=3.0.0-0") == ["3.0.0-rc.1", "1.58.0", "1.1.0", "1.0.0"]
    assert listed(">1.57 <3") == ["2.0.0", "1.59.0", "1.58.0"]
    assert listed(">5") == []
    page = make_artifact(registry, "framework/acme", "", "<2")
    assert listed("<2", "1.10.0") == many[9::-1]
    assert page.context["next"] == "/framework/acme%402.0.0?versions=%3C2&below=1.10.0".replace("%40", "@")
    narrow = text(make_artifact(registry, "framework/acme", "", ">=1.2 <1.6"))
    assert '<tr class="yanked">' in narrow
    assert "yanked: wrong labels" in narrow
    wrong = make_artifact(registry, "framework/acme", "", f">=1.2 {HOSTILE}")
    assert wrong.title == "acme 2.0.0"
    assert len(wrong.tables["versions"].rows) == artifact_pages.VERSIONS
    shown = render_page(wrong, Viewer()).decode()
    assert 'aria-invalid="true" aria-describedby="range-problem"' in shown
    assert "<script>" not in shown
    assert "The table has all versions." in shown


def test_what_is_not_there_is_an_error(registry: LocalRegistry) -> None:
    for target in ("model/none", "model/none@1.0.0"):
        with pytest.raises(UnknownNameError):
            make_artifact(registry, target, "")


def test_a_run_shows_what_it_measured_and_how_to_repeat_it(seeds: Seeds) -> None:
    run = seeds.run(seeds.lock())
    page = make_run(seeds.registry, open_queue(seeds.registry), run.id)
    assert run.end is not None
    assert [row[:5] for row in page.tables["metrics"].rows] == [
        (metric.key, metric.value, metric.unit, metric.ci.low, metric.ci.high) for metric in run.end.metrics
    ]
    shown = text(page)
    assert f"benchlock rerun {run.id}" in shown
    assert f"{run.id}, lock {run.start.lock}" in shown
    assert page.json_path == f"/v1/runs/{run.id.removeprefix('run/')}"
    assert page.refresh is None
    (row,) = make_runs(seeds.registry, RunQuery(), ALL_RUNS).tables["runs"].rows
    assert (row[0], row[6], row[7]) == (run.id, "single_stream", "done")


def test_a_run_is_cited_with_its_results_its_host_and_its_lock(seeds: Seeds) -> None:
    run = seeds.run(seeds.lock())
    page = make_run(seeds.registry, open_queue(seeds.registry), run.id)
    local, public = (text(page, address=address) for address in ("http://127.0.0.1:8000", "https://bench.example"))
    assert run.end is not None
    entry = local.partition("@misc{")[2].partition("</code>")[0]
    for words in (run.id, run.start.lock, f"year = {{{run.start.started_at.year}}}", "version = {harness "):
        assert words in entry
    for headline in select_headline(run):
        assert headline.replace("_", "\\_") in entry
    assert entry.count("{") == entry.count("}") - 1
    assert f"url = {{https://bench.example/runs/{run.id[4:]}}}" in public
    assert "works on this machine only" in local
    assert "works on this machine only" not in public


def test_a_list_of_runs_names_the_main_quality_metric_and_one_figure_of_speed(seeds: Seeds) -> None:
    run = seeds.run(seeds.lock())
    assert run.end is not None
    names = ("brier", "throughput", "ece_15", "top5", "latency_p90", "top1", "latency_p50")
    metrics = tuple(Metric(name, 0.5, "ratio", "none", 9, Interval(0.4, 0.6), 1) for name in names)
    headline = select_headline(replace(run, evidence=None, end=replace(run.end, metrics=metrics)))
    assert [words.partition(" ")[0] for words in headline] == ["top1", "latency_p50"]
    rates = replace(run, evidence=None, end=replace(run.end, metrics=metrics[:1]))
    assert [words.partition(" ")[0] for words in select_headline(rates)] == ["brier"]


def test_runs_to_compare_with_are_of_the_same_dataset(seeds: Seeds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchlock.api.web.run_lists.OTHERS", 2)
    lock = seeds.lock()
    older, run = seeds.run(lock), seeds.run(lock)
    busy = variant({
        "model": {"name": "busy-model"},
        "dataset": {"name": "busy"},
        "files": IDX,
        "lock": CURRENT,
        "request": {
            "model": {"name": "busy-model", "version": "*"},
            "dataset": {"name": "busy", "version": "*", "split": dataset_of(lock).split},
        },
    })  # fmt: skip
    busy.publish(seeds.registry.catalogue, seeds.registry.store, ("model", "dataset"))
    seeds.registry.catalogue.put_lock(busy.lock)
    for _ in range(2):
        seeds.run(busy.lock)
    assert list_others(seeds.registry, lock, run) == (older.id,)
    assert list_others(seeds.registry, lock, older) == (run.id,)


def test_a_failed_run_says_why_and_its_text_is_text(seeds: Seeds) -> None:
    end = RunEnd(outcome="failed", ended_at=NOON + timedelta(hours=1), failure_class="golden", failure_message=HOSTILE)
    failed = seeds.run(seeds.lock(), end=end)
    page = make_run(seeds.registry, open_queue(seeds.registry), failed.id)
    assert f"golden: {HOSTILE}" in text(page)
    assert "metrics" not in page.tables
    assert make_runs(seeds.registry, RunQuery(outcome="done"), RunFilter(outcome="done")).tables["runs"].rows == ()


def test_runs_come_in_pages_that_join(seeds: Seeds) -> None:
    lock = seeds.lock()
    ids = [seeds.run(lock).id for _ in range(RUNS + 3)]
    first = make_runs(seeds.registry, RunQuery(), ALL_RUNS)
    cursor = first.context["next"].partition("cursor=")[2].replace("%3D", "=")
    second = make_runs(seeds.registry, RunQuery(cursor=cursor), ALL_RUNS)
    assert [row[0] for page in (first, second) for row in page.tables["runs"].rows] == ids[::-1]


def test_the_provenance_goes_down_to_the_files(seeds: Seeds) -> None:
    run = seeds.run(seeds.lock())
    shown = text(make_provenance(seeds.registry, run.id))
    assert re.search(r'<div class="wraps">\s*<div class="scroll"[^>]*>\s*<table>', shown)
    style = next(content for name, (content, _) in load_assets().items() if name.endswith(".css"))
    assert b".wraps td:first-child { white-space: normal; }" in style
    lock = seeds.registry.read_lock(run.start.lock)
    for digest in (lock.id, lock.harness.digest, *(artifact.digest for artifact in lock.artifacts().values())):
        assert digest in shown
    files = (*lock.subject.files, *dataset_of(lock).files, *lock.image.platforms[0].wheels)
    assert all(file.path in shown and f"sha256:{file.sha256}" in shown for file in files)
    with pytest.raises(UnknownNameError):
        make_provenance(seeds.registry, parse_run_id("run/01kam1v3mz4w0q3d5g7h9j2k4m"))


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("/home/somebody/models/net.onnx", "a local file, net.onnx"),
        ("file:///srv/data/labels.idx", "a local file, labels.idx"),
        ("../data/", "a local file, data"),
        ("..", "a local file"),
        ("dvc:///srv/repository@main/net.onnx", "a local file, net.onnx"),
        ("DVC://file:///srv/repository@main/net.onnx", "a local file, net.onnx"),
        ("dvc://host.example/repository@main/net.onnx", "dvc://host.example/repository@main/net.onnx"),
        ("https://host.example/net.onnx", "https://host.example/net.onnx"),
        ("hf://acme/net@main/net.onnx", "hf://acme/net@main/net.onnx"),
        ("bundle:sha256:00ff", "bundle:sha256:00ff"),
    ],
)
def test_the_source_of_a_file_says_nothing_of_the_machine_that_published_it(source: str, shown: str) -> None:
    assert describe_source(source) == shown


def test_a_provenance_says_that_nothing_is_signed_and_what_was_checked(seeds: Seeds) -> None:
    run = seeds.run(seeds.lock())
    assert run.evidence is not None
    shown = text(make_provenance(seeds.registry, run.id))
    assert "It is not signed." in shown
    assert f"the record {run.evidence.sentence}." in shown


def test_a_provenance_shows_the_fingerprint_that_ties_files_to_the_lock(seeds: Seeds) -> None:
    run = seeds.run(seeds.lock())
    assert run.end is not None
    result = json.loads(read(seeds.registry.store, run.end.blobs["result"].digest, name="result"))
    shown = text(make_provenance(seeds.registry, run.id))
    assert result["lock_fingerprint"] in shown
    assert sha256(f"benchlock lock fingerprint\n{run.start.lock}".encode()).hexdigest() == result["lock_fingerprint"]


def test_each_metric_names_the_files_from_which_it_is_recomputed(seeds: Seeds) -> None:
    run = seeds.run(seeds.lock())
    assert run.end is not None
    rows = make_provenance(seeds.registry, run.id).tables["metrics"].rows
    files = {(name, file): digest for names, file, digest in rows for name in str(names).split(", ")}
    assert {name for name, _ in files} == {metric.key for metric in run.end.metrics}
    assert files["top1", "predictions"] == run.end.blobs["predictions"].digest
    assert files["latency_p50", "samples"] == run.end.blobs["samples"].digest
    dataset = dataset_of(seeds.registry.read_lock(run.start.lock))
    labels = f"the labels of split {dataset.split} of {dataset.name} {dataset.version}"
    assert files["top1", labels] == dataset.digest
    assert ("latency_p50", labels) not in files


def test_stored_files_are_downloads_and_missing_ones_are_not(seeds: Seeds) -> None:
    registry = seeds.registry
    run = seeds.run(seeds.lock())
    assert run.end is not None
    (missing, gone), *stored = sorted(run.end.blobs.items())
    registry.store.delete(gone.digest)
    shown = text(make_run(registry, open_queue(registry), run.id))
    for role, blob in stored:
        name = name_run_file(run.id, role)
        assert f'<a href="/v1/blobs/{blob.digest}?name={name}" download="{name}">{role}</a>' in shown
    assert f"<td>{missing}</td>" in shown
    provenance = text(make_provenance(registry, run.id))
    artifact = make_artifact(registry, "model/digits", "")
    for row in artifact.tables["files"].rows:
        name = f"digits-1.0.0-{row[0]}".replace("/", "-")
        link = f'<a href="/v1/blobs/sha256:{row[-1]}?name={name}" download="{name}">{row[0]}</a>'
        assert link in text(artifact)
    for page in (shown, provenance):
        assert all(
            f'href="/v1/blobs/{blob.digest}?name={name_run_file(run.id, role)}"' in page for role, blob in stored
        )
        assert gone.digest in page
        assert f"/v1/blobs/{gone.digest}" not in page


def test_a_long_manifest_is_shown_in_part_and_its_files_are_in_the_csv(
    seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds.lock()
    whole = make_artifact(seeds.registry, "dataset/digits", "")
    files = whole.tables["files"].rows
    assert len(files) > 1
    assert "The manifest as published</summary>" in text(whole)
    assert "The table shows" not in text(whole)
    monkeypatch.setattr(artifact_pages, "FILES", 1)
    monkeypatch.setattr(artifact_pages, "MANIFEST", 100)
    part = make_artifact(seeds.registry, "dataset/digits", "")
    assert part.tables["files"].rows == files
    shown = text(part)
    assert len(read_cells(render_page(part, Viewer()).decode(), "files")) == 1
    assert f"The table shows 1 of {len(files)} files." in shown
    assert f'<a href="{part.json_path}">The manifest as published</a>' in shown
    assert "<pre tabindex" not in shown.partition("<h2>Manifest</h2>")[2]


def test_a_huge_manifest_is_shown_in_part(seeds: Seeds, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = seeds.lock()
    reference = parse_reference(f"model/digits@{lock.subject.version}")
    document: dict[str, Any] = dict(seeds.registry.catalogue.manifest_document(reference))
    (port,) = document["inputs"]
    port |= {"steps": port["steps"] * 40, "shape": [2] * 900}
    document |= {"inputs": [port | {"name": f"in{number}"} for number in range(30)]}
    document |= {"attributes": {f"a{number}": "v" * 2000 for number in range(200)}}
    monkeypatch.setattr(Catalogue, "manifest_document", lambda *_: document)
    page = make_artifact(seeds.registry, str(reference), "")
    shown = text(page)
    assert "in19: " in shown
    assert "in20: " not in shown
    steps = len(port["steps"])
    assert f"<summary>{steps} steps</summary>" in shown
    for count, what in ((10, "inputs"), (steps - artifact_pages.STEPS, "steps")):
        assert f'{count} more {what} are in the <a href="{page.json_path}">JSON</a>' in shown
    assert f'{page.context["more_facts"]} more facts are in the <a href="{page.json_path}">JSON</a>' in shown
    assert len(page.context["facts"]) == artifact_pages.FACTS
    assert "v" * 501 not in shown
    assert "2 x " * 200 not in shown


def test_the_time_of_a_page_is_in_utc(registry: LocalRegistry) -> None:
    frameworks(registry, "acme", "1.0.0")
    entry = registry.catalogue.newest("framework", parse_name("acme"), None)
    assert isinstance(entry.published_at, datetime)
    assert f'<time datetime="{entry.published_at.isoformat()}">' in text(make_artifact(registry, "framework/acme", ""))


def test_pages_show_the_numbers_of_their_csv_files(registry: LocalRegistry, seeds: Seeds) -> None:
    """The pages of the run and of its trace are compared with the API where a run has samples and a trace."""
    run = seeds.run(seeds.lock())
    pages = [
        make_home(registry),
        make_catalogue(registry, CatalogueQuery(), VersionFilter()),
        make_runs(registry, RunQuery(), ALL_RUNS),
        make_run(registry, open_queue(registry), run.id),
        make_lock(registry, open_queue(registry), run.start.lock),
        *(
            make_artifact(registry, target, "")
            for target in ("model/digits", "dataset/digits", "image/onnxruntime-cpu")
        ),
    ]
    numbers = 0
    for page in pages:
        html = render_page(page, Viewer()).decode()
        for name, table in (dict(page.tables) | dict(page.context.get("shown", {}))).items():
            for cells, row in zip(read_cells(html, name), table.rows, strict=True):
                for column, shown, value in zip(table.columns, cells, row, strict=True):
                    whole = format_cell(column, value)
                    assert shown == whole[: len(shown) if column.name in ("run", "lock") else None], (page.title, name)
                    numbers += isinstance(value, int | float)
    assert numbers > 20


def test_classes_that_were_taken_for_others_come_first_by_their_number() -> None:
    details = ClassDetails((ClassResult(0, 3, 2, 2), ClassResult(1, 1, 2, 0)), ((0, 0, 2), (0, 1, 1), (1, None, 4)))
    tables = tabulate_classes(details)
    assert tables["confusion"].rows == ((1, None, 4), (0, 1, 1))
    assert tables["classes"].rows[0] == (0, 3, 2, 2, 2 / 3, 1.0, 0.8)
    assert tabulate_classes(ClassDetails()) == {}
