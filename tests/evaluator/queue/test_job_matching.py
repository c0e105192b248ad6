"""What a machine lacks for a job that no container would confine: by default it takes none."""

from itertools import product

import pytest

from benchlock.evaluator.queue.job_matching import (
    JobRequirements,
    MachineFacts,
    RequiredPlatform,
    is_isolation_possible,
    list_lacks,
)
from benchlock.evaluator.records.run_types import Isolation
from tests.support.evaluator.queues import ANY, CONFINED, CPU, facts

BARE = RequiredPlatform("linux", "amd64", "cpu", layered=False, finished=False)
PROCESS = JobRequirements((CPU,), {}, cpus=1, isolation="process")
CODE = JobRequirements((CPU,), {}, cpus=1, isolation="process", code=True)
ALONE = "its worker may not run processes"
NO_CODE = "its worker may not run model code as a process"


@pytest.mark.parametrize(
    ("wants", "machine", "expected"),
    [
        (ANY, facts(processes=False, code=False), ()),
        (CONFINED, facts(processes=False, code=False), ()),
        (PROCESS, facts(), ()),
        (CODE, facts(), ()),
        (PROCESS, facts(processes=False), (ALONE,)),
        (PROCESS, facts(code=False), ()),
        (CODE, facts(code=False), (NO_CODE,)),
        (ANY, facts(engine=None), ()),
        (
            ANY,
            facts(engine=None, processes=False),
            (f"requires a container engine; none responds on this host, and {ALONE}",),
        ),
        (
            JobRequirements((BARE,), {}, cpus=1),
            facts(processes=False),
            (f"requires a container, but the image has no layers, and {ALONE}",),
        ),
        (
            JobRequirements((CPU,), {}, cpus=1, code=True),
            facts(engine=None, code=False),
            (f"requires a container engine; none responds on this host, and {NO_CODE}",),
        ),
        (JobRequirements((CPU,), {}, cpus=8), facts(), ("requires 8 CPUs (limits.cpus); this host has 2",)),
        (CONFINED, facts(engine=None), ("requires a container engine; none responds on this host",)),
    ],
)
def test_a_machine_takes_what_its_worker_allows(
    wants: JobRequirements, machine: MachineFacts, expected: tuple[str, ...]
) -> None:
    assert list_lacks(wants, machine) == expected


@pytest.mark.parametrize("isolation", [None, "container", "process"])
@pytest.mark.parametrize(("is_layered", "is_finished"), [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize(("confined", "code"), [(False, False), (True, False), (False, True)])
def test_an_isolation_is_possible_where_a_machine_of_such_a_worker_lacks_nothing(
    isolation: Isolation | None, *, is_layered: bool, is_finished: bool, confined: bool, code: bool
) -> None:
    platform = RequiredPlatform("linux", "amd64", "cpu", is_layered, is_finished)
    wants = JobRequirements((platform,), {}, 1, isolation, confined, code)
    if confined and isolation == "process":
        return  # submission refuses it
    for engine, processes, allows_code in product((True, False), repeat=3):
        machine = facts(engine="Engine 27" if engine else None, processes=processes, code=allows_code)
        is_possible = is_isolation_possible(wants, engine=engine, processes=processes, code=allows_code)
        assert is_possible == (not list_lacks(wants, machine)), machine


def test_what_a_machine_said_of_itself_before_it_could_say_more_allows_containers_alone() -> None:
    document = facts().document()
    del document["processes"], document["code"]
    read = MachineFacts.read(document)
    assert (read.processes, read.code) == (False, False)
