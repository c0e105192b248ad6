"""Jobs whose files a machine has come first, and nothing else of the order changes."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, insert, text

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.evaluator.matrices.matrix_schema import matrices, matrix_cells
from benchlock.evaluator.queue.file_locality import MAX_SECONDS, WINDOW, WaitingJob, find_free
from benchlock.evaluator.queue.queue_types import JobId, Lease
from benchlock.registry.auth.permissions import Actor, Scopes, use_actor
from benchlock.registry.database.engine import open_server, transaction, write_transaction
from benchlock.registry.database.registry_schema import files, locks, versions
from tests.support.evaluator.queues import BOOT, PINNED, Ticking, end, facts, machine, queue_of, start, turns, wish
from tests.support.evaluator.recorded import NOON
from tests.support.servers.postgresql import PostgresServer

pytestmark = pytest.mark.databases
RUN = Scopes.parse(["run"])
ALICE, BOB, FLEET = Actor("token/alice", RUN), Actor("token/bob", RUN), Actor("token/fleet", RUN)
SIZES = {"small": 10, "large": 1 << 30, "data": 100}


def lock_of(name: str) -> Digest:
    return digest_bytes(f"lock of {name}".encode())


class Site:
    """A queue, machines of one token that have caches, and locks of models with files."""

    def __init__(self, database: Engine, machines: int = 1) -> None:
        self.database, self.clock = database, Ticking()
        self.queue = queue_of(database, self.clock)
        with write_transaction(database) as connection:
            for name, size in SIZES.items():
                kind = "dataset" if name == "data" else "model"
                key = {"kind": kind, "name": name, "precedence": "1"}
                file = {"path": "file", "digest": lock_of(name), "size": size, "tree": False}
                connection.execute(insert(files).values(key | file))
                version = {"version": "1.0.0", "digest": lock_of(name), "published_at": NOON}
                connection.execute(insert(versions).values(key | version))
                values = {column.name: "" for column in locks.columns} | {"id": lock_of(name), "created_at": NOON}
                values |= {kind: name, f"{kind}_version": "1.0.0"}
                connection.execute(insert(locks).values(values))
        with use_actor(FLEET):
            for number in range(1, machines + 1):
                self.queue.enrol(machine(number), BOOT, facts())

    def submit(self, *models: str, owner: Actor = ALICE, priority: int = 0) -> list[JobId]:
        with use_actor(owner):
            requests = [replace(wish(lock=lock_of(model)), priority=priority) for model in models]
            return [self.queue.submit(request).id for request in requests]

    def lease(self, number: int = 1, boot: str = BOOT) -> Lease:
        with use_actor(FLEET):
            lease = self.queue.lease(machine(number), boot)
        assert lease is not None
        return lease

    def finish(self, lease: Lease) -> None:
        self.clock.time += 1
        with use_actor(FLEET):
            begun = self.queue.begin(lease.fence, start(lock=lease.lock))
            assert begun is not None
            self.queue.commit(lease.fence, begun.id, end())

    def serve(self, count: int, number: int = 1) -> list[JobId]:
        """Run jobs one after another, and return them in their order."""
        served = []
        for _ in range(count):
            lease = self.lease(number)
            served.append(lease.job)
            self.finish(lease)
        return served


@pytest.fixture
def site(database: Engine) -> Site:
    """A site whose first machine has the large model."""
    return _with_large(database)


def _with_large(database: Engine) -> Site:
    site = Site(database, machines=2)
    site.submit("large")
    site.serve(1)
    return site


def test_the_job_whose_files_are_there_comes_first(site: Site) -> None:
    data, small, large = site.submit("data", "small", "large")
    assert site.serve(3) == [large, data, small]


def test_of_equal_jobs_the_first_in_line_comes_first(site: Site) -> None:
    jobs = site.submit("large", "large", "large")
    assert site.serve(3) == jobs


def test_a_machine_without_the_files_takes_the_jobs_in_their_order(site: Site) -> None:
    large, small = site.submit("large", "small")
    assert [site.lease(number).job for number in (2, 1)] == [large, small]


def test_a_machine_whose_cache_is_new_has_no_files(site: Site) -> None:
    """It takes the first job; the files of an earlier cache do not count."""
    small, _ = site.submit("small", "large")
    assert site.lease(1, "another boot").job == small


def test_a_run_that_never_began_brought_no_files(site: Site) -> None:
    site.submit("large")
    with use_actor(FLEET):
        site.queue.release(site.lease(2).fence, "returned", "stopped")
    small = site.submit("small")
    site.queue.cancel(site.queue.jobs()[1].id)
    (again,) = site.submit("large")
    assert site.serve(2, number=2) == [*small, again]


def test_a_worker_on_the_registry_s_folder_has_all_files(database: Engine) -> None:
    site = Site(database, machines=0)
    site.queue.enrol(machine(3), BOOT, facts())
    first, small, large = site.submit("large", "small", "large")
    for job in (first, small, large):
        lease = site.queue.lease(machine(3), BOOT)
        assert lease is not None
        assert lease.job == job
        begun = site.queue.begin(lease.fence, start(lock=lease.lock))
        assert begun is not None
        site.queue.commit(lease.fence, begun.id, end())


def test_owners_take_turns_whatever_files_a_machine_has(site: Site) -> None:
    mine = site.submit("small", "small")
    other = site.submit("large", "large", owner=BOB)
    site.clock.time += 60
    served = site.serve(4)
    assert [job in mine for job in served] in ([True, False, True, False], [False, True, False, True])
    assert [job for job in served if job in other] == other


def test_priorities_stay(site: Site) -> None:
    (low,) = site.submit("large", priority=-1)
    (plain,) = site.submit("small")
    (high,) = site.submit("data", priority=1)
    assert site.serve(3) == [high, plain, low]


def test_a_job_is_overtaken_only_by_jobs_submitted_soon_after_it(site: Site) -> None:
    (small,) = site.submit("small")
    site.clock.time += MAX_SECONDS
    (soon,) = site.submit("large")
    site.clock.time += 1
    (late,) = site.submit("large")
    assert site.serve(3) == [soon, small, late]


def test_a_machine_looks_at_the_first_jobs_alone(site: Site) -> None:
    jobs = site.submit(*["small"] * WINDOW, "large")
    assert site.lease().job == jobs[0]


def test_the_jobs_of_a_comparison_keep_their_order_and_overtake_none(site: Site) -> None:
    (small,) = site.submit("small")
    with use_actor(ALICE):
        compared = [
            job.id
            for job in site.queue.submit_comparison(
                [(replace(request, lock=lock_of("large")), turn) for request, turn in turns()]
            )
        ]
    (large,) = site.submit("large")
    assert site.serve(5) == [large, small, *compared]


def test_the_jobs_of_a_matrix_keep_their_places(site: Site, database: Engine) -> None:
    """They are not sorted, and what is submitted after them does not overtake them, but is sorted itself."""
    jobs = site.submit("small", "large", "data")
    with write_transaction(database) as connection:
        values = {"id": lock_of("small"), "document": {}, "runs": 3, "as_of": NOON, "owner": "x", "submitted_at": NOON}
        connection.execute(insert(matrices).values(values))
        for cell, job in enumerate(jobs):
            row = {"matrix": lock_of("small"), "cell": str(cell), "repeat": 1, "lock": lock_of("small"), "job": job}
            connection.execute(insert(matrix_cells).values(row))
    small, large = site.submit("small", "large")
    assert site.serve(5) == [*jobs, large, small]


def test_a_job_that_another_transaction_has_locked_is_left_to_it(postgresql: PostgresServer) -> None:
    with postgresql.database() as address:
        database = open_server(address)
        site = _with_large(database)
        small, large = site.submit("small", "large")
        with transaction(database, alone=False) as connection:
            connection.execute(text("SELECT 1 FROM jobs WHERE id = :id FOR UPDATE"), {"id": large})
            assert site.lease().job == small
        database.dispose()


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_files_there_are_owners_take_turns_and_jobs_wait_for_a_bounded_time(
    database: Engine, seed: int
) -> None:
    """Jobs of the same length: the owner with the least time is next, as without files; a bound holds for its jobs."""
    site, order = Site(database), random.Random(seed)
    submitted: dict[JobId, tuple[str, int, float]] = {}
    for _ in range(40):
        owner, priority = order.choice((ALICE, BOB, FLEET)), order.choice((0, 0, 0, 1))
        (job,) = site.submit(order.choice(("small", "large", "data")), owner=owner, priority=priority)
        submitted[job] = (owner.id, priority, site.clock.time)
        site.clock.time += order.choice((0, 1, MAX_SECONDS / 3))
    served, used = site.serve(len(submitted)), Counter[str]()
    for index, job in enumerate(served):
        waiting = {submitted[other][0] for other in served[index:]}
        assert submitted[job][0] == min(waiting, key=lambda name: (used[name], name))
        used[submitted[job][0]] += 1
    line, overtaken = list(submitted), 0
    for job, (of, priority, at) in submitted.items():
        for other in served[: served.index(job)]:
            if submitted[other][:2] == (of, priority) and line.index(other) > line.index(job):
                assert submitted[other][2] - at <= MAX_SECONDS
                overtaken += 1
    assert overtaken


def test_an_explanation_says_what_would_be_fetched_and_who_came_first(site: Site) -> None:
    small, large = site.submit("small", "large")
    sentence = site.queue.explain(small).sentence
    assert sentence.endswith("2 of them idle; m1 would fetch up to 10 B of its model and dataset")
    assert site.queue.explain(large).sentence.endswith("; m1 has its model and dataset")
    assert site.lease().job == large
    sentence = site.queue.explain(small).sentence
    assert "1 later job started first; machines prefer jobs whose files they have" in sentence
    with use_actor(ALICE):
        pinned = site.queue.submit(replace(wish(PINNED, lock=lock_of("small")))).id
    assert "started first" not in site.queue.explain(pinned).sentence


WAITING = st.builds(
    WaitingJob,
    seq=st.integers(1, 100),
    since=st.floats(0, 3 * MAX_SECONDS),
    priority=st.sampled_from((0, 0, 0, 1)),
    keeps_place=st.sampled_from((False, False, False, True)),
    held=st.just(()),
)


@given(st.lists(WAITING, min_size=1, max_size=WINDOW))
def test_no_free_job_overtakes_one_that_it_must_not(jobs: list[WaitingJob]) -> None:
    waiting = sorted(jobs, key=lambda job: (job.since, job.seq))
    free = find_free(waiting)
    assert free[0] is waiting[0]
    for job in free[1:]:
        overtaken = waiting[: next(index for index, one in enumerate(waiting) if one is job)]
        assert all(job.since - one.since <= MAX_SECONDS for one in overtaken)
        assert {one.priority for one in (*overtaken, job)} == {job.priority}
        assert not any(one.keeps_place for one in (*overtaken, job))
