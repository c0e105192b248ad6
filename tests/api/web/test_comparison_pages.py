"""Pages of locks, comparisons and leaderboards, as functions of a registry with a few runs."""

import dataclasses
import io
import json
import re
from collections import Counter
from datetime import timedelta
from functools import partial
from html import escape, unescape
from pathlib import Path
from typing import Any, get_args
from urllib.parse import parse_qs

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from sqlalchemy import Engine

from benchlock.api.cli.main import run as run_command
from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.local.local_registry import LocalRegistry, now, open_registry
from benchlock.api.schemas.pagination_cursors import encode_cursor
from benchlock.api.web.choices import list_run_options
from benchlock.api.web.links import compare_path, leaderboard_path, link_cell, lock_diff_path
from benchlock.api.web.page import Page, Viewer
from benchlock.api.web.pages.compare_pages import make_compare
from benchlock.api.web.pages.leaderboard_pages import LeaderboardQuery, make_leaderboard, make_leaderboards
from benchlock.api.web.pages.lock_pages import make_lock, make_lock_diff, request_path, write_lock
from benchlock.api.web.pages.run_pages import RunQuery, list_time_notices, make_run, make_runs
from benchlock.api.web.pages.verdict_pages import answer_questions, answer_training, make_verdict
from benchlock.api.web.rendering import render_page
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnknownNameError
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.comparison_types import Verdict, read_turn
from benchlock.evaluator.records.run_comparison import COUNTED, list_incomparabilities
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import (
    ALL_RUNS,
    Isolation,
    Run,
    RunEnd,
    RunFilter,
    RunId,
    VersionSelector,
    new_run_id,
)
from benchlock.evaluator.records.timing_validity import QUIET_HOST
from benchlock.evaluator.report.leaderboards import SINGLE_RUNS
from benchlock.evaluator.statistics.metric_types import Finding, Interval, Ratio
from benchlock.evaluator.workflows.compare import compare_runs, plan_turns
from benchlock.evaluator.workflows.rerun import UNRELEASED, judge_recorded_run
from benchlock.registry.artifact_names import Name
from benchlock.registry.lock.lock_creation import check_own_request
from benchlock.registry.lock.lockfile import Lock, LockedFile, dataset_of, dump, load, read
from benchlock.registry.manifests.manifest_content import content
from tests.api.web.conftest import Seeds
from tests.support.evaluator.evidence import CURRENT, IDX
from tests.support.evaluator.evidence import make_run as make_recorded_run
from tests.support.evaluator.queues import BOOT, facts, machine
from tests.support.evaluator.recorded import NOON
from tests.support.registry.forging import forge, remove_guards
from tests.support.resolution.recipes import ask, recipes
from tests.support.resolution.variants import variant

FLAG = "benchlock.evaluator.records.timing_validity.flag_of"
HOSTILE = '"><script>alert(1)</script><b onload=x>'
LIMITS = {"time": "11m", "memory": "2GiB", "cpus": 1, "processes": 256}


def html(page: Page) -> str:
    return render_page(page, Viewer()).decode()


def words(page: Page) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html(page))).split())


def test_a_lock_suggests_the_other_locks_of_its_dataset(registry: LocalRegistry, seeds: Seeds) -> None:
    first, second = seeds.lock(), seeds.lock("other")
    page = make_lock(registry, open_queue(registry), first.id)
    assert page.context["others"] == (second.id,)
    assert f"<option>{second.id}</option>" in html(page)


def test_a_lock_is_shown_with_its_reasons_its_runs_and_its_commands(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    run = seeds.run(lock)
    page = make_lock(registry, open_queue(registry), lock.id[:12])
    text = words(page)
    assert page.json_path == f"/v1/locks/{lock.id}"
    for part in (lock.id, f"benchlock run {lock.id}", f"benchlock rerun {lock.id}", "single_stream"):
        assert part in text
    assert page.tables["artifacts"].column("manifest") == tuple(part.digest for part in lock.artifacts().values())
    assert page.tables["runs"].column("run") == (run.id,)
    image = page.tables["artifacts"].records()[-1]
    first = lock.image.platforms[0]
    assert isinstance(first.wheels_lock, LockedFile)
    files = {file.path: file.size for one in lock.image.platforms for file in (first.wheels_lock, *one.wheels)}
    assert (image["files"], image["size"]) == (len(files), sum(files.values()))
    assert len(files) > 1
    assert page.tables["platforms"].column("size")[0] == sum(layer.size for layer in first.layers or ())
    assert "It is not the SHA-256 of the lock file" in text
    assert "the request requires model/digits *" in text
    assert "no newer version is published" in text
    assert f'href="/locks/{lock.id}.toml"' in html(page)
    assert f'href="/model/digits@{lock.subject.version}"' in html(page)


def test_a_lock_without_runs_says_how_to_make_one(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    text = words(make_lock(registry, open_queue(registry), lock.id))
    assert "No runs of this lock yet" in text
    assert "benchlock rerun" not in text


def test_commands_repeat_the_isolation_of_the_run(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    process, container = seeds.run(lock), seeds.run(lock, isolation="container")
    queue = open_queue(registry)
    assert f"benchlock rerun {process.id} --isolation process" in words(make_run(registry, queue, process.id))
    assert "--allow-code" not in words(make_run(registry, queue, process.id))
    assert "--isolation" not in words(make_run(registry, queue, container.id))
    assert f"benchlock rerun {process.id} --isolation process" in words(make_verdict(registry, container.id, None))
    assert f"benchlock rerun {lock.id} --isolation" not in words(make_lock(registry, queue, lock.id))
    seeds.run(lock)
    assert f"benchlock rerun {lock.id} --isolation process" in words(make_lock(registry, queue, lock.id))


def test_commands_that_run_code_in_a_process_allow_it(registry: LocalRegistry) -> None:
    parts = recipes()
    for manifest in parts.chosen.all():
        registry.store.put(io.BytesIO(content(manifest)))
    options = {way: list_run_options(registry, parts.lock(ask()), way) for way in get_args(Isolation)}
    assert options == {"container": "", "process": " --isolation process --allow-code"}


def test_the_file_of_a_lock_is_the_lock(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    name, content = write_lock(registry, lock.id[:15])
    assert re.fullmatch(r"[0-9a-f]{12}\.lock", name)
    assert load(content.decode(), "the file") == lock


def test_a_changed_lock_is_not_shown(registry: LocalRegistry, seeds: Seeds) -> None:
    lock, other = seeds.lock(), seeds.lock(seed=99)
    remove_guards(registry.database)
    text = registry.catalogue.get_lock(other.id)
    forge(registry.database, "UPDATE locks SET text = :text WHERE id = :id", text=text, id=lock.id)
    for show in (partial(make_lock, registry, open_queue(registry)), partial(write_lock, registry)):
        with pytest.raises(BenchlockError, match="damaged"):
            show(lock.id)
    with pytest.raises(BenchlockError, match="damaged"):
        make_lock_diff(registry, other.id, lock.id)


def test_lists_name_no_artifact_of_a_changed_lock(registry: LocalRegistry, seeds: Seeds) -> None:
    lock, other = seeds.lock(), seeds.lock(seed=99)
    seeds.run(lock)
    assert None not in registry.find_locks({lock.id, other.id}).values()
    ((_, _, _, model, *_),) = make_runs(registry, RunQuery(), ALL_RUNS).tables["runs"].rows
    assert model == f"{lock.subject.name} {lock.subject.version}"
    remove_guards(registry.database)
    for text in (registry.catalogue.get_lock(other.id), "no lock"):
        forge(registry.database, "UPDATE locks SET text = :text WHERE id = :id", text=text, id=lock.id)
        found = registry.find_locks({lock.id, other.id})
        assert (found[lock.id], found[other.id] is None) == (None, False)
        ((_, _, _, model, *_),) = make_runs(registry, RunQuery(), ALL_RUNS).tables["runs"].rows
        assert model is None


def test_the_yanked_version_of_a_lock_is_worded_and_escaped(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    registry.catalogue.yank(
        next(iter(registry.catalogue.newest_versions("model", Name("digits"), None, 1))).reference, HOSTILE
    )
    text = html(make_lock(registry, open_queue(registry), lock.id))
    assert "Yanked." in text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_a_lock_says_whether_it_satisfies_its_request_and_what_a_new_one_would_have(
    registry: LocalRegistry, seeds: Seeds
) -> None:
    lock = seeds.lock()
    text = words(make_lock(registry, open_queue(registry), lock.id))
    assert "Not stale. The lock satisfies its request." in text
    assert "A new lock of this request would have the same versions." in text
    version = lock.subject.version
    reference = registry.catalogue.newest_versions("model", Name("digits"), None, 1)[0].reference
    newer = {"model": {"name": "digits", "version": "9.0.0"}, "files": IDX, "lock": CURRENT}
    newer["request"] = {"model": {"name": "digits", "version": "*"}}
    variant(newer).publish(registry.catalogue, registry.store, ("model",))
    text = words(make_lock(registry, open_queue(registry), lock.id))
    assert "Not stale." in text
    assert f"model/digits {version} → 9.0.0" in text
    registry.catalogue.yank(reference, "wrong labels")
    text = words(make_lock(registry, open_queue(registry), lock.id))
    assert f"warning: model/digits {version} is yanked: wrong labels" in text


def test_a_lock_whose_versions_are_gone_is_stale_as_the_command_says(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    request = {**lock.document["request"], "model": {"name": "digits", "version": ">=2"}}
    moved = read({**lock.document, "request": request}, "lock")
    registry.catalogue.put_lock(moved)
    freshness, _ = check_own_request(moved, registry.catalogue)
    assert freshness.reasons
    text = words(make_lock(registry, open_queue(registry), moved.id))
    assert "Stale." in text
    assert all(" ".join(f"stale: {reason}".split()) in text for reason in freshness.reasons)


def test_a_difference_has_the_lines_of_both_files_and_what_is_the_same(registry: LocalRegistry, seeds: Seeds) -> None:
    first, second = seeds.lock(), seeds.lock("other")
    page = make_lock_diff(registry, first.id, second.id)
    lines = page.context["lines"].lines[2:]
    removed, added = (Counter(line[1:] for line in lines if line.startswith(mark)) for mark in "-+")
    before, after = (Counter(dump(lock).split("\n")) for lock in (first, second))
    assert (removed - added, added - removed) == (before - after, after - before)
    assert f"-id = &#34;{first.id}&#34;" in html(page)
    assert {"limits", "scenario", "harness"} <= set(page.context["same"])
    assert not any(part.startswith("model") for part in page.context["same"])


def test_locks_that_differ_in_the_model_can_be_comparable(registry: LocalRegistry, seeds: Seeds) -> None:
    first, second = seeds.lock(), seeds.lock("other")
    page = make_lock_diff(registry, first.id, second.id[:16])
    assert "can be comparable" in words(page)
    assert "model" in page.tables["changes"].column("subject")
    assert set(page.tables["changes"].column("change")) == {"changed"}
    assert f"benchlock compare --interleave {first.id} {second.id}" in words(page)
    assert lock_diff_path(second.id, first.id) in html(page)


def test_who_may_run_gets_the_form_that_runs_locks_in_turn(
    registry: LocalRegistry, seeds: Seeds, database: Engine
) -> None:
    queue = SqlQueue(database, now)
    queue.enrol(machine(1), BOOT, facts())
    page = make_lock_diff(registry, seeds.lock().id, seeds.lock("other").id, queue)
    for viewer, number in ((Viewer(may=frozenset(("run",)), csrf_token="f0"), 1), (Viewer(csrf_token="f0"), 0)):
        text = render_page(page, viewer).decode().partition("<main")[2].partition("</main")[0]
        assert text.count('<form class="actions" action="/comparisons"') == number
        assert text.count('name="csrf_token" value="f0"') == number
        assert "benchlock compare --interleave" in text


def test_locks_of_different_questions_are_not_comparable(registry: LocalRegistry, seeds: Seeds) -> None:
    first, second = seeds.lock(), seeds.lock(trace="model", metrics=["top1"])
    text = words(make_lock_diff(registry, first.id, second.id))
    assert "Runs of these locks are not comparable: the trace differs" in text
    assert "--interleave" not in text
    added = make_lock_diff(registry, first.id, second.id).tables["changes"].records()
    assert {"added"} == {row["change"] for row in added if row["subject"] == "request.trace"}
    removed = make_lock_diff(registry, second.id, first.id).tables["changes"].records()
    assert {"removed"} == {row["change"] for row in removed if row["subject"] == "request.trace"}


def test_a_lock_does_not_differ_from_itself(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    assert "Nothing differs" in words(make_lock_diff(registry, lock.id, lock.id))


def test_an_unknown_lock_is_an_error(registry: LocalRegistry) -> None:
    with pytest.raises(UnknownNameError):
        make_lock(registry, open_queue(registry), "sha256:" + "0" * 64)
    with pytest.raises(InvalidInputError):
        make_lock(registry, open_queue(registry), HOSTILE)


def test_a_verdict_says_whether_a_run_reproduces_the_one_before(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    first, again = seeds.run(lock), seeds.run(lock, slowness=3)
    expected = judge_recorded_run(registry.records, registry.store, registry.read_lock, again.id, None)
    text = unescape(html(make_verdict(registry, again.id, None)))
    assert expected.original == first.id
    assert (
        f"The one word of <code>benchlock rerun</code> is {expected.verdict}, which says nothing about times." in text
    )
    assert "<strong>Predictions undecided; times not judged.</strong>" in text
    assert all(reason in text for reason in (*expected.reasons, *expected.reported))
    assert f'href="/runs/{again.id[4:]}/verdict"' in html(make_run(registry, open_queue(registry), again.id))
    assert "/verdict" not in html(make_run(registry, open_queue(registry), first.id))
    with pytest.raises(InvalidInputError, match="no completed run of"):
        make_verdict(registry, first.id, None)


def test_a_verdict_has_the_command_that_repeats_it_and_then_the_one_that_reruns_the_lock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = open_registry(str(tmp_path / "home"), print)
    seeds = Seeds(registry)
    lock = seeds.lock()
    first, _, again = (seeds.run(lock, slowness=number) for number in (1, 2, 3))
    expected = judge_recorded_run(registry.records, registry.store, registry.read_lock, again.id, first.id)
    text = html(make_verdict(registry, again.id, first.id)).partition("Check it yourself")[2]
    judge, rerun, *_ = re.findall(r"<code>(benchlock .*?)</code>", text)
    assert rerun.startswith(f"benchlock rerun {first.id} ")  # the new run is compared with the earlier one
    words = ["--json", "--registry", str(registry.home), *judge.split()[1:]]
    capsys.readouterr()
    assert run_command(words) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["run"], told["original"], told["verdict"]) == (again.id, first.id, expected.verdict)
    assert told["reasons"] == list(expected.reasons)
    assert len(list(registry.records.list_entries())) == 3
    assert run_command([*words, "--repeat", "2"]) == 2
    assert "--recorded runs nothing" in capsys.readouterr().out


def test_a_verdict_answers_for_predictions_and_times_apart(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    _, again = seeds.run(lock), seeds.run(lock, slowness=3)
    page = make_verdict(registry, again.id, None)
    assert f"Predictions: undecided : bit-equal, but the harness {UNRELEASED}" in words(page)
    assert "Times: not judged : the request states no equivalence" in words(page)
    assert f'href="{escape(request_path(lock) or "")}"' in html(page)
    strict = seeds.lock(equivalence={"latency_p50": 0.02})
    _, again = seeds.run(strict), seeds.run(strict, slowness=3)
    page = make_verdict(registry, again.id, None)
    assert "Times: not judged : these runs cannot decide it" in words(page)  # their times are self-reported
    assert "Change the request" not in words(page)


def test_a_verdict_offers_the_earlier_runs_those_with_usable_times_first(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    calm = seeds.run(lock)
    end = make_recorded_run(lock, registry.store, slowness=2).end
    assert end is not None
    busy = seeds.run(lock, end=replace(end, details={**end.details, "loadgen": {"clocks_agree": False}}))
    last = seeds.run(lock, slowness=3)
    page = make_verdict(registry, last.id, calm.id)
    assert [id_ for id_, _ in page.context["choices"]] == [calm.id, busy.id]
    assert f'<option value="{calm.id}" selected>' in html(page)
    assert f'action="/runs/{last.id[4:]}/verdict"' in html(page)
    assert f"{busy.id}, " in words(page)
    assert words(page).count("times flagged") == 1


def test_the_cited_run_is_among_the_choices_and_selected_however_old(
    registry: LocalRegistry, seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = seeds.lock()
    cited, *_, last = (seeds.run(lock, slowness=number) for number in range(1, 6))
    monkeypatch.setattr("benchlock.api.web.pages.verdict_pages.CHOICES", 2)
    page = make_verdict(registry, last.id, cited.id)
    assert [id_ for id_, _ in page.context["choices"]].count(cited.id) == 1
    assert len(page.context["choices"]) == 3
    assert f'<option value="{cited.id}" selected>' in html(page)


def test_a_training_has_one_answer_that_says_nothing_of_predictions_or_times() -> None:
    ids = (new_run_id(NOON), new_run_id(NOON))
    judged = Verdict("undecided", ("about 18 repeats a side would decide",), (), *ids, None)
    assert answer_training(judged) == (("Training", "undecided", "about 18 repeats a side would decide"),)


def test_flagged_times_of_a_cited_run_are_never_called_reproduced(
    seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = seeds.run(seeds.lock())
    judged = Verdict("reproduced", ("equal",), (f"8 {COUNTED}: {FAST.reason}",), run.id, run.id, "bit-equal", (FAST,))
    monkeypatch.setattr(FLAG, lambda _: "a busy host")
    _, (_, answer, reason) = answer_questions(judged, (run, run), {"latency_p50": 0.02})
    assert answer == "undecided"
    assert reason.startswith("the original's own times cannot be confirmed")
    _, (_, answer, reason) = answer_questions(judged, (run, run), {})
    assert (answer, reason.startswith(f"the times of {run.id} are flagged: a busy host")) == ("not judged", True)


def test_a_service_of_this_machine_says_how_to_check_a_run_elsewhere(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    first, again = seeds.run(lock), seeds.run(lock, slowness=3)
    for page in (make_verdict(registry, again.id, None), make_run(registry, open_queue(registry), first.id)):
        local = unescape(render_page(page, Viewer(address="http://127.0.0.1:8000")).decode())
        assert f"benchlock --registry http://127.0.0.1:8000 bundle create {first.id} -o run.tar" in local
        assert f"<code>benchlock bundle import run.tar\nbenchlock rerun {first.id} --isolation process</code>" in local
        assert "bundle" not in render_page(page, Viewer(address="https://bench.example")).decode()


def test_a_run_says_what_was_checked_and_what_its_intervals_leave_out(registry: LocalRegistry, seeds: Seeds) -> None:
    run = seeds.run(seeds.lock())
    assert run.end is not None
    text = words(make_run(registry, open_queue(registry), run.id))
    assert f"Checked: the digests of {len(run.end.blobs)} files, and {len(run.end.metrics)} metrics recomputed" in text
    assert SINGLE_RUNS in text
    assert "LoadGen's own rules were met (VALID" in text
    disagree = run.end.details["loadgen"] | {"clocks_agree": False}
    unusable = replace(run, end=replace(run.end, details={**run.end.details, "loadgen": disagree}))
    first, (kind, last) = list_time_notices(unusable)
    assert first[1].startswith("Times are unusable")
    assert (kind, last[:19]) == ("neutral", "LoadGen's own rules")


WITHIN = Interval(0.99, 1.01)
FAST = Finding(
    "latency_p50", Ratio(1.001, WITHIN, WITHIN, 8, paired=False), None, 0.02, "equivalent", "+0.1%, within 2%"
)


@pytest.mark.parametrize(
    ("verdict", "reasons", "reported", "predictions", "findings", "answers"),
    [
        ("reproduced", ("equal",), (f"8 {COUNTED}: {FAST.reason}",), "bit-equal", (FAST,), ("reproduced",) * 2),
        ("not reproduced", ("slow",), (), "bit-equal", (replace(FAST, answer="different"),),
         ("reproduced", "not reproduced")),
        ("not reproduced", ("top1 was 1, and is 0",), (), "bit-equal", (), ("not reproduced", "not judged")),
        ("not reproduced", ("1 sample differs",), (f"1 {COUNTED}, but",), "different", (),
         ("not reproduced", "undecided")),
        ("undecided", (f"harness 9 {UNRELEASED}",), (), "bit-equal", (), ("undecided", "not judged")),
        ("reproduced", ("no predictions were requested",), (), None, (FAST,), ("not judged", "reproduced")),
    ],
)  # fmt: skip
def test_no_answer_of_a_verdict_stands_for_the_other(
    seeds: Seeds,
    verdict: Any,  # noqa: ANN401 - fields of Verdict
    reasons: Any,  # noqa: ANN401
    reported: Any,  # noqa: ANN401
    predictions: Any,  # noqa: ANN401
    findings: Any,  # noqa: ANN401
    answers: tuple[str, str],
) -> None:
    run = seeds.run(seeds.lock())
    judged = Verdict(verdict, reasons, reported, run.id, run.id, predictions, findings)
    found = answer_questions(judged, (run, run), {"latency_p50": 0.02})
    assert tuple(answer for _, answer, _ in found) == answers
    assert (COUNTED in found[1][2]) == (found[1][1] == "undecided")


def test_comparable_runs_are_shown_with_findings_and_report(registry: LocalRegistry, seeds: Seeds) -> None:
    runs = [seeds.run(seeds.lock(name), slowness=number) for number, name in enumerate(("digits", "other"), 1)]
    page = make_compare(registry, [run.id for run in runs], anyway=False)
    text = html(page)
    assert text.index("Comparable.") < text.index("Findings") < text.index("How long do calls take?")
    comparison = compare_runs([(registry.read_lock(run.start.lock), run) for run in runs])
    ((_, findings),) = comparison.findings
    assert page.tables["findings"].column("metric") == tuple(finding.metric for finding in findings)
    ratios = dict(zip(page.tables["findings"].column("metric"), page.tables["findings"].column("ratio"), strict=True))
    latency = next(finding for finding in findings if finding.metric == "latency_p50")
    assert ratios["latency_p50"] == latency.ratio.value
    assert "benchlock compare --interleave " + " ".join(run.start.lock for run in runs) in text
    assert "Not comparable" not in text
    assert "anyway=1" not in text
    assert "What noise and margin mean" in text
    charts = [chart for section in page.context["sections"] for chart in section.charts]
    paragraphs = " ".join(" ".join(section.answer) for section in page.context["sections"])
    assert charts
    assert all(
        chart.description in paragraphs or f"<figcaption>{escape(chart.description)}" in text for chart in charts
    )
    assert [column.name for column in page.tables["results"].columns[1:]] == ["1: digits 1.0.0", "2: other 1.0.0"]


def test_runs_of_one_lock_have_names_of_their_own_in_tables_prose_and_charts(
    registry: LocalRegistry, seeds: Seeds
) -> None:
    lock = seeds.lock()
    runs = [seeds.run(lock, slowness=number) for number in (1, 2)]
    page = make_compare(registry, [run.id for run in runs], anyway=False)
    names = [f"digits 1.0.0, {run.id[:14]}" for run in runs]
    assert names[0] != names[1]
    assert [column.name for column in page.tables["results"].columns[1:]] == [f"1: {names[0]}", f"2: {names[1]}"]
    assert set(page.tables["findings"].column("system")) == {f"2: {names[1]}"}
    assert all(answer.startswith(f"2: {names[1]}: ") for answer in page.context["answers"])
    latency = next(section for section in page.context["sections"] if section.question == "How long do calls take?")
    assert latency.table.column("name") == tuple(names)
    assert all(f"{name}: half of the calls" in latency.answer[0] for name in names)
    assert all(name in latency.charts[0].svg() for name in names)


def test_incomparable_runs_show_reasons_and_no_figure_unless_asked(registry: LocalRegistry, seeds: Seeds) -> None:
    runs = [seeds.run(seeds.lock()), seeds.run(seeds.lock(limits=LIMITS))]
    ids = [run.id for run in runs]
    pairs = [(registry.read_lock(run.start.lock), run) for run in runs]
    (reason,) = list_incomparabilities(*pairs)
    page = make_compare(registry, ids, anyway=False)
    assert f"{ids[1]}: {reason}" in words(page)
    assert set(page.tables) == {"runs"}
    assert "<svg" not in html(page)
    assert "latency_p50" not in html(page)
    assert compare_path(ids, anyway=True).replace("&", "&amp;") in html(page)
    stamped = make_compare(registry, ids, anyway=True)
    text = html(stamped)
    assert text.index("Not comparable.") < text.index("Findings")
    tables = [table for name, table in stamped.tables.items() if name != "runs"]
    assert len(tables) > 3
    assert all(table.title.startswith("Not comparable") for table in tables)
    assert all(set(table.column("comparable")) == {"no"} for table in tables)
    charts = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert charts
    assert all(">Not comparable</text>" in chart for chart in charts)


def test_a_run_without_a_result_stays_in_the_table(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    good = seeds.run(lock)
    at = NOON + timedelta(hours=3)
    start = replace(good.start, id=new_run_id(at), started_at=at)
    registry.records.start(start)
    registry.records.finish(start.id, RunEnd(outcome="abandoned", ended_at=at + timedelta(minutes=1)))
    for anyway in (False, True):
        page = make_compare(registry, [good.id, start.id], anyway=anyway)
        assert "has no result" in words(page)
        assert page.tables["runs"].column("outcome") == ("done", "abandoned")


def test_one_run_says_to_pick_another(registry: LocalRegistry, seeds: Seeds) -> None:
    run = seeds.run(seeds.lock())
    for ids in ([run.id], [run.id, run.id]):
        page = make_compare(registry, ids, anyway=False)
        assert "Choose another run" in words(page)
        assert f'name="run" value="{run.id}"' in html(page)
    assert "Choose two runs" in words(make_compare(registry, [], anyway=False))


def test_many_runs_are_refused_with_a_link_to_the_leaderboards(registry: LocalRegistry) -> None:
    ids = [new_run_id(NOON + timedelta(seconds=number)) for number in range(21)]
    with pytest.raises(InvalidInputError, match="21 runs are too many") as refusal:
        make_compare(registry, ids, anyway=False)
    assert "leaderboard" in str(refusal.value.next_step)


def test_a_run_that_is_unknown_stays_in_the_table_and_the_others_are_compared(
    registry: LocalRegistry, seeds: Seeds
) -> None:
    runs = [seeds.run(seeds.lock(name)) for name in ("digits", "other")]
    unknown = new_run_id(NOON + timedelta(days=900))
    page = make_compare(registry, [runs[0].id, unknown, runs[1].id], anyway=False)
    assert page.tables["runs"].column("run") == (runs[0].id, unknown, runs[1].id)
    assert page.tables["runs"].column("outcome") == ("done", "unknown", "done")
    assert f"{unknown}: the registry has no {unknown}" in words(page)
    assert (
        page.tables["findings"].rows
        == make_compare(registry, [run.id for run in runs], anyway=False).tables["findings"].rows
    )
    alone = make_compare(registry, [unknown, unknown[:20]], anyway=False)
    assert alone.tables["runs"].column("outcome") == ("unknown", "unknown")
    assert "Choose two runs" in words(alone)


def test_a_failed_run_says_in_the_table_how_it_failed(registry: LocalRegistry, seeds: Seeds) -> None:
    good, at = seeds.run(seeds.lock()), NOON + timedelta(hours=3)
    start = replace(good.start, id=new_run_id(at), started_at=at)
    registry.records.start(start)
    end = RunEnd(outcome="failed", ended_at=at, failure_class="engine", failure_message=HOSTILE)
    registry.records.finish(start.id, end)
    page = make_compare(registry, [good.id, start.id], anyway=False)
    assert page.tables["runs"].column("remarks")[1] == f"engine; process: {HOSTILE}"
    assert "<script>alert" not in html(page)


def test_usable_runs_are_compared_apart_where_others_have_unusable_times(
    registry: LocalRegistry, seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = [seeds.lock(), seeds.lock("other")]
    runs = [seeds.run(lock, slowness=slowness) for lock in locks for slowness in (1, 2)]
    ids = [run.id for run in runs]
    assert make_compare(registry, ids, anyway=False).context["usable"] == ()
    flagged = {ids[1]}
    monkeypatch.setattr(FLAG, lambda run: "busy" if run.id in flagged else None)
    page = make_compare(registry, ids, anyway=False)
    lines = page.context["usable"]
    rest = [registry.records.get(id_) for id_ in ids if id_ not in flagged]
    ((_, findings),) = compare_runs([(registry.read_lock(run.start.lock), run) for run in rest]).findings
    times = [finding for finding in findings if finding.metric != "top1"]
    assert len(times) > 0
    assert [f"other 1.0.0: {one.metric}: {one.answer}: {one.reason}" for one in times] == [
        line.partition("; left out: ")[0] for line in lines
    ]
    assert all(line.endswith(f"left out: {ids[1]}, whose times are flagged") for line in lines)
    assert all(line in words(page) for line in lines)
    assert "Comparable, but the times of 1 are flagged." in words(page)
    assert "Comparable." not in words(page)
    flagged.update(ids[:2])
    assert make_compare(registry, ids, anyway=False).context["usable"] == ()


def test_another_trace_level_is_explained_with_the_metrics_that_it_leaves_comparable(
    registry: LocalRegistry, seeds: Seeds
) -> None:
    good, traced, at = seeds.run(seeds.lock()), seeds.lock("other", trace="model"), NOON + timedelta(hours=3)
    start = replace(good.start, id=new_run_id(at), started_at=at, lock=traced.id)
    registry.records.start(start)
    page = make_compare(registry, [good.id, start.id], anyway=False)
    advice, form = page.context["advice"]
    assert "top1" in advice
    assert "latency" not in advice
    assert "trace=" not in form
    assert "model=other" in form
    assert advice in words(page)
    _, form = make_compare(registry, [start.id, good.id], anyway=False).context["advice"]
    assert "trace=model" in form
    assert "model=digits" in form


def test_interleaving_is_offered_only_where_it_may_decide(
    registry: LocalRegistry, seeds: Seeds, database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = SqlQueue(database, now)
    queue.enrol(machine(1), BOOT, facts())
    unexamined = dataclasses.replace(registry, records=Records(database))
    first, second = (seeds.run(seeds.lock(name)) for name in ("digits", "other"))
    traced = record_traced(registry, second, seeds.lock("third", trace="model"))

    def show(*ids: str) -> str:
        page = make_compare(unexamined, ids, anyway=False, queue=queue)
        return render_page(page, Viewer(may=frozenset(("run",)), csrf_token="f0")).decode()

    offers = ('action="/comparisons"', "benchlock compare --interleave")
    assert all(offer in show(first.id, second.id) for offer in offers)
    text = show(first.id, traced)
    assert not any(offer in text for offer in offers)
    assert "Interleaved runs of these locks would not be comparable: the trace differs." in text
    monkeypatch.setattr(FLAG, lambda _: "busy")
    text = show(first.id, second.id)
    assert not any(offer in text for offer in offers)
    assert f"Interleaved runs of these locks would decide nothing more; next: {QUIET_HOST}." in text


def record_traced(registry: LocalRegistry, run: Run, lock: Lock) -> RunId:
    """Record a run of a lock with a trace, which nobody reads; all else is that of another run."""
    assert run.end is not None
    at = NOON + timedelta(hours=3)
    start = replace(run.start, id=new_run_id(at), started_at=at, lock=lock.id)
    registry.records.start(start)
    blobs = {**run.end.blobs, "trace": run.end.blobs["predictions"]}
    registry.records.finish(start.id, replace(run.end, blobs=blobs, ended_at=at + timedelta(minutes=1)))
    return start.id


def test_a_lock_without_a_trace_links_the_form_that_adds_one(registry: LocalRegistry, seeds: Seeds) -> None:
    plain = [seeds.lock(name) for name in ("digits", "other")]
    traced = seeds.lock("third", trace="model")
    ids = [seeds.run(lock).id for lock in plain]
    page = make_compare(registry, ids, anyway=False)
    assert [lock.partition(" ")[0] for lock, _, _ in page.context["untraced"]] == ["digits", "other"]
    forms = [parse_qs(path.partition("?")[2]) for _, _, path in page.context["untraced"]]
    assert [(form["model"], form["trace"]) for form in forms] == [
        ([f"{name}@*"], ["framework"]) for name in ("digits", "other")
    ]
    text = html(page)
    assert text.index("In which layers do the runs differ?") < text.index("its request has none")
    assert escape(page.context["untraced"][0][2]) in text
    unexamined = dataclasses.replace(registry, records=Records(registry.database))
    other = record_traced(unexamined, registry.records.get(ids[1]), traced)
    page = make_compare(unexamined, [ids[0], other], anyway=False)
    assert page.context["reasons"] == (f"{other}: the trace differs",)
    ((_, _, path),) = page.context["untraced"]
    assert parse_qs(path.partition("?")[2])["trace"] == ["model"]
    assert make_compare(registry, [ids[0], seeds.run(plain[0]).id], anyway=False).context["untraced"] == ()


def test_a_run_is_named_by_the_first_characters_of_its_id(registry: LocalRegistry, seeds: Seeds) -> None:
    runs = [seeds.run(seeds.lock(name)) for name in ("digits", "other")]
    shared = next(place for place, (a, b) in enumerate(zip(runs[0].id, runs[1].id, strict=True)) if a != b)
    short = [run.id[: shared + 1] for run in runs]
    page = make_compare(registry, [short[0], short[1].removeprefix("run/")], anyway=False)
    assert page.context["ids"] == tuple(run.id for run in runs)
    assert all(run.id in (page.json_path or "") for run in runs)
    with pytest.raises(InvalidInputError) as refusal:
        make_compare(registry, [runs[0].id, runs[0].id[:shared]], anyway=False)
    assert all(run.id in str(refusal.value.where) for run in runs)


def test_leaderboards_without_runs_say_how_to_make_one(registry: LocalRegistry) -> None:
    assert "benchlock eval" in words(make_leaderboards(registry))
    page = make_leaderboard(registry, LeaderboardQuery("digits@1.0.0", "test"))
    assert "No verified run" in words(page)


def test_a_leaderboard_has_a_board_for_each_question(registry: LocalRegistry, seeds: Seeds) -> None:
    locks = [seeds.lock(), seeds.lock("other"), seeds.lock(limits=LIMITS)]
    runs = [seeds.run(lock, slowness=number) for number, lock in enumerate(locks, 1)]
    dataset = dataset_of(locks[0])
    listed = make_leaderboards(registry)
    name = f"{dataset.name}@{dataset.version}/{dataset.split}"
    assert listed.tables["leaderboards"].records()[0] | {"newest": ""} == {
        "leaderboard": name,
        "models": 2,
        "runs": 3,
        "newest": "",
    }
    path = link_cell("leaderboard", name)
    assert path == leaderboard_path(f"{dataset.name}@{dataset.version}", dataset.split)
    assert path.replace("&", "&amp;") in html(listed)
    page = make_leaderboard(registry, LeaderboardQuery(f"{dataset.name}@{dataset.version}", dataset.split))
    boards = [set(table.column("run")) for table in page.tables.values()]
    assert boards == [{runs[2].id}, {runs[0].id, runs[1].id}]
    text = html(page)
    assert "Not comparable with board 1: the limits differ" in words(page)
    assert text.count("<svg") == 2
    for table in page.tables.values():
        names = [column.name for column in table.columns]
        assert names.index("top1") < names.index("speed_rank") < names.index("pareto_front")
    other = make_leaderboard(registry, LeaderboardQuery(f"{dataset.name}@{dataset.version}", "none"))
    assert "No verified run" in words(other)


def test_a_leaderboard_says_which_runs_it_leaves_out(
    registry: LocalRegistry, seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = [seeds.lock("other"), seeds.lock()]
    lock = locks[1]
    runs = [seeds.run(locks[0]), seeds.run(lock), seeds.run(lock)]
    query = LeaderboardQuery(f"{dataset_of(lock).name}@{dataset_of(lock).version}", dataset_of(lock).split)
    with monkeypatch.context() as patch:
        patch.setattr("benchlock.api.web.pages.leaderboard_pages.SYSTEMS", 1)
        page = make_leaderboard(registry, query)
        assert "older ones with 1 run are left out" in words(page)
        assert page.tables["board-1"].column("runs") == (2,)
    assert runs[2].end is not None
    blob = registry.store.path(runs[2].end.blobs["predictions"].digest)
    content = blob.read_bytes()
    blob.unlink()
    blob.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert registry.examiner.compare(runs[2], again=True).damaged
    left = make_leaderboard(registry, query)
    assert "Left out: 1 run whose record is not verified." in words(left)
    other = make_leaderboard(registry, LeaderboardQuery(query.dataset, "other"))
    assert (other.facts["left_out"], "Left out" in words(other)) == ({}, False)


def test_a_board_counts_runs_that_it_does_not_read(
    registry: LocalRegistry, seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = seeds.lock()
    runs = [seeds.run(lock, slowness=number) for number in (1, 2, 3)]
    monkeypatch.setattr("benchlock.api.web.pages.leaderboard_pages.READ", 1)
    query = LeaderboardQuery(f"{dataset_of(lock).name}@{dataset_of(lock).version}", dataset_of(lock).split)

    def row() -> dict[str, Any]:
        (record,) = make_leaderboard(registry, query).tables["board-1"].records()
        return record

    assert (row()["run"], row()["runs"], row()["recorded"]) == (runs[2].id, 1, 3)
    assert runs[2].end is not None
    assert row()["samples"] == runs[2].end.blobs["samples"].digest
    registry.records.hide(runs[2].id, "a test")
    assert (row()["run"], row()["recorded"]) == (runs[1].id, 2)
    flagged = {runs[1].id}
    monkeypatch.setattr(FLAG, lambda run: "a busy host" if run.id in flagged else None)
    assert row()["run"] == runs[0].id  # an older run has usable times


def test_boards_of_one_dataset_name_what_differs_and_offer_their_settings(
    registry: LocalRegistry, seeds: Seeds
) -> None:
    locks = [seeds.lock(), seeds.lock(limits=LIMITS), seeds.lock(limits=LIMITS | {"cpus": 2})]
    for lock in locks:
        seeds.run(lock)
    page = make_leaderboard(
        registry, LeaderboardQuery(f"{dataset_of(locks[0]).name}@{dataset_of(locks[0]).version}", "test")
    )
    headings = re.findall(r"<h2 id=\"board[^>]*>([^<]*)", html(page))
    assert len({heading.partition(": ")[2] for heading in headings}) == 3
    cpus = [f"limit of cpus {lock.limits.cpus}" for lock in locks[::-1]]
    assert all(limit in heading for limit, heading in zip(cpus, headings, strict=True))
    links = re.findall(r'href="(/new[^"]*)">Evaluate with the settings', html(page))
    wanted = [parse_qs(unescape(link).partition("?")[2]) for link in links]
    assert [fields.get("cpus", ["1"]) for fields in wanted] == [["2"], ["1"], ["1"]]
    assert [fields.get("time") for fields in wanted] == [["11m"], ["11m"], ["10m"]]
    assert all("model=" not in link for link in links)


def test_locks_are_found_together_without_those_that_are_damaged_or_missing(
    registry: LocalRegistry, seeds: Seeds
) -> None:
    first, second, third = seeds.lock(), seeds.lock("other"), seeds.lock(seed=99)
    missing = Digest("sha256:" + "0" * 64)
    assert registry.find_locks([second.id, missing, first.id]) == {second.id: second, missing: None, first.id: first}
    remove_guards(registry.database)
    text = registry.catalogue.get_lock(third.id)
    forge(registry.database, "UPDATE locks SET text = :text WHERE id = :id", text=text, id=first.id)
    assert registry.find_locks([first.id, second.id]) == {first.id: None, second.id: second}
    forge(registry.database, "DELETE FROM lock_blobs WHERE lock = :id", id=second.id)
    assert registry.find_locks([second.id, third.id]) == {second.id: None, third.id: third}


def test_the_list_of_leaderboards_goes_on_at_a_name(
    registry: LocalRegistry, seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchlock.api.web.pages.leaderboard_pages.LISTED", 1)
    lock = seeds.lock()
    seeds.run(lock)
    first = make_leaderboards(registry)
    assert first.context["next"] is None
    (name,) = first.tables["leaderboards"].column("leaderboard")
    rest = make_leaderboards(registry, LeaderboardQuery(cursor=encode_cursor((str(name),))))
    assert rest.tables["leaderboards"].rows == ()
    with pytest.raises(InvalidInputError):
        make_leaderboards(registry, LeaderboardQuery(cursor=HOSTILE))


def test_runs_with_unusable_times_do_not_count_beside_usable_ones(
    registry: LocalRegistry, seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = seeds.lock()
    calm, busy = seeds.run(lock), seeds.run(lock, slowness=9)
    flagged = {busy.id}
    monkeypatch.setattr(FLAG, lambda run: "a busy host" if run.id in flagged else None)
    query = LeaderboardQuery(f"{dataset_of(lock).name}@{dataset_of(lock).version}", dataset_of(lock).split)
    page = make_leaderboard(registry, query)
    assert (page.tables["board-1"].column("run"), page.tables["board-1"].column("runs")) == ((calm.id,), (1,))
    assert "Left out: 1 run with flagged times, of locks that have runs whose times are not flagged." in words(page)
    assert "unranked" not in page.tables
    flagged.add(calm.id)
    page = make_leaderboard(registry, query)
    assert "board-1" not in page.tables
    assert page.tables["unranked"].column("run") == (busy.id, calm.id)
    assert all("flagged: a busy host" in str(reason) for reason in page.tables["unranked"].column("reason"))
    assert "No run on this dataset is ranked: the times of all are flagged." in words(page)
    assert "Left out: 2 runs with flagged times, of locks that have no others; the newest 2 are listed." in words(page)
    assert "No verified runs" not in words(page)


def test_flagged_runs_never_take_the_place_of_usable_ones(
    registry: LocalRegistry, seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = seeds.lock()
    *_, busy, third = (seeds.run(lock, slowness=number) for number in (1, 2, 9, 3))
    flagged = {busy.id} | {seeds.run(lock, slowness=number).id for number in range(10, 22)}
    monkeypatch.setattr(FLAG, lambda run: "a busy host" if run.id in flagged else None)
    query = LeaderboardQuery(f"{dataset_of(lock).name}@{dataset_of(lock).version}", dataset_of(lock).split)
    page = make_leaderboard(registry, query)
    (row,) = page.tables["board-1"].records()
    assert (row["run"], row["runs"], row["recorded"]) == (third.id, 3, 16)
    reason = "with flagged times, of locks that have runs whose times are not flagged"
    assert page.facts["left_out"] == {reason: len(flagged)}
    monkeypatch.setattr("benchlock.api.web.pages.leaderboard_pages.LOOKED_AT", 12)
    cut = make_leaderboard(registry, query)
    assert "All of the newest 12 runs of 1 pair of a lock and a host have flagged times; 4 older runs" in words(cut)
    assert "Left out: 12 runs with flagged times, of locks that have no others; the newest 10 are listed." in words(cut)
    assert len(cut.tables["unranked"].rows) == 10
    (link,) = re.findall(r'href="(/runs[^"]*)">All done runs on this dataset', html(cut))
    asked = {name: text for name, (text,) in parse_qs(unescape(link).partition("?")[2]).items()}
    chosen = RunFilter(dataset=VersionSelector.parse(asked["dataset"]), outcome="done")
    assert (asked["outcome"], len(registry.records.list_entries(chosen=chosen, limit=50))) == ("done", 16)
    monkeypatch.setattr("benchlock.api.web.pages.leaderboard_pages.LOOKED_AT", 13)
    (row,) = make_leaderboard(registry, query).tables["board-1"].records()
    assert (row["run"], row["runs"]) == (third.id, 1)


def test_a_malformed_dataset_is_an_error(registry: LocalRegistry) -> None:
    with pytest.raises(InvalidInputError):
        make_leaderboard(registry, LeaderboardQuery(HOSTILE, HOSTILE))


def interleaved(seeds: Seeds, rounds: int, *names: str) -> list[Run]:
    """Runs of the locks of models in turn, as ``compare --interleave`` records them."""
    locks, runs = [seeds.lock(name) for name in names], list[Run]()
    for lock, turn in plan_turns(locks, "5f0c3a9d1b22e47a", rounds, {}):
        run = make_recorded_run(lock, seeds.registry.store, slowness=1 + turn.arm)
        assert run.end is not None
        details = {**run.end.details, "part_of": to_builtins(turn)}
        runs.append(seeds.run(lock, end=replace(run.end, details=details), slowness=1 + turn.arm))
    return runs


def test_a_run_links_the_interleaved_comparison_that_it_is_part_of(registry: LocalRegistry, seeds: Seeds) -> None:
    alone, queue = seeds.run(seeds.lock("alone")), open_queue(registry)
    runs = interleaved(seeds, 3, "digits", "other")
    assert "of an interleaved comparison" not in words(make_run(registry, queue, alone.id))
    page = html(make_run(registry, queue, runs[4].id))
    turn = read_turn(runs[4])
    assert turn is not None
    place = f"Run of an interleaved comparison, round 2 of 3{', control' if turn.control else ''}"
    path = compare_path([run.id for run in runs])
    assert f'<a href="{escape(path)}">{place}</a>' in page
    compared = make_compare(registry, parse_qs(path.partition("?")[2])["run"], anyway=False)
    assert compared.context["comparison"].interleaved
    listed = list(map(str, make_runs(registry, RunQuery(), ALL_RUNS).tables["runs"].column("remarks")))
    assert sum("interleaved, round 2 of 3" in remarks for remarks in listed) == 3
    assert sum(remarks.endswith(", control") for remarks in listed) == 3
    registry.records.hide(runs[0].id, "wrong host")
    assert "Run of an interleaved comparison" in words(make_run(registry, queue, runs[4].id))


def test_an_interleaved_comparison_of_many_runs_is_shown_whole(registry: LocalRegistry, seeds: Seeds) -> None:
    runs = interleaved(seeds, 8, "digits", "other")
    page = make_compare(registry, [run.id for run in runs], anyway=False)
    assert len(page.tables["runs"].rows) == 24
    assert page.context["comparison"].interleaved
    more = [*(run.id for run in runs), seeds.run(seeds.lock("alone")).id]
    with pytest.raises(InvalidInputError, match="25 runs are too many"):
        make_compare(registry, more, anyway=False)
