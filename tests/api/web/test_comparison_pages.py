"""Pages of locks, comparisons and leaderboards, as functions of a registry with a few runs."""

import re
from datetime import timedelta
from html import unescape

import pytest
from msgspec.structs import replace

from benchlock.api.client.worker_setup import open_queue
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import compare_path, leaderboard_path, link_cell, lock_diff_path
from benchlock.api.web.page import Page, Viewer
from benchlock.api.web.pages.compare_pages import make_compare
from benchlock.api.web.pages.leaderboard_pages import LeaderboardQuery, make_leaderboard, make_leaderboards
from benchlock.api.web.pages.lock_pages import make_lock, make_lock_diff, write_lock
from benchlock.api.web.pages.run_pages import make_run
from benchlock.api.web.pages.verdict_pages import make_verdict
from benchlock.api.web.rendering import render_page
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnknownNameError
from benchlock.evaluator.records.run_comparison import list_incomparabilities
from benchlock.evaluator.records.run_types import RunEnd, RunId, new_run_id
from benchlock.evaluator.workflows.compare import compare_runs
from benchlock.evaluator.workflows.rerun import judge_recorded_run
from benchlock.registry.artifact_names import Name
from benchlock.registry.lock.lockfile import load
from tests.api.web.conftest import Seeds
from tests.support.evaluator.recorded import NOON
from tests.support.registry.forging import forge, remove_guards

HOSTILE = '"><script>alert(1)</script><b onload=x>'
LIMITS = {"time": "11m", "memory": "2GiB", "cpus": 1, "processes": 256}


def html(page: Page) -> str:
    return render_page(page, Viewer()).decode()


def words(page: Page) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html(page))).split())


def test_a_lock_is_shown_with_its_reasons_its_runs_and_its_commands(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    run = seeds.run(lock)
    page = make_lock(registry, lock.id[:12])
    text = words(page)
    assert page.twin == f"/v1/locks/{lock.id}"
    for part in (lock.id, f"benchlock run {lock.id}", f"benchlock rerun {lock.id}", "single_stream"):
        assert part in text
    assert page.tables["artifacts"].column("manifest") == tuple(part.digest for part in lock.artifacts().values())
    assert page.tables["runs"].column("run") == (run.id,)
    assert "the request requires model/digits *" in text
    assert "no newer version is published" in text
    assert f'href="/locks/{lock.id}.toml"' in html(page)
    assert f'href="/model/digits@{lock.model.version}"' in html(page)


def test_a_lock_without_runs_says_how_to_make_one(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    text = words(make_lock(registry, lock.id))
    assert "No runs of this lock yet" in text
    assert "benchlock rerun" not in text


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
    for show in (make_lock, write_lock):
        with pytest.raises(BenchlockError, match="damaged"):
            show(registry, lock.id)
    with pytest.raises(BenchlockError, match="damaged"):
        make_lock_diff(registry, other.id, lock.id)


def test_the_yanked_version_of_a_lock_is_worded_and_escaped(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    registry.catalogue.yank(
        next(iter(registry.catalogue.newest_versions("model", Name("digits"), None, 1))).reference, HOSTILE
    )
    text = html(make_lock(registry, lock.id))
    assert "Yanked." in text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_locks_that_differ_in_the_model_can_be_comparable(registry: LocalRegistry, seeds: Seeds) -> None:
    first, second = seeds.lock(), seeds.lock("other")
    page = make_lock_diff(registry, first.id, second.id[:16])
    assert "can be comparable" in words(page)
    assert "model" in page.tables["changes"].column("subject")
    assert set(page.tables["changes"].column("change")) == {"changed"}
    assert f"benchlock compare --interleave {first.id} {second.id}" in words(page)
    assert lock_diff_path(second.id, first.id) in html(page)


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
        make_lock(registry, "sha256:" + "0" * 64)
    with pytest.raises(InvalidInputError):
        make_lock(registry, HOSTILE)


def test_a_verdict_says_whether_a_run_reproduces_the_one_before(registry: LocalRegistry, seeds: Seeds) -> None:
    lock = seeds.lock()
    first, again = seeds.run(lock), seeds.run(lock, slowness=3)
    expected = judge_recorded_run(registry.records, registry.store, registry.read_lock, again.id, None)
    text = unescape(html(make_verdict(registry, again.id, None)))
    assert expected.original == first.id
    assert f"{expected.verdict.capitalize()}." in text
    assert all(reason in text for reason in (*expected.reasons, *expected.reported))
    assert f'href="/runs/{again.id[4:]}/verdict"' in html(make_run(registry, open_queue(registry), again.id))
    assert "/verdict" not in html(make_run(registry, open_queue(registry), first.id))
    with pytest.raises(InvalidInputError, match="no completed run of"):
        make_verdict(registry, first.id, None)


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
    assert [column.name for column in page.tables["results"].columns[1:]] == ["1: digits 1.0.0", "2: other 1.0.0"]


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


def test_many_or_unknown_runs_are_refused(registry: LocalRegistry) -> None:
    ids = [new_run_id(NOON + timedelta(seconds=number)) for number in range(21)]
    with pytest.raises(InvalidInputError, match="21 runs are too many") as refusal:
        make_compare(registry, ids, anyway=False)
    assert "leaderboard" in str(refusal.value.next_step)
    with pytest.raises(UnknownNameError):
        make_compare(registry, [RunId(ids[0]), RunId(ids[1])], anyway=True)


def test_leaderboards_without_runs_say_how_to_make_one(registry: LocalRegistry) -> None:
    assert "benchlock eval" in words(make_leaderboards(registry))
    page = make_leaderboard(registry, LeaderboardQuery("digits@1.0.0", "test"))
    assert "No verified run" in words(page)


def test_a_leaderboard_has_a_board_for_each_question(registry: LocalRegistry, seeds: Seeds) -> None:
    locks = [seeds.lock(), seeds.lock("other"), seeds.lock(limits=LIMITS)]
    runs = [seeds.run(lock, slowness=number) for number, lock in enumerate(locks, 1)]
    dataset = locks[0].dataset
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
    lock = seeds.lock()
    runs = [seeds.run(lock) for _ in range(3)]
    monkeypatch.setattr("benchlock.api.web.pages.leaderboard_pages.NEWEST", 2)
    query = LeaderboardQuery(f"{lock.dataset.name}@{lock.dataset.version}", lock.dataset.split)
    page = make_leaderboard(registry, query)
    assert "Only the 2 newest done runs count" in words(page)
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


def test_runs_with_unusable_times_do_not_count_beside_usable_ones(
    registry: LocalRegistry, seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = seeds.lock()
    calm, busy = seeds.run(lock), seeds.run(lock, slowness=9)
    flagged = {busy.id}
    where = "benchlock.api.web.pages.leaderboard_pages.explain_unusable_times"
    monkeypatch.setattr(where, lambda run: "a busy host" if run.id in flagged else None)
    query = LeaderboardQuery(f"{lock.dataset.name}@{lock.dataset.version}", lock.dataset.split)
    page = make_leaderboard(registry, query)
    assert (page.tables["board-1"].column("run"), page.tables["board-1"].column("runs")) == ((calm.id,), (1,))
    assert "Left out: 1 run with unusable times, of locks that have usable runs." in words(page)
    flagged.add(calm.id)
    assert make_leaderboard(registry, query).tables["board-1"].column("runs") == (2,)


def test_a_malformed_dataset_is_an_error(registry: LocalRegistry) -> None:
    with pytest.raises(InvalidInputError):
        make_leaderboard(registry, LeaderboardQuery(HOSTILE, HOSTILE))
