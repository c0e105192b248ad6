"""``python -m benchmarks.fleet``: simulate machines that take jobs from the real queue on a real PostgreSQL."""

import argparse
import sys
import time

from benchlock.registry.database.engine import open_server
from benchmarks.fleet.fleet import Fleet
from benchmarks.fleet.report import conclude
from benchmarks.fleet.workload import Faults, Workload
from tests.support.servers.postgresql import serving


def main() -> None:
    """Simulate and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--owners", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-faults", action="store_true")
    options = parser.parse_args()
    faults = Faults.none() if options.no_faults else Faults()
    workload = Workload(options.seed, options.machines, options.jobs, options.owners, faults=faults)
    with serving() as server, server.database() as address:
        engine = open_server(address)
        fleet, began = Fleet(engine, workload), time.monotonic()
        fleet.run()
        took = time.monotonic() - began
        found = conclude(fleet)
        engine.dispose()
    lines = [
        f"{options.jobs:,} jobs, {options.machines:,} machines, {options.owners} owners, seed {options.seed}",
        f"jobs by state: {found.states}; results: {found.results:,}, of a job at most 1",
        f"makespan: {found.makespan:,.0f} s",
        f"lower bound: {found.bound:,.0f} s; the makespan is {found.makespan / found.bound:.3f} of it",
        f"list scheduling without faults: {found.listed:,.0f} s; the makespan is {found.makespan / found.listed:.3f}",
        f"Jain's index of machine time by weight: {found.jain:.4f}, over {found.backlogged:,.0f} s",
        f"the same if jobs were taken in the order of their submission: {found.jain_in_order:.4f}",
        f"wasted machine time: {100 * found.waste:.2f}%; longest wait: {found.longest_wait:,.0f} s",
        f"faults with an effect: {found.faults}",
        f"took {took:,.0f} s: {options.jobs / took:,.0f} jobs a second",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
