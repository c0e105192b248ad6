"""Interleaved comparisons from a browser: a form queues the runs in turn, and one page has the verdict on them."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from litestar.testing import TestClient
from msgspec.structs import replace

from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.http.routes.app import create_app
from benchlock.api.local.local_registry import LocalRegistry, now
from benchlock.api.web.links import compare_path, lock_diff_path, run_path, with_query
from benchlock.evaluator.evidence.run_examination import ExaminedRecords
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_types import Run, RunEnd
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.requests.evaluation_request import parse_request
from benchlock.registry.resolution.resolver_types import ORDER
from tests.api.http.conftest import Client
from tests.support.evaluator.evidence import IDX, make_run
from tests.support.evaluator.queues import BOOT, facts, machine
from tests.support.evaluator.recorded import NOON
from tests.support.evaluator.releases import release
from tests.support.resolution.variants import variant

OURS = {"sec-fetch-site": "same-origin"}
API = "/v1/comparisons/interleaved"


@pytest.fixture
def opened(registry: LocalRegistry) -> LocalRegistry:
    return dataclasses.replace(registry, records=ExaminedRecords(registry.database, registry.examiner))


@pytest.fixture
def pages(opened: LocalRegistry) -> Iterator[Client]:
    with TestClient(create_app(opened), raise_server_exceptions=False) as client:
        client.headers["accept"] = "text/html"
        client.follow_redirects = False
        yield client


@pytest.fixture
def queue(opened: LocalRegistry) -> SqlQueue:
    return SqlQueue(opened.database, now)


@pytest.fixture
def locks(opened: LocalRegistry) -> list[Lock]:
    made = list[Lock]()
    for name in ("digits", "other"):
        request = {"model": {"name": name, "version": "*"}}
        one = variant({"model": {"name": name}, "files": IDX, "request": request})
        one.publish(opened.catalogue, opened.store, ("model",) if made else ORDER)
        made.append(keep(opened, one.lock.request))
    return made


def keep(registry: LocalRegistry, request: Mapping[str, Any]) -> Lock:
    return EmbeddedRegistry(registry).lock(parse_request(dict(request), "request"), {}).lock


def record(registry: LocalRegistry, lock: Lock, minutes: int) -> Run:
    """Record a run of a lock that no queue made."""
    run = make_run(lock, registry.store, at=NOON + timedelta(minutes=minutes))
    assert run.end is not None
    registry.records.start(run.start)
    registry.records.finish(run.id, run.end)
    return registry.records.get(run.id)


def measure(queue: SqlQueue, registry: LocalRegistry, locks: list[Lock], end: RunEnd | None = None) -> Run:
    """Lease a job to m1, and end its run as a worker does; the second lock is three times as slow."""
    lease = queue.lease(machine(1), BOOT)
    assert lease is not None
    assert lease.part_of is not None
    slowness = 1 + 2 * lease.part_of.arm
    run = make_run(registry.read_lock(lease.lock), registry.store, at=NOON, slowness=slowness)
    assert run.end is not None
    queue.begin(lease.fence, run.start)
    turn = msgspec.to_builtins(lease.part_of)
    queue.commit(lease.fence, run.id, end or replace(run.end, details={**run.end.details, "part_of": turn}))
    assert lease.lock == locks[lease.part_of.arm].id
    return run


def fields(text: str) -> dict[str, str]:
    """What the form of a page sends."""
    form = text.partition('action="/comparisons" method="post">')[2].partition("</form>")[0]
    hidden = {name: form.partition(f'name="{name}" value="')[2].partition('"')[0] for name in ("comparison", "locks")}
    return {**hidden, "machine": "m1", "rounds": "3"}


def test_a_form_queues_the_runs_in_turn_and_one_page_has_their_progress_and_then_the_verdict(
    pages: Client, opened: LocalRegistry, queue: SqlQueue, locks: list[Lock]
) -> None:
    diff = lock_diff_path(locks[0].id, locks[1].id)
    assert " compare --interleave " in pages.get(diff).text
    assert 'action="/comparisons"' not in pages.get(diff).text  # no machine can run them
    queue.enrol(machine(1), BOOT, facts())
    queue.enrol(machine(2), BOOT, facts(arch="arm64"))
    text = pages.get(diff).text
    assert "<option>m1</option>" in text
    assert "<option>m2</option>" not in text
    assert '<option value="6">6 rounds, 18 runs</option>' in text
    answers = [pages.post("/comparisons", data=fields(text), headers=OURS) for _ in range(2)]
    path = f"/comparisons/{fields(text)['comparison']}"
    assert {(answer.status_code, answer.headers.get("location")) for answer in answers} == {(303, path)}
    assert len(queue.jobs()) == 9
    assert pages.get("/jobs").text.count(f'href="{path}"') == 9
    runs = [measure(queue, opened, locks) for _ in range(8)]
    progress = pages.get(path)
    assert progress.status_code == 200, progress.text
    assert "8 of 9 runs are done" in progress.text
    assert "Findings" not in progress.text
    runs.append(measure(queue, opened, locks))
    done = pages.get(path).text
    assert "the runs are interleaved" in done
    assert "<strong>Comparable.</strong>" in done
    rows = pages.get(f"{path}?csv=findings").text.splitlines()
    (latency,) = (row.split(",") for row in rows if ",latency_p50," in row)
    assert float(latency[2]) == pytest.approx(3)
    assert latency[5]  # the noise of the host, from the control
    assert fields(pages.get(compare_path([run.id for run in runs[:3]])).text)["locks"] == fields(text)["locks"]
    place = re.search(f'<a href="{path}">Run of an interleaved comparison', pages.get(run_path(runs[3].id)).text)
    assert place is not None
    twin = pages.get(done.partition('type="application/json" href="')[2].partition('"')[0]).json()
    assert [job["run"] for job in twin["jobs"]] == [run.id for run in runs]


def test_a_comparison_with_a_failed_run_compares_nothing(
    pages: Client, opened: LocalRegistry, queue: SqlQueue, locks: list[Lock]
) -> None:
    queue.enrol(machine(1), BOOT, facts())
    body = {"locks": [lock.id for lock in locks]}
    answers = [pages.post(API, json=body) for _ in range(2)]
    assert {answer.status_code for answer in answers} == {201}, answers[0].text
    first, second = (answer.json() for answer in answers)
    assert (len(first["jobs"]), first["jobs"][0]["part_of"]["rounds"]) == (18, 6)
    measure(queue, opened, locks)
    failed = RunEnd(outcome="failed", ended_at=NOON + timedelta(minutes=1), failure_class="golden", failure_message="x")
    run = measure(queue, opened, locks, failed)
    text = pages.get(f"/comparisons/{first['comparison']}").text
    assert "<strong>Incomplete:</strong>" in text
    assert run.id in text
    assert "Findings" not in text
    assert "http-equiv" not in text
    path = f"/comparisons/{second['comparison']}"
    answer = pages.post(f"{path}/cancel", headers=OURS)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert {job["state"] for job in pages.get(f"{API}/{second['comparison']}").json()["jobs"]} == {"cancelled"}
    assert queue.lease(machine(1), BOOT) is None


def test_a_reviewer_states_a_margin_and_one_button_decides_the_times(
    pages: Client, opened: LocalRegistry, queue: SqlQueue, locks: list[Lock], monkeypatch: pytest.MonkeyPatch
) -> None:
    release(monkeypatch, locks[0].harness)
    first, again = (record(opened, locks[0], minutes) for minutes in (-9, -6))
    verdict = f"{run_path(again.id)}/verdict"
    assert "no machine can run the lock now" in pages.get(verdict).text
    queue.enrol(machine(1), BOOT, facts())
    text = pages.get(verdict).text
    assert "<option selected>latency_p50</option>" in text
    assert '<option value="6">12 runs, about' in text
    form = {**fields(text), "against": first.id, "metric": "latency_p50", "margin": "10", "rounds": "6"}
    for wrong in ({"margin": "0"}, {"margin": "100"}, {"margin": "x"}, {"metric": "speed"}, {"margin": ""}):
        assert pages.post("/comparisons", data=form | wrong, headers=OURS).status_code == 422, wrong
    answer = pages.post("/comparisons", data=form, headers=OURS)
    path = f"/comparisons/{form['comparison']}"
    assert (answer.status_code, answer.headers["location"]) == (303, with_query(path, against=first.id))
    jobs = queue.comparison(form["comparison"])
    assert len(jobs) == 2 * int(form["rounds"])
    assert {tuple(job.part_of.margins.items()) for job in jobs if job.part_of} == {(("latency_p50", 0.1),)}
    for _ in jobs:
        measure(queue, opened, locks)
    done = pages.get(answer.headers["location"]).text
    assert "The margin (latency_p50 0.1) is a reviewer's, not the lock's" in done
    assert f'<a href="{run_path(first.id)}">{first.id}</a>' in done
    assert "<strong>Times: reproduced</strong>: latency_p50: within the margin of the reviewer" in done


def test_the_form_says_how_many_jobs_are_ahead_and_that_new_runs_will_probably_be_flagged(
    pages: Client, opened: LocalRegistry, queue: SqlQueue, locks: list[Lock], monkeypatch: pytest.MonkeyPatch
) -> None:
    release(monkeypatch, locks[0].harness)
    first, again = (record(opened, locks[0], minutes) for minutes in (-9, -6))
    queue.enrol(machine(1), BOOT, facts())
    verdict = f"{run_path(again.id)}/verdict"
    calm = pages.get(verdict).text
    assert "0 ahead on m1" in calm
    assert "Queue new runs anyway" not in calm
    form = {**fields(calm), "against": first.id, "metric": "latency_p50", "margin": "10", "rounds": "6"}
    assert pages.post("/comparisons", data=form, headers=OURS).status_code == 303
    monkeypatch.setattr("benchlock.evaluator.records.timing_validity.flag_of", lambda _: "a busy host")
    busy = pages.get(verdict).text
    assert f"{len(queue.comparison(form['comparison']))} ahead on m1" in busy
    assert "each of the latest 2 runs of this lock on such a host is flagged, so new ones will probably be too" in busy
    assert (
        busy.index("a busy host. Use a quieter")
        < busy.index("Queue new runs anyway")
        < busy.index("Decide the times</b")
    )


def test_what_cannot_be_compared_in_turn_is_refused(
    pages: Client, opened: LocalRegistry, queue: SqlQueue, locks: list[Lock]
) -> None:
    ids = " ".join(lock.id for lock in locks)
    other = keep(opened, {**locks[0].request, "trace": "model"})
    for data, status, words in (
        ({"locks": ids}, 409, "no machine can run all these locks now"),
        ({"locks": ids, "machine": "m9"}, 409, "m9 can run all these locks now"),
        ({"locks": ids, "rounds": "25"}, 422, "rounds"),
        ({"locks": ids, "rounds": "2"}, 422, "rounds"),
        ({"locks": ids, "rounds": "x"}, 422, "rounds"),
        ({"locks": ids, "comparison": "x"}, 422, "comparison"),
        ({"locks": locks[0].id}, 422, "locks"),
        ({"locks": f"{locks[0].id} {locks[0].id}"}, 422, "different locks"),
        ({"locks": f"{locks[0].id} {other.id}"}, 409, "the trace differs"),
        ({"locks": f"{ids} sha256:{'0' * 64}"}, 404, "unknown lock"),
    ):
        answer = pages.post("/comparisons", data=data, headers=OURS)
        assert (answer.status_code, words in answer.text) == (status, True), (data, answer.text)
    for number in (1, 2):
        queue.enrol(machine(number), BOOT, facts())
    assert "choose m1 or m2" in pages.post("/comparisons", data={"locks": ids}, headers=OURS).text
    assert 'action="/comparisons"' not in pages.get(lock_diff_path(locks[0].id, other.id)).text
    assert pages.get(f"/comparisons/{'0' * 16}").status_code == 404
    assert pages.get("/comparisons/x").status_code == 400
    assert not queue.jobs()
