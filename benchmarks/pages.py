"""What a page weighs, when a reader sees it, and how long the service takes to answer; each with its bar.

Parts: the list of runs beside MLflow's; every page of a large registry; the preview of a new evaluation; open pages of
a run in progress; progress in such a page, also over a kill of the service.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.resolving.report import machine, write
from benchmarks.transferring.peers import versions
from benchmarks.viewing import large_registry, open_pages, preview, progress, runs_list

_ADDITIONS = 10_000_000
RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
METHOD = """\
Pages are opened by Debian's Chromium in a new profile, on the loopback, without throttling unless a table says slow.
Weight is what is received, compressed as the server sends it.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the benchmark, and its section of RESULTS.md. ``measure`` takes an empty folder and rounds."""

    title: str
    method: str
    measure: Callable[[Path, int], Iterator[str]]


PARTS = {
    "list": Part("A list of runs", runs_list.METHOD, runs_list.measure_runs_list),
    "large": Part("A large registry", large_registry.METHOD, large_registry.measure_large),
    "preview": Part("The preview of a new evaluation", preview.METHOD, preview.measure_preview),
    "live": Part("A run in progress", open_pages.METHOD, open_pages.measure_open_pages),
    "progress": Part("Progress of a run", progress.METHOD, progress.measure_progress),
}


def main() -> None:
    """Measure; print the tables and bars, and write them into RESULTS.md, part by part."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=7, help="rounds of list, preview and live (default: 7)")
    options.add_argument("--only", choices=PARTS, action="append", metavar="PART", help=f"one of {', '.join(PARTS)}")
    given = options.parse_args()
    if given.rounds < 2:
        options.error("--rounds must be at least 2")
    write(RESULTS, "pages", "\n".join(("## Pages", "", *machine(), f"- {versions()}", "", METHOD)))
    verdicts = [line for name in given.only or PARTS for line in report(PARTS[name], given.rounds)]
    print("\n".join(("", "All bars:", *verdicts)))


def time_additions() -> float:
    """Return the seconds of a loop of additions: the speed of the host, by which times of other days compare."""
    start, total = time.perf_counter(), 0
    for number in range(_ADDITIONS):
        total += number
    return time.perf_counter() - start


def report(part: Part, rounds: int) -> list[str]:
    """Measure a part, print it and write it into RESULTS.md; return the lines of its bars."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="benchlock-pages-") as folder:
        body = list(part.measure(Path(folder) / "part", rounds))
    took, load = (time.monotonic() - start) / 60, os.getloadavg()[1]
    host = f"Python adds {_ADDITIONS:,} integers in {time_additions():.2f} s"
    body += [
        "",
        f"Measured {datetime.now(UTC):%Y-%m-%d}: {took:.1f} minutes, --rounds {rounds}, load {load:.1f}; {host}.",
    ]
    text = "\n".join((f"### {part.title}", "", part.method, *body, ""))
    write(RESULTS, f"pages: {part.title}", text)
    print(text, flush=True)
    return [line for lines in body for line in lines.split("\n") if line.lstrip().startswith("- ")]


if __name__ == "__main__":
    main()
