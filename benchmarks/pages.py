"""What a page weighs, and when a reader sees it: benchlock's list of runs beside MLflow's, in one browser.

Interleaved: every round opens each page once in a new profile, in every other round in the other order. Then pages of
a large registry: when a reader with a slow processor and network sees them, and how long the service takes to answer.
"""

import argparse
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, sync_playwright
from scipy.stats import t

from benchlock.api.local.local_registry import open_registry
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.queue.progress_reports import ProgressReports
from benchmarks.answering import paged
from benchmarks.answering.servers import Answering, Benchlock, MlflowTracking
from benchmarks.resolving.report import machine, write
from benchmarks.transferring.peers import versions
from tests.support.api.live_runs import begin_runs, connect_worker
from tests.support.api.serving import Served, service
from tests.support.registry.filled import fill

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
RUNS, METRICS = 45, 20
ASKED, SETTLED_MS, LARGE_SETTLED_MS = 40, 4000, 1000
LIGHTER, FASTER, LIST_MS, CHART_MS, LAST_PAGE, SEEN_MS, SLOW_SEEN_MS = 100, 3, 50, 150, 1.5, 500, 1500
SLOW_CPU, SLOW_BYTES, SLOW_LATENCY_MS = 4, 200_000, 150
"""Times as slow a processor; bytes a second, 1.6 Mbit/s; milliseconds of latency."""
SEEN = """() => new Promise(resolve => new PerformanceObserver(list => resolve(list.getEntries().at(-1).startTime))
  .observe({type: "largest-contentful-paint", buffered: true}))"""
LONG_TASKS = """() => new Promise(resolve => {
  let excess = 0
  new PerformanceObserver(list => list.getEntries().forEach(task => { excess += task.duration - 50 }))
    .observe({type: "longtask", buffered: true})
  setTimeout(() => resolve(excess), 100)
})"""

OPEN, MOST_SHARE, PHASE_SECONDS, REPORT_SECONDS = 100, 5, 6, 0.5
CLIENT = """
import asyncio, sys
port, path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
async def watch(opened):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\n\\r\\n".encode())
    told = 0
    while part := await reader.read(1 << 16):
        if b"event: state" in part: opened.release()
        told += part.count(b"event: line")
        totals[writer] = told
totals = {}
async def main():
    opened = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(watch(opened)) for _ in range(count)]
    for _ in range(count): await opened.acquire()
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(sum(totals.values()), flush=True)
    for task in tasks: task.cancel()
asyncio.run(main())
"""
"""Opens pages' streams, says so, and at the end of its input says how many lines they got."""
CALL = """
import os, statistics, sys, time
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np
one, seconds, end = np.ones((192, 192), np.float32), [], time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    start = time.perf_counter(); one @ one; seconds.append(time.perf_counter() - start)
print(statistics.median(seconds))
"""
"""Times a call as a harness does: alone in a process of one thread."""
LIVE_METHOD = f"""\
A simulated worker reports a line every {REPORT_SECONDS} s over HTTP, also while no page is open. {OPEN} connections of
one process read the events of the page of its run. Beside them, a process of one thread times a product of matrices
for {PHASE_SECONDS} s, in place of the harness of a run. Interleaved: every round measures without and with the pages,
in every other round in the other order. The interval is Student's t over the rounds' own ratios.
"""

METHOD = f"""\
Both show {RUNS} runs; MLflow's have {METRICS} metrics each. A page is opened by Debian's Chromium in a new profile, on
the loopback, without throttling. Weight is what is received, compressed as the server sends it. The time is that of the
largest contentful paint. A cell is the median over the rounds; how many times another is the median of the rounds' own
ratios.

The other tables are of a registry with {paged.VERSIONS:,} versions and one artifact with {paged.OF_ONE:,} more,
{paged.RUNS:,} runs of {paged.LOCKS} locks, one of them with {paged.SAMPLES:,} samples, and {paged.WAITING} waiting jobs
and machines. The newest {paged.MEASURED} runs have files of their own, which older ones share. Slow is a processor
that the browser makes {SLOW_CPU} times as slow, and a network of 1.6 Mbit/s with {SLOW_LATENCY_MS} ms of latency. An
answer is the time from a request to the whole answer, of one client without a browser; the first request of each
page, which compares runs with their files and reads samples, does not count. The last page of a list is asked in turn
with its first.
"""


class BenchlockRuns(Answering):
    """`benchlock serve` over a registry with runs."""

    title = "benchlock"

    def fill(self) -> None:
        registry = open_registry(str(self._folder / "registry"), lambda _: None, create=True)
        fill(registry.database, runs=RUNS)
        registry.database.dispose()

    server, answers_at = Benchlock.server, Benchlock.answers_at


@dataclass(frozen=True, slots=True)
class Opened:
    """A page as a browser opened it: bytes, requests, milliseconds until it is seen and of long tasks."""

    weight: int
    requests: int
    seen: float
    long_tasks: float


@dataclass(frozen=True, slots=True)
class Large:
    """Measurements over the large registry, by page: opened plainly and slowly, and milliseconds of each answer."""

    opened: dict[str, list[tuple[Opened, Opened]]]
    lists: dict[str, list[float]]
    charts: dict[str, list[float]]
    last_pages: dict[str, list[tuple[float, float]]]


def main() -> None:
    """Measure; print the tables and bars, and write them into RESULTS.md."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--live", action="store_true", help="measure the pages of a run in progress alone")
    given = options.parse_args()
    rounds = given.rounds
    report_live(rounds)
    if given.live:
        return
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="benchlock-pages-") as temporary:
        folder = Path(temporary)
        opened = open_pages(folder, rounds)
        large = measure_large(folder / "large", rounds)
    body = [*tables(opened, large), "", *bars(opened, large), ""]
    minutes = (time.monotonic() - start) / 60
    body.append(
        f"Measured {datetime.now(UTC):%Y-%m-%d}: {minutes:.0f} minutes, {rounds} rounds, load {os.getloadavg()[1]:.1f}."
    )
    write(RESULTS, "pages", "\n".join(("## Pages", "", *machine(), f"- {versions()}", "", METHOD)))
    write(RESULTS, "pages: A list of runs", "### A list of runs\n\n" + "\n".join(body) + "\n")
    print("\n".join(body))


def open_pages(folder: Path, rounds: int) -> dict[str, list[Opened]]:
    """Open the list of runs of both in turn."""
    opened: defaultdict[str, list[Opened]] = defaultdict(list)
    with closing(BenchlockRuns(folder / "ours", 0)) as ours, closing(MlflowTracking(folder / "mlflow", 0)) as theirs:
        log_runs(theirs.url)
        pages = [("benchlock", f"{ours.url}/runs"), ("mlflow", f"{theirs.url}/#/experiments/0")]
        with open_browser() as browser:
            for number in range(rounds):
                for name, url in pages[:: -1 if number % 2 else 1]:
                    opened[name].append(open_page(browser, url))
    return opened


@contextmanager
def open_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        browser.close()


def log_runs(url: str) -> None:
    """Log runs with metrics to MLflow."""
    for number in range(RUNS):
        run = call(f"{url}/api/2.0/mlflow/runs/create", {"experiment_id": "0", "start_time": number})
        metrics = [{"key": f"metric_{one}", "value": one * number, "timestamp": 0, "step": 0} for one in range(METRICS)]
        call(f"{url}/api/2.0/mlflow/runs/log-batch", {"run_id": run["run"]["info"]["run_id"], "metrics": metrics})


def call(url: str, document: object) -> Any:  # noqa: ANN401 - a JSON document
    return httpx.post(url, json=document, timeout=60).raise_for_status().json()


def open_page(browser: Browser, url: str, *, settled: int = SETTLED_MS, is_slow: bool = False) -> Opened:
    """Open a page in a new profile, and let it settle."""
    context = browser.new_context()
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    if is_slow:
        session.send("Emulation.setCPUThrottlingRate", {"rate": SLOW_CPU})
        network = {"latency": SLOW_LATENCY_MS, "downloadThroughput": SLOW_BYTES, "uploadThroughput": SLOW_BYTES}
        session.send("Network.emulateNetworkConditions", {"offline": False, **network})
    sizes: list[int] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    page.goto(url, wait_until="load")
    page.wait_for_timeout(settled)  # MLflow's page never stops to ask its server
    seen = float(page.evaluate(SEEN))
    long_tasks = float(page.evaluate(LONG_TASKS))
    context.close()
    return Opened(sum(sizes), len([size for size in sizes if size]), seen, long_tasks)


def measure_large(folder: Path, rounds: int) -> Large:
    """Ask for pages of the large registry, one after the other, then open those that show most."""
    with closing(paged.LargeBenchlock(folder, paged.VERSIONS)) as server:
        lists, charts = (
            {name: [first for (first,) in ask(server.url, path)] for name, path in paths.items()}
            for paths in (server.lists, server.charts)
        )
        last_pages = {
            name: [(first, last) for first, last in ask(server.url, server.lists[name], path)]
            for name, path in server.last_pages.items()
        }
        opened: defaultdict[str, list[tuple[Opened, Opened]]] = defaultdict(list)
        with open_browser() as browser:
            for name, path in ({"runs": server.lists["runs"]} | server.charts).items():
                for _ in range(rounds):
                    plain, slow = (
                        open_page(browser, server.url + path, settled=LARGE_SETTLED_MS, is_slow=is_slow)
                        for is_slow in (False, True)
                    )
                    opened[name].append((plain, slow))
    return Large(opened, lists, charts, last_pages)


def ask(url: str, *paths: str) -> Iterator[list[float]]:
    """Ask for each path once a round; yield the milliseconds of each round but the first."""
    with httpx.Client(base_url=url, headers={"accept": "text/html"}, timeout=60) as client:
        for number in range(ASKED + 1):
            took = []
            for path in paths:
                start = time.perf_counter()
                client.get(path).raise_for_status()
                took.append((time.perf_counter() - start) * 1000)
            if number:
                yield took


def times(opened: dict[str, list[Opened]], part: Callable[[Opened], float]) -> float:
    """Return how many times as much MLflow's page needs, as the median over the rounds."""
    pairs = zip(opened["mlflow"], opened["benchlock"], strict=True)
    return statistics.median(part(theirs) / part(ours) for theirs, ours in pairs)


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def tables(opened: dict[str, list[Opened]], large: Large) -> Iterator[str]:
    yield "| | KiB | requests | largest contentful paint, ms |\n| --- | ---: | ---: | ---: |"
    for name, pages in opened.items():
        weight, requests, seen = (
            statistics.median(getattr(page, part) for page in pages) for part in ("weight", "requests", "seen")
        )
        yield f"| {name} | {weight / 1024:,.1f} | {requests:.0f} | {seen:,.0f} |"
    yield "\n| page | largest contentful paint, ms | slow | long tasks beyond 50 ms, ms | slow |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for name, pairs in large.opened.items():
        seen = [statistics.median(page.seen for page in pages) for pages in zip(*pairs, strict=True)]
        tasks = [statistics.median(page.long_tasks for page in pages) for pages in zip(*pairs, strict=True)]
        yield f"| {name} | {seen[0]:,.0f} | {seen[1]:,.0f} | {tasks[0]:.0f} | {tasks[1]:.0f} |"
    for title, answered in (("list", large.lists), ("page with charts", large.charts)):
        yield f"\n| {title} | median, ms | 95th percentile, ms |\n| --- | ---: | ---: |"
        for name, values in answered.items():
            yield f"| {name} | {statistics.median(values):.1f} | {p95(values):.1f} |"


def bars(opened: dict[str, list[Opened]], large: Large) -> Iterator[str]:
    lighter, faster = times(opened, lambda page: page.weight), times(opened, lambda page: page.seen)
    yield f"- {met(lighter >= LIGHTER)}: at least {LIGHTER} times lighter than MLflow's list of runs ({lighter:,.0f})"
    yield f"- {met(faster >= FASTER)}: seen at least {FASTER} times as fast ({faster:.1f} times)"
    for what, answered, most in (("list", large.lists, LIST_MS), ("page with charts", large.charts, CHART_MS)):
        slowest = max(answered, key=lambda name: p95(answered[name]))
        worst = p95(answered[slowest])
        bar = f"the 95th percentile of an answer with a {what} is at most {most} ms"
        yield f"- {met(worst <= most)}: {bar} (worst {worst:.1f} ms, {slowest})"
    for name, pairs in large.last_pages.items():
        ratio = statistics.median(last / first for first, last in pairs)
        yield f"- {met(ratio <= LAST_PAGE)}: the last page of {name} within {LAST_PAGE} times the first ({ratio:.2f})"
    for place, (what, most) in enumerate((("seen", SEEN_MS), ("seen slowly", SLOW_SEEN_MS))):
        worst = max(statistics.median(pair[place].seen for pair in pairs) for pairs in large.opened.values())
        yield f"- {met(worst <= most)}: pages {what} within {most} ms (worst {worst:,.0f} ms)"
    tasks = max(statistics.median(plain.long_tasks for plain, _ in pairs) for pairs in large.opened.values())
    yield f"- {met(tasks == 0)}: no task of a page takes longer than 50 ms without throttling ({tasks:.0f} ms more)"


def report_live(rounds: int) -> None:
    """Measure what pages of a run in progress cost; print it, and write it into RESULTS.md."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="benchlock-live-") as temporary:
        idle, watched = watch_pages(Path(temporary), rounds)
    shares = [statistics.median(phase.share for phase in phases) * 100 for phases in (idle, watched)]
    changes = [math.log(beside.p50 / alone.p50) for alone, beside in zip(idle, watched, strict=True)]
    low, high = (100 * math.expm1(end) for end in student_interval(changes))
    cost, mean, ends = (
        shares[1] - shares[0],
        100 * math.expm1(statistics.mean(changes)),
        f"{low:+.2f} % to {high:+.2f} %",
    )
    body = [
        f"| | CPU of the service, % of a core |\n| --- | ---: |\n| no page | {shares[0]:.1f} |",
        f"| {OPEN} pages | {shares[1]:.1f} |\n",
        f"- {met(cost <= MOST_SHARE)}: {OPEN} open pages cost at most {MOST_SHARE} % of a core ({cost:.1f} %)",
        f"- {met(low <= 0 <= high)}: no change of the p50 of a call beside them ({mean:+.2f} %, 95 % interval {ends})",
        f"\nMeasured {datetime.now(UTC):%Y-%m-%d}: {(time.monotonic() - start) / 60:.0f} minutes, {rounds} rounds.",
    ]
    write(RESULTS, "pages: A run in progress", "\n".join(("### A run in progress", "", LIVE_METHOD, *body, "")))
    print("\n".join(body))


@dataclass(frozen=True, slots=True)
class Phase:
    """The CPU share of the service over a phase, and the median seconds of a call beside it."""

    share: float
    p50: float


def watch_pages(folder: Path, rounds: int) -> tuple[list[Phase], list[Phase]]:
    """Measure without and with open pages in turn, in every other round in the other order."""
    running = begin_runs(folder / "registry")
    phases: dict[int, list[Phase]] = {0: [], OPEN: []}
    with service(running.folder) as served:
        job = running.lease.job.removeprefix("job/")
        path = f"/jobs/{job}/events?fence={running.lease.fence}"
        send = partial(connect_worker(served.url).report, running.lease.fence)
        with ProgressReports(SILENT, send) as reports, reports.task("performance", 1 << 20) as advance:
            for number in range(rounds):
                for count in (0, OPEN)[:: -1 if number % 2 else 1]:
                    phases[count].append(watch_phase(served, path, count, advance))
    return phases[0], phases[OPEN]


def watch_phase(served: Served, path: str, count: int, advance: Callable[[int], None]) -> Phase:
    """Open ``count`` pages from one process, and report progress while a call is timed in another one."""
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(served.port), path, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert client.stdout is not None
    client.stdout.readline()  # every page is open
    call = subprocess.Popen([sys.executable, "-c", CALL, str(PHASE_SECONDS)], stdout=subprocess.PIPE)
    began, used = time.monotonic(), cpu_seconds(served.process.pid)
    while call.poll() is None:
        advance(1)
        time.sleep(REPORT_SECONDS)
    share = (cpu_seconds(served.process.pid) - used) / (time.monotonic() - began)
    said, _ = client.communicate(b"")  # which ends it
    if int(said) < count * PHASE_SECONDS:
        raise RuntimeError("pages were not told of progress")
    return Phase(share, float(call.communicate()[0]))


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def student_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean."""
    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.mean(values) - half, statistics.mean(values) + half


def met(is_met: object) -> str:
    return "met" if is_met else "not met"


if __name__ == "__main__":
    main()
