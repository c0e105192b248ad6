"""Pages opened in Debian's Chromium: bytes, requests, and when a reader sees them."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Browser, sync_playwright

SLOW_CPU, SLOW_BYTES, SLOW_LATENCY_MS = 4, 200_000, 150
"""Times as slow a processor; bytes a second, 1.6 Mbit/s; milliseconds of latency."""
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
_PAINTED = """() => new Promise(resolve => new PerformanceObserver(list => resolve(list.getEntries().at(-1).startTime))
  .observe({type: "largest-contentful-paint", buffered: true}))"""
_LONG_TASKS = """() => new Promise(resolve => {
  let excess = 0
  new PerformanceObserver(list => list.getEntries().forEach(task => { excess += task.duration - 50 }))
    .observe({type: "longtask", buffered: true})
  setTimeout(() => resolve(excess), 100)
})"""


@dataclass(frozen=True, slots=True)
class Opened:
    """A page as a browser opened it for the first time.

    ``weight`` is bytes as received, ``painted`` milliseconds until the largest contentful paint, ``long_tasks``
    milliseconds of tasks beyond the first 50 of each.
    """

    weight: int
    requests: int
    painted: float
    long_tasks: float


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start Chromium for as long as the context is open."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def open_page(browser: Browser, url: str, *, settle_ms: int, is_slow: bool = False) -> Opened:
    """Open a page in a new profile.

    Args:
        browser: The browser.
        url: The address of the page.
        settle_ms: Milliseconds to wait once it has loaded.
        is_slow: Whether processor and network are slow.
    """
    context = browser.new_context()
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    if is_slow:
        session.send("Emulation.setCPUThrottlingRate", {"rate": SLOW_CPU})
        network = {"latency": SLOW_LATENCY_MS, "downloadThroughput": SLOW_BYTES, "uploadThroughput": SLOW_BYTES}
        session.send("Network.emulateNetworkConditions", {"offline": False, **network})
    sizes: list[int] = []
    requests: list[str] = []

    def note(event: dict[str, Any]) -> None:
        if event["request"]["url"].startswith("http"):  # not those of data: in a style
            requests.append(event["requestId"])

    session.on("Network.requestWillBeSent", note)
    session.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    page.goto(url, wait_until="load")
    page.wait_for_timeout(settle_ms)
    painted, long_tasks = float(page.evaluate(_PAINTED)), float(page.evaluate(_LONG_TASKS))
    context.close()
    return Opened(sum(sizes), len(requests), painted, long_tasks)
