"""Machine time is shared by weight among owners, quotas hold, and nobody waits for ever."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import Engine, text

from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.evaluator.queue.fair_shares import LEAST_ESTIMATE, MAX_LAG, PRIORITY_SECONDS, explain_share
from benchlock.evaluator.queue.queue_types import JobId, Lease, LeaseEnd, Share
from benchlock.registry.auth.audit_log import AuditLog
from benchlock.registry.auth.permissions import Actor, Scopes, use_actor
from benchlock.registry.database.engine import transaction
from tests.support.evaluator.queues import (
    ANY,
    ARM,
    BOOT,
    PINNED,
    TIMES,
    Ticking,
    end,
    facts,
    machine,
    queue_of,
    start,
    turns,
    wish,
)

pytestmark = pytest.mark.databases
RUN = Scopes.parse(["run"])
ALICE, BOB, CAROL = "token/alice", "token/bob", "token/carol"


class Shared:
    """A queue with owners and machines."""

    def __init__(self, database: Engine, machines: int = 1) -> None:
        self.clock = Ticking()
        self.queue = queue_of(database, self.clock)
        self.owners: dict[JobId, str] = {}
        for number in range(1, machines + 1):
            self.queue.enrol(machine(number), BOOT, facts())

    def submit(self, owner: str, count: int = 1, priority: int = 0) -> list[JobId]:
        requests = [replace(wish(), priority=priority) for _ in range(count)]
        with use_actor(Actor(owner, RUN)):
            submitted = [self.queue.submit(request).id for request in requests]
        self.owners |= dict.fromkeys(submitted, owner)
        return submitted

    def lease(self, number: int = 1) -> Lease:
        lease = self.queue.lease(machine(number), BOOT)
        assert lease is not None
        return lease

    def finish(self, lease: Lease, seconds: float = 60.0) -> str:
        """Run the job to its end, and return its owner."""
        self.clock.time += seconds
        assert self.queue.beat(lease.fence, "measuring") == "keep"
        begun = self.queue.begin(lease.fence, start())
        assert begun is not None
        self.queue.commit(lease.fence, begun.id, end())
        return self.owners[lease.job]

    def serve(self, count: int, seconds: float = 60.0) -> list[str]:
        """Run jobs on the first machine, and return their owners."""
        return [self.finish(self.lease(), seconds) for _ in range(count)]

    def share(self, owner: str) -> Share:
        (share,) = (one for one in self.queue.shares() if one.owner == owner)
        return share


@pytest.fixture
def shared(database: Engine) -> Shared:
    return Shared(database)


def test_owners_take_turns_however_many_jobs_one_of_them_has(shared: Shared) -> None:
    shared.submit(ALICE, 6)
    shared.submit(BOB, 2)
    assert shared.serve(5) == [ALICE, BOB, ALICE, BOB, ALICE]


def test_machine_time_is_shared_by_weight(shared: Shared) -> None:
    shared.submit(ALICE, 16)
    shared.submit(BOB, 16)
    shared.queue.set_share(BOB, 3.0, None)
    assert Counter(shared.serve(12)) == {ALICE: 3, BOB: 9}


def test_an_owner_pays_for_the_time_of_jobs_and_not_for_their_number(shared: Shared) -> None:
    shared.submit(ALICE, 2)
    shared.submit(BOB, 16)
    first = shared.lease()
    assert shared.finish(first, 600) == ALICE
    assert shared.serve(10) == [BOB] * 10
    assert shared.serve(2) == [ALICE, BOB]
    assert [shared.share(owner).seconds for owner in (ALICE, BOB)] == [660, 660]


def test_running_jobs_count_with_the_mean_of_their_owner(database: Engine) -> None:
    shared = Shared(database, machines=4)
    shared.submit(ALICE, 4)
    shared.submit(BOB, 4)
    leases = [shared.lease(number) for number in (1, 2, 3, 4)]
    assert [shared.owners[lease.job] for lease in leases] == [ALICE, BOB, ALICE, BOB]
    assert shared.share(ALICE).used == 2 * LEAST_ESTIMATE
    shared.finish(leases[0], 30)
    assert shared.share(ALICE).used == 30 + LEAST_ESTIMATE  # a mean of 30 s is less
    shared.finish(leases[1], 470)
    assert shared.share(ALICE).used == 30 + 500  # it runs for longer than the mean
    assert shared.share(BOB).used == 500 + 500


def test_tiny_jobs_do_not_make_the_next_ones_look_short(database: Engine) -> None:
    shared = Shared(database, machines=6)
    shared.submit(ALICE, 20)
    shared.serve(20, 1)
    shared.submit(ALICE, 6)
    shared.submit(BOB, 6)
    assert Counter(shared.owners[shared.lease(number).job] for number in range(1, 7)) == {ALICE: 3, BOB: 3}


def test_a_newcomer_starts_where_the_others_are(database: Engine) -> None:
    shared = Shared(database, machines=2)
    shared.submit(ALICE, 20)
    shared.serve(10)
    running = shared.lease(2)
    shared.submit(BOB, 20)
    assert shared.share(BOB).used == 600 + LEAST_ESTIMATE  # as the one with a running job
    shared.queue.release(running.fence, "returned", "stopped")
    assert Counter(shared.serve(11)) == {ALICE: 6, BOB: 5}


def test_who_comes_back_after_a_pause_starts_where_the_others_are(shared: Shared) -> None:
    shared.submit(ALICE)
    shared.serve(1)
    shared.submit(BOB, 20)
    shared.serve(10)
    shared.submit(ALICE, 20)  # nobody has a running job: the one who used most decides
    assert shared.share(ALICE).used == shared.share(BOB).used
    assert Counter(shared.serve(10)) == {ALICE: 5, BOB: 5}


@pytest.mark.parametrize("how", ["returned", "engine", "integrity"])
def test_a_lease_that_the_machine_ended_is_free(shared: Shared, how: LeaseEnd) -> None:
    shared.submit(ALICE)
    lease = shared.lease()
    shared.clock.time += 30
    shared.queue.release(lease.fence, how, "a reason")
    assert (shared.share(ALICE).seconds, shared.share(ALICE).running) == (0, 0)


def test_a_lost_lease_is_free(shared: Shared) -> None:
    (job,) = shared.submit(ALICE)
    shared.lease()
    shared.clock.time += TIMES.lease + 1
    assert shared.queue.job(job).state == "delayed"
    assert (shared.share(ALICE).seconds, shared.share(ALICE).running) == (0, 0)


def test_a_job_that_waited_long_for_its_machine_does_not_keep_the_others_from_theirs(shared: Shared) -> None:
    """Bob's job fits no machine for longer than the maximum lag; then his other jobs take turns with Alice's."""
    with use_actor(Actor(BOB, RUN)):
        shared.queue.submit(wish(ARM))
    shared.submit(ALICE, 16)
    shared.serve(4, MAX_LAG)
    shared.submit(BOB, 16)
    running = shared.lease()
    assert shared.owners[running.job] == BOB
    shared.queue.release(running.fence, "returned", "stopped")
    assert Counter(shared.serve(9, MAX_LAG)) == {ALICE: 4, BOB: 5}


def test_long_jobs_are_paid_for_however_long_they_are(shared: Shared) -> None:
    """Bob's jobs wait for their turn only, so the whole time of Alice's job is theirs."""
    shared.submit(ALICE, 2)
    shared.submit(BOB, 40)
    assert shared.finish(shared.lease(), 6 * MAX_LAG) == ALICE
    assert Counter(shared.serve(37, 600)) == {ALICE: 1, BOB: 36}


def test_small_weights_hold(shared: Shared) -> None:
    shared.submit(ALICE, 3)
    shared.submit(BOB, 210)
    shared.queue.set_share(ALICE, 0.01, None)
    assert Counter(shared.serve(202, 600)) == {ALICE: 2, BOB: 200}


def test_a_job_that_is_cancelled_before_it_begins_is_paid_for(shared: Shared) -> None:
    (job,) = shared.submit(ALICE)
    lease = shared.lease()
    shared.clock.time += 40
    shared.queue.cancel(job)
    shared.queue.release(lease.fence, "returned", "cancelled")
    assert shared.share(ALICE).seconds == 40


def test_a_quota_bounds_the_running_jobs_of_an_owner(database: Engine) -> None:
    shared = Shared(database, machines=3)
    jobs = shared.submit(ALICE, 4)
    shared.queue.set_share(ALICE, 1.0, 1)
    running = shared.lease(1)
    assert shared.queue.lease(machine(2), BOOT) is None
    assert not shared.queue.may_take(machine(2))
    sentence = shared.queue.explain(jobs[2]).sentence
    assert (
        "queued, 1 job waits before it on the machines that can run it; its owner has 1 of at most 1 running"
        in sentence
    )
    shared.submit(BOB)
    assert shared.owners[shared.lease(2).job] == BOB
    shared.finish(running)
    assert shared.lease(3).job == jobs[1]
    shared.queue.set_share(ALICE, 1.0, None)
    assert shared.lease(1).job == jobs[2]


def test_a_quota_of_none_pauses_an_owner(shared: Shared) -> None:
    shared.submit(ALICE)
    shared.queue.set_share(ALICE, 1.0, 0)
    assert shared.queue.lease(machine(1), BOOT) is None


def test_the_end_of_a_job_wakes_machines_that_wait_for_a_quota(database: Engine) -> None:
    shared = Shared(database, machines=2)
    shared.submit(ALICE, 2)
    shared.queue.set_share(ALICE, max_running=1)
    running = shared.lease(1)
    signal = shared.queue.open_signal()
    signal.wait(0)
    shared.finish(running)
    assert signal.wait(60)
    signal.close()


def test_a_quota_that_is_reached_keeps_no_machine_from_the_jobs_of_others(database: Engine) -> None:
    """Alice has enough jobs for every list of candidates; Bob's job comes after them."""
    shared = Shared(database)
    shared.submit(ALICE, 140)
    shared.queue.set_share(ALICE, max_running=1)
    shared.queue.enrol(machine(2), BOOT, facts())
    shared.lease(2)
    shared.submit(BOB)
    assert shared.owners[shared.lease().job] == BOB


def test_machines_that_request_work_at_once_keep_to_a_quota(database: Engine) -> None:
    shared = Shared(database, machines=8)
    shared.submit(ALICE, 8)
    shared.queue.set_share(ALICE, 1.0, 3)
    ready = threading.Barrier(8)

    def lease(number: int) -> Lease | None:
        ready.wait()
        return shared.queue.lease(machine(number), BOOT)

    with ThreadPoolExecutor(8) as pool:
        leases = [one for one in pool.map(lease, range(1, 9)) if one is not None]
    assert 1 <= len(leases) <= 3
    assert shared.share(ALICE).running == len(leases)


def test_a_quota_that_another_transaction_has_locked_is_waited_for_and_read_again(database: Engine) -> None:
    shared = Shared(database)
    shared.submit(ALICE)
    shared.queue.set_share(ALICE, 1.0, 1)
    if database.dialect.name != "postgresql":
        shared.lease()  # a single writer has no locks
        return
    with ThreadPoolExecutor(1) as pool:
        with transaction(database, alone=False) as connection:
            connection.execute(text("UPDATE shares SET max_running = 0 WHERE owner = :owner"), {"owner": ALICE})
            leased = pool.submit(shared.queue.lease, machine(1), BOOT)
            waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            while not connection.execute(waiting).scalar_one():
                assert not leased.done()
        assert leased.result(60) is None


def test_a_priority_moves_a_job_in_the_line_of_its_owner_alone(shared: Shared) -> None:
    low = shared.submit(ALICE, priority=-1)
    plain = shared.submit(ALICE)
    high = shared.submit(ALICE, priority=5)
    shared.submit(BOB, 3)
    served = []
    for _ in range(6):
        lease = shared.lease()
        served.append(lease.job)
        shared.finish(lease)
    assert [job for job in served if shared.owners[job] == ALICE] == [*high, *plain, *low]
    assert [shared.owners[job] for job in served] == [ALICE, BOB] * 3
    assert shared.queue.job(high[0]).priority == 5


def test_a_job_of_low_priority_is_overtaken_for_a_bounded_time(shared: Shared) -> None:
    low = shared.submit(ALICE, priority=-1)
    shared.clock.time += PRIORITY_SECONDS - 1
    early = shared.submit(ALICE)
    shared.clock.time += 2
    late = shared.submit(ALICE)
    served = []
    for _ in range(3):
        lease = shared.lease()
        served.append(lease.job)
        shared.finish(lease)
    assert served == [*early, *low, *late]


def test_the_same_job_with_another_priority_is_another_job(shared: Shared) -> None:
    request = wish()
    shared.queue.submit(request)
    with pytest.raises(InvalidInputError, match="another job has the id"):
        shared.queue.submit(replace(request, priority=1))


def test_a_comparison_that_has_begun_keeps_its_machine(shared: Shared) -> None:
    with use_actor(Actor(ALICE, RUN)):
        compared = [job.id for job in shared.queue.submit_comparison(turns())]
    shared.owners |= dict.fromkeys(compared, ALICE)
    first = shared.lease()
    assert first.job == compared[0]
    urgent = shared.submit(ALICE, priority=5)
    shared.submit(BOB, 3)
    shared.queue.set_share(ALICE, 0.01, 1)
    shared.finish(first)
    for job in compared[1:]:
        assert shared.queue.may_take(machine(1))
        lease = shared.lease()
        assert lease.job == job
        shared.finish(lease)
    assert [shared.finish(shared.lease()) for _ in range(3)] == [BOB] * 3
    assert shared.lease().job == urgent[0]


def test_a_comparison_waits_while_its_machine_cannot_run_it_and_others_run(shared: Shared) -> None:
    with use_actor(Actor(ALICE, RUN)):
        compared = [job.id for job in shared.queue.submit_comparison(turns())]
    shared.owners |= dict.fromkeys(compared, ALICE)
    shared.finish(shared.lease())
    shared.queue.enrol(machine(1), BOOT, facts(arch="arm64"))
    with use_actor(Actor(BOB, RUN)):
        other = shared.queue.submit(wish(ARM)).id
    assert shared.lease().job == other


def test_a_job_of_a_comparison_that_another_machine_took_ends_no_claim(database: Engine) -> None:
    """The rest of a comparison may be cancelled between the list of candidates and the claim."""
    shared = Shared(database)
    shared.queue.submit_comparison(turns())
    lease = shared.lease()
    (other,) = shared.submit(BOB)
    begun = shared.queue.begin(lease.fence, start())
    assert begun is not None
    shared.queue.commit(lease.fence, begun.id, end("failed", "golden"))  # which cancels the rest
    assert shared.lease().job == other


def test_an_explanation_says_that_others_come_first(shared: Shared) -> None:
    shared.submit(ALICE, 2)
    mine = shared.submit(BOB, 2)
    shared.serve(2)
    shared.finish(shared.lease(), 30)
    found = shared.queue.explain(mine[1])
    assert found.ahead == 0
    assert found.sentence.startswith("queued, no job waits before it;")
    shared.submit(ALICE, 2)
    shared.submit(CAROL)
    shared.queue.set_share(BOB, 0.5, None)
    shared.finish(shared.lease(), 300)
    sentence = shared.queue.explain(shared.submit(BOB)[0]).sentence
    assert "owners with queued jobs used less machine time and come first" in sentence
    assert "weight 0.5" in sentence


def test_the_place_of_an_owner_is_counted_among_those_that_may_run() -> None:
    line = [
        Share(owner=owner, weight=1, max_running=limit, running=1, is_waiting=waiting, seconds=0, used=0)
        for owner, limit, waiting in ((ALICE, None, False), (BOB, 1, True), (CAROL, None, True), ("token/d", 2, True))
    ]
    assert explain_share(line, CAROL) is None
    assert explain_share(line, "token/d") == "1 of 2 owners with queued jobs used less machine time and come first"
    assert explain_share(line, BOB) == "its owner has 1 of at most 1 running job"


def test_shares_are_set_for_known_owners_and_logged(shared: Shared, database: Engine) -> None:
    with pytest.raises(UnknownNameError, match="has no owner token/alice"):
        shared.queue.set_share(ALICE, 2.0, None)
    shared.submit(ALICE)
    shared.queue.set_share(ALICE, 2.0, None)
    shared.queue.set_share(ALICE, 2.5, 4)
    assert (shared.share(ALICE).weight, shared.share(ALICE).max_running) == (2.5, 4)
    logged = [one.target for one in AuditLog(database).list() if one.action == "share.set"]
    assert logged == [
        "token/alice: weight 2.5, at most 4 running jobs",
        "token/alice: weight 2, no quota",
    ]


def test_jobs_of_other_machines_are_left_out_whoever_is_first(database: Engine) -> None:
    shared = Shared(database, machines=2)
    with use_actor(Actor(ALICE, RUN)):
        pinned = shared.queue.submit(wish(PINNED)).id
    with use_actor(Actor(BOB, RUN)):
        other = shared.queue.submit(wish(ANY)).id
    assert shared.lease(2).job == other
    assert shared.lease(1).job == pinned
