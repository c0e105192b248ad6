"""What `benchlock lock` costs as the catalogue grows, beside resolvelib and `uv pip compile`.

CPU time, user and system, of whole processes, from start to written lock or printed explanation; and of the resolver
alone. The catalogues and requests are those of `benchmarks/resolving/universes.py`.
"""

import argparse
import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.resolving.asking import LIMIT, ask_others, measure
from benchmarks.resolving.families import Family, families
from benchmarks.resolving.report import Row, bars, machine, table, write

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"

METHOD = """\
A cell is `whole process / solving`, in milliseconds of CPU (user and system), the median of some rounds; in every
round each request is asked once, with another seed, so that each lock is a new one. The whole process is
`benchlock lock` from its start to the written lock, or to the printed explanation, with compiled byte code; before each
the database is dropped from the page cache. Solving is the resolver, explanation included, in a fresh process that has
loaded its modules and opened the catalogue. What takes over {limit} s is ended: `over`. Every lock is compared with the
answer that the catalogue was made to have. Growth is the largest factor from one step to the next.

The yardstick is a process that imports SQLAlchemy's ORM, rich and Alembic and does nothing, once in every round: the
half second that the bar of the whole process is about. Where other work shares the machine, its speed changes from
round to round; what the yardstick took in the same rounds says how fast it was, so each bar is given both ways.

resolvelib solves with a plain provider, candidates in memory; how many names the catalogue has does not matter to it.
`uv pip compile` is the whole process with a warm cache, on packages of the same names, versions and requirements, from
an index on the loopback interface; its lines are those of its explanation, as benchlock's are in the second column.
Both are asked at the step that their column names, and ended where they take too long.
"""


def main() -> None:
    """Measure every family; print its table and bars, and write them into RESULTS.md in place of its older ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=1_000_000, help="versions; a million needs 2.5 GB for a while")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="families whose title has this")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the registries are removed
    write(RESULTS, "resolve", "\n".join(["## Resolving", "", *machine(), "", METHOD.format(limit=LIMIT)]))
    for family in families(options.largest):
        if options.only in family.title:
            start, rows = time.monotonic(), measured(family, options.rounds)
            load = f"load average {os.getloadavg()[0]:.2f} at the end"
            took = f"{(time.monotonic() - start) / 60:.0f} minutes, {options.rounds} rounds, {load}"
            section = [
                table(family, rows),
                *bars([(family, rows)]),
                "",
                f"Measured {datetime.now(UTC):%Y-%m-%d}: {took}.",
            ]
            print("\n".join(section), flush=True)
            write(RESULTS, f"resolve: {family.title}", "\n".join(section))


def measured(family: Family, rounds: int) -> list[Row]:
    """The rows of a family, step by step."""
    rows = {ask.title: Row(ask.title) for universe in family.steps.values() for ask in universe.asks()}
    for step, universe in family.steps.items():
        measure(universe, step, rows, rounds)
        if step == family.others_at:
            ask_others(universe, rows, family.limit, rounds)
    return list(rows.values())


if __name__ == "__main__":
    main()
