"""What a machine lacks for a job that no container would confine: by default it takes none."""

import pytest

from benchlock.evaluator.queue.matching import JobRequirements, MachineFacts, RequiredPlatform, list_lacks
from tests.support.evaluator.queues import ANY, CONFINED, CPU, facts

BARE = RequiredPlatform("linux", "amd64", "cpu", layered=False, finished=False)
PROCESS = JobRequirements((CPU,), {}, cpus=1, isolation="process")
CODE = JobRequirements((CPU,), {}, cpus=1, isolation="process", code=True)
ALONE = "its worker runs containers alone (worker --processes)"
NO_CODE = "its worker runs no model's code as a process (worker --allow-code)"


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
        (ANY, facts(engine=None, processes=False), (f"needs a container engine, none answers there, and {ALONE}",)),
        (
            JobRequirements((BARE,), {}, cpus=1),
            facts(processes=False),
            (f"needs a container, and the image has no layers, and {ALONE}",),
        ),
        (
            JobRequirements((CPU,), {}, cpus=1, code=True),
            facts(engine=None, code=False),
            (f"needs a container engine, none answers there, and {NO_CODE}",),
        ),
        (CONFINED, facts(engine=None), ("needs a container engine, none answers there",)),
    ],
)
def test_a_machine_takes_what_its_worker_allows(
    wants: JobRequirements, machine: MachineFacts, expected: tuple[str, ...]
) -> None:
    assert list_lacks(wants, machine) == expected


def test_what_a_machine_said_of_itself_before_it_could_say_more_allows_containers_alone() -> None:
    document = facts().document()
    del document["processes"], document["code"]
    read = MachineFacts.read(document)
    assert (read.processes, read.code) == (False, False)
