"""What hostile publications cost a service: its memory, and how long other requests wait meanwhile.

The corpus is that of the tests: bombs of gzip, zip, npz, HDF5, parquet, pictures, sounds, ONNX, pickles and JSON,
headers that promise too much, paths and lists without end. Each is published with a dry run to a `benchlock serve` on
the loopback, while another client asks for its health every ten milliseconds.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from benchmarks.resolving.report import machine, write
from tests.support.hostile import cases
from tests.support.hostile_service import Outcome, Waits, memory_of, publish, table, watch
from tests.support.serving import service

RESULTS: Final = Path(__file__).resolve().parent / "RESULTS.md"
LONGEST_WAIT_MS: Final = 100.0
GROWTH: Final = 64 << 20

METHOD: Final = """\
Each case is published with `dry_run` to one `benchlock serve` on the loopback, all to the same process, while another
client asks for `/v1/health` every ten milliseconds. A wait is the time of such an answer, client included; an idle
service is asked first, for as many seconds as `--idle` says. Growth is the largest resident memory of the service's
process during the case, less that of the idle service: what its inspecting child takes is not part of it, and goes with
the child. A case that is refused names the limit that it exceeds.
"""


def main() -> None:
    """Measure; print a table and the bars, and write them into RESULTS.md."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--idle", type=float, default=5.0, help="seconds for which the idle service is asked")
    options.add_argument("--print-only", action="store_true", help="leave RESULTS.md as it is")
    chosen = options.parse_args()
    start = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="benchlock-hostile-") as folder,
        service(Path(folder) / "registry") as served,
    ):
        _, idle = watch(served, lambda: time.sleep(chosen.idle))
        before = memory_of(served.process.pid)
        outcomes = []
        for make in cases():
            outcomes.append(publish(served, make(), dry_run=True))
            print(table(outcomes[-1:], before).splitlines()[1], flush=True)
    text = report(outcomes, idle, before, time.monotonic() - start)
    print(text)
    if not chosen.print_only:
        write(RESULTS, "hostile", text)


def report(outcomes: Sequence[Outcome], idle: Waits, before: int, seconds: float) -> str:
    """The measurement as a section of RESULTS.md."""
    lines = ["## Hostile publications", "", *machine(), "", METHOD]
    lines += [
        "| case | bytes sent | status | seconds | median wait, ms | p99, ms | longest, ms | growth, MiB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        (
            f"| (idle) |  |  |  | {statistics.median(idle.taken) * 1e3:.1f} | {p99(idle.taken) * 1e3:.1f} | "
            f"{max(idle.taken) * 1e3:.1f} |  |"
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
