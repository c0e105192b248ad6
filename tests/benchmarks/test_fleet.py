"""A simulated fleet with faults on the real queue: every job ends once, and machine time is shared by weight.

``make simulate`` does the same with more machines and jobs.
"""

import pytest

from benchlock.registry.database.engine import open_server
from benchmarks.fleet.files import GB, Cache, Files
from benchmarks.fleet.fleet import Fleet
from benchmarks.fleet.locality import compare
from benchmarks.fleet.oracle import lower_bound, schedule
from benchmarks.fleet.report import conclude
from benchmarks.fleet.workload import Faults, Workload
from tests.support.servers.postgresql import PostgresServer

JOBS, MACHINES, OWNERS = 600, 15, 5


def test_every_job_ends_once_and_machine_time_is_shared_by_weight(postgresql: PostgresServer) -> None:
    faults = Faults(10, 5, pause_hours=0.5, restart_hours=0.3, lost_replies=0.01, duplicates=0.02, poison=2)
    with postgresql.database() as address:
        engine = open_server(address)
        fleet = Fleet(engine, Workload(7, MACHINES, JOBS, OWNERS, locks=20, faults=faults))
        fleet.run()
        found = conclude(fleet)
        engine.dispose()
    assert sum(found.states.values()) == JOBS
    assert found.states["quarantined"] >= 2
    assert found.faults["died with its machine"] >= 6  # three for each job that kills its machine
    assert found.faults["pauses of the database"] >= 3
    assert found.faults["restarts of the service"] >= 5
    assert found.jain >= 0.95
    assert found.jain_in_order < 0.5
    assert found.charged == pytest.approx(found.accepted)
    assert found.makespan >= found.bound


def test_machines_fetch_less_if_jobs_with_their_files_are_preferred(postgresql: PostgresServer) -> None:
    workload = Workload(3, 12, 150, 2, kinds=2, locks=20, faults=Faults.none(), files=Files(20))
    in_order, preferred = compare(postgresql, workload)
    assert in_order.outcome.results == preferred.outcome.results == workload.jobs
    assert preferred.moved < 0.9 * in_order.moved


def test_a_cache_removes_the_models_that_were_not_used_for_longest() -> None:
    cache = Cache([120 * GB, 70 * GB, 60 * GB])
    for model in (0, 1, 0, 2, 0, 1):
        cache.fetch(model)
    assert cache.moved == (120 + 70 + 60 + 70) * GB


def test_no_schedule_is_shorter_than_the_bound() -> None:
    for seed in range(20):
        workload = Workload(seed, MACHINES, JOBS, OWNERS, faults=Faults.none())
        end = max(one.end for one in schedule(workload))
        assert lower_bound(workload) <= end <= 2 * lower_bound(workload)


def test_a_workload_is_a_function_of_its_seed() -> None:
    assert Workload(3, jobs=100).job_list == Workload(3, jobs=100).job_list
    assert Workload(3, jobs=100).job_list != Workload(4, jobs=100).job_list
