"""A launcher keeps one worker on each node that fits a queued job, and asks for nodes where jobs wait for long."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from sqlalchemy import Engine

from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError
from benchlock.evaluator.launchers.launcher import Launcher, Node, NodeSize, find_node_size
from benchlock.evaluator.launchers.node_worker import WorkerReport
from benchlock.evaluator.queue.queue_types import Explanation, Job, JobId, JobState, MachineId
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.registry.auth.permissions import ForbiddenError, TokenRefusedError
from tests.support.evaluator.queues import ANY, ARM, BOOT, LOCKS, PINNED, TIMES, Ticking, facts, queue_of, wish

ONE, TWO = (Node(f"id{number}", f"n{number}", "", 2, 0) for number in (1, 2))
SIZE = NodeSize(ARM.cpus, 0)


@dataclass
class Nodes:
    """A cluster that records what it is asked; a test says which workers ended and which nodes arrived."""

    alive: Sequence[Node] = (ONE, TWO)
    started: list[str] = field(default_factory=list)
    requested: frozenset[NodeSize] = frozenset()
    arrived: dict[NodeSize, str] = field(default_factory=dict)

    def nodes(self) -> Sequence[Node]:
        return self.alive

    def start(self, node: Node) -> None:
        self.started.append(node.name)

    def wait(self, _seconds: float) -> Mapping[Node, WorkerReport]:
        return {}

    def request(self, sizes: frozenset[NodeSize]) -> Mapping[NodeSize, str]:
        arrived, self.arrived = self.arrived, {}
        self.requested = sizes - arrived.keys()
        return arrived


@dataclass
class Bench:
    """A launcher over a queue in a database, and the clocks of both, which the test moves."""

    queue: SqlQueue
    server: Ticking
    time: float = 0.0
    said: list[str] = field(default_factory=list)
    cluster: Nodes = field(default_factory=Nodes)
    able: bool = True

    def __post_init__(self) -> None:
        self.launcher = Launcher(self.queue, self.cluster, lambda _: self.able, self.said.append, lambda: self.time)

    def look(self, seconds: float = 0.0) -> list[str]:
        """The nodes that get a worker after so many seconds."""
        self.time += seconds
        self.cluster.started.clear()
        self.launcher.run_round()
        return self.cluster.started

    def ended(self, node: Node, code: int = 0, jobs: int = 0) -> None:
        machine = "" if code else node.name
        self.launcher.record_reports({node: WorkerReport(code, machine, jobs, "it says why" if code else "")})

    def enrol(self, node: Node, arch: str = "amd64") -> None:
        self.queue.enrol(MachineId(node.name), BOOT, facts(arch=arch))


@pytest.fixture
def bench(database: Engine) -> Bench:
    server = Ticking()
    return Bench(queue_of(database, server), server)


def test_nodes_get_a_worker_once_a_job_is_queued_and_never_a_second_one(bench: Bench) -> None:
    assert bench.look() == []
    bench.queue.submit(wish())
    assert bench.look() == ["n1", "n2"]
    assert bench.look() == []


def test_a_known_node_gets_a_worker_only_where_its_machine_fits_a_job(bench: Bench) -> None:
    bench.enrol(ONE)
    bench.enrol(TWO, "arm64")
    first = bench.queue.submit(wish(ARM))
    bench.look()
    bench.ended(ONE)
    bench.ended(TWO)
    assert bench.look() == ["n2"]
    bench.ended(TWO)
    bench.queue.cancel(first.id)
    bench.queue.submit(wish(ANY, lock=LOCKS[1]))
    assert bench.look() == ["n1"]


def test_what_is_known_of_a_machine_is_asked_again_some_time(bench: Bench) -> None:
    bench.enrol(ONE, "arm64")
    bench.cluster.alive = (ONE,)
    bench.queue.submit(wish(ANY))
    bench.look()
    bench.ended(ONE)
    assert bench.look(seconds=60) == []
    assert bench.look(seconds=3600) == ["n1"]


def test_a_node_whose_worker_fails_is_tried_again_later_and_later(bench: Bench) -> None:
    bench.cluster.alive = (ONE,)
    bench.queue.submit(wish())
    bench.look()
    waits = []
    for _ in range(3):
        bench.ended(ONE, code=2)
        waits.append(next(seconds for seconds in range(1, 100) if bench.look(seconds=1)))
    assert waits == sorted(set(waits))
    assert "n1: its worker failed (exit code 2): it says why" in bench.said


def test_a_node_whose_worker_fails_for_days_is_still_tried_again(bench: Bench) -> None:
    bench.cluster.alive = (ONE,)
    bench.queue.submit(wish())
    for _ in range(1100):
        bench.ended(ONE, code=2)
    assert bench.look() == []
    assert bench.look(seconds=300) == ["n1"]


def test_a_node_that_is_gone_is_forgotten(bench: Bench) -> None:
    bench.cluster.alive = (ONE,)
    bench.queue.submit(wish())
    bench.look()
    bench.ended(ONE, code=-9)
    bench.cluster.alive = ()
    bench.look()
    bench.cluster.alive = (ONE,)
    assert bench.look() == ["n1"]


def test_a_job_that_waits_long_is_shown_to_the_engine_as_the_demand_for_a_node(bench: Bench) -> None:
    job = bench.queue.submit(wish(ARM))
    bench.look()
    assert bench.cluster.requested == frozenset()
    bench.look(seconds=30)
    assert bench.cluster.requested == {SIZE}
    assert bench.said[-1].startswith(f"asking the cluster for a node with {SIZE}: {job.id}: no machine can take it")
    bench.queue.cancel(job.id)
    bench.look()
    assert bench.cluster.requested == frozenset()


def test_a_job_that_names_its_machine_shows_no_demand(bench: Bench) -> None:
    bench.queue.submit(wish(PINNED))
    bench.look()
    bench.look(seconds=30)
    assert bench.cluster.requested == frozenset()


def test_a_job_whose_owner_may_run_no_more_shows_its_demand_once_it_may(bench: Bench) -> None:
    bench.queue.submit(wish(ARM))
    (share,) = bench.queue.shares()
    bench.queue.set_share(share.owner, 1, 0)
    bench.look()
    bench.look(seconds=30)
    assert bench.cluster.requested == frozenset()
    bench.queue.set_share(share.owner, 1, None)
    bench.look(seconds=100)
    assert bench.cluster.requested == {SIZE}


def test_a_job_whose_machines_are_busy_shows_its_demand_once_they_are_gone(bench: Bench) -> None:
    bench.cluster.alive = (ONE,)
    bench.enrol(ONE)
    bench.queue.submit(wish())
    bench.queue.submit(wish(lock=LOCKS[1]))
    assert bench.queue.lease(MachineId("n1"), BOOT) is not None
    assert bench.look() == ["n1"]
    bench.look(seconds=30)
    assert bench.cluster.requested == frozenset()
    bench.server.time += TIMES.unseen + 1
    bench.cluster.alive = ()
    bench.look(seconds=100)
    assert bench.cluster.requested == {SIZE}


def test_a_job_whose_machine_starts_a_worker_shows_its_demand_if_that_fails(bench: Bench) -> None:
    bench.cluster.alive = (ONE,)
    bench.enrol(ONE)
    bench.queue.submit(wish())
    bench.look()
    bench.queue.depart(MachineId("n1"))
    bench.ended(ONE, jobs=1)
    assert bench.look(seconds=30) == ["n1"]
    assert bench.cluster.requested == frozenset()
    for _ in range(10):
        bench.ended(ONE, code=2)
    assert bench.look(seconds=100) == []
    assert bench.cluster.requested == {SIZE}, "its worker fails again and again"


def test_of_many_jobs_a_few_are_explained_at_a_time_until_one_needs_a_node(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    explained: list[JobId] = []
    explain = bench.queue.explain

    def record(job: JobId) -> Explanation:
        explained.append(job)
        return explain(job)

    monkeypatch.setattr(bench.queue, "explain", record)
    for _ in range(30):
        bench.queue.submit(wish(PINNED))
    bench.queue.submit(wish(ARM))
    bench.look()
    bench.look(seconds=30)
    assert 0 < len(explained) < 30
    assert bench.cluster.requested == frozenset()
    bench.look(seconds=30)
    assert len(explained) == len(set(explained)) == 31
    assert bench.cluster.requested == {SIZE}


def test_a_job_that_no_worker_of_the_launcher_may_run_shows_no_demand(bench: Bench) -> None:
    bench.able = False
    bench.queue.submit(wish(ARM))
    bench.look()
    bench.look(seconds=30)
    assert bench.cluster.requested == frozenset()


def test_a_job_that_cannot_be_explained_is_said_once_and_the_others_show_their_demand(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, _ = bench.queue.submit(wish(ARM, lock=LOCKS[1])), bench.queue.submit(wish(ARM))
    explain = bench.queue.explain

    def explain_others(job: JobId) -> Explanation:
        if job == bad.id:
            raise InvalidInputError("invalid machine facts")
        return explain(job)

    monkeypatch.setattr(bench.queue, "explain", explain_others)
    for _ in range(4):
        bench.look(seconds=30)
    assert bench.cluster.requested == {SIZE}
    assert [text for text in bench.said if text.startswith(bad.id)] == [
        f"{bad.id}: no node is requested for jobs of its lock: invalid machine facts"
    ]


@pytest.mark.parametrize("error", [UnavailableError("no answer"), TokenRefusedError("the token has expired")])
def test_a_queue_that_is_away_or_refuses_the_token_is_no_fault_of_a_lock(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: BenchlockError
) -> None:
    def refuse(_job: JobId) -> Explanation:
        raise error

    monkeypatch.setattr(bench.queue, "explain", refuse)
    bench.queue.submit(wish(ARM))
    bench.look()
    with pytest.raises(type(error)):
        bench.look(seconds=30)


def test_a_job_that_is_older_than_many_others_shows_its_demand(bench: Bench) -> None:
    for node in (ONE, TWO):
        bench.enrol(node)
    old = bench.queue.submit(wish(ARM, lock=LOCKS[1]))
    for _ in range(210):
        bench.queue.submit(wish())
    bench.look()
    bench.look(seconds=30)
    assert bench.cluster.requested == {SIZE}
    assert old.id in bench.said[-1]


def test_rounds_in_quick_succession_ask_the_queue_for_one_job(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.queue.submit(wish(ARM))
    bench.look()
    bench.look(seconds=30)
    asked: list[int] = []
    jobs = bench.queue.jobs

    def list_jobs(*, state: JobState, limit: int) -> Sequence[Job]:
        asked.append(limit)
        return jobs(state=state, limit=limit)

    monkeypatch.setattr(bench.queue, "jobs", list_jobs)
    for _ in range(3):
        bench.look(seconds=2)
    assert asked == [1, 1, 1]
    assert bench.cluster.requested == {SIZE}


def test_a_new_node_that_runs_no_job_is_not_followed_by_others_at_once(bench: Bench) -> None:
    bench.queue.submit(wish(ARM))
    bench.look()
    bench.look(seconds=30)
    new = Node("id3", "n3", "", 2, 0)
    bench.cluster.alive = (ONE, TWO, new)
    bench.cluster.arrived = {SIZE: "id3"}
    assert bench.look() == ["n3"]
    bench.ended(new)
    assert "n3: the new node with" in bench.said[-1]
    bench.look(seconds=300)
    assert bench.cluster.requested == frozenset()
    bench.look(seconds=600)
    assert bench.cluster.requested == {SIZE}


def test_a_demand_that_ends_without_a_node_is_not_repeated_at_once(bench: Bench) -> None:
    bench.queue.submit(wish(ARM))
    bench.look()
    bench.look(seconds=30)
    bench.cluster.arrived = {SIZE: ""}
    bench.look()
    assert "no node with" in bench.said[-1]
    bench.look(seconds=590)
    assert bench.cluster.requested == frozenset()
    bench.look(seconds=20)
    assert bench.cluster.requested == {SIZE}


def test_a_node_whose_gpus_appear_after_its_first_worker_gets_another_one(bench: Bench) -> None:
    bench.cluster.alive = (ONE,)
    bench.enrol(ONE, "arm64")
    bench.queue.submit(wish(ANY))
    bench.look()
    bench.ended(ONE)
    assert bench.look(seconds=60) == []
    bench.cluster.alive = (replace(ONE, gpus=1),)
    assert bench.look() == ["n1"]


def test_nodes_are_not_listed_without_a_job(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.cluster, "nodes", lambda: pytest.fail("they are listed"))
    assert bench.look() == []


def test_a_machine_of_another_token_is_said_and_the_others_get_workers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.enrol(ONE)
    bench.enrol(TWO)
    bench.queue.submit(wish())
    bench.look()
    bench.ended(ONE)
    bench.ended(TWO)

    def refuse(machine: MachineId, _seconds: float) -> bool:
        if machine == "n1":
            raise ForbiddenError("n1 belongs to another token")
        return True

    monkeypatch.setattr(bench.queue, "wait_for_job", refuse)
    assert bench.look() == ["n2"]
    assert any(text.startswith("n1: n1 belongs to another token") for text in bench.said)


def test_a_queue_that_is_away_is_said_once_and_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    class StopError(Exception):
        pass

    rounds = iter((False, False, True))

    def wait(_seconds: float) -> Mapping[Node, WorkerReport]:
        if next(rounds):
            raise StopError
        return {}

    def away(**_: object) -> None:
        raise UnavailableError("the database does not answer")

    monkeypatch.setattr(bench.cluster, "wait", wait)
    monkeypatch.setattr(bench.queue, "jobs", away)
    with pytest.raises(StopError):
        bench.launcher.run()
    assert bench.said == ["the database does not answer"]


def test_a_job_for_accelerators_alone_needs_a_node_with_them() -> None:
    platforms = (replace(ANY.platforms[0], device="cuda"),)
    wants = replace(ANY, platforms=platforms, hardware={"accelerator": {"count": 2}}, cpus=3)
    assert find_node_size(wants) == NodeSize(3, 2)
    assert find_node_size(replace(wants, hardware={})) == NodeSize(3, 1)
    assert str(NodeSize(3, 2)) == "3 CPUs and 2 GPUs"
