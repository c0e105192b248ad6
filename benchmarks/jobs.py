"""How long a machine waits for its next job while a million others are queued, on SQLite and on PostgreSQL.

Whole verbs of the queue as agents use them: several processes, each a machine that may take every class, lease, begin,
beat and commit one job after another.
"""

import argparse
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.queueing.filling import fill
from benchmarks.queueing.measuring import Cycles, measure
from benchmarks.queueing.places import places
from benchmarks.queueing.plans import plan
from benchmarks.resolving.report import machine, write

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
METHOD = """\
The queue holds {rows:,} queued jobs of {classes} classes; each machine may take all of them. {seconds:g} seconds for
each number of clients, which are processes of their own. A claim is `lease`, from question to answer; a cycle is
lease, begin, beat and commit, with the run's record. Both databases wait for the disk at every commit. Milliseconds.
"""


def main() -> None:
    """Measure, print the tables, and write them into RESULTS.md in place of their older ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--only", default="", help="sqlite or postgresql")
    options = parser.parse_args()
    lines = ["| database | clients | claim p50 | claim p99 | claim max | cycles/s |", "|---|---|---|---|---|---|"]
    plans = []
    with tempfile.TemporaryDirectory(prefix="benchlock-queue-") as folder:
        for name, place in places(Path(folder), options.only):
            fill(place, options.rows, options.classes)
            for clients in options.clients:
                found = measure(place, clients, options.seconds)
                lines.append(row(name, clients, found))
                print(lines[-1], flush=True)
            plans += [f"{name}:", "", "```", *plan(place), "```", ""]
    settings = {"rows": options.rows, "classes": options.classes, "seconds": options.seconds}
    measured = f"Measured {datetime.now(UTC):%Y-%m-%d}, load average {os.getloadavg()[0]:.2f} at the end."
    section = ["## Queueing", "", *machine(), "", METHOD.format(**settings), *lines, "", measured, ""]
    told = "How the database finds the next job:"
    write(RESULTS, "queue", "\n".join([*section, told, "", *plans]).rstrip())
    sys.stdout.write("\n".join(plans) + "\n")


def row(name: str, clients: int, found: Cycles) -> str:
    """One line of the table."""
    claims = sorted(found.claims)
    shown = [f"{1000 * claims[int(share * (len(claims) - 1))]:.2f}" for share in (0.5, 0.99, 1)]
    return f"| {name} | {clients} | {' | '.join(shown)} | {found.count / found.seconds:.0f} |"


if __name__ == "__main__":
    main()
