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
`make claims` measures everything again and writes this page; it takes some ten minutes, once the frameworks are
fetched. Numbers come from the records of runs, whose locks a row names by the first 12 digits of their ids; rows
without a lock come from a benchmark or a simulation, which the same command repeats. The runs use process isolation and
one CPU (level 3: two). A load above 2 means a busy host: the times of that section are tendencies. The registry with
the locks is not in git: `make claims` makes it anew in `.cache/claims/registry`, also for one section (`ONLY=`), so
it has the locks of the last measurement alone. Measure a section again to repeat a row of it, with
`benchlock --registry .cache/claims/registry rerun LOCK --isolation process --allow-code`. The machine below is that of
the last measurement; on another one the locks have other ids.

*yes* is a claim that was found again, *partly* one of which only the method or only some cases were, *no* one that was
measured and not found, and *not measured* one that was not tried, for the reason given. The levels of Deep500:
[operators, level 0](#operators-deep500-level-0), [networks, level 1](#batches-in-parts-deep500-level-1),
[training, level 2](#optimizers-deep500-level-2) (and [trainings](#trainings-mlperf-dawnbench-tbd)), and
[distributed training, level 3](#distributed-steps-deep500-level-3); [time and memory of a
step](#time-and-memory-of-a-step-fathom-tbd). What was not measured of levels 1 to 3 is in
[the last section](#not-measured).

The papers:

* Deep500: T. Ben-Nun et al., *A Modular Benchmarking Infrastructure for High-Performance and Reproducible Deep
  Learning*, IPDPS 2019.
* MLPerf Training: P. Mattson et al., *MLPerf Training Benchmark*, MLSys 2020.
* DAWNBench: C. Coleman et al., *DAWNBench: An End-to-End Deep Learning Benchmark and Competition*, 2017.
* TBD: H. Zhu et al., *Benchmarking and Analyzing Deep Neural Network Training*, IISWC 2018.
* Fathom: R. Adolf et al., *Fathom: Reference Workloads for Modern Deep Learning Methods*, IISWC 2016.
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
    """Write the introduction, and the sections that there are, or a place for them, in their order."""
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    page.write_text("# Claims of papers\n", encoding="utf-8")
    write(page, "introduction", "\n".join((INTRODUCTION, *machine())))
    for name, part in PARTS.items():
        kept = old.partition(f"<!-- {name}: begin -->\n")[2].partition(f"\n<!-- {name}: end -->")[0]
        write(page, name, kept or f"## {part.title}\n\nNot measured yet.")


def report(name: str, laboratory: Laboratory) -> None:
    """Measure a part and replace it on the page."""
    start = time.monotonic()
    lines = list(PARTS[name].measure(laboratory))
    minutes, load = (time.monotonic() - start) / 60, os.getloadavg()[1]
    end = f"Measured {datetime.now(UTC):%Y-%m-%d}: {minutes:.1f} minutes, load {load:.1f}."
    again = f"Again: `make claims ONLY={name}`."
    text = "\n".join((f"## {PARTS[name].title}", "", *lines, "", f"{end} {again}"))
    print(text, flush=True)
    write(PAGE, name, text)


if __name__ == "__main__":
    main()
