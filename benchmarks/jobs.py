"""How long a machine waits for its next job while a million others are queued, on SQLite and on PostgreSQL.

Whole verbs of the queue as agents use them: several processes, each a machine that may take every class, lease, begin,
beat and commit one job after another.
"""

import argparse
import math
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.queueing.filling import fill
from benchmarks.queueing.measuring import Cycles, measure, measure_paced
from benchmarks.queueing.places import places
from benchmarks.queueing.plans import plan
from benchmarks.resolving.report import machine, write

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
METHOD = """\
The queue holds {rows:,} queued jobs of {classes} classes and {owners} owners; each machine may take all of them. A
claim is `lease`, from question to answer; a cycle is lease, begin, beat and commit, with the run's record. Both
databases wait for the disk at every commit. Milliseconds. First are {machines} machines that take a job every {every:g}
seconds each, at random, through one process, as a service has it, for {paced:g} seconds; then processes that do nothing
but take jobs, one after the other, for {seconds:g}: of those several want more than two cores and a disk can give, and
wait for one another.
"""
BAR_MS = 10.0


def main() -> None:
    """Measure, print the tables, and write them into RESULTS.md in place of their older ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=40)
    parser.add_argument("--owners", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--machines", type=int, default=40)
    parser.add_argument("--every", type=float, default=20)
    parser.add_argument("--paced", type=float, default=120, help="seconds of those")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--only", default="", help="sqlite or postgresql")
    options = parser.parse_args()
    lines = ["| database | who asks | claim p50 | claim p99 | claim max | cycles/s |", "|---|---|---|---|---|---|"]
    plans, bars = [], []
    with tempfile.TemporaryDirectory(prefix="benchlock-queue-") as folder:
        for name, place in places(Path(folder), options.only):
            fill(place, options.rows, options.classes, options.owners)
            found = measure_paced(place, options.machines, options.every, options.paced)
            lines.append(row(name, f"{options.machines} machines", found))
            print(lines[-1], flush=True)
            p99 = quantile(found, 0.99)
            bars.append(
                f"- {'met' if p99 < BAR_MS else 'not met'}: {name}: {p99:.1f} ms at p99 of {found.count} claims, of 10"
            )
            for clients in options.clients:
                found = measure(place, clients, options.seconds)
                lines.append(row(name, f"{clients} without end", found))
                print(lines[-1], flush=True)
            plans += [f"{name}:", "", "```", *plan(place), "```", ""]
    settings = {
        name: getattr(options, name) for name in ("rows", "classes", "owners", "seconds", "machines", "every", "paced")
    }
    measured = f"Measured {datetime.now(UTC):%Y-%m-%d}, load average {os.getloadavg()[0]:.2f} at the end."
    section = ["## Queueing", "", *machine(), "", METHOD.format(**settings), *lines, "", *bars, "", measured, ""]
    told = "How the database finds the next job:"
    write(RESULTS, "queue", "\n".join([*section, told, "", *plans]).rstrip())
    sys.stdout.write("\n".join(plans) + "\n")


def row(name: str, who: str, found: Cycles) -> str:
    """One line of the table."""
    shown = [f"{quantile(found, share):.2f}" for share in (0.5, 0.99, 1)]
    return f"| {name} | {who} | {' | '.join(shown)} | {found.count / found.seconds:.0f} |"


def quantile(found: Cycles, share: float) -> float:
    """Of the claims, in milliseconds."""
    claims = sorted(found.claims)
    return 1000 * claims[math.ceil(share * len(claims)) - 1]


if __name__ == "__main__":
    main()
