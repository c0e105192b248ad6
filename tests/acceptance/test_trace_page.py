"""The icicles of a trace by keyboard, by links alone, and as a table."""

import re
import shutil
from collections.abc import Iterator

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from msgspec.structs import replace
from playwright.sync_api import Browser, sync_playwright

from benchlock.api.local.local_registry import open_registry
from benchlock.api.web.links import run_path
from benchlock.evaluator.runner.job_folder import fingerprint_lock
from benchlock.registry.resolution.resolver_types import ORDER
from tests.support.api.serving import service
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.traces import LAYERS, row, write_trace
from tests.support.resolution.variants import variant

CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
HOSTILE = '"><script>document.title=1</script>'
FOCUSED = "document.activeElement.getAttribute('aria-label')"
MOST_BYTES = 60 << 10


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page of a trace with six long layers and 60 short ones, of which the first has a hostile name."""
    folder = tmp_path_factory.mktemp("traced")
    registry = open_registry(str(folder / "registry"), print)
    made = variant({"lock": CURRENT, "files": IDX})
    made.publish(registry.catalogue, registry.store, ORDER)
    registry.catalogue.put_lock(made.lock)
    short = [row(f"{HOSTILE * (not number)}short {number}", "Add", (1, 4), took=200) for number in range(60)]
    path = write_trace(folder / "trace", layers=(*LAYERS, *short), fingerprint=fingerprint_lock(made.lock))
    run = make_run(made.lock, registry.store)
    assert run.end is not None
    registry.records.start(run.start)
    trace = registry.store.put_file(path)
    registry.records.finish(run.id, replace(run.end, blobs={**run.end.blobs, "trace": trace}))
    with service(folder / "registry") as served:
        yield f"{served.url}{run_path(run.id)}/trace"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def test_arrows_move_enter_zooms_and_escape_goes_out(browser: Browser, url: str) -> None:
    page = browser.new_page()
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text) if message.type == "error" else None)
    page.goto(f"{url}#icicle")
    assert page.evaluate(FOCUSED) == "conv1: 40.0 µs"
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUSED) == "Conv: 40.0 µs"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUSED) == "Relu: 5.0 µs"  # the part of the next layer
    assert page.locator("#icicle figcaption").inner_text() == "Relu: 5.0 µs"
    page.keyboard.press("ArrowUp")
    assert page.evaluate(FOCUSED) == "relu1: 5.0 µs"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")  # there is nothing further to the left
    assert page.evaluate(FOCUSED) == "conv1: 40.0 µs"
    page.keyboard.press("Enter")
    page.wait_for_url("**/trace?focus=icicle.0#icicle")
    assert page.evaluate(FOCUSED) == "conv1: 40.0 µs"
    assert page.locator("#icicle [data-level]").count() == 2
    page.keyboard.press("Escape")
    page.wait_for_url("**/trace?#icicle")
    assert page.locator("#icicle [data-level]").count() > 12
    assert page.title().startswith("Trace of")
    assert told == []
    page.close()


def test_the_icicles_are_accessible_and_their_links_work_without_javascript(browser: Browser, url: str) -> None:
    context = browser.new_context(bypass_csp=True, viewport={"width": 320, "height": 900})
    page = context.new_page()
    for path in (url, url.removesuffix("/trace")):
        page.goto(path)
        assert [one["id"] for one in Axe().run(page, context=".answer, figure, summary").response["violations"]] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
    context.close()
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(url)
    page.locator("#icicle a").last.press("Enter")
    page.wait_for_url("**/trace?focus=icicle.*")
    page.get_by_role("link", name="Zoom out").click()
    page.wait_for_url("**/trace?#icicle")
    context.close()


def test_the_table_has_each_rectangle_of_the_picture(url: str) -> None:
    with httpx.Client() as client:
        for focus in ("", "icicle.0", "icicle.6-20"):
            answer = client.get(url, params={"focus": focus}, headers={"accept-encoding": "gzip"})
            assert answer.num_bytes_downloaded < MOST_BYTES
            figure = answer.text.partition('<figure id="icicle"')[2].partition("</figure>")[0]
            shown = re.findall(r'data-level="(\d)" aria-label=[^>]*: ([\d,.]+) µs', figure)
            lines = client.get(url, params={"focus": focus, "csv": "icicle"}).text.splitlines()[1:]
            assert [level for level, _ in shown] == [line.partition(",")[0] for line in lines]
            seconds = [float(line.split(",")[-2]) for line in lines]
            assert [f"{second * 1e6:,.1f}" for second in seconds] == [words for _, words in shown]
        answer = client.get(url, params={"focus": "icicle.9-999"})
        assert (answer.status_code, "Traceback" in answer.text) == (404, False)
        assert "the trace has no part" in answer.text
