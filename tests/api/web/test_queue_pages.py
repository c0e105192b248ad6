"""The pages of the queue: jobs and machines, and one job with the reason for its state."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from benchlock.api.local.local_registry import LocalRegistry, now
from benchlock.api.web.links import with_query
from benchlock.api.web.page import Page, Viewer
from benchlock.api.web.pages import queue_pages
from benchlock.api.web.pages.queue_pages import QueueQuery, make_job, make_queue
from benchlock.api.web.pages.run_pages import make_run
from benchlock.api.web.rendering import render_page
from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.evaluator.evidence.run_examination import Examiner
from benchlock.evaluator.queue.queue_types import new_job_id
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import new_run_id
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import CataloguedStore
from benchlock.registry.lock.lockfile import dataset_of
from tests.api.web.conftest import Seeds
from tests.support.api.html_tables import read_cells
from tests.support.evaluator.evidence import CURRENT, IDX
from tests.support.evaluator.queues import BOOT, LARGE, LOCK, Ticking, end, facts, machine, queue_of, start, turns, wish
from tests.support.resolution.variants import variant

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
RUNNER = Viewer(name="token/x", may=frozenset(("read", "run")), csrf_token="f0")
READER = Viewer(name="token/y", may=frozenset(("read",)))


@pytest.fixture
def registry(database: Engine, tmp_path: Path) -> LocalRegistry:
    catalogue = Catalogue(database, now)
    store = CataloguedStore(tmp_path / "blobs", catalogue.text_of)
    examiner = Examiner(store, tmp_path, catalogue.get_lock)
    return LocalRegistry(tmp_path, store, catalogue, Records(database), database, examiner)


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def queue(database: Engine, clock: Ticking) -> SqlQueue:
    return queue_of(database, clock)


def shown(page: Page, viewer: Viewer = RUNNER) -> str:
    return render_page(page, viewer).decode()


def test_an_empty_queue_says_how_to_fill_it_and_how_to_start_a_worker(registry: LocalRegistry, queue: SqlQueue) -> None:
    text = shown(make_queue(registry, queue, QueueQuery(), None))
    assert "benchlock run REQUEST --submit" in text
    assert "benchlock worker" in text


def test_a_job_is_listed_with_its_place_and_the_reason_why_it_waits(registry: LocalRegistry, queue: SqlQueue) -> None:
    jobs = [queue.submit(wish(LARGE)) for _ in range(3)]
    queue.enrol(machine(1), BOOT, facts())
    tables = make_queue(registry, queue, QueueQuery(), None).tables
    assert tables["jobs"].column("job") == tuple(job.id for job in reversed(jobs))
    assert [column.name for column in tables["jobs"].columns[:2]] == ["job", "why"]  # narrow screens show two columns
    assert tables["jobs"].column("jobs before it") == (2, 1, 0)
    sentences = [queue.explain(job.id).sentence for job in reversed(jobs)]
    assert tables["jobs"].column("why") == tuple(sentences)
    assert "requires 8 CPUs" in sentences[0]
    assert [job.id for job in reversed(jobs)] == [each.job.id for each in queue.explain_all([j.id for j in jobs[::-1]])]


def test_the_jobs_of_a_comparison_count_before_a_job_and_their_links_differ(
    registry: LocalRegistry, queue: SqlQueue
) -> None:
    queue.enrol(machine(1), BOOT, facts())
    compared = queue.submit_comparison(turns(3))
    job = queue.submit(wish())
    assert queue.explain(job.id).ahead == len(compared)
    assert queue.explain(job.id).sentence.startswith("queued, 3 jobs wait before it on m1;")
    queue.enrol(machine(2), BOOT, facts())
    assert "3 jobs wait before it on the machines that can run it;" in queue.explain(job.id).sentence
    assert queue.explain(compared[0].id).sentence.startswith("queued, no job waits before it;")
    assert queue.explain(compared[1].id).sentence.startswith("queued, 1 job waits before it on m1;")
    links = [row[0] for row in read_cells(shown(make_queue(registry, queue, QueueQuery(), None)), "jobs")]
    assert len(set(links)) == len(compared) + 1
    assert all(each.id.startswith(tuple(links)) for each in compared)


def test_jobs_that_need_other_machines_do_not_count_before_a_job(queue: SqlQueue) -> None:
    queue.enrol(machine(1), BOOT, facts())
    queue.submit(wish(LARGE))
    job = queue.submit(wish())
    assert queue.explain(job.id).ahead == 0


def test_a_job_is_listed_with_its_framework_and_the_name_of_its_request(
    registry: LocalRegistry, seeds: Seeds, database: Engine, clock: Ticking
) -> None:
    lock = seeds.lock()
    usual_name = f"{lock.subject.name}-on-{dataset_of(lock).name}"
    usual_lock = variant({"files": IDX, "lock": CURRENT, "request": {"name": usual_name}}).lock
    seeds.registry.catalogue.put_lock(usual_lock)
    queue = queue_of(database, clock)
    for each in (usual_lock, lock):
        queue.submit(wish(lock=each.id))
    table = make_queue(registry, queue, QueueQuery(), None).tables["jobs"]
    named, usual = (dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows)
    assert (named["request"], named["scenario"]) == (lock.request["name"], "single_stream")
    assert usual["request"] is None
    assert str(usual["framework"]).startswith(lock.framework.name)


def test_machines_are_listed_with_what_they_are_and_whether_they_accept_jobs(
    registry: LocalRegistry, queue: SqlQueue, clock: Ticking
) -> None:
    queue.enrol(machine(1), BOOT, facts())
    clock.time += 10_000
    queue.enrol(machine(2), BOOT, facts())
    queue.enrol(machine(3), BOOT, facts())
    queue.drain(machine(3), "a new GPU")
    table = make_queue(registry, queue, QueueQuery(), None).tables["machines"]
    assert table.column("machine") == ("m1", "m2", "m3")
    assert table.column("state") == ("gone", "free", "draining")
    assert table.column("accepts_jobs") == ("no: its worker stopped, or lost its connection", "yes", "no: a new GPU")
    assert table.column("last_seen") == ("2 h 46 min ago", "0 s ago", "0 s ago")
    assert table.column("cpu") == ("A CPU",) * 3


def test_pages_of_jobs_and_of_machines_are_complete(
    registry: LocalRegistry, queue: SqlQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_pages, "ROWS", 2)
    jobs = [queue.submit(wish()) for _ in range(3)]
    for number in range(3):
        queue.enrol(machine(number), BOOT, facts())
    first = make_queue(registry, queue, QueueQuery(state="queued"), "queued")
    address = first.context["next_jobs"]
    assert address.startswith("/jobs?state=queued&cursor=")
    second = make_queue(registry, queue, QueueQuery(cursor=address.partition("cursor=")[2]), None)
    listed = first.tables["jobs"].column("job") + second.tables["jobs"].column("job")
    assert listed == tuple(job.id for job in reversed(jobs))
    assert second.context["next_jobs"] == ""
    assert first.context["next_machines"] == "/jobs?state=queued&machine=m1"
    rest = make_queue(registry, queue, QueueQuery(machine="m1"), None)
    assert rest.tables["machines"].column("machine") == ("m2",)
    with pytest.raises(InvalidInputError, match="cursor"):
        make_queue(registry, queue, QueueQuery(cursor="x"), None)


def test_a_job_that_no_worker_accepts_has_the_command_that_runs_its_lock(
    registry: LocalRegistry, queue: SqlQueue
) -> None:
    page = make_job(registry, queue, queue.submit(wish(LARGE)).id)
    assert f"<code>benchlock run {LOCK}</code>" in shown(page)
    assert page.refresh is not None
    assert f'data-events="{page.json_path.removeprefix("/v1").removesuffix("/explanation")}/events"' in shown(page)  # type: ignore[union-attr]
    queue.enrol(machine(1), BOOT, facts(cpus=8, memory=64 << 30))
    accepted = shown(make_job(registry, queue, queue.submit(wish(LARGE)).id))
    assert "benchlock run " not in accepted
    assert "can run it" in accepted


def test_a_live_job_can_be_cancelled_by_those_who_may_and_an_ended_one_be_run_again(
    registry: LocalRegistry, queue: SqlQueue
) -> None:
    job = queue.submit(wish()).id
    cancel = f'action="/jobs/{job.removeprefix("job/")}/cancel"'
    page = make_job(registry, queue, job)
    assert cancel in shown(page)
    assert 'http-equiv="refresh"' in shown(page)
    assert "<form" not in shown(page, READER).partition("<main")[2].partition("</main")[0]
    queue.cancel(job)
    ended = make_job(registry, queue, job)
    assert cancel not in shown(ended)
    assert "Run again" in shown(ended)
    assert "Run again" not in shown(ended, READER)
    assert "refresh" not in shown(ended)
    assert "data-events" not in shown(ended)


def test_a_leased_job_that_is_being_cancelled_has_no_second_cancel(registry: LocalRegistry, queue: SqlQueue) -> None:
    job = queue.submit(wish()).id
    queue.enrol(machine(1), BOOT, facts())
    assert queue.lease(machine(1), BOOT) is not None
    assert "/cancel" in shown(make_job(registry, queue, job))
    queue.cancel(job)
    text = shown(make_job(registry, queue, job))
    assert "/cancel" not in text
    assert "cancellation requested" in text


def test_the_reason_of_another_machine_is_text(registry: LocalRegistry, queue: SqlQueue) -> None:
    job = queue.submit(wish()).id
    queue.enrol(machine(1), BOOT, facts())
    queue.drain(machine(1), "<script>alert(1)</script>")
    for page in (make_job(registry, queue, job), make_queue(registry, queue, QueueQuery(), None)):
        assert "&lt;script&gt;alert(1)" in shown(page)
        assert "<script>" not in shown(page)


def test_an_unknown_job_is_unknown(registry: LocalRegistry, queue: SqlQueue) -> None:
    with pytest.raises(UnknownNameError):
        make_job(registry, queue, new_job_id(NOON))


def test_a_done_job_leads_to_its_verdict_against_the_run_that_it_repeats(
    registry: LocalRegistry, queue: SqlQueue
) -> None:
    queue.enrol(machine(1), BOOT, facts())
    jobs, runs = [], []
    for number in range(3):
        jobs.append(queue.submit(wish()).id)
        lease = queue.lease(machine(1), BOOT)
        assert lease is not None
        at = start().started_at + timedelta(seconds=number)
        begun = start(new_run_id(at), started_at=at)
        assert queue.begin(lease.fence, begun) is not None
        queue.commit(lease.fence, begun.id, end())
        runs.append(begun.id)
    first, _, last = (shown(make_job(registry, queue, job)) for job in jobs)
    assert f'href="/runs/{runs[0][4:]}"' in first
    assert "/verdict" not in first
    assert with_query(f"/runs/{runs[2][4:]}/verdict", against=runs[1]) in last
    chosen = shown(make_job(registry, queue, jobs[2], runs[0]))
    assert with_query(f"/runs/{runs[2][4:]}/verdict", against=runs[0]) in chosen
    assert f'name="against" value="{runs[0]}"' in chosen


def test_each_form_has_a_new_job(registry: LocalRegistry, queue: SqlQueue) -> None:
    page = make_queue(registry, queue, QueueQuery(), None)
    ids = {text.partition('name="job" value="')[2][:30] for text in (shown(page), shown(page))}
    assert len(ids) == 2
    assert all(one.startswith("job/") for one in ids)
    assert 'name="csrf_token" value="f0"' in shown(page)


def test_a_run_names_the_machine_of_its_worker(
    registry: LocalRegistry, database: Engine, clock: Ticking, seeds: Seeds
) -> None:
    lock = seeds.lock()
    queue = queue_of(database, clock)
    queue.enrol(machine(1), BOOT, facts())
    queue.submit(wish(lock=lock.id))
    lease = queue.lease(machine(1), BOOT, "n")
    assert lease is not None
    begun = queue.begin(lease.fence, start(lock=lock.id))
    assert begun is not None
    facts_of_run = dict(make_run(registry, queue, begun.id).context["surroundings"])
    assert facts_of_run["machine"] == machine(1)
    other = seeds.run(lock)
    assert "machine" not in dict(make_run(registry, queue, other.id).context["surroundings"])
