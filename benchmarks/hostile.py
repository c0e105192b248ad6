"""What hostile publications cost a service: its memory, and how long other requests wait meanwhile.

The corpus is that of the tests: bombs of gzip, zip, npz, HDF5, parquet, pictures, sounds, ONNX, pickles and JSON,
headers that promise too much, paths and lists without end. Each is published with a dry run to a `benchlock serve` on
the loopback, while another process asks for its health every ten milliseconds.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.resolving.report import machine, write
from tests.support.api.hostile_service import Outcome, publish, table
from tests.support.api.probing import Waits, memory_of, watch
from tests.support.api.serving import service
from tests.support.registry.hostile import cases

RESULTS: Final = Path(__file__).resolve().parent / "RESULTS.md"
LONGEST_WAIT_MS: Final = 100.0
GROWTH: Final = 64 << 20

METHOD: Final = """\
Each case is published with `dry_run` to one `benchlock serve` on the loopback, all to the same process, while another
process asks for `/v1/health` every ten milliseconds. A wait is the time of such an answer, client included. Two
controls are measured beside each case, with the same probe and nothing published: an idle service, and an idle
service while a process outside of it keeps one core busy, as the inspecting child does. What the controls wait, the
machine costs. Growth is the largest resident memory of the service's process during the case, less that of the idle
service: what its inspecting child takes is not part of it, and goes with the child. A case that is refused names the
limit that it exceeds.
"""


def main() -> None:
    """Measure; print a table and the bars, and write them into RESULTS.md."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--idle", type=float, default=5.0, help="seconds for which the idle service is asked")
    options.add_argument("--control", type=float, default=1.0, help="seconds of each control beside a case")
    options.add_argument("--print-only", action="store_true", help="leave RESULTS.md as it is")
    chosen = options.parse_args()
    start = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="benchlock-hostile-") as folder,
        service(Path(folder) / "registry") as served,
    ):
        url, pid = served.url, served.process.pid
        watch(url, pid, lambda: time.sleep(chosen.idle))
        before = memory_of(pid)
        outcomes, idle, busy = [], list[Waits](), list[Waits]()
        for make in cases():
            outcomes.append(publish(served, make(), dry_run=True))
            print(table(outcomes[-1:], before).splitlines()[1], flush=True)
            idle.append(watch(url, pid, lambda: time.sleep(chosen.control))[1])
            busy.append(watch(url, pid, lambda: keep_busy(chosen.control))[1])
    controls = {"idle service": idle, "idle service, one core busy": busy}
    text = report(outcomes, controls, before, time.monotonic() - start)
    print(text)
    if not chosen.print_only:
        write(RESULTS, "hostile", text)


def keep_busy(seconds: float) -> None:
    """Keep a core busy with another process."""
    until = f"import time; end = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"
    subprocess.run([sys.executable, "-c", until], check=True)


def report(outcomes: Sequence[Outcome], controls: Mapping[str, Sequence[Waits]], before: int, seconds: float) -> str:
    """The measurement as a section of RESULTS.md."""
    lines = ["## Hostile publications", "", *machine(), "", METHOD]
    lines += [
        "| case | bytes sent | status | seconds | median wait, ms | p99, ms | longest, ms | growth, MiB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| (control: {name}) |  |  |  | {statistics.median(taken) * 1e3:.1f} | {p99(taken) * 1e3:.1f} | "
            f"{max(taken) * 1e3:.1f} |  |"
            for name, waits in controls.items()
            if (taken := [wait for one in waits for wait in one.taken])
        ),
    ]
    lines += [
        f"| {one.name} | {one.sent:,} | {one.status} | {one.seconds:.2f} | {one.median_wait * 1e3:.1f} | "
        f"{p99(one.waits) * 1e3:.1f} | {one.worst_wait * 1e3:.1f} | {(one.memory - before) / (1 << 20):.1f} |"
        for one in outcomes
    ]
    load = f"load average {os.getloadavg()[0]:.2f} at the end"
    lines += ["", *bars(outcomes, before), "", f"Measured {datetime.now(UTC):%Y-%m-%d}: {seconds:.0f} s, {load}."]
    return "\n".join(lines)


def p99(waits: Sequence[float]) -> float:
    """The time that a hundredth of the waits exceed; the longest where they are few."""
    return sorted(waits)[min(len(waits) - 1, int(len(waits) * 0.99))]


def bars(outcomes: Sequence[Outcome], before: int) -> Iterator[str]:
    """A line for each claim: met or not, and by which figure."""
    longest = max(outcomes, key=lambda one: one.worst_wait)
    yield bar(
        f"other requests wait less than {LONGEST_WAIT_MS:g} ms",
        f"longest {longest.worst_wait * 1e3:.1f} ms, {longest.name}",
        met=longest.worst_wait * 1e3 < LONGEST_WAIT_MS,
    )
    growth = max(one.memory for one in outcomes) - before
    yield bar("the service grows by less than 64 MiB", f"{growth / (1 << 20):.1f} MiB", met=growth < GROWTH)
    wrong = [one.name for one in outcomes if one.status >= 500]
    yield bar("no case is a fault of the service", ", ".join(wrong) or "none is", met=not wrong)


def bar(title: str, figure: str, *, met: bool) -> str:
    """One claim."""
    return f"- {'met' if met else 'not met'}: {title} ({figure})"


if __name__ == "__main__":
    main()
