"""An agent takes jobs, measures them one at a time, and keeps nothing that it lost."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs, to_builtins
from sqlalchemy import select, text

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.size_limits import REASON
from benchlock.artifacts.user_output import SILENT, Progress
from benchlock.evaluator.queue.job_matching import MachineFacts
from benchlock.evaluator.queue.lease_times import boot_id
from benchlock.evaluator.queue.queue_schema import jobs
from benchlock.evaluator.queue.queue_types import Beat, Fence, Job, Lease, LeaseEnd, MachineId, Phase
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_types import RunEnd, RunId, RunStart
from benchlock.evaluator.runner.host_platform import this_host
from benchlock.evaluator.worker.lease_heartbeats import host_lock
from benchlock.evaluator.worker.worker_agent import facts_of
from benchlock.registry.auth.permissions import (
    Actor,
    ForbiddenError,
    MachineRefusedError,
    Scopes,
    TokenRefusedError,
    UnauthorizedError,
    use_actor,
)
from benchlock.registry.database.engine import read_transaction, row_lock_transaction
from benchlock.registry.lock.lockfile import Lock, load
from tests.evaluator.evaluation import damage, locked_file
from tests.evaluator.worker.conftest import Site
from tests.support.evaluator.queues import turns
from tests.support.evaluator.stub_harness import events


def later(when: Callable[[], object], then: Callable[[], object]) -> threading.Thread:
    """Do it from another thread as soon as something is so."""

    def wait() -> None:
        for _ in range(600):
            if when():
                then()
                return
            time.sleep(0.05)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


RETRIED = ("delayed", "queued")
"""A job that will be tried again; the wait before that is half a second here, which a busy host may let pass."""


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_job_is_measured_and_its_run_is_like_any_other(site: Site) -> None:
    job = site.submit()
    assert site.agent().work(once=True) == 1
    done = site.job(job)
    assert (done.state, done.machine) == ("done", "m1"), site.said
    assert site.queue.machines()[0].gone  # its agent ended, and said so
    assert done.run is not None
    run = site.records.get(done.run)
    assert run.end is not None
    assert (run.start.attempt, run.end.outcome) == (1, "done")
    assert [one.id for one in site.records.list()] == [run.id]
    assert [name for name, *_ in events(site.log)] == ["start", "end"]
    assert list((site.home / "runs").iterdir()) == []


def test_a_worker_that_works_until_it_is_idle_takes_all_jobs_and_ends(site: Site) -> None:
    jobs_of_it = [site.submit(), site.submit(seconds=0.1)]
    assert site.agent().work(until_idle=True) == 2
    assert [site.job(job).state for job in jobs_of_it] == ["done", "done"]
    assert site.agent().work(until_idle=True) == 0


def test_the_record_of_a_run_states_its_turn_in_a_comparison(site: Site) -> None:
    ((_, turn),) = turns(1)
    job = site.submit(turn=turn)
    site.agent().work(once=True)
    (run,) = site.records.list()
    assert run.end is not None
    assert (site.job(job).run, run.end.details["part_of"]) == (run.id, to_builtins(turn))


def test_what_the_lock_s_run_ends_with_is_the_answer(site: Site) -> None:
    job = site.submit(failure="golden")
    site.agent().work(once=True)
    failed = site.job(job)
    assert (failed.state, failed.failure, failed.reason) == ("failed", "golden", f"see {failed.run}")


@pytest.mark.databases
def test_a_job_shows_nothing_of_a_hidden_run_but_to_administrators(site: Site) -> None:
    job = site.submit(failure="golden")
    site.agent().work(once=True)
    failed = site.job(job)
    assert failed.run is not None
    site.records.hide(failed.run, "noise")
    assert site.job(job) == failed
    with use_actor(Actor("reader", Scopes.parse(["read"]))):
        for found in (site.job(job), *site.queue.jobs(), site.queue.explain(job).job):
            assert found == structs.replace(failed, run=None, failure=None, reason=None)
        assert site.queue.explain(job).sentence == "failed"


def test_bytes_that_are_not_as_locked_are_no_run_and_are_tried_elsewhere(site: Site) -> None:
    job = site.submit()
    damage(site.store, locked_file(load(site.catalogue.get_lock(site.job(job).lock), "lock"), "weights.npz"))
    site.agent().work(once=True)
    found = site.job(job)
    assert (found.state in RETRIED, found.tally.engine) == (True, 1), found.state
    assert site.records.list() == ()
    assert site.queue.machines()[0].draining is None


def test_sigterm_ends_the_measurement_and_gives_the_job_back(site: Site) -> None:
    job = site.submit(60)
    asked = later(lambda: events(site.log), terminate)
    assert site.agent().work() == 1
    asked.join()
    found = site.job(job)
    assert (found.state, found.tally.total) == ("queued", 0)
    assert found.run is not None
    end = site.records.get(found.run).end
    assert end is not None
    assert end.outcome == "cancelled"
    with host_lock(site.home / "host.lock") as descriptor:
        assert descriptor is not None


def test_a_signal_that_arrives_where_exceptions_are_dropped_still_gives_the_job_back(site: Site) -> None:
    """Python drops an exception of a destructor; the stop must not be lost with it."""
    job = site.submit()
    agent = site.agent()

    class Dying:
        def __del__(self) -> None:
            terminate()
            time.sleep(0)

    @dataclass
    class Dropping:
        progress: Progress = SILENT

        def run(self, *_: object, **__: object) -> None:
            Dying()
            time.sleep(60)
            pytest.fail("the run was not interrupted")

    agent.environment = replace(agent.environment, build=lambda *_: Dropping())  # type: ignore[arg-type]
    before = sys.unraisablehook
    agent.work()
    assert sys.unraisablehook is before
    assert site.job(job).state == "queued"


def test_cancelling_ends_the_measurement(site: Site) -> None:
    job = site.submit(60)
    asked = later(lambda: events(site.log), lambda: site.queue.cancel(job))
    site.agent().work(once=True)
    asked.join()
    assert site.job(job).state == "cancelled"


class Cut(SqlQueue):
    """A queue to which the connection is cut."""

    away = False

    def beat(self, fence: Fence, phase: Phase) -> Beat:
        if self.away:
            raise UnavailableError("no connection")
        return super().beat(fence, phase)


def test_an_agent_that_hears_nothing_ends_its_measurement_before_its_lease_ends(site: Site) -> None:
    job = site.submit(60)
    queue = Cut(site.database, site.queue._now, site.times)
    ends: list[float] = []
    over: list[float] = []

    def cut() -> None:
        queue.away = True
        with read_transaction(site.database) as connection:
            left = connection.execute(select(jobs.c.lease_until).where(jobs.c.id == job)).scalar_one()
            ends.append(time.monotonic() + left - queue._clock.now(connection))

    threads = [
        later(lambda: events(site.log), cut),
        later(lambda: queue.away and not running(site), lambda: over.append(time.monotonic())),
    ]
    agent = site.agent(queue=queue)
    agent.work(once=True)
    for thread in threads:
        thread.join()
    assert over[0] < ends[0]
    assert site.job(job).state in (*RETRIED, "leased")


def test_a_job_that_is_given_back_for_a_reason_of_many_words_is_given_back(site: Site) -> None:
    class Strict(SqlQueue):
        """As a server is, which takes a reason of so many characters."""

        def release(self, fence: Fence, ended: LeaseEnd, reason: str) -> None:
            if len(reason.encode(errors="surrogatepass")) > REASON:
                raise InvalidInputError("the reason is too long")
            super().release(fence, ended, reason)

    def fetch(_: Digest) -> Lock:
        raise UnavailableError("no… " * REASON)

    job = site.submit()
    agent = site.agent(queue=Strict(site.database, site.queue._now, site.times))
    agent.environment = replace(agent.environment, fetch=fetch)
    agent.work(once=True)
    assert site.job(job).state in RETRIED


def test_an_agent_whose_machine_is_forgotten_says_again_what_it_is(site: Site) -> None:
    class Forgetful(SqlQueue):
        """Its database is an older one by the first question for work; it does not bear many."""

        asked = 0

        def lease(self, machine: MachineId, boot: str, nonce: str | None = None) -> Lease | None:
            self.asked += 1
            if self.asked == 1:
                with row_lock_transaction(site.database) as connection:
                    for table in ("eligible", "machines"):
                        connection.execute(text(f"DELETE FROM {table}"))
            if self.asked > 5:
                terminate()
            return super().lease(machine, boot, nonce)

    job = site.submit()
    assert site.agent(queue=Forgetful(site.database, site.queue._now, site.times)).work(once=True) == 1
    assert site.job(job).state == "done"


def test_a_worker_runs_no_process_that_it_was_not_told_to_whatever_the_queue_says(site: Site) -> None:
    job = site.submit()
    agent = site.agent()
    agent.processes = False
    told = facts_of(this_host(), None)
    agent._facts = told
    site.queue.enrol(agent.machine, boot_id(), structs.replace(told, processes=True, code=True))
    agent.work(once=True)
    found = site.job(job)
    assert (found.state in RETRIED, found.reason) == (True, "this worker runs only containers")
    assert events(site.log) == []


def test_a_lease_whose_answer_was_lost_is_asked_for_again_and_costs_nothing(site: Site) -> None:
    class Lossy(SqlQueue):
        """The first lease does not arrive."""

        lost = False

        def lease(self, machine: MachineId, boot: str, nonce: str | None = None) -> Lease | None:
            found = super().lease(machine, boot, nonce)
            if found is not None and not self.lost:
                self.lost = True
                raise UnavailableError("the answer was lost")
            return found

    job = site.submit()
    site.agent(queue=Lossy(site.database, site.queue._now, site.times)).work(once=True)
    done = site.job(job)
    assert (done.state, done.tally.total) == ("done", 0)
    with site.database.connect() as connection:
        assert len(connection.exec_driver_sql("SELECT fence FROM leases").all()) == 1


def test_the_runs_of_a_machine_whose_clock_is_wrong_are_recorded_and_its_clock_is_shown(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times that it reports end with the queue's; ids of runs are made from the queue's time."""
    jobs = [site.submit() for _ in range(3)]
    agent = site.agent()
    agent.clock = lambda: datetime.now(UTC) + timedelta(days=1)
    ended = RunEnd

    def ahead(**values: object) -> RunEnd:
        return ended(**(values | {"ended_at": datetime.now(UTC) + timedelta(days=1)}))  # type: ignore[arg-type]

    monkeypatch.setattr("benchlock.evaluator.workflows.run_record.RunEnd", ahead)
    for job in jobs:
        agent.work(once=True)
        found = site.job(job)
        assert (found.state, found.tally.total) == ("done", 0), found
        assert found.run is not None
        run = site.records.get(found.run)
        assert run.end is not None
        assert run.start.started_at <= run.end.ended_at <= datetime.now(UTC)
    (machine,) = site.queue.machines()
    assert machine.skew == pytest.approx(86400, abs=60)
    assert machine.held is None


def test_a_clock_that_is_set_is_told_to_the_queue(site: Site) -> None:
    agent = site.agent()
    agent._enrol()
    assert site.queue.machines()[0].skew == pytest.approx(0, abs=60)
    agent.clock = lambda: datetime.now(UTC) - timedelta(hours=2)
    assert agent._changes(None) == ()
    assert site.queue.machines()[0].skew == pytest.approx(-7200, abs=60)


class Late(SqlQueue):
    """A queue whose leases arrive when little of them is left, and that does not hear heartbeats."""

    def lease(self, machine: MachineId, boot: str, nonce: str | None = None) -> Lease | None:
        found = super().lease(machine, boot, nonce)
        time.sleep(0 if found is None else found.times.grace)
        return found

    def beat(self, fence: Fence, phase: Phase) -> Beat:
        raise ConnectionError(f"the heartbeat of {fence} in phase {phase} is lost")


def test_a_lease_counts_from_when_it_was_asked_for(site: Site) -> None:
    job = site.submit(2)
    site.agent(queue=Late(site.database, site.queue._now, site.times)).work(once=True)
    assert site.job(job).state in (*RETRIED, "leased")


def running(site: Site) -> bool:
    """Whether the harness that wrote the last line lives."""
    found = events(site.log)
    with suppress(ProcessLookupError):
        os.kill(int(found[-1][1]), 0)
        return True
    return False


def test_while_something_else_measures_on_the_host_no_job_is_taken(site: Site) -> None:
    job = site.submit()
    with host_lock(site.home / "host.lock"):
        asked = later(lambda: site.said[1:], terminate)
        assert site.agent().work() == 0
        asked.join()
    assert site.said[1:] == ["another process is measuring on this host"]
    assert site.job(job).state == "queued"


def test_a_machine_that_changed_since_it_was_enrolled_gives_the_job_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = site.submit()
    found = iter(["performance"])

    def governor(_folder: object) -> str:
        return next(found, "powersave")

    monkeypatch.setattr("benchlock.evaluator.runner.host_platform.read_governor", governor)
    site.agent().work(once=True)
    assert site.job(job).state == "done"
    with site.database.connect() as connection:
        reasons = connection.exec_driver_sql("SELECT ended, reason FROM leases ORDER BY fence").all()
    assert [tuple(row) for row in reasons] == [
        ("returned", "governor was performance, is powersave"),
        ("done", None),
    ]


@pytest.mark.parametrize("lost", ["enrol", "release"])
def test_a_lease_that_cannot_be_used_nor_given_back_yet_is_given_again_and_costs_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    class Away(SqlQueue):
        """Once, it does not answer after it gave a lease."""

        lost: str | None = None

        def lease(self, machine: MachineId, boot: str, nonce: str | None = None) -> Lease | None:
            self.lost = None if self.lost == "over" else lost
            return super().lease(machine, boot, nonce)

        def enrol(self, machine: MachineId, boot: str, facts: MachineFacts, clock: datetime | None = None) -> None:
            self._lose("enrol")
            super().enrol(machine, boot, facts, clock)

        def release(self, fence: Fence, ended: LeaseEnd, reason: str) -> None:
            self._lose("release")
            super().release(fence, ended, reason)

        def _lose(self, what: str) -> None:
            if self.lost == what:
                self.lost = "over"
                raise UnavailableError("no connection")

    job = site.submit()
    found = iter(["performance"])

    def governor(_folder: object) -> str:
        return next(found, "powersave")

    monkeypatch.setattr("benchlock.evaluator.runner.host_platform.read_governor", governor)
    site.agent(queue=Away(site.database, site.queue._now, site.times)).work(once=True)
    done = site.job(job)
    assert (done.state, done.tally.total) == ("done", 0)
    with site.database.connect() as connection:
        reasons = connection.exec_driver_sql("SELECT ended, reason FROM leases ORDER BY fence").all()
    assert [tuple(row) for row in reasons] == [
        ("returned", "governor was performance, is powersave"),
        ("done", None),
    ]


@pytest.mark.parametrize(("processes", "says"), [(True, "m1 accepts jobs; "), (False, "warning: m1 cannot run jobs: ")])
def test_an_agent_says_whether_it_can_take_any_job(site: Site, processes: bool, says: str) -> None:
    agent = site.agent()
    agent.processes = processes
    asked = later(lambda: site.said, terminate)
    assert agent.work() == 0
    asked.join()
    assert site.said[0].startswith(says)


def test_an_agent_that_is_not_let_in_says_nothing_of_jobs(site: Site) -> None:
    class Shut(SqlQueue):
        def enrol(self, machine: MachineId, boot: str, facts: MachineFacts, clock: datetime | None = None) -> None:
            raise InvalidInputError(f"the token may not enrol {machine} of {boot} as {facts.digest} at {clock}")

    with pytest.raises(InvalidInputError, match="may not"):
        site.agent(queue=Shut(site.database, site.queue._now, site.times)).work(once=True)
    assert site.said == []


class Refusing(SqlQueue):
    """A queue that refuses the agent's token from some moment on, and counts how often."""

    refused: bool = False
    count = 0

    def _check(self) -> None:
        if self.refused:
            self.count += 1
            raise UnauthorizedError("the token is revoked", where="token/x")

    def lease(self, machine: MachineId, boot: str, nonce: str | None = None) -> Lease | None:
        self._check()
        return super().lease(machine, boot, nonce)

    def beat(self, fence: Fence, phase: Phase) -> Beat:
        self._check()
        return super().beat(fence, phase)

    def commit(self, fence: Fence, run: RunId, end: RunEnd) -> Job:
        self._check()
        return super().commit(fence, run, end)

    def release(self, fence: Fence, ended: LeaseEnd, reason: str) -> None:
        self._check()
        super().release(fence, ended, reason)

    def depart(self, machine: MachineId) -> None:
        self._check()
        super().depart(machine)


def test_an_agent_whose_token_is_refused_ends_its_measurement_and_itself(site: Site) -> None:
    job = site.submit(60)
    queue = Refusing(site.database, site.queue._now, site.times)

    def refuse() -> None:
        queue.refused = True

    asked = later(lambda: events(site.log), refuse)
    began = time.monotonic()
    with pytest.raises(TokenRefusedError, match="its token was rejected: the token is revoked"):
        site.agent(queue=queue).work()
    asked.join()
    assert time.monotonic() - began < 50  # and not when the job's 60 seconds are over
    assert not running(site)
    assert queue.count <= 3
    assert site.job(job).state in (*RETRIED, "leased")
    assert site.said[-1] == f"{job}: stopped: the queue rejected this worker's token"


def test_an_idle_agent_whose_token_is_refused_ends_at_once(site: Site) -> None:
    queue = Refusing(site.database, site.queue._now, site.times)

    def refuse() -> None:
        queue.refused = True

    asked = later(lambda: site.said, refuse)
    with pytest.raises(TokenRefusedError):
        site.agent(queue=queue).work()
    asked.join()
    assert queue.count == 1


class Forbidding(SqlQueue):
    """A queue that forbids one verb for the first so many times."""

    verb, left = "", 0

    def _check(self, verb: str) -> None:
        if verb == self.verb and self.left:
            self.left -= 1
            raise ForbiddenError(f"this token may not {verb} that", where="token/x")

    def enrol(self, machine: MachineId, boot: str, facts: MachineFacts, clock: datetime | None = None) -> None:
        self._check("enrol")
        super().enrol(machine, boot, facts, clock)

    def lease(self, machine: MachineId, boot: str, nonce: str | None = None) -> Lease | None:
        self._check("lease")
        return super().lease(machine, boot, nonce)

    def begin(self, fence: Fence, start: RunStart) -> RunStart | None:
        self._check("begin")
        return super().begin(fence, start)

    def commit(self, fence: Fence, run: RunId, end: RunEnd) -> Job:
        self._check("commit")
        return super().commit(fence, run, end)


def forbidding(site: Site, verb: str) -> Forbidding:
    queue = Forbidding(site.database, site.queue._now, site.times)
    queue.verb, queue.left = verb, 1
    return queue


@pytest.mark.parametrize("verb", ["begin", "commit"])
def test_what_is_forbidden_of_one_job_gives_that_job_back_and_the_agent_goes_on(site: Site, verb: str) -> None:
    jobs = [site.submit(), site.submit()]
    agent = site.agent(queue=forbidding(site, verb))
    assert [agent.work(once=True), agent.work(once=True)] == [1, 1]
    first, second = (site.job(job) for job in jobs)
    assert (first.state in RETRIED, first.tally.engine) == (True, 1), site.said
    assert second.state == "done"
    assert "token is refused" not in "".join(site.said)


def test_a_lock_that_a_worker_may_not_read_is_tried_elsewhere(site: Site) -> None:
    job = site.submit()
    agent = site.agent()

    def fetch(_lock: Digest) -> Lock:
        raise ForbiddenError("this needs the scope read")

    agent.environment = replace(agent.environment, fetch=fetch)
    assert agent.work(once=True) == 1
    found = site.job(job)
    assert (found.state in RETRIED, found.tally.engine) == (True, 1), site.said
    assert site.said[-1] == f"{job}: returned to the queue: this needs the scope read"


@pytest.mark.parametrize("verb", ["enrol", "lease"])
def test_an_agent_that_may_not_speak_for_its_machine_ends_and_does_not_blame_its_token(site: Site, verb: str) -> None:
    with pytest.raises(MachineRefusedError, match=f"may not act for the machine m1: this token may not {verb} that"):
        site.agent(queue=forbidding(site, verb)).work()


def test_an_agent_pauses_where_a_job_waits_that_it_does_not_get(site: Site) -> None:
    """Otherwise it would ask without end."""

    class Greedy(SqlQueue):
        asked = 0

        def lease(self, *_: object, **__: object) -> Lease | None:
            self.asked += 1
            if self.asked > 10:
                terminate()
            return None

        def wait_for_job(self, *_: object) -> bool:
            return True

    queue = Greedy(site.database, lambda: datetime.now(UTC), site.times)
    start = time.monotonic()
    site.agent(queue=queue).work()
    assert time.monotonic() - start > 4 * site.agent().pause


def test_an_agent_asks_again_after_a_wait_that_failed(site: Site) -> None:
    class Failing(SqlQueue):
        def wait_for_job(self, *_: object) -> bool:
            raise UnavailableError("the server is away")

    agent = site.agent(queue=Failing(site.database, lambda: datetime.now(UTC), site.times))
    later(lambda: "the server is away" in site.said, site.submit)
    assert agent.work(once=True) == 1
