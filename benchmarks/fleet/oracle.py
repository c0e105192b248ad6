"""What no queue can beat: a lower bound of the time for all jobs; and what a scheduler without faults needs."""

import heapq
from collections import defaultdict, deque

from benchmarks.fleet.workload import Interval, SimulatedJob, Workload


def lower_bound(workload: Workload) -> float:
    """The seconds that all jobs need at least: those of the busiest set of machines, without a pause, or a job's."""
    everything = sum(job.seconds for job in workload.job_list)
    half = workload.kinds // 2
    large = sum(job.seconds for job in workload.job_list if job.machine is None and job.kind >= half)
    large_machines = sum(workload.cpus(machine) == workload.kinds for machine in range(workload.machines))
    pinned: dict[int, float] = defaultdict(float)
    for job in workload.job_list:
        if job.machine is not None:
            pinned[job.machine] += job.seconds
    longest = max(job.seconds for job in workload.job_list)
    return max(everything / workload.machines, large / large_machines, longest, *pinned.values())


def schedule(workload: Workload) -> list[Interval]:
    """List scheduling: a machine that is free takes the first job that it can run; nothing goes wrong.

    A machine takes its own jobs first, then those of large machines, since no other one can take them.
    """
    lines: dict[object, deque[SimulatedJob]] = defaultdict(deque)
    for job in workload.job_list:
        lines[("m", job.machine) if job.machine is not None else job.kind >= workload.kinds // 2].append(job)
    free, taken = [(0.0, machine) for machine in range(workload.machines)], list[Interval]()
    while free:
        at, machine = heapq.heappop(free)
        is_large = workload.cpus(machine) == workload.kinds
        for line in (("m", machine), *((True,) if is_large else ()), False):
            if lines[line]:
                job = lines[line].popleft()
                taken.append(Interval(job.owner, at, at + job.seconds))
                heapq.heappush(free, (at + job.seconds, machine))
                break
    return taken
