"""The page of a run in progress in a real browser, with a worker that speaks the real protocol but measures nothing."""

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from html import unescape
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.client.remote_queue import RemoteQueue
from benchlock.api.local.local_registry import now, open_registry
from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.queue.queue_texts import describe_seconds
from benchlock.evaluator.queue.queue_types import JobId, JobRequest, ProgressLine, new_job_id
from benchlock.evaluator.records.run_types import RunEnd, RunId
from benchlock.evaluator.worker.progress_reports import ProgressReports
from tests.support.api.live_runs import Running, begin_runs, connect_worker
from tests.support.api.serving import service
from tests.support.evaluator.queues import ANY

CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
STEPS = 12
SECONDS = 4505
NUMBERS = "[...document.querySelectorAll('ol.log > li')].map(line => line.value)"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return begin_runs(tmp_path / "registry")


@pytest.fixture
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def path_of(id_: RunId | JobId) -> str:
    kind, _, rest = id_.partition("/")
    return f"/{kind}s/{rest}"


def test_a_page_follows_its_run_over_a_kill_of_the_service_and_ends_with_it(browser: Browser, running: Running) -> None:
    with service(running.folder) as site, ExitStack() as later:
        queue, page, told = connect_worker(site.url), browser.new_page(), list[str]()
        page.on("pageerror", lambda error: told.append(str(error)))
        page.goto(site.url + path_of(running.run))
        page.get_by_text("has not reported progress yet").wait_for()
        with ProgressReports(SILENT, partial(queue.report, running.lease.fence)) as reports:
            with reports.task("accuracy", STEPS) as advance:
                for step in range(STEPS):
                    if step == STEPS // 3:
                        page.get_by_text(f"accuracy: {step} of {STEPS} samples").first.wait_for()
                        site.kill()
                    if step == 2 * STEPS // 3:
                        with pytest.raises(UnavailableError):
                            queue.holds(running.lease.fence)  # the last lines were reported to nobody
                        later.enter_context(service(running.folder, port=site.port))
                    advance(1)
                    time.sleep(0.3)  # so that steps have lines of their own
            follow_to_the_end(page, running, queue)
        assert told == []


def follow_to_the_end(page: Page, running: Running, queue: RemoteQueue) -> None:
    page.locator("ol.log > li", has_text=f"accuracy: {STEPS} of {STEPS} samples").wait_for()
    numbers = page.evaluate(NUMBERS)
    assert len(numbers) > STEPS // 3
    assert numbers == list(range(1, len(numbers) + 1))  # none is lost and none twice
    page.evaluate("document.body.append(Object.assign(document.createElement('p'), {id: 'since'}))")
    page.evaluate("seconds => { since.dataset.elapsed = seconds }", SECONDS)
    page.locator("#since", has_text=describe_seconds(SECONDS)).wait_for()
    page.reload()
    assert page.evaluate(NUMBERS) == numbers
    cancel = page.get_by_role("button", name="Cancel")
    cancel.focus()  # which holds the next change back
    assert queue.beat(running.lease.fence, "measuring") == "keep"
    numbers.append(len(numbers) + 1)
    queue.report(running.lease.fence, [ProgressLine(numbers[-1], "score", 1)])
    page.locator("ol.log > li", has_text="score: 1 samples").wait_for()
    cancel.blur()
    page.locator("dd", has_text="taken by worker m1, measuring").first.wait_for()
    cancel.click()
    page.wait_for_url(f"**{path_of(running.lease.job)}")
    page.get_by_text("cancellation requested").first.wait_for()
    assert page.evaluate(NUMBERS) == numbers
    assert queue.beat(running.lease.fence, "storing") == "cancel"
    page.locator("dd", has_text="taken by worker m1, storing the results").first.wait_for()
    queue.commit(running.lease.fence, running.run, RunEnd(outcome="cancelled", ended_at=now()))
    page.get_by_role("button", name="Run again").wait_for()


def test_lines_and_states_come_by_the_event_stream(browser: Browser, running: Running) -> None:
    """The page's clock stands still, so no interval ends and nothing but an event changes the page."""
    with service(running.folder) as site:
        queue, page = connect_worker(site.url), browser.new_page()
        page.clock.install(time=now())
        page.goto(site.url + path_of(running.run))
        page.clock.pause_at(now() + timedelta(hours=1))
        ticks = page.evaluate("() => { window.ticks = 0; setInterval(() => ticks++, 1); return ticks }")
        for done in (1, 2):
            queue.report(running.lease.fence, [ProgressLine(done, "accuracy", done, 2)])
            page.locator("ol.log > li", has_text=f"accuracy: {done} of 2 samples").wait_for()
        assert page.evaluate(NUMBERS) == [1, 2]
        assert queue.beat(running.lease.fence, "measuring") == "keep"
        page.locator("dd", has_text="taken by worker m1, measuring").first.wait_for()
        assert page.evaluate("ticks") == ticks == 0


def test_pages_are_complete_without_events_and_say_what_nobody_reports(running: Running) -> None:
    with service(running.folder) as site:
        queue = connect_worker(site.url)
        with ProgressReports(SILENT, partial(queue.report, running.lease.fence)) as reports:
            with reports.task('golden <b onload="x">', 3) as advance:
                advance(2)
            for _ in range(100):
                text = httpx.get(site.url + path_of(running.run)).text
                if "2 of 3" in text:
                    break
                time.sleep(0.1)
        for path in (path_of(running.run), path_of(running.lease.job)):
            text = httpx.get(site.url + path).text
            assert '<meta http-equiv="refresh" content="5">' in text
            assert "golden &lt;b onload=&#34;x&#34;&gt;: 2 of 3 samples</li>" in text
            assert "taken by worker m1, preparing: fetching files and building the environment" in text
            assert "/cancel" in text
        other = httpx.get(site.url + path_of(running.other)).text
        assert "Its progress is not known here" in other
        assert '<meta http-equiv="refresh" content="5">' in other
        assert "data-events" not in other


def test_events_begin_with_the_state_that_the_page_shows(running: Running) -> None:
    """Else a page would load itself again with the first event of every stream, without end."""
    registry = open_registry(str(running.folder), lambda _: None)
    queue = open_queue(registry)
    waiting = queue.submit(JobRequest(new_job_id(now()), queue.job(running.lease.job).lock, ANY))
    registry.database.dispose()
    with service(running.folder) as site:
        for id_ in (waiting.id, running.lease.job):
            text = unescape(httpx.get(site.url + path_of(id_)).text)
            found = re.search(r'data-events="([^"]+)" data-key="([^"]+)"', text)
            assert found is not None
            with httpx.stream("GET", site.url + found[1]) as events:
                first = next(line for line in events.iter_lines() if line.startswith("data: "))
            assert first.removeprefix("data: ") == found[2]


def test_pages_and_assets_are_compressed_for_clients_that_accept_it(running: Running) -> None:
    with service(running.folder) as site:
        for path in ("/", *re.findall(r'"(/assets/[^"]*)"', httpx.get(site.url).text)):
            compressed, plain = (
                httpx.get(site.url + path, headers={"accept-encoding": encoding}) for encoding in ("gzip", "identity")
            )
            assert (compressed.headers["content-encoding"], compressed.content) == ("gzip", plain.content)
            assert "content-encoding" not in plain.headers
            assert plain.headers["vary"] == compressed.headers["vary"] == "accept-encoding"
