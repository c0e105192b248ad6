"""What a simulation has shown: what must hold is checked in the database, the rest is measured."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import text

from benchlock.registry.database.engine import read_transaction
from benchmarks.fleet.fleet import Fleet
from benchmarks.fleet.oracle import lower_bound, schedule
from benchmarks.fleet.workload import Interval, Workload


@dataclass(frozen=True)
class Outcome:
    """What a simulation has shown.

    Attributes:
        states: The number of jobs by state.
        results: The number of results in the database.
        makespan: The seconds until the last result.
        bound: The seconds that no schedule can go below.
        listed: The seconds of list scheduling without faults.
        jain: Jain's index of machine time by weight, while all owners have queued jobs.
        jain_in_order: The same of list scheduling in the order of submission.
        backlogged: The seconds of that time.
        waste: The share of the machine time that went into runs without a result.
        longest_wait: The seconds until the last job was taken for the first time.
        charged: The machine time charged to owners, in seconds.
        accepted: The machine time of the leases whose runs were accepted, in seconds.
        faults: How often each fault had an effect.
    """

    states: dict[str, int]
    results: int
    makespan: float
    bound: float
    listed: float
    jain: float
    jain_in_order: float
    backlogged: float
    waste: float
    longest_wait: float
    charged: float
    accepted: float
    faults: dict[str, int]


def conclude(fleet: Fleet) -> Outcome:
    """Check what must hold after a simulation, and measure the rest.

    Raises:
        AssertionError: A job has no end, two results, or a result that no machine had accepted.
    """
    fleet.check()
    with read_transaction(fleet.database) as connection:
        counted = connection.execute(text("SELECT state, count(*) AS jobs FROM jobs GROUP BY state"))
        states = {row.state: row.jobs for row in counted}
        found = connection.execute(text("SELECT job, count(*) AS results FROM job_results GROUP BY job"))
        results = {row.job: row.results for row in found}
        slots = connection.execute(text("SELECT count(*) FROM lease_slots")).scalar_one()
        charged = connection.execute(text("SELECT sum(seconds) FROM usages")).scalar_one()
    assert set(states) <= {"done", "failed", "quarantined"}, states
    assert sum(states.values()) == len(fleet.jobs)
    assert slots == 0
    assert set(results.values()) == {1}
    assert results == {job: number for job, number in fleet.accepted.items() if number}
    assert len(results) == states["done"] + states.get("failed", 0)
    poison = sum(job.end == "poison" for job in fleet.jobs.values())
    assert states.get("quarantined", 0) >= poison
    used = sum(one.end - one.begin for one in fleet.intervals)
    wasted = sum(one.end - one.begin for one in fleet.intervals if not one.counts)
    until = _first_without_jobs((fleet.jobs[job].owner, at) for job, at in fleet.first_taken.items())
    listed = schedule(fleet.workload)
    in_order = _first_without_jobs((one.owner, one.begin) for one in listed)
    return Outcome(
        states=states,
        results=len(results),
        makespan=fleet.end,
        bound=lower_bound(fleet.workload),
        listed=max(one.end for one in listed),
        jain=_jain(fleet.workload, fleet.intervals, until),
        jain_in_order=_jain(fleet.workload, listed, in_order),
        backlogged=until,
        waste=wasted / used,
        longest_wait=max(fleet.first_taken.values()),
        charged=charged,
        accepted=used - wasted,
        faults=dict(sorted(fleet.tally.items())),
    )


def _first_without_jobs(taken: Iterable[tuple[int, float]]) -> float:
    """The seconds until the first owner has no job that was never taken, of each job's owner and first lease."""
    last = dict[int, float]()
    for owner, at in taken:
        last[owner] = max(last.get(owner, 0.0), at)
    return min(last.values())


def _jain(workload: Workload, intervals: Iterable[Interval], until: float) -> float:
    shares = dict.fromkeys(range(workload.owners), 0.0)
    for one in intervals:
        shares[one.owner] += _overlap(one, until) / workload.weight(one.owner)
    values = shares.values()
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


def _overlap(one: Interval, until: float) -> float:
    return max(0.0, min(one.end, until) - one.begin)
