"""What a page weighs, and when a reader sees it: benchlock's list of runs beside MLflow's, in one browser.

Interleaved: every round opens each page once in a new profile, in every other round in the other order. Then the
service alone: how long it takes to answer with each kind of page over a large catalogue.
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
from contextlib import closing
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
from benchmarks.answering.servers import Answering, Benchlock, MlflowTracking
from benchmarks.resolving.report import machine, write
from benchmarks.transferring.peers import versions
from tests.support.api.live_runs import begin_runs, connect_worker
from tests.support.api.serving import Served, service
from tests.support.registry.filled import fill

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
RUNS, METRICS = 45, 20
LARGE, ASKED, SETTLED_MS = 10_000, 40, 4000
LIGHTER, FASTER, ANSWER_MS = 100, 3, 50
SEEN = """() => new Promise(resolve => new PerformanceObserver(list => resolve(list.getEntries().at(-1).startTime))
  .observe({type: "largest-contentful-paint", buffered: true}))"""

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
ratios. The second table is the time from a request to the whole answer, of one client without a browser, over a
catalogue of {LARGE:,} versions; the first request of each page does not count.
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
    """A page as a browser opened it: bytes, requests, and milliseconds to the largest contentful paint."""

    weight: int
    requests: int
    seen: float


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
        answered = ask_pages(folder / "large")
    body = [*tables(opened, answered), "", *bars(opened, answered), ""]
    minutes = (time.monotonic() - start) / 60
    body.append(f"Measured {datetime.now(UTC):%Y-%m-%d}: {minutes:.0f} minutes, {rounds} rounds.")
    write(RESULTS, "pages", "\n".join(("## Pages", "", *machine(), f"- {versions()}", "", METHOD)))
    write(RESULTS, "pages: A list of runs", "### A list of runs\n\n" + "\n".join(body) + "\n")
    print("\n".join(body))


def open_pages(folder: Path, rounds: int) -> dict[str, list[Opened]]:
    """Open the list of runs of both in turn."""
    opened: defaultdict[str, list[Opened]] = defaultdict(list)
    with closing(BenchlockRuns(folder / "ours", 0)) as ours, closing(MlflowTracking(folder / "mlflow", 0)) as theirs:
        log_runs(theirs.url)
        pages = [("benchlock", f"{ours.url}/runs"), ("mlflow", f"{theirs.url}/#/experiments/0")]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            for number in range(rounds):
                for name, url in pages[:: -1 if number % 2 else 1]:
                    opened[name].append(open_page(browser, url))
            browser.close()
    return opened


def log_runs(url: str) -> None:
    """Log runs with metrics to MLflow."""
    for number in range(RUNS):
        run = call(f"{url}/api/2.0/mlflow/runs/create", {"experiment_id": "0", "start_time": number})
        metrics = [{"key": f"metric_{one}", "value": one * number, "timestamp": 0, "step": 0} for one in range(METRICS)]
        call(f"{url}/api/2.0/mlflow/runs/log-batch", {"run_id": run["run"]["info"]["run_id"], "metrics": metrics})


def call(url: str, document: object) -> Any:  # noqa: ANN401 - a JSON document
    return httpx.post(url, json=document, timeout=60).raise_for_status().json()


def open_page(browser: Browser, url: str) -> Opened:
    """Open a page in a new profile, and let it settle."""
    context = browser.new_context()
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    sizes: list[int] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    page.goto(url, wait_until="load")
    page.wait_for_timeout(SETTLED_MS)  # MLflow's page never stops to ask its server
    seen = float(page.evaluate(SEEN))
    context.close()
    return Opened(sum(sizes), len([size for size in sizes if size]), seen)


def ask_pages(folder: Path) -> dict[str, list[float]]:
    """Ask for pages over a large catalogue, one after the other; milliseconds of each answer."""
    with closing(Benchlock(folder, LARGE)) as server:
        model, dataset = (find_first(server.url, kind) for kind in ("model", "dataset"))
        split = next(iter(dataset["manifest"]["splits"]))
        paths = {
            "front page": "/",
            "catalogue": "/artifacts",
            "search": "/artifacts?search=a",
            "artifact": f"/model/{model['name']}",
            "new evaluation": "/new",
            "preview": f"/new?model={model['name']}&dataset={dataset['name']}&split={split}",
            "queue": "/jobs",
        }
        return {name: list(ask(f"{server.url}{path}")) for name, path in paths.items()}


def find_first(url: str, kind: str) -> Any:  # noqa: ANN401 - a JSON document
    first = httpx.get(f"{url}/v1/artifacts?kind={kind}&limit=1").json()["artifacts"][0]
    return httpx.get(f"{url}/v1/artifacts/{kind}/{first['name']}@{first['version']}").json()


def ask(url: str) -> Iterator[float]:
    with httpx.Client(headers={"accept": "text/html"}, timeout=60) as client:
        for number in range(ASKED + 1):
            start = time.perf_counter()
            client.get(url).raise_for_status()
            if number:
                yield (time.perf_counter() - start) * 1000


def times(opened: dict[str, list[Opened]], part: Callable[[Opened], float]) -> float:
    """Return how many times as much MLflow's page needs, as the median over the rounds."""
    pairs = zip(opened["mlflow"], opened["benchlock"], strict=True)
    return statistics.median(part(theirs) / part(ours) for theirs, ours in pairs)


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def tables(opened: dict[str, list[Opened]], answered: dict[str, list[float]]) -> Iterator[str]:
    yield "| | KiB | requests | largest contentful paint, ms |\n| --- | ---: | ---: | ---: |"
    for name, pages in opened.items():
        weight, requests, seen = (
            statistics.median(getattr(page, part) for page in pages) for part in ("weight", "requests", "seen")
        )
        yield f"| {name} | {weight / 1024:,.1f} | {requests:.0f} | {seen:,.0f} |"
    yield "\n| page | median, ms | 95th percentile, ms |\n| --- | ---: | ---: |"
    for name, values in answered.items():
        yield f"| {name} | {statistics.median(values):.1f} | {p95(values):.1f} |"


def bars(opened: dict[str, list[Opened]], answered: dict[str, list[float]]) -> Iterator[str]:
    lighter, faster = times(opened, lambda page: page.weight), times(opened, lambda page: page.seen)
    slowest = max(answered, key=lambda name: p95(answered[name]))
    worst = p95(answered[slowest])
    yield f"- {met(lighter >= LIGHTER)}: at least {LIGHTER} times lighter than MLflow's list of runs ({lighter:,.0f})"
    yield f"- {met(faster >= FASTER)}: seen at least {FASTER} times as fast ({faster:.1f} times)"
    bar = f"the 95th percentile of an answer is at most {ANSWER_MS} ms"
    yield f"- {met(worst <= ANSWER_MS)}: {bar} (worst {worst:.1f} ms, {slowest})"


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
