"""Every queue: each job once, each machine one job, and nothing that nobody hears of for ever.

The second half is a machine of random histories, which holds an implementation against plain values (queue_model.py).
"""

import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from msgspec import structs
from sqlalchemy import Connection, Engine, func, select, update

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import InvalidInputError, RefusedError, UnknownNameError
from benchlock.evaluator.queue.job_matching import JobRequirements, MachineFacts
from benchlock.evaluator.queue.queue_schema import eligible, job_results, lease_slots, leases, machines
from benchlock.evaluator.queue.queue_types import (
    MAX_LINES,
    Fence,
    FencedError,
    JobId,
    JobRequest,
    Lease,
    LeaseEnd,
    MachineId,
    ProgressLine,
    Queue,
    new_job_id,
)
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_store import Records, record_end
from benchlock.evaluator.records.run_types import Run, RunEnd, RunEndedError, RunId, new_run_id
from benchlock.evaluator.records.runs_schema import open_runs
from benchlock.registry.auth.audit_log import AuditLog
from benchlock.registry.auth.permissions import Actor, ForbiddenError, Scopes, use_actor
from benchlock.registry.auth.token_format import TokenId
from benchlock.registry.auth.tokens import Tokens
from benchlock.registry.database.engine import open_engine, open_server, read_transaction, write_transaction
from tests.support.evaluator.queue_model import QueueModel
from tests.support.evaluator.queues import (
    ANY,
    ARM,
    BOOT,
    CONFINED,
    GIB,
    LARGE,
    LOCK,
    LOCKS,
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
from tests.support.evaluator.recorded import NOON
from tests.support.servers.postgresql import PostgresServer

pytestmark = pytest.mark.databases
RUN = Scopes.parse(["run"])
MINE, OTHER = Actor("token/mine", RUN), Actor("token/other", RUN)


class Bench:
    """A queue on a database, and a clock that the test moves."""

    def __init__(self, database: Engine) -> None:
        self.database, self.clock = database, Ticking()
        self.queue: Queue = queue_of(database, self.clock)
        self.records = Records(database)

    def enrol(self, *numbers: int, what: MachineFacts | None = None) -> None:
        for number in numbers:
            self.queue.enrol(machine(number), BOOT, what or facts())

    def submit(self, wants: JobRequirements = ANY, lock: Digest = LOCK) -> JobId:
        return self.queue.submit(wish(wants, lock=lock)).id

    def lease(self, number: int) -> Lease:
        found = self.queue.lease(machine(number), BOOT)
        assert found is not None
        return found

    def none(self, number: int) -> bool:
        return self.queue.lease(machine(number), BOOT) is None

    def begun(self, lease: Lease) -> RunId:
        begun = self.queue.begin(lease.fence, start())
        assert begun is not None
        return begun.id

    def outcome(self, run: RunId) -> str | None:
        found = self.records.get(run).end
        return None if found is None else found.outcome


def tokens_of(database: Engine, count: int) -> list[TokenId]:
    """Tokens that somebody is let in with."""
    made = Tokens(database, lambda: datetime.now(UTC))
    return [made.create("a-worker", RUN)[0].id for _ in range(count)]


@pytest.fixture
def bench(database: Engine) -> Bench:
    return Bench(database)


def lines_of(bench: Bench, job: JobId) -> list[ProgressLine]:
    """The progress as pages read it."""
    return list(cast("SqlQueue", bench.queue).live({job: None})[job].lines)


def progress(*numbers: int) -> list[ProgressLine]:
    return [ProgressLine(number, "accuracy", number, 359) for number in numbers]


def test_progress_is_kept_once_and_its_last_lines_until_another_lease_reports(bench: Bench) -> None:
    bench.enrol(1, 2)
    job = bench.submit()
    lease = bench.lease(1)
    bench.queue.report(lease.fence, progress(1, 2, 3))
    bench.queue.report(lease.fence, progress(2, 3, 4))  # the response was lost
    assert lines_of(bench, job) == progress(1, 2, 3, 4)
    bench.queue.report(lease.fence, progress(*range(5, MAX_LINES + 5)))
    bench.queue.report(lease.fence, progress(*range(MAX_LINES + 5, MAX_LINES + 8)))
    kept = progress(*range(8, MAX_LINES + 8))
    assert lines_of(bench, job) == kept
    bench.queue.commit(lease.fence, bench.begun(lease), end())
    bench.queue.report(lease.fence, progress(MAX_LINES + 8))
    assert lines_of(bench, job) == kept  # the lease is over
    following = bench.submit()
    bench.queue.report(bench.lease(2).fence, progress(1))
    assert (lines_of(bench, job), lines_of(bench, following)) == ([], progress(1))


def test_neither_the_progress_nor_the_id_of_a_hidden_run_is_shown(bench: Bench) -> None:
    bench.enrol(1)
    job = bench.submit()
    lease = bench.lease(1)
    run = bench.begun(lease)
    bench.queue.report(lease.fence, progress(1))
    shown = cast("SqlQueue", bench.queue).live({job: None})[job]
    bench.records.hide(run, "noise")
    hidden = cast("SqlQueue", bench.queue).live({job: shown})[job]
    assert (len(shown.lines), hidden.lines) == (1, ())
    assert hidden.key != shown.key  # so that open pages load again
    assert run not in hidden.key


def test_a_job_is_leased_measured_and_done(bench: Bench) -> None:
    bench.enrol(1)
    job = bench.submit()
    lease = bench.lease(1)
    assert (lease.job, lease.lock, lease.times) == (job, LOCK, TIMES)
    assert bench.queue.job(job).phase == "preparing"
    run = bench.begun(lease)
    assert bench.queue.beat(lease.fence, "measuring") == "keep"
    shown = bench.queue.job(job)
    assert (shown.state, shown.phase, shown.machine, shown.run) == ("leased", "measuring", "m1", run)
    assert bench.records.get(run).end is None
    done = bench.queue.commit(lease.fence, run, end())
    assert (done.state, done.run, done.phase, done.failure) == ("done", run, None, None)
    assert bench.outcome(run) == "done"
    assert bench.none(1)


def test_the_same_wish_again_is_the_same_job(bench: Bench) -> None:
    asked = wish()
    assert bench.queue.submit(asked) == bench.queue.submit(asked)
    assert len(bench.queue.jobs()) == 1


def test_an_id_that_another_job_has_is_refused(bench: Bench) -> None:
    asked = wish()
    with use_actor(MINE):
        bench.queue.submit(asked)
        for other in (replace(asked, wants=CONFINED), replace(asked, allow_code=True)):
            with pytest.raises(InvalidInputError, match="another job has the id"):
                bench.queue.submit(other)
    with use_actor(OTHER), pytest.raises(ForbiddenError):
        bench.queue.submit(asked)
    assert len(bench.queue.jobs()) == 1


def test_jobs_come_by_pages_newest_first(bench: Bench) -> None:
    submitted = [bench.submit() for _ in range(5)]
    bench.queue.cancel(submitted[3])
    newest = submitted[::-1]
    assert [one.id for one in bench.queue.jobs()] == newest
    assert [one.id for one in bench.queue.jobs(limit=2)] == newest[:2]
    assert [one.id for one in bench.queue.jobs(before=newest[1], limit=2)] == newest[2:4]
    assert [one.id for one in bench.queue.jobs(state="queued", before=newest[0], limit=2)] == newest[2:4]
    assert not bench.queue.jobs(before=submitted[0])
    by_id = sorted(submitted, reverse=True)
    assert [one.id for one in bench.queue.jobs(prefix=by_id[0][:-1])] == by_id[:1]
    assert [one.id for one in bench.queue.jobs(prefix="job/01m7", limit=2)] == by_id[:2]
    assert [one.id for one in bench.queue.jobs(prefix="job/01m7", before=by_id[1])] == by_id[2:]
    assert not bench.queue.jobs(prefix="job/7zzz")


def test_a_lock_that_is_not_stored_is_refused(bench: Bench) -> None:
    with pytest.raises(UnknownNameError, match="has no lock"):
        bench.queue.submit(JobRequest(new_job_id(NOON), digest_bytes(b"another lock"), ANY))


def test_jobs_go_out_in_the_order_in_which_they_came(bench: Bench) -> None:
    bench.enrol(1, 2, 3)
    asked = [bench.submit(wants) for wants in (ANY, CONFINED, ANY)]
    assert [bench.lease(number).job for number in (3, 1, 2)] == asked


def test_a_machine_that_waits_hears_of_the_job_that_is_queued_for_it(bench: Bench) -> None:
    bench.enrol(1, 2)
    assert not bench.queue.wait_for_job(machine(1), 0.01)
    thread = threading.Timer(0.3, bench.submit, [PINNED])
    thread.start()
    assert bench.queue.wait_for_job(machine(1), 20)
    thread.join()
    bench.queue.drain(machine(1), "maintenance")
    assert not bench.queue.wait_for_job(machine(1), 0)
    thread = threading.Timer(0.3, bench.queue.drain, [machine(1), None])
    thread.start()
    assert bench.queue.wait_for_job(machine(1), 20)
    thread.join()
    assert not bench.queue.wait_for_job(machine(2), 0)
    lease = bench.lease(1)
    assert not bench.queue.wait_for_job(machine(1), 0)
    bench.queue.release(lease.fence, "returned", "stopped")
    assert bench.queue.wait_for_job(machine(1), 0)


def test_a_job_of_one_machine_is_given_to_no_other(bench: Bench) -> None:
    bench.enrol(2)
    job = bench.submit(PINNED)
    assert bench.none(2)
    waiting = bench.queue.explain(job)
    assert (waiting.blocked, waiting.machines[0].lacks) == (True, ("only m1 may run the job",))
    bench.enrol(1)
    assert bench.lease(1).job == job


def test_the_jobs_of_a_comparison_run_in_turn_and_each_lease_has_its_turn(bench: Bench) -> None:
    queue = cast("SqlQueue", bench.queue)
    asked = turns()
    bench.enrol(1, 2)
    submitted = queue.submit_comparison(asked)
    assert queue.submit_comparison(asked) == submitted
    assert [(job.id, job.part_of) for job in submitted] == [(request.id, turn) for request, turn in asked]
    bench.submit()
    assert bench.lease(2).part_of is None
    for request, turn in asked:
        lease = bench.queue.lease(machine(1), BOOT, "once")
        assert lease is not None
        assert (lease.job, lease.part_of) == (request.id, turn)
        assert bench.queue.lease(machine(1), BOOT, "once") == lease
        bench.queue.release(lease.fence, "returned", "stopped")
        again = bench.lease(1)
        assert (again.job, again.part_of) == (request.id, turn)
        bench.queue.commit(again.fence, bench.begun(again), end())
    assert {job.state for job in queue.comparison("0" * 16)} == {"done"}


def test_a_comparison_is_queued_as_a_whole_or_not_at_all(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = cast("SqlQueue", bench.queue)
    with use_actor(MINE):
        first = queue.submit_comparison(turns())
        with pytest.raises(InvalidInputError, match="another comparison has the id"):
            queue.submit_comparison(turns(2))
        broken = turns(2, "1" * 16)
        with pytest.raises(UnknownNameError, match="has no lock"):
            queue.submit_comparison([broken[0], (replace(broken[1][0], lock=digest_bytes(b"none")), broken[1][1])])
        monkeypatch.setattr("benchlock.evaluator.queue.submission_checks.MAX_WAITING", 4)
        with pytest.raises(RefusedError, match="3 queued jobs already; the maximum is 4"):
            queue.submit_comparison(turns(2, "1" * 16))
    with use_actor(OTHER):
        with pytest.raises(ForbiddenError):
            queue.submit_comparison(turns())
        with pytest.raises(ForbiddenError):
            queue.cancel_comparison("0" * 16)
    with pytest.raises(UnknownNameError, match="has no comparison"):
        queue.comparison("1" * 16)
    assert [job.id for job in bench.queue.jobs()] == [job.id for job in first][::-1]


def test_a_comparison_in_which_a_run_fails_ends_and_one_that_is_cancelled_too(bench: Bench) -> None:
    queue = cast("SqlQueue", bench.queue)
    bench.enrol(1)
    queue.submit_comparison(turns())
    lease = bench.lease(1)
    bench.queue.commit(lease.fence, bench.begun(lease), end("failed", "golden"))
    jobs = queue.comparison("0" * 16)
    assert [job.state for job in jobs] == ["failed", "cancelled", "cancelled"]
    assert f"cancelled: {jobs[0].id} of the same comparison has no result" == bench.queue.explain(jobs[1].id).sentence
    other = queue.submit_comparison(turns(3, "1" * 16))
    running = bench.lease(1)
    assert [job.state for job in queue.cancel_comparison("1" * 16)] == ["leased", "cancelled", "cancelled"]
    assert bench.queue.beat(running.fence, "measuring") == "cancel"
    bench.queue.release(running.fence, "cancelled", "cancelled")
    assert bench.queue.job(other[0].id).state == "cancelled"
    queue.submit_comparison(turns(3, "2" * 16))
    alone = bench.submit(PINNED)
    bench.queue.cancel(queue.comparison("2" * 16)[1].id)
    assert {job.state for job in queue.comparison("2" * 16)} == {"cancelled"}
    assert bench.queue.job(alone).state == "queued"
    bench.queue.cancel(alone)
    assert bench.none(1)


def test_a_machine_has_one_job_and_the_database_refuses_a_second(bench: Bench) -> None:
    bench.enrol(1)
    bench.submit()
    bench.submit()
    lease = bench.lease(1)
    assert bench.none(1)
    row = {"machine": "m1", "slot": 0, "fence": lease.fence}
    with write_transaction(bench.database) as connection, pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        connection.execute(lease_slots.insert(), row)


def test_fences_rise_and_are_never_given_twice(bench: Bench) -> None:
    bench.enrol(1)
    fences = []
    for _ in range(4):
        bench.submit()
        lease = bench.lease(1)
        bench.queue.release(lease.fence, "invalid", "gone")
        fences.append(lease.fence)
    with read_transaction(bench.database) as connection:
        assert list(connection.execute(select(leases.c.fence).order_by(leases.c.fence)).scalars()) == fences
    assert fences == sorted(set(fences))


def test_a_lease_of_which_nothing_is_heard_is_lost_and_its_run_abandoned(bench: Bench) -> None:
    bench.enrol(1, 2)
    job = bench.submit()
    lease = bench.lease(1)
    run = bench.begun(lease)
    bench.clock.time += TIMES.lease + 1
    assert bench.queue.job(job).state == "delayed"
    assert bench.outcome(run) == "abandoned"
    assert bench.queue.beat(lease.fence, "measuring") == "lost"
    assert not bench.queue.holds(lease.fence)
    with pytest.raises(FencedError):
        bench.queue.commit(lease.fence, run, end())
    bench.clock.time += TIMES.wait
    assert bench.none(1)
    again = bench.lease(2)
    assert again.job == job
    second = bench.begun(again)
    with pytest.raises(FencedError):
        bench.queue.commit(lease.fence, run, end())
    assert bench.queue.commit(again.fence, second, end()).run == second
    assert bench.records.get(second).start.attempt == 2


def test_a_lease_that_cannot_be_ended_keeps_no_other_from_its_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.enrol(1, 2)
    jobs = [bench.submit(), bench.submit()]
    runs = [bench.begun(bench.lease(number)) for number in (1, 2)]

    def broken(connection: Connection, run: RunId, end: RunEnd) -> None:
        if run == runs[0]:
            raise KeyError(run)
        record_end(connection, run, end)

    bench.clock.time += TIMES.lease + 1
    with monkeypatch.context() as patch:
        patch.setattr("benchlock.evaluator.queue.job_leases.record_end", broken)
        assert [bench.queue.job(job).state for job in jobs] == ["leased", "delayed"]
        assert [bench.outcome(run) for run in runs] == [None, "abandoned"]
    bench.clock.time += TIMES.lease + 1
    assert bench.queue.job(jobs[0]).state == "delayed"
    assert bench.outcome(runs[0]) == "abandoned"


def test_leases_that_are_over_end_a_few_at_a_time_until_none_is_left(
    database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchlock.evaluator.queue.job_leases.AT_ONCE", 1)
    clock = Ticking()
    queue = queue_of(database, clock)
    for number in (1, 2):
        queue.enrol(machine(number), BOOT, facts())
        queue.submit(wish())
        assert queue.lease(machine(number), BOOT) is not None
    assert not queue.settle()
    clock.time += TIMES.lease + 1
    assert [queue.settle() for _ in range(3)] == [True, True, False]


def test_a_lease_that_is_over_does_not_hold_though_nobody_looked_at_its_job(bench: Bench) -> None:
    bench.enrol(1)
    bench.submit()
    lease = bench.lease(1)
    run = bench.begun(lease)
    assert bench.queue.holds(lease.fence)
    bench.clock.time += TIMES.lease + 1
    assert not bench.queue.holds(lease.fence)
    assert bench.outcome(run) == "abandoned"


def test_a_beat_holds_a_lease_and_one_that_is_late_does_too_where_nobody_looked(bench: Bench) -> None:
    bench.enrol(1)
    job = bench.submit()
    lease = bench.lease(1)
    for _ in range(4):
        bench.clock.time += TIMES.lease - 1
        assert bench.queue.beat(lease.fence, "measuring") == "keep"
        assert bench.queue.job(job).state == "leased"
    bench.clock.time += TIMES.lease + 1
    assert bench.queue.commit(lease.fence, bench.begun(lease), end()).state == "done"


def test_a_lease_whose_answer_was_lost_is_given_again_to_who_asks_the_same(bench: Bench) -> None:
    bench.enrol(1)
    job = bench.submit()
    bench.submit()
    first = bench.queue.lease(machine(1), BOOT, "a-question")
    assert first is not None
    bench.clock.time += TIMES.lease - 1
    assert bench.queue.lease(machine(1), BOOT, "another") is None
    assert bench.none(1)
    assert bench.queue.lease(machine(1), BOOT, "a-question") == first
    bench.clock.time += TIMES.lease - 1
    assert bench.queue.holds(first.fence)
    assert bench.queue.job(job).tally.lost == 0
    bench.begun(first)
    assert bench.queue.lease(machine(1), BOOT, "a-question") is None


def test_an_answer_that_was_lost_is_given_again(bench: Bench) -> None:
    bench.enrol(1)
    bench.submit()
    lease = bench.lease(1)
    asked = start()
    first = bench.queue.begin(lease.fence, asked)
    assert bench.queue.begin(lease.fence, asked) == first
    assert bench.queue.begin(lease.fence, start()) is None
    said = structs.replace(end(), details={"calls": {"of": (1, None), "most": 2.0**60}}, timings={"run": 0.1 + 0.2})
    done = bench.queue.commit(lease.fence, asked.id, said)
    assert bench.queue.commit(lease.fence, asked.id, said) == done
    with pytest.raises(RunEndedError, match=f"{asked.id} has ended already: done"):
        bench.queue.commit(lease.fence, asked.id, end("failed", "crash"))
    assert bench.queue.job(done.id).state == "done"
    with read_transaction(bench.database) as connection:
        assert len(connection.execute(select(job_results)).all()) == 1


def test_a_run_that_cannot_be_is_not_recorded_and_the_lease_goes_on(bench: Bench) -> None:
    bench.enrol(1, 2)
    bench.submit()
    bench.submit()
    lease, other = bench.lease(1), bench.lease(2)
    future = NOON + timedelta(days=9999)
    with pytest.raises(InvalidInputError, match="but the clock here is at"):
        bench.queue.begin(lease.fence, start(new_run_id(future), started_at=future))
    run = bench.begun(lease)
    with pytest.raises(InvalidInputError, match="another run has the id"):
        bench.queue.begin(other.fence, start(run))
    with pytest.raises(InvalidInputError, match="cannot end as abandoned"):
        bench.queue.commit(lease.fence, run, end("abandoned"))
    assert bench.queue.commit(lease.fence, run, end()).state == "done"


def test_an_end_of_which_not_every_byte_is_text_is_the_same_again(bench: Bench) -> None:
    bench.enrol(1)
    bench.submit()
    lease = bench.lease(1)
    run = bench.begun(lease)
    said = structs.replace(end("failed", "timeout"), failure_message="it said \0 last")
    failed = bench.queue.commit(lease.fence, run, said)
    assert bench.queue.commit(lease.fence, run, said) == failed
    bench.submit()
    again = bench.lease(1)
    bench.queue.release(again.fence, "returned", "it said \0 last")
    assert bench.queue.job(again.job).reason == "it said \N{REPLACEMENT CHARACTER} last"


@pytest.mark.parametrize("failure", ["timeout", "golden", "out-of-memory"])
def test_a_failure_that_is_the_answer_ends_the_job(bench: Bench, failure: str) -> None:
    bench.enrol(1)
    job = bench.submit()
    lease = bench.lease(1)
    run = bench.begun(lease)
    failed = bench.queue.commit(lease.fence, run, end("failed", failure))
    assert (failed.state, failed.failure, failed.run, failed.reason) == ("failed", failure, run, f"see {run}")
    assert bench.queue.explain(job).sentence == f"failed ({failure}): see {run}"


def test_a_crash_is_tried_once_more_elsewhere_and_both_runs_are_kept(bench: Bench) -> None:
    bench.enrol(1, 2)
    job = bench.submit()
    found = []
    for number in (1, 2):
        lease = bench.lease(number)
        found.append(bench.begun(lease))
        bench.queue.commit(lease.fence, found[-1], end("failed", "crash"))
        bench.clock.time += TIMES.wait
        assert bench.none(1)
    assert [bench.outcome(run) for run in found] == ["failed", "failed"]
    assert (bench.queue.job(job).state, bench.queue.job(job).run) == ("failed", found[1])


def test_where_there_is_no_other_machine_the_same_one_tries_again(bench: Bench) -> None:
    bench.enrol(1)
    job = bench.submit()
    bench.queue.release(bench.lease(1).fence, "engine", "no engine answers")
    waiting = bench.queue.explain(job)
    assert (waiting.job.state, waiting.job.reason, waiting.job.due) == ("delayed", "no engine answers", TIMES.wait)
    assert bench.none(1)
    bench.clock.time += TIMES.wait
    assert bench.lease(1).job == job


def test_a_job_that_takes_three_machines_with_it_is_set_aside_and_others_go_on(bench: Bench) -> None:
    bench.enrol(1, 2, 3, 4)
    poison, other = bench.submit(), bench.submit()
    for number in (1, 2, 3):
        assert bench.lease(number).job == poison
        bench.clock.time += TIMES.lease + 1
        bench.queue.jobs()
        bench.clock.time += 9 * TIMES.wait
        bench.enrol(1, 2, 3, 4)
    found = bench.queue.job(poison)
    assert (found.state, found.tally.lost, found.failure) == ("quarantined", 3, "lost")
    assert "3 machines were lost while they ran it" in bench.queue.explain(poison).sentence
    assert bench.lease(4).job == other


def test_cancelling_ends_a_waiting_job_at_once_and_a_leased_one_when_its_agent_hears_of_it(bench: Bench) -> None:
    bench.enrol(1)
    leased, waiting = bench.submit(), bench.submit()
    lease = bench.lease(1)
    assert bench.queue.cancel(waiting).state == "cancelled"
    assert bench.queue.cancel(leased).state == "leased"
    run = bench.begun(lease)
    assert bench.queue.beat(lease.fence, "measuring") == "cancel"
    assert bench.queue.commit(lease.fence, run, end("cancelled")).state == "cancelled"
    assert bench.outcome(run) == "cancelled"
    assert bench.queue.cancel(leased).state == "cancelled"


def test_a_cancelled_job_whose_agent_is_lost_is_cancelled(bench: Bench) -> None:
    bench.enrol(1)
    job = bench.submit()
    bench.lease(1)
    bench.queue.cancel(job)
    bench.clock.time += TIMES.lease + 1
    assert bench.queue.job(job).state == "cancelled"


def test_a_run_that_was_interrupted_gives_its_job_back(bench: Bench) -> None:
    bench.enrol(1)
    job = bench.submit()
    lease = bench.lease(1)
    run = bench.begun(lease)
    assert bench.queue.commit(lease.fence, run, end("cancelled")).state == "queued"
    assert bench.lease(1).job == job


def test_a_job_that_no_machine_can_take_says_at_once_what_is_missing(bench: Bench) -> None:
    job = bench.submit(LARGE)
    assert bench.queue.explain(job).sentence.startswith("no machine can take it: none is known")
    bench.enrol(1)
    bench.enrol(2, what=facts(cpus=16))
    found = bench.queue.explain(job)
    assert found.blocked
    assert found.sentence.endswith("closest match m2: requires 64GiB of memory; this host has 8GiB")
    assert [len(one.lacks) for one in found.machines] == [1, 2]
    assert bench.none(1)
    assert bench.none(2)


def test_another_machine_is_needed_if_none_can_take_a_job_that_any_may_run_now(bench: Bench) -> None:
    job, pinned = bench.submit(LARGE), bench.submit(PINNED)
    assert bench.queue.explain(job).needs_machine
    assert bench.queue.explain(job).requirements == LARGE
    assert not bench.queue.explain(pinned).needs_machine
    (share,) = bench.queue.shares()
    bench.queue.set_share(share.owner, 1, 0)
    assert not bench.queue.explain(job).needs_machine
    bench.queue.set_share(share.owner, 1, None)
    assert bench.queue.explain(job).needs_machine
    bench.enrol(1, what=facts(cpus=16, memory=64 * GIB))
    assert not bench.queue.explain(job).needs_machine


def test_what_fits_is_known_anew_when_a_machine_changes(bench: Bench) -> None:
    bench.enrol(1)
    job = bench.submit(CONFINED)
    bench.enrol(1, what=facts(engine=None))
    assert bench.none(1)
    assert "requires a container engine; none responds on this host" in bench.queue.explain(job).sentence
    bench.enrol(1)
    assert bench.lease(1).job == job


def test_a_machine_that_drains_or_is_gone_is_said(bench: Bench) -> None:
    bench.enrol(1)
    job = bench.submit()
    bench.queue.drain(machine(1), "its owner wants it")
    assert bench.none(1)
    assert "1 of 1 would fit, but m1: is draining: its owner wants it" in bench.queue.explain(job).sentence
    bench.queue.drain(machine(1), None)
    assert not bench.queue.explain(job).blocked
    bench.clock.time += TIMES.unseen + 1
    found = bench.queue.explain(job)
    assert found.blocked
    assert "has sent nothing for" in found.sentence
    with pytest.raises(UnknownNameError):
        bench.queue.drain(machine(9), None)


def test_a_machine_whose_worker_said_that_it_ends_is_gone_until_it_is_heard_of(bench: Bench) -> None:
    bench.queue.depart(machine(1))  # nobody knows it
    bench.enrol(1)
    job = bench.submit()
    bench.queue.depart(machine(1))
    assert bench.queue.machines()[0].gone
    assert "its worker stopped" in bench.queue.explain(job).sentence
    assert bench.lease(1).job == job
    bench.queue.depart(machine(1))  # it has a lease, and is heard of
    assert not bench.queue.machines()[0].gone


def test_times_that_a_machine_reports_never_refuse_its_run_and_are_bounded_by_the_queue_s(bench: Bench) -> None:
    bench.enrol(1)
    bench.submit()
    lease, future = bench.lease(1), NOON + timedelta(days=9999)
    begun = bench.queue.begin(lease.fence, start(started_at=future))
    assert begun is not None
    assert begun.started_at <= datetime.now(UTC)
    assert bench.queue.begin(lease.fence, start(begun.id, started_at=future)) == begun
    said = structs.replace(end(), ended_at=future)
    assert bench.queue.commit(lease.fence, begun.id, said).state == "done"
    assert bench.queue.commit(lease.fence, begun.id, said).state == "done"
    ended = bench.records.get(begun.id).end
    assert ended is not None
    assert begun.started_at <= ended.ended_at <= datetime.now(UTC)


def test_how_far_the_clock_of_a_machine_is_off_is_known(bench: Bench) -> None:
    bench.queue.enrol(machine(1), BOOT, facts(), datetime.now(UTC) + timedelta(hours=2))
    bench.enrol(2)
    first, second = bench.queue.machines()
    assert first.skew == pytest.approx(7200, abs=60)
    assert second.skew is None


def test_a_lock_whose_bytes_are_other_everywhere_holds_no_machine_back(bench: Bench) -> None:
    bench.enrol(1)
    for _ in range(4):
        bench.submit()
        bench.queue.release(bench.lease(1).fence, "integrity", "another digest")
    (found,) = bench.queue.machines()
    assert (found.draining, found.held) == (None, None)


OWN_ENDS = ["lost", "engine", "integrity", "failed run"]


def fail(bench: Bench, how: str, number: int = 1) -> JobId:
    """A job that the machine gets, and that ends for a reason of the machine."""
    lease = bench.lease(number)
    if how == "lost":
        bench.clock.time += TIMES.lease + 1
        bench.queue.jobs()
        bench.enrol(number)
    elif how == "failed run":
        begun = bench.queue.begin(lease.fence, start(lock=lease.lock))
        assert begun is not None
        bench.queue.commit(lease.fence, begun.id, end("failed", "engine"))
    else:
        bench.queue.release(lease.fence, "engine" if how == "engine" else "integrity", "a reason\nof two lines")
    return lease.job


@pytest.mark.parametrize("how", OWN_ENDS)
def test_a_machine_that_loses_two_jobs_in_a_row_is_held_back_and_burns_no_more(bench: Bench, how: str) -> None:
    bench.enrol(1)
    queued = [bench.submit(lock=LOCKS[number % 2]) for number in range(6)]
    lost = [fail(bench, how) for _ in range(2)]
    assert bench.none(1)
    (found,) = bench.queue.machines()
    assert found.held is not None
    assert found.held.startswith("2 jobs in a row failed because of this machine; last cause: ")
    assert "\n" not in found.held
    assert found.held_for == TIMES.unseen
    totals = {job: bench.queue.job(job).tally.total for job in queued}
    assert totals == {job: int(job in lost) for job in queued}
    waiting = bench.queue.explain(queued[2])
    assert waiting.blocked
    assert f"m1: is held back for another {TIMES.unseen:.0f} s: {found.held}" in waiting.sentence
    bench.queue.drain(machine(1), None)
    assert bench.queue.machines()[0].held is None
    assert bench.lease(1).fence


def test_a_machine_that_is_held_back_is_probed_and_a_probe_costs_no_try(bench: Bench) -> None:
    bench.enrol(1)
    queued = [bench.submit() for _ in range(4)]
    lost = [fail(bench, "engine") for _ in range(2)]
    before = {job: bench.queue.job(job).tally for job in queued}
    for number in range(3):
        bench.clock.time += TIMES.unseen * 2**number
        bench.enrol(1)
        fail(bench, "engine")
        assert bench.none(1)
        assert bench.queue.machines()[0].held_for == TIMES.unseen * 2 ** (number + 1)
    assert {job: bench.queue.job(job).tally for job in queued} == before
    bench.clock.time += TIMES.unseen * 8
    bench.enrol(1)
    lease = bench.lease(1)
    bench.queue.commit(lease.fence, bench.begun(lease), end())
    assert bench.queue.machines()[0].held is None
    assert bench.lease(1).fence
    assert lost


def test_a_success_in_between_forgets_and_what_says_nothing_of_the_machine_does_not(bench: Bench) -> None:
    bench.enrol(1)
    for _ in range(8):
        bench.submit()
    fail(bench, "engine")
    lease = bench.lease(1)
    bench.queue.commit(lease.fence, bench.begun(lease), end("failed", "golden"))
    fail(bench, "engine")
    bench.queue.release(bench.lease(1).fence, "returned", "its agent was asked to end")
    assert bench.queue.machines()[0].held is None
    fail(bench, "engine")
    assert bench.queue.machines()[0].held is not None


def test_jobs_that_take_machines_with_them_hold_none_of_these_back(bench: Bench) -> None:
    bench.enrol(1, 2, 3)
    poison = [bench.submit(), bench.submit()]
    for _ in range(20):
        for number in (1, 2, 3):
            bench.enrol(1, 2, 3)
            if bench.queue.lease(machine(number), BOOT) is not None:
                bench.clock.time += TIMES.lease + 1
                bench.queue.jobs()
        bench.clock.time += 9 * TIMES.wait
    assert [bench.queue.job(job).state for job in poison] == ["quarantined", "quarantined"]
    bench.enrol(1, 2, 3)
    assert [one.held for one in bench.queue.machines()] == [None, None, None]


def test_a_run_under_a_lease_is_left_alone_by_who_looks_for_abandoned_ones(bench: Bench) -> None:
    bench.enrol(1)
    bench.submit()
    run = bench.begun(bench.lease(1))
    assert bench.records.unfinished() == ()
    with read_transaction(bench.database) as connection:
        assert connection.execute(select(open_runs.c.run)).scalars().all() == [run]


def test_a_lease_and_a_job_belong_to_who_took_them(database: Engine) -> None:
    bench = Bench(database)
    mine, other = MINE, OTHER
    queue, examined = bench.queue, list[Run]()
    assert isinstance(queue, SqlQueue)
    with use_actor(mine):
        bench.enrol(1)
        job = bench.submit()
        lease = bench.lease(1)
        run = bench.begun(lease)
    with use_actor(other):
        assert bench.queue.begin(lease.fence, start(run)) is None
        assert bench.queue.beat(lease.fence, "measuring") == "lost"
        bench.queue.release(lease.fence, "invalid", "mischief")
        with pytest.raises(FencedError):
            queue.commit_checked(lease.fence, run, end(), examined.append)
        with pytest.raises(ForbiddenError):
            bench.queue.cancel(job)
    assert examined == []  # a stranger causes no examination
    with use_actor(mine):
        assert bench.queue.beat(lease.fence, "measuring") == "keep"
        assert queue.commit_checked(lease.fence, run, end(), examined.append).state == "done"
        assert queue.commit_checked(lease.fence, run, end(), examined.append).state == "done"
    assert [one.id for one in examined] == [run]


def test_a_machine_belongs_to_the_token_that_enrolled_it(bench: Bench, database: Engine) -> None:
    mine, other = (Actor(one, RUN) for one in tokens_of(database, 2))
    with use_actor(mine):
        bench.enrol(1)
        bench.submit()
    with use_actor(other):
        for refused in (lambda: bench.enrol(1, what=facts(cpus=64)), lambda: bench.lease(1)):
            with pytest.raises(ForbiddenError, match="m1 belongs to another token"):
                refused()
        bench.enrol(2)
    bench.enrol(1)  # an administrator may, and leaves it whose it is
    with use_actor(mine):
        assert bench.queue.machines()[0].facts == facts()
        assert bench.queue.beat(bench.lease(1).fence, "measuring") == "keep"
    assert [one.id for one in bench.queue.machines(after=machine(1), limit=1)] == ["m2"]
    assert [one.id for one in bench.queue.machines(limit=1)] == ["m1"]


def test_a_machine_whose_token_is_of_no_use_any_more_is_the_next_one_s(bench: Bench, database: Engine) -> None:
    old, new = tokens_of(database, 2)
    with use_actor(Actor(old, RUN)):
        bench.enrol(1)
    Tokens(database, lambda: datetime.now(UTC)).revoke(old)
    with use_actor(Actor(new, RUN)):
        bench.enrol(1)
        bench.submit()
        assert bench.lease(1).fence


def test_a_machine_that_was_enrolled_without_a_token_is_the_first_token_s(bench: Bench, database: Engine) -> None:
    mine, other = (Actor(one, RUN) for one in tokens_of(database, 2))
    bench.enrol(1, 2)
    with write_transaction(database) as connection:  # as databases have it from before that was so
        connection.execute(update(machines).where(machines.c.id == "m2").values(owner="embedded"))
    bench.enrol(2)
    with use_actor(mine):
        bench.enrol(1, 2)
        bench.submit()
        assert bench.lease(1).fence
    with use_actor(other), pytest.raises(ForbiddenError):
        bench.enrol(1)


def test_what_no_open_job_asks_is_compared_with_no_machine(bench: Bench, database: Engine) -> None:
    queue = cast("SqlQueue", bench.queue)

    def matches() -> int:
        with read_transaction(database) as connection:
            return connection.execute(select(func.count()).select_from(eligible)).scalar_one()

    bench.enrol(1, 2)
    over, waiting = bench.submit(LARGE), bench.submit(ANY)
    queue.cancel(over)
    assert matches() == 4
    assert queue.remove_unused_matches() == 2
    bench.enrol(3, 4, 5)
    assert matches() == 5
    queue.cancel(waiting)
    assert queue.remove_unused_matches() == 5
    again = bench.submit(ANY)
    assert matches() == 5
    assert bench.lease(4).job == again


def test_who_enrols_a_machine_takes_it_over_or_changes_it_is_logged(bench: Bench, database: Engine) -> None:
    old, new = tokens_of(database, 2)
    with use_actor(Actor(old, RUN)):
        bench.enrol(1, 1)
    Tokens(database, lambda: datetime.now(UTC)).revoke(old)
    with use_actor(Actor(new, RUN)):
        bench.enrol(1, 1)
        bench.enrol(1, what=facts(cpus=64))
    logged = [(one.actor, one.target) for one in AuditLog(database).list() if one.action == "machine.enrol"]
    assert sorted(logged) == sorted([(old, "m1"), (new, "m1"), (new, "m1")])


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_when_a_token_ends_its_jobs_do_not_run_and_its_leases_end(bench: Bench, how: str) -> None:
    (leaver, other), queue = tokens_of(bench.database, 2), cast("SqlQueue", bench.queue)
    with use_actor(Actor(leaver, RUN)):
        bench.enrol(1)
        mine = [bench.submit() for _ in range(3)]
    with use_actor(Actor(other, RUN)):
        bench.enrol(2, 3)
        running = bench.lease(2)
    with use_actor(Actor(leaver, RUN)):
        held = bench.lease(1)
        begun = bench.begun(held)
    with use_actor(Actor(other, RUN)):
        theirs = [bench.submit() for _ in range(2)]
    assert (running.job, held.job) == (mine[0], mine[1])
    assert not queue.cancel_token_work()
    if how == "revoked":
        Tokens(bench.database, lambda: datetime.now(UTC)).revoke(leaver)
    else:
        queue._now = lambda: datetime.now(UTC) + timedelta(days=91)
        now = queue._now()
        Tokens(bench.database, lambda: now - timedelta(days=5)).rotate(other)
    assert not queue.cancel_token_work()
    assert bench.outcome(begun) == "abandoned"
    for job in mine[1:]:
        found = queue.job(job)
        assert (found.state, found.failure, found.tally.total) == ("cancelled", f"token-{how}", 0)
        assert queue.explain(job).sentence == f"cancelled: the token that submitted it is {how}"
    gone = {one.id: one.gone_because for one in queue.machines() if one.gone}
    assert gone == {"m1": f"its token is {how}"}
    obstacles = [one.obstacle for one in queue.explain(theirs[0]).machines if one.machine == machine(1)]
    assert obstacles == [f"its token is {how}"]
    with use_actor(Actor(other, RUN)):  # what runs is asked to end where the token was revoked
        assert queue.beat(running.fence, "measuring") == ("cancel" if how == "revoked" else "keep")
        assert bench.lease(3).job == theirs[0]
    logged = [one.target for one in AuditLog(bench.database).list() if one.action == "job.cancel"]
    assert logged == [f"{3 if how == 'revoked' else 2} of {leaver}, which is {how}"]
    assert not queue.cancel_token_work()


def test_a_job_whose_token_ended_a_moment_ago_is_not_given_out(bench: Bench) -> None:
    (leaver, other) = tokens_of(bench.database, 2)
    with use_actor(Actor(leaver, RUN)):
        job = bench.submit()
    with use_actor(Actor(other, RUN)):
        bench.enrol(1)
        Tokens(bench.database, lambda: datetime.now(UTC)).revoke(leaver)
        assert bench.none(1)
        later = bench.submit()
        assert bench.lease(1).job == later
    assert bench.queue.job(job).state == "cancelled"


def test_a_rotated_token_keeps_its_machine_its_lease_and_its_jobs(bench: Bench) -> None:
    (worker,) = tokens_of(bench.database, 1)
    with use_actor(Actor(worker, RUN)):
        bench.enrol(1)
        bench.submit()
        waiting = bench.submit()
        lease = bench.lease(1)
        Tokens(bench.database, lambda: datetime.now(UTC)).rotate(worker, grace=timedelta(0))
        cast("SqlQueue", bench.queue).cancel_token_work()
        assert bench.queue.beat(lease.fence, "measuring") == "keep"
        assert bench.queue.job(waiting).state == "queued"
        assert not bench.queue.machines()[0].gone


def test_a_token_enrols_so_many_machines_and_no_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchlock.evaluator.queue.worker_machines.MAX_OWNED", 2)
    with use_actor(MINE):
        bench.enrol(1, 2, 1)
        with pytest.raises(RefusedError, match="2 machines already"):
            bench.enrol(3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cpu_model": "x" * (1 << 15)}, "has [0-9]+ bytes; the limit is 16384|bytes; the maximum is 16384"),
        ({"kernel": "Linux\nm2  free  another line"}, "kernel of m1 contains control characters"),
        ({"host": replace(facts().host, os="linux\x1b[2J")}, "host.os of m1 contains control characters"),
        ({"host": replace(facts().host, cpus=10**30)}, "canonical JSON"),
    ],
    ids=["large", "lines", "escapes", "numbers"],
)
def test_facts_that_are_large_or_no_plain_text_are_refused(bench: Bench, changes: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        bench.enrol(1, what=structs.replace(facts(), **changes))
    assert bench.queue.machines() == []


def test_a_token_has_so_many_queued_jobs_and_no_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchlock.evaluator.queue.submission_checks.MAX_WAITING", 2)
    with use_actor(MINE):
        bench.enrol(1)
        first = wish()
        bench.queue.submit(first)
        bench.submit()
        with pytest.raises(RefusedError, match="2 queued jobs already"):
            bench.submit()
        bench.queue.submit(first)  # the same again
        bench.lease(1)
        bench.submit()
    with use_actor(OTHER):
        bench.submit()


def test_machines_are_listed_however_many_there_are(bench: Bench) -> None:
    bench.enrol(1, 2, 3, 4, 5)
    assert [one.id for one in bench.queue.machines()] == ["m1", "m2", "m3", "m4", "m5"]
    assert [one.id for one in bench.queue.machines(after=machine(1), limit=3)] == ["m2", "m3", "m4"]


def test_an_unknown_machine_gets_nothing(bench: Bench) -> None:
    with pytest.raises(UnknownNameError, match="unknown machine m1"):
        bench.queue.lease(machine(1), BOOT)


# random histories

FACTS = st.sampled_from([facts(), facts(engine=None), facts(cpus=8, memory=64 << 30), facts(arch="arm64")])
WANTS = st.sampled_from([ANY, ANY, LARGE, ARM, CONFINED, PINNED])
MACHINES = st.sampled_from([machine(number) for number in range(3)])
SECONDS = st.sampled_from([1.0, TIMES.wait, TIMES.beat, TIMES.lease + 1, TIMES.unseen + 1])
ENDS = st.sampled_from(
    [end(), end("cancelled"), *(end("failed", one) for one in ("crash", "engine", "golden", "timeout"))]
)
RELEASES: st.SearchStrategy[LeaseEnd] = st.sampled_from(["returned", "engine", "integrity", "invalid"])


class Histories(RuleBasedStateMachine):
    """Any order of verbs, those of agents too that are late, frozen or repeat themselves."""

    engine: Engine

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(self.engine)
        self.model = QueueModel(TIMES, self.bench.clock.time)
        self.count = 0

    made = Bundle("made")
    given = Bundle("given")

    @initialize()
    def first_machine(self) -> None:
        self.enrolled(machine(0), facts())

    @rule(target=made, wants=WANTS, lock=st.sampled_from(LOCKS))
    def submitted(self, wants: JobRequirements, lock: Digest) -> JobId:
        asked = wish(wants, lock=lock)
        self.bench.queue.submit(asked)
        self.model.submit(asked)
        self.model.settle()
        return asked.id

    @rule(name=MACHINES, what=FACTS)
    def enrolled(self, name: MachineId, what: MachineFacts) -> None:
        self.bench.queue.enrol(name, BOOT, what)
        self.model.enrol(name, what)

    @rule()
    def collected(self) -> None:
        """What no open job asks goes, and decides nothing."""
        cast("SqlQueue", self.bench.queue).remove_unused_matches()

    @rule(seconds=SECONDS)
    def passed(self, seconds: float) -> None:
        self.bench.clock.time += seconds
        self.model.now = self.bench.clock.time

    @rule(job=made)
    def cancelled(self, job: JobId) -> None:
        self.bench.queue.cancel(job)
        self.model.cancel(job)
        self.model.settle()

    @rule(name=MACHINES, draining=st.booleans())
    def drained(self, name: MachineId, draining: bool) -> None:
        if name in self.model.machines:
            self.bench.queue.drain(name, "why" if draining else None)
            self.model.drain(name, draining=draining)

    @rule(target=given, name=MACHINES)
    def leased(self, name: MachineId) -> object:
        if name not in self.model.machines:
            return multiple()
        self.model.settle()
        expected = self.model.next_for(name)
        found = self.bench.queue.lease(name, BOOT)
        assert (None if found is None else found.job) == expected
        if found is None:
            self.model.machines[name].seen = max(self.model.machines[name].seen, self.heard(name))
            return multiple()
        self.model.machines[name].seen = self.model.now
        self.model.leased(name, found.job, found.fence)
        return found.fence

    def heard(self, name: MachineId) -> float:
        """When the machine was heard of by the queue: asking in vain is not written down every time."""
        (found,) = (one for one in self.bench.queue.machines() if one.id == name)
        return self.model.now - found.unseen

    @rule(fence=given)
    def begun(self, fence: Fence) -> None:
        run = new_run_id(NOON)
        lock = self.model.jobs[self.model.leases[fence].job].wish.lock
        started = self.bench.queue.begin(fence, start(run, lock=lock))
        assert (started is not None) == self.model.begin(fence, run)

    @rule(fence=given)
    def beaten(self, fence: Fence) -> None:
        assert self.bench.queue.beat(fence, "measuring") == self.model.beat(fence)

    @rule(fence=given, how=ENDS)
    def committed(self, fence: Fence, how: object) -> None:
        run = self.model.leases[fence].run
        if run is None:
            return
        expected = self.model.commit(fence, how)  # type: ignore[arg-type]
        try:
            self.bench.queue.commit(fence, run, how)  # type: ignore[arg-type]
        except (FencedError, RunEndedError):
            assert not expected
        else:
            assert expected

    @rule(fence=consumes(given), how=RELEASES)
    def released(self, fence: Fence, how: LeaseEnd) -> None:
        self.bench.queue.release(fence, how, "a reason")
        self.model.release(fence, how)

    @invariant()
    def agrees(self) -> None:
        self.model.settle()
        found = {one.id: one for one in self.bench.queue.jobs()}
        assert {id_: (one.state, one.tally) for id_, one in found.items()} == {
            id_: (one.state, one.tally) for id_, one in self.model.jobs.items()
        }
        assert {one.id: (one.draining is not None, one.held is not None) for one in self.bench.queue.machines()} == {
            id_: (one.draining, one.held_until is not None) for id_, one in self.model.machines.items()
        }
        with read_transaction(self.bench.database) as connection:
            results = {row.job: row.run for row in connection.execute(select(job_results))}
            slots = connection.execute(select(lease_slots)).all()
            left_open = set(connection.execute(select(open_runs.c.run)).scalars())
        assert results == {id_: one.result for id_, one in self.model.jobs.items() if one.result}
        assert sorted(row.fence for row in slots) == sorted(
            fence for fence, lease in self.model.leases.items() if lease.holds
        )
        assert left_open == {lease.run for lease in self.model.live() if lease.run}

    @invariant()
    def explains(self) -> None:
        for id_, job in self.model.jobs.items():
            if job.state != "queued":
                continue
            open_to = [
                name
                for name, one in self.model.machines.items()
                if self.model._may(job, name)
                and not one.draining
                and not self.model.is_held(name)
                and self.model.now - one.seen <= TIMES.unseen
            ]
            assert self.bench.queue.explain(id_).blocked == (not open_to)


@pytest.fixture
def another(request: pytest.FixtureRequest, database: Engine, tmp_path: Path) -> Iterator[Callable[[], Engine]]:
    """Makes a database of its own for each history, as the test's is."""
    is_file = database.dialect.name == "sqlite"
    server: PostgresServer | None = None if is_file else request.getfixturevalue("postgresql")
    with ExitStack() as stack:

        def made() -> Engine:
            if server is not None:
                engine = open_server(stack.enter_context(server.database()))
            else:
                path = tmp_path / f"{secrets.token_hex(8)}.db"
                shutil.copy(request.getfixturevalue("schema"), path)
                engine = open_engine(path)
            stack.callback(engine.dispose)
            return engine

        yield made


def test_any_history_is_that_of_the_model(database: Engine, another: Callable[[], Engine]) -> None:
    class Own(Histories):
        def __init__(self) -> None:
            self.engine = another()
            super().__init__()

        def teardown(self) -> None:
            self.engine.dispose()

    count = 15 if database.dialect.name == "sqlite" else 6
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    chosen = settings(max_examples=count, stateful_step_count=25, deadline=None, suppress_health_check=checks)
    run_state_machine_as_test(Own, settings=chosen)
