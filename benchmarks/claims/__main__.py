"""``python -m benchmarks.claims [--only PART]``: measure the claims of papers again, and write the page of results."""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.claims import (
    convergence_level,
    distributed,
    missing,
    networks,
    operators,
    optimizers,
    step_breakdown,
    trainings,
)
from benchmarks.claims.measured_runs import ROOT, Laboratory, open_laboratory
from benchmarks.resolving.report import machine, write

PAGE = ROOT / "docs" / "explanation" / "claims.md"
KEPT = Path(".cache/claims/images")
INTRODUCTION = """\
Explanation. Which claims of papers on deep learning benchmarks can be regenerated with benchlock, and what came out.
`make claims` measures everything again and writes this page; `make claims ONLY=trainings` measures one part.
Each number is computed from the records of runs, whose locks a row names by the first 12 digits of their ids; the
registry with the locks stays in `.cache/claims/registry` until the next measurement. The runs use process isolation and
one CPU. *yes* is a claim that was found again, *partly* one of which only the method or only some cases were, and *no*
one that was not, for the reason given.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A section of the page; ``measure`` yields its lines."""

    title: str
    measure: Callable[[Laboratory], Iterator[str]]


PARTS = {
    "operators": Part("Operators: Deep500, level 0", operators.measure),
    "networks": Part("Batches in parts: Deep500, level 1", networks.measure),
    "optimizers": Part("Optimizers: Deep500, level 2", optimizers.measure),
    "trainings": Part("Trainings: MLPerf, DAWNBench, TBD", trainings.measure),
    "convergence": Part("The level of MLPerf's convergence check", convergence_level.measure),
    "distributed": Part("Distributed steps: Deep500, level 3", distributed.measure),
    "breakdown": Part("Time and memory of a step: Fathom, TBD", step_breakdown.measure),
    "missing": Part("Not measured", missing.measure),
}
"""The sections in their order on the page. A further level is a module with ``measure`` and a line here."""


def main() -> None:
    """Measure the parts, print them, and write each into the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", choices=PARTS, action="append", metavar="PART", help=f"one of {', '.join(PARTS)}")
    given = options.parse_args()
    laboratory = open_laboratory(KEPT.resolve())
    prepare_page(PAGE)
    for name in given.only or PARTS:
        report(name, laboratory)


def prepare_page(page: Path) -> None:
    """Write the introduction, and a place for each part that has none, in their order."""
    if not page.exists():
        page.write_text("# Claims of papers\n", encoding="utf-8")
    write(page, "introduction", "\n".join((INTRODUCTION, *machine())))
    text = page.read_text(encoding="utf-8")
    for name, part in PARTS.items():
        if f"<!-- {name}: begin -->" not in text:
            write(page, name, f"## {part.title}\n\nNot measured yet.")


def report(name: str, laboratory: Laboratory) -> None:
    """Measure a part and replace it on the page."""
    start = time.monotonic()
    lines = list(PARTS[name].measure(laboratory))
    minutes, load = (time.monotonic() - start) / 60, os.getloadavg()[1]
    end = f"Measured {datetime.now(UTC):%Y-%m-%d}: {minutes:.1f} minutes, load {load:.1f}."
    text = "\n".join((f"## {PARTS[name].title}", "", *lines, "", end))
    print(text, flush=True)
    write(PAGE, name, text)


if __name__ == "__main__":
    main()
