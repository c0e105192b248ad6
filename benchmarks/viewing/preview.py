"""The preview of a new evaluation in the browser: from a change of the form to its resolution or conflict."""

import statistics
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from playwright.sync_api import Browser

from benchlock.api.web.links import with_query
from benchmarks.answering.servers import Benchlock
from benchmarks.resolving.universes import Ask, Universe
from benchmarks.viewing.bars import bar, p95
from benchmarks.viewing.browsing import open_browser
from benchmarks.viewing.server_ends import explain_end

VERSIONS, SHOWN_MS = 10_000, 400
METHOD = f"""\
A registry with {VERSIONS:,} versions, and the eight requests of the benchmark of `resolve`. Each round opens the form
with all of a request but its model, and types that: the time is from the change to the first frame with the resolution
or the conflict, and includes the 100 ms for which the page waits for further changes. Every round has another seed, so
that each request is new. The answer must be the one that is known to be right: a resolution or a conflict.
"""
_CHANGE = """([name, value]) => new Promise((resolve, reject) => {
  const field = document.querySelector(`form[data-preview] [name="${name}"]`)
  const before = document.getElementById("preview"), start = performance.now()
  const observer = new MutationObserver(() => {
    const next = document.getElementById("preview")
    if (!next || next === before) return
    observer.disconnect()
    requestAnimationFrame(() => setTimeout(() => resolve({
      milliseconds: performance.now() - start,
      is_resolved: next.querySelector("table") !== null,
      is_conflict: next.querySelector("[role=alert]") !== null,
    })))
  })
  observer.observe(document.body, {childList: true, subtree: true})
  field.value = value
  field.dispatchEvent(new Event("input", {bubbles: true}))
  setTimeout(() => reject(new Error("no preview within 30 s")), 30000)
})"""


def measure_preview(folder: Path, rounds: int) -> Iterator[str]:
    """Change the form; yield the table and the bar."""
    universe = Universe(VERSIONS // 1000)
    asks = universe.asks()
    times: dict[str, list[float]] = {ask.title: [] for ask in asks}
    with closing(Benchlock(folder, VERSIONS)) as server, explain_end(server), open_browser() as browser:
        for seed in range(rounds):
            for ask in asks:
                is_possible = universe.answer(ask) is not None
                times[ask.title].append(_change(browser, server.url, ask, seed, is_possible=is_possible))
    yield "| request | median, ms | slowest, ms |\n| --- | ---: | ---: |"
    for title, values in times.items():
        yield f"| {title} | {statistics.median(values):.0f} | {max(values):.0f} |"
    every = [value for values in times.values() for value in values]
    yield ""
    yield bar("95th percentile of a change until it is shown", p95(every), SHOWN_MS, unit=" ms")


def _change(browser: Browser, url: str, ask: Ask, seed: int, *, is_possible: bool) -> float:
    """Open the form without a model and add it; return the milliseconds until its answer is shown.

    Raises:
        RuntimeError: It is not the right answer.
    """
    context = browser.new_context()
    page = context.new_page()
    page.goto(url + with_query("/new", **_fields_of(ask, seed)))
    shown = page.evaluate(_CHANGE, ["model", f"{ask.model}@{ask.versions}"])
    context.close()
    if (shown["is_resolved"], shown["is_conflict"]) != (is_possible, not is_possible):
        raise RuntimeError(f"the page shows another answer to the request {ask.title!r}")
    return float(shown["milliseconds"])


def _fields_of(ask: Ask, seed: int) -> dict[str, str]:
    """Return the fields of a request without its model."""
    return {
        "dataset": ask.dataset,
        "split": "test",
        "os": "linux",
        "arch": ask.arch,
        "device": "cpu",
        "seed": str(seed),
        "framework": f"{ask.needs}@{ask.framework}" if ask.framework else "",
        "image": f"{ask.image[0]}@{ask.image[1]}" if ask.image else "",
    }
