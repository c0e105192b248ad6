"""What open pages of a run in progress cost: the service its processor, and a run beside them its time."""

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scipy.stats import t

from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.worker.progress_reports import ProgressReports
from benchmarks.viewing.bars import bar, met
from tests.support.api.live_runs import begin_runs, connect_worker
from tests.support.api.serving import Served, service

OPEN, MOST_SHARE, PHASE_SECONDS, REPORT_SECONDS = 100, 5, 6, 0.5
_CLIENT = """
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
_CALL = """
import os, statistics, sys, time
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np
one, seconds, end = np.ones((192, 192), np.float32), [], time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    start = time.perf_counter(); one @ one; seconds.append(time.perf_counter() - start)
print(statistics.median(seconds))
"""
"""Times a call as a harness does: alone in a process of one thread."""
METHOD = f"""\
A simulated worker reports a line every {REPORT_SECONDS} s over HTTP, also while no page is open. {OPEN} connections of
one process read the events of the page of its run. Beside them, a process of one thread times a product of matrices
for {PHASE_SECONDS} s, in place of the harness of a run. Interleaved: every round measures without and with the pages,
in every other round in the other order. The interval is Student's t over the rounds' own ratios.
"""


@dataclass(frozen=True, slots=True)
class _Phase:
    """The CPU share of the service over a phase, and the median seconds of a call beside it."""

    share: float
    p50: float


def measure_open_pages(folder: Path, rounds: int) -> Iterator[str]:
    """Watch a run without and with open pages in turn; yield the table and the bars."""
    idle, watched = _watch_pages(folder, rounds)
    shares = [statistics.median(phase.share for phase in phases) * 100 for phases in (idle, watched)]
    changes = [math.log(beside.p50 / alone.p50) for alone, beside in zip(idle, watched, strict=True)]
    mean = 100 * math.expm1(statistics.mean(changes))
    low, high = (100 * math.expm1(end) for end in _student_interval(changes))
    yield f"| | CPU of the service, % of a core |\n| --- | ---: |\n| no page | {shares[0]:.1f} |"
    yield f"| {OPEN} pages | {shares[1]:.1f} |\n"
    yield bar(f"{OPEN} open pages, of a core", shares[1] - shares[0], MOST_SHARE, unit=" %")
    interval = f"{mean:+.2f} %, 95 % interval {low:+.2f} % to {high:+.2f} %"
    yield f"- {met(low <= 0 <= high)}: no change of the p50 of a call beside them ({interval})"


def _watch_pages(folder: Path, rounds: int) -> tuple[list[_Phase], list[_Phase]]:
    """Measure without and with open pages in turn, in every other round in the other order."""
    running = begin_runs(folder / "registry")
    phases: dict[int, list[_Phase]] = {0: [], OPEN: []}
    with service(running.folder) as served:
        job = running.lease.job.removeprefix("job/")
        path = f"/jobs/{job}/events?fence={running.lease.fence}"
        send = partial(connect_worker(served.url).report, running.lease.fence)
        with ProgressReports(SILENT, send) as reports, reports.task("performance", 1 << 20) as advance:
            for number in range(rounds):
                for count in (0, OPEN)[:: -1 if number % 2 else 1]:
                    phases[count].append(_watch_phase(served, path, count, advance))
    return phases[0], phases[OPEN]


def _watch_phase(served: Served, path: str, count: int, advance: Callable[[int], None]) -> _Phase:
    """Open ``count`` pages from one process, and report progress while a call is timed in another one."""
    client = subprocess.Popen(
        [sys.executable, "-c", _CLIENT, str(served.port), path, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert client.stdout is not None
    client.stdout.readline()  # every page is open
    call = subprocess.Popen([sys.executable, "-c", _CALL, str(PHASE_SECONDS)], stdout=subprocess.PIPE)
    began, used = time.monotonic(), _cpu_seconds(served.process.pid)
    while call.poll() is None:
        advance(1)
        time.sleep(REPORT_SECONDS)
    share = (_cpu_seconds(served.process.pid) - used) / (time.monotonic() - began)
    said, _ = client.communicate(b"")  # which ends it
    if int(said) < count * PHASE_SECONDS:
        raise RuntimeError("pages were not told of progress")
    return _Phase(share, float(call.communicate()[0]))


def _cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _student_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean."""
    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.mean(values) - half, statistics.mean(values) + half
