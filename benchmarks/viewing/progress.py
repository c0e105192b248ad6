"""Progress in the open page of a run: how soon it is seen, and how soon again after the service was killed."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from playwright.sync_api import Page

from benchlock.api.web.links import run_path
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.queue.queue_types import ProgressLine
from benchlock.evaluator.worker.progress_reports import ProgressReports
from benchmarks.viewing.bars import bar, met, p95
from benchmarks.viewing.browsing import open_browser
from tests.support.api.live_runs import Running, begin_runs, connect_worker
from tests.support.api.serving import service

LINES, LINE_SECONDS, SHOWN_MS = 60, 0.33, 500
KILLS, STEP_SECONDS, BEFORE_SECONDS, DOWN_SECONDS, RECOVERED_SECONDS, LONGEST_SECONDS = 5, 0.25, 1.5, 1.0, 5, 60
METHOD = f"""\
A simulated worker sends {LINES} lines over HTTP, one each {LINE_SECONDS} s, to a run whose page is open. The time is
from just before a line is sent until the frame after the page has it. Then the service is killed (SIGKILL) {KILLS}
times in mid run, and started again on the same port {DOWN_SECONDS:.0f} s later, while the worker reports a step each
{STEP_SECONDS} s and repeats lines that nobody took, as every worker does. The time is from the start of the process
until the page shows a new line, and so has the start of the service in it. At the end the numbers of the lines that the
page shows must have neither a gap nor a repetition, before it is loaded again and after.
"""
_WATCH = """() => {
  const shown = window.shown = {}
  const note = () => {
    for (const line of document.querySelectorAll("ol.log > li")) {
      if (line.value in shown) continue
      shown[line.value] = 0
      requestAnimationFrame(() => setTimeout(() => { shown[line.value] = Date.now() }))
    }
  }
  new MutationObserver(note).observe(document.body, {childList: true, subtree: true})
  note()
}"""
_NUMBERS = "[...document.querySelectorAll('ol.log > li')].map(line => line.value)"


@dataclass(slots=True)
class Recovery:
    """Seconds until the service answered and the page recovered, and whether the lines are complete at the end."""

    starts: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lines: int = 0
    is_complete: bool = False


def measure_progress(folder: Path, _rounds: int) -> Iterator[str]:
    """Report lines, then kill the service; yield the table and the bars."""
    times = _report_lines(folder / "lines")
    recovery = _kill(folder / "kills")
    yield "| | median | slowest |\n| --- | ---: | ---: |"
    yield f"| a line is shown, ms | {statistics.median(times):.0f} | {max(times):.0f} |"
    yield f"| the service answers again, s | {statistics.median(recovery.starts):.1f} | {max(recovery.starts):.1f} |"
    yield f"| a page recovers, s | {statistics.median(recovery.seconds):.1f} | {max(recovery.seconds):.1f} |"
    yield ""
    yield bar("95th percentile of a line until it is shown", p95(times), SHOWN_MS, unit=" ms")
    yield bar("slowest recovery from a kill of the service", max(recovery.seconds), RECOVERED_SECONDS, unit=" s")
    yield f"- {met(recovery.is_complete)}: no line lost or shown twice over {KILLS} kills ({recovery.lines} lines)"


def _report_lines(folder: Path) -> list[float]:
    """Return the milliseconds of each line from its report until the open page shows it."""
    running, sent = begin_runs(folder), dict[int, float]()
    with service(running.folder) as site, open_browser() as browser:
        page, queue = browser.new_page(), connect_worker(site.url)
        _open(page, site.url, running)
        for number in range(1, LINES + 1):
            sent[number] = time.time()
            queue.report(running.lease.fence, [ProgressLine(number, "performance", number, LINES)])
            page.wait_for_timeout(LINE_SECONDS * 1000)
        _wait(page, lambda shown: len(shown) == LINES)
        return [1000 * (at - sent[number]) for number, at in _read_shown(page).items()]


def _kill(folder: Path) -> Recovery:
    """Kill the service in mid run, start it again, and see the page recover."""
    running, recovery = begin_runs(folder), Recovery()
    with ExitStack() as services, open_browser() as browser:
        site = services.enter_context(service(running.folder))
        page, queue, fence = browser.new_page(), connect_worker(site.url), running.lease.fence
        queue.beat(fence, "preparing")
        _open(page, site.url, running)
        with ProgressReports(SILENT, partial(queue.report, fence)) as reports, reports.task("performance") as advance:

            def report_for(seconds: float) -> None:
                for _ in range(round(seconds / STEP_SECONDS)):
                    advance(1)
                    page.wait_for_timeout(STEP_SECONDS * 1000)

            for _ in range(KILLS):
                report_for(BEFORE_SECONDS)
                site.kill()
                report_for(DOWN_SECONDS)
                start = time.time()
                site = services.enter_context(service(running.folder, port=site.port))
                recovery.starts.append(time.time() - start)
                queue.beat(fence, "preparing")  # else its lease would expire
                is_recovered = partial(_has_line_after, start)
                while not is_recovered(_read_shown(page)) and time.time() < start + LONGEST_SECONDS:
                    report_for(STEP_SECONDS)
                times = [at for at in _read_shown(page).values() if at > start]
                recovery.seconds.append(min(times, default=start + LONGEST_SECONDS) - start)
            report_for(BEFORE_SECONDS)
            page.wait_for_timeout(2000)  # the last line is on its way
            numbers = page.evaluate(_NUMBERS)
            page.reload()
            recovery.lines = len(numbers)
            is_same = numbers == page.evaluate(_NUMBERS)
            recovery.is_complete = bool(numbers) and is_same and numbers == list(range(1, len(numbers) + 1))
    return recovery


def _has_line_after(start: float, shown: dict[int, float]) -> bool:
    return any(at > start for at in shown.values())


def _open(page: Page, url: str, running: Running) -> None:
    """Open the page of the run, and let it note when it shows a line."""
    page.goto(url + run_path(running.run))
    page.evaluate(_WATCH)


def _read_shown(page: Page) -> dict[int, float]:
    """Return the seconds at which lines were shown, by their numbers."""
    return {int(number): at / 1000 for number, at in page.evaluate("shown").items() if at}


def _wait(page: Page, is_ready: Callable[[dict[int, float]], bool]) -> None:
    """Wait until the page shows what it should.

    Raises:
        RuntimeError: It does not within a minute.
    """
    end = time.monotonic() + LONGEST_SECONDS
    while not is_ready(_read_shown(page)):
        if time.monotonic() > end:
            raise RuntimeError("the page of the run does not show its lines")
        page.wait_for_timeout(100)
