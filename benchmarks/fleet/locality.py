"""``python -m benchmarks.fleet.locality``: bytes that machines fetch, with and without preference."""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlalchemy import Engine

from benchlock.registry.database.engine import open_server
from benchmarks.fleet.files import GB, Files
from benchmarks.fleet.fleet import Fleet
from benchmarks.fleet.report import Outcome, conclude
from benchmarks.fleet.workload import Faults, Workload
from tests.support.servers.postgresql import PostgresServer, serving


@dataclass(frozen=True)
class Placement:
    """What a simulation has shown: the bytes that all machines fetched, and the rest."""

    moved: int
    outcome: Outcome
    seconds: float


def place(engine: Engine, workload: Workload) -> Placement:
    """Simulate a workload in an empty database."""
    fleet, began = Fleet(engine, workload), time.monotonic()
    fleet.run()
    moved = sum(cache.moved for cache in fleet.caches)
    return Placement(moved, conclude(fleet), time.monotonic() - began)


def compare(server: PostgresServer, workload: Workload) -> Iterator[Placement]:
    """Yield what the order of the queue alone gives, and what it gives with the preference."""
    for are_preferred in (False, True):
        with server.database() as address:
            engine = open_server(address)
            yield place(engine, replace(workload, files=replace(workload.files, are_preferred=are_preferred)))
            engine.dispose()


def main() -> None:
    """Simulate both and print them side by side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--owners", type=int, default=20)
    parser.add_argument("--kinds", type=int, default=4, help="classes of jobs: numbers of CPUs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", action="store_true")
    options = parser.parse_args()
    faults = Faults() if options.faults else Faults.none()
    files = Files()
    workload = Workload(
        options.seed,
        options.machines,
        options.jobs,
        options.owners,
        options.kinds,
        files.models,
        faults,
        files,
    )
    with serving() as server:
        without, preferred = compare(server, workload)
    rows = {
        "GB fetched": [f"{one.moved / GB:,.0f}" for one in (without, preferred)],
        "makespan, s": [f"{one.outcome.makespan:,.0f}" for one in (without, preferred)],
        "Jain's index": [f"{one.outcome.jain:.4f}" for one in (without, preferred)],
        "longest wait, s": [f"{one.outcome.longest_wait:,.0f}" for one in (without, preferred)],
        "seconds of the clock": [f"{one.seconds:,.0f}" for one in (without, preferred)],
    }
    saved = 1 - preferred.moved / without.moved
    longer = preferred.outcome.makespan / without.outcome.makespan - 1
    lines = [
        f"{options.jobs:,} jobs, {options.machines:,} machines, {options.kinds} classes, seed {options.seed}",
        "| | order of the queue | files preferred |",
        "|---|---:|---:|",
        *(f"| {name} | {' | '.join(values)} |" for name, values in rows.items()),
        f"{100 * saved:.1f}% fewer bytes; makespan {100 * longer:+.1f}%",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
