"""The queue in SQL, on SQLite and PostgreSQL.

What appends to the run records uses ``write_transaction``, which is alone in the database. Everything else uses
``row_lock_transaction`` and locks the rows that it changes, always a machine's row before a job's. Rows of jobs that
another transaction has locked are skipped.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any

from msgspec import UNSET, UnsetType, to_builtins
from msgspec.structs import replace
from sqlalchemy import ColumnElement, Connection, Engine, Row, insert, select, update

from benchlock.artifacts import size_limits
from benchlock.artifacts.errors import UnknownNameError
from benchlock.evaluator.queue import job_leases, job_status
from benchlock.evaluator.queue.fair_shares import (
    PRIORITY_SECONDS,
    Candidate,
    list_candidates,
    load_shares,
    set_share,
    start_owner,
)
from benchlock.evaluator.queue.file_locality import ArtifactSizes
from benchlock.evaluator.queue.job_leases import BUSY, DUE, GLANCE, MARK_SEEN, ClaimRequest, claim
from benchlock.evaluator.queue.job_matching import MachineFacts
from benchlock.evaluator.queue.job_status import (
    SEE,
    find_job,
    job_of,
    lease_of,
    load_job,
    load_live,
    load_machines,
    select_held,
    select_jobs,
    store_lines,
)
from benchlock.evaluator.queue.lease_times import Moment, Times
from benchlock.evaluator.queue.queue_clock import Clock, queue_id
from benchlock.evaluator.queue.queue_schema import jobs, leases, machines
from benchlock.evaluator.queue.queue_types import (
    Beat,
    Explanation,
    Fence,
    FencedError,
    Job,
    JobId,
    JobRequest,
    JobState,
    Lease,
    LeaseEnd,
    LiveJob,
    Machine,
    MachineId,
    Phase,
    ProgressLine,
    Share,
)
from benchlock.evaluator.queue.submission_checks import (
    check_again,
    check_begun,
    check_facts,
    check_over,
    check_same,
    check_same_comparison,
    check_waiting,
)
from benchlock.evaluator.queue.worker_machines import (
    check_own,
    check_valid,
    mark_departed,
    release_machine,
    remove_unused_matches,
    store_class,
    store_machine,
    token_states,
)
from benchlock.evaluator.records.comparison_types import ComparisonTurn
from benchlock.evaluator.records.run_store import load_run, record_start, runs_of
from benchlock.evaluator.records.run_types import Run, RunEnd, RunId, RunStart, clean_message, replace_nul
from benchlock.registry.auth.audit_log import record_action
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.database.column_types import begins_with
from benchlock.registry.database.commit_signals import JOBS, Signal, open_signal, send_signal
from benchlock.registry.database.engine import read_transaction, row_lock_transaction, write_transaction
from benchlock.registry.database.registry_schema import locks


class SqlQueue:
    """A ``Queue`` in the database of a registry.

    Args:
        database: The database.
        now: The calendar clock, for times that people read.
        times: The durations of leases.
        clock: The queue's clock; by default a new one of these durations.
    """

    def __init__(
        self, database: Engine, now: Callable[[], datetime], times: Times | None = None, clock: Clock | None = None
    ) -> None:
        """Open the queue in a database."""
        self._database = database
        self._now = now
        self._times = times or Times()
        self._clock = clock or Clock(self._times)
        self._name: str | None = None
        self._sizes = ArtifactSizes()

    def submit(self, request: JobRequest) -> Job:
        """Queue a job; the same request again changes nothing."""
        with write_transaction(self._database) as connection:
            row = connection.execute(select(jobs).where(jobs.c.id == request.id)).first()
            if row is None:
                check_waiting(connection)
                self._insert(connection, [request])
            else:
                check_same(row, request)
        return self.job(request.id)

    def submit_comparison(self, turns: Sequence[tuple[JobRequest, ComparisonTurn]]) -> list[Job]:
        """Queue all jobs of an interleaved comparison in order, or none; the same comparison again changes nothing.

        Raises:
            As ``submit``.
        """
        comparison = turns[0][1].id
        with write_transaction(self._database) as connection:
            of_it = select(jobs).where(jobs.c.comparison == comparison).order_by(jobs.c.seq)
            rows = connection.execute(of_it).all()
            if rows:
                check_same_comparison(rows, turns)
            else:
                check_waiting(connection, len(turns))
                for request, turn in turns:
                    self._insert(connection, [request], turn)
        return self.comparison(comparison)

    def insert_all(self, connection: Connection, requests: Sequence[JobRequest]) -> None:
        """Queue new jobs in order, in a ``write_transaction`` of the caller, who records the action.

        Raises:
            RefusedError: The token would have more than the maximum number of queued jobs.
        """
        check_waiting(connection, len(requests))
        self._insert(connection, requests, is_logged=False)

    def comparison(self, comparison: str) -> list[Job]:
        """Return the jobs of an interleaved comparison in their order.

        Raises:
            UnknownNameError: There is no such comparison.
        """
        self.settle()
        with read_transaction(self._database) as connection:
            now = self._clock.now(connection)
            of_it = select_jobs().where(jobs.c.comparison == comparison).order_by(jobs.c.seq)
            found = [job_of(row, now) for row in connection.execute(of_it)]
        if not found:
            raise UnknownNameError(f"the queue has no comparison {comparison}", where=comparison)
        return found

    def cancel_comparison(self, comparison: str) -> list[Job]:
        """Cancel every job of an interleaved comparison that has not ended, as ``cancel`` does."""
        self.cancel_all(jobs.c.comparison == comparison, f"comparison {comparison}")
        return self.comparison(comparison)

    def job(self, job: JobId) -> Job:
        """Return the job in its current state."""
        self.settle()
        with read_transaction(self._database) as connection:
            return load_job(connection, job, self._clock.now(connection))

    def jobs(
        self, *, state: JobState | None = None, prefix: str = "", before: JobId | None = None, limit: int = 100
    ) -> Sequence[Job]:
        """List the newest jobs, newest first."""
        self.settle()
        query = select_jobs().order_by(jobs.c.id.desc() if prefix else jobs.c.seq.desc()).limit(limit)
        if state is not None:
            query = query.where(jobs.c.state == state)
        if prefix:
            query = query.where(begins_with(jobs.c.id, prefix))
            query = query if before is None else query.where(jobs.c.id < before)
        elif before is not None:
            newer = jobs.alias()
            query = query.where(jobs.c.seq < select(newer.c.seq).where(newer.c.id == before).scalar_subquery())
        with read_transaction(self._database) as connection:
            now = self._clock.now(connection)
            return [job_of(row, now) for row in connection.execute(query)]

    def cancel(self, job: JobId) -> Job:
        """Cancel a job that waits, or mark a leased job for cancellation; with it, the rest of its comparison."""
        this = jobs.alias()
        comparison = select(this.c.comparison).where(this.c.id == job).scalar_subquery()
        self.cancel_all((jobs.c.id == job) | (jobs.c.comparison == comparison), job)
        return self.job(job)

    def may_cancel(self, job: JobId) -> bool:
        """Return whether the actor may cancel a job, with the rest of its comparison."""
        with read_transaction(self._database) as connection:
            owner = connection.execute(select(jobs.c.owner).where(jobs.c.id == job)).scalar()
        return owner is not None and get_actor().owns(owner)

    def cancel_all(self, condition: ColumnElement[bool], target: str, owner: str | None = None) -> None:
        """Cancel the jobs of a condition; ``target`` names them in the audit log.

        They belong to ``owner``; without one, all of them have the owner of the first.
        """
        with write_transaction(self._database) as connection:
            owner = owner or connection.execute(select(jobs.c.owner).where(condition).limit(1)).scalar()
            if owner is not None:
                get_actor().require_own(owner, target)
            these = update(jobs).where(condition)
            waiting = jobs.c.state.in_(("queued", "delayed"))
            cancelled = connection.execute(these.where(waiting).values(state="cancelled", not_before=None)).rowcount
            marked = connection.execute(these.where(jobs.c.state == "leased").values(cancel_asked=True)).rowcount
            if cancelled or marked:
                record_action(connection, "job.cancel", target, self._now())

    def explain(self, job: JobId) -> Explanation:
        """Explain why the job is in its state."""
        self.settle()
        with read_transaction(self._database) as connection:
            return job_status.explain(connection, [job], self._moment(connection), with_files=True)[0]

    def explain_all(self, jobs: Sequence[JobId]) -> list[Explanation]:
        """Explain several jobs; raise as ``explain``."""
        with read_transaction(self._database) as connection:
            return job_status.explain(connection, jobs, self._moment(connection))

    def enrol(self, machine: MachineId, boot: str, facts: MachineFacts, clock: datetime | None = None) -> None:
        """Store a machine with its facts and the skew of its clock."""
        size_limits.check_text(machine, size_limits.MACHINE, "machine")
        size_limits.check_text(boot, size_limits.MACHINE, "boot")
        size_limits.check_document(facts.document(), size_limits.MACHINE_FACTS, "facts")
        check_facts(facts, machine)
        with write_transaction(self._database) as connection:
            moment = self._moment(connection)
            skew = None if clock is None else round((clock - moment.at).total_seconds(), 3)
            store_machine(connection, machine, boot, facts, moment, skew)

    def remove_unused_matches(self) -> int:
        """Remove the matches of classes without an open job and return the number of rows."""
        with write_transaction(self._database) as connection:
            return remove_unused_matches(connection)

    def depart(self, machine: MachineId) -> None:
        """Mark the machine as gone until its next request."""
        with row_lock_transaction(self._database) as connection:
            mark_departed(connection, machine, self._moment(connection))

    def machines(self, *, after: MachineId | None = None, limit: int | None = None) -> Sequence[Machine]:
        """List every enrolled machine by name."""
        self.settle()
        with read_transaction(self._database) as connection:
            return load_machines(connection, self._moment(connection), after=after, limit=limit)

    def count_waiting(self, machine: MachineId) -> int:
        """Return the number of queued jobs that the machine can run, counted up to ``COUNTED_AHEAD``."""
        with read_transaction(self._database) as connection:
            return job_status.count_waiting(connection, machine)

    def drain(self, machine: MachineId, why: str | None) -> None:
        """Stop giving jobs to the machine, or release it again."""
        size_limits.check_text(why or "", size_limits.REASON, "draining")
        with write_transaction(self._database) as connection:
            changed = update(machines).where(machines.c.id == machine).values(draining=why)
            if not connection.execute(changed).rowcount:
                raise _unknown(machine)
            release_machine(connection, machine)
            send_signal(connection, JOBS)
            record_action(connection, "machine.resume" if why is None else "machine.drain", machine, self._now())

    def shares(self) -> Sequence[Share]:
        """List the shares of all owners of jobs, in the order in which machines serve them."""
        with read_transaction(self._database) as connection:
            return load_shares(connection, self._clock.now(connection))

    def set_share(
        self, owner: str, weight: float | UnsetType = UNSET, max_running: int | UnsetType | None = UNSET
    ) -> None:
        """Set the weight or the quota of an owner of jobs, or both."""
        with write_transaction(self._database) as connection:
            set_share(connection, owner, weight, max_running, self._now())
            send_signal(connection, JOBS)

    def lease(self, machine: MachineId, boot: str, nonce: str | None = None) -> Lease | None:
        """Lease a job to the machine; jobs of revoked or expired tokens are cancelled first."""
        while True:
            try:
                return self._lease(machine, boot, nonce)
            except _EndedOwnerError:
                self.cancel_token_work()

    def _lease(self, machine: MachineId, boot: str, nonce: str | None) -> Lease | None:
        candidates = self._glance(machine, nonce)
        if candidates is None:
            return None
        with row_lock_transaction(self._database) as connection:
            now = self._clock.now(connection)
            row = connection.execute(MARK_SEEN, {"machine": machine, "now": now}).first()
            if row is None:
                raise _unknown(machine)
            check_own(row.owner, machine)
            busy = connection.execute(BUSY, {"machine": machine}).scalar()
            if busy is not None and nonce is not None:
                return self._give_again(connection, Fence(busy), nonce, now)
            is_held = row.held_until is not None and now < row.held_until
            if row.draining is not None or busy is not None or is_held:
                return None
            sizes = self._sizes if row.owner is not None else None
            request = ClaimRequest(machine, boot, nonce, now, row.comparison, sizes)
            job = claim(connection, request, candidates, self._times.lease)
            if job is None:
                return None
            if token_states(connection, [job.owner], self._now()).get(job.owner, "valid") != "valid":
                raise _EndedOwnerError  # which rolls the claim back
            return lease_of(job, self._named(connection), self._times)

    def wait_for_job(self, machine: MachineId, seconds: float) -> bool:
        """Wait in this thread until the machine may take a job."""
        until = time.monotonic() + seconds
        with closing(self.open_signal()) as signal:
            while not (may_take := self.may_take(machine)) and (left := until - time.monotonic()) > 0:
                signal.wait(left)
        return may_take

    def may_take(self, machine: MachineId) -> bool:
        """Return whether the machine may take a queued job, or may soon, because a lease or a delay is over.

        Raises:
            ForbiddenError: Another token enrolled it.
            UnauthorizedError: The token of the actor ended while it waited.
        """
        with read_transaction(self._database) as connection:
            check_valid(connection, self._now())
            now = self._clock.now(connection) if self._may_look else None
            columns = (machines.c.owner, machines.c.draining, machines.c.held_until, machines.c.comparison)
            row = connection.execute(select(*columns).where(machines.c.id == machine)).first()
            if row is None:
                return False
            check_own(row.owner, machine)
            is_held = row.held_until is not None and (now is None or now < row.held_until)
            if row.draining is not None or is_held or connection.scalar(BUSY, {"machine": machine}) is not None:
                return False
            if list_candidates(connection, machine, row.comparison, 0.0 if now is None else now):
                return True
            return now is not None and bool(connection.scalar(DUE, {"now": now}))

    def open_signal(self) -> Signal:
        """Open the signals of jobs that are queued; they are for one thread at a time."""
        return open_signal(self._database, JOBS)

    def begin(self, fence: Fence, start: RunStart) -> RunStart | None:
        """Record the start of the lease's run."""
        with write_transaction(self._database) as connection:
            job = connection.execute(select_held().where(*_own(fence), jobs.c.fence == fence)).first()
            if job is None or job.lock != start.lock or job.run not in (None, start.id):
                return None
            if job.run is not None:
                return load_run(connection, start.id).start
            bounded = check_begun(connection, start, self._now())
            recorded = replace(bounded, attempt=runs_of(connection, start.lock) + 1)
            record_start(connection, recorded, fence)
            connection.execute(update(leases).where(leases.c.fence == fence).values(run=start.id))
            return recorded

    def beat(self, fence: Fence, phase: Phase) -> Beat:
        """Extend the lease and mark its machine as seen."""
        with row_lock_transaction(self._database) as connection:
            now = self._clock.now(connection)
            own = select(leases.c.job).where(*_own(fence)).scalar_subquery()
            mine = (jobs.c.id == own, jobs.c.fence == fence, jobs.c.state == "leased")
            changed = update(jobs).where(*mine).values(lease_until=now + self._times.lease, phase=phase)
            cancelling = connection.execute(changed.returning(jobs.c.cancel_asked)).scalar()
            if cancelling is None:
                return "lost"
            machine = select(leases.c.machine).where(leases.c.fence == fence).scalar_subquery()
            connection.execute(update(machines).where(machines.c.id == machine).values(seen=now))
            return "cancel" if cancelling else "keep"

    def report(self, fence: Fence, lines: Sequence[ProgressLine]) -> None:
        """Store lines of the lease's progress that it does not have yet."""
        with row_lock_transaction(self._database) as connection:
            if connection.execute(select_held().where(*_own(fence), jobs.c.fence == fence)).first() is not None:
                store_lines(connection, fence, lines)

    def live(self, known: Mapping[JobId, LiveJob | None]) -> dict[JobId, LiveJob]:
        """Return jobs with their progress; ``known`` are the same jobs as returned before."""
        self.settle()
        with read_transaction(self._database) as connection:
            return load_live(connection, known)

    def job_of_run(self, run: RunId) -> JobId | None:
        """Return the job whose lease began the run; None if the run was not queued."""
        with read_transaction(self._database) as connection:
            return find_job(connection, run)

    def commit(self, fence: Fence, run: RunId, end: RunEnd) -> Job:
        """Record the end of the lease's run and the job's next state in one transaction."""
        return self._commit(fence, run, clean_message(end))

    def commit_checked(self, fence: Fence, run: RunId, end: RunEnd, check: Callable[[Run], None]) -> Job:
        """Commit as ``Queue.commit`` does if the end passes a check.

        Args:
            fence: The lease.
            run: Its run.
            end: The end of the run.
            check: Raises unless the ended run may be recorded. It is called outside of any transaction, and only if the
                lease is valid, so that a stranger cannot cause the work.

        Raises:
            FencedError, RunEndedError, InvalidInputError: As ``Queue.commit``.
            BenchlockError: As ``check``.
        """
        end = clean_message(end)
        self._check_run(fence, run, end, check)
        return self._commit(fence, run, end)

    def _commit(self, fence: Fence, run: RunId, end: RunEnd) -> Job:
        with write_transaction(self._database) as connection:
            moment = self._moment(connection)
            lease = _lease_of(connection, fence, run)
            job = connection.execute(select_held().where(jobs.c.id == lease.job, jobs.c.fence == fence)).first()
            if job is not None:
                end = check_over(run, end, moment.at)
                reason = f"{SEE}{run}" if end.failure_class else None
                job_leases.end_lease(connection, job, job_leases.classify_lease_end(end), reason, moment, end)
                self._clock.note(connection, moment.now)
            else:
                check_again(load_run(connection, run), end, lease)
            return load_job(connection, JobId(lease.job), moment.now)

    def _check_run(self, fence: Fence, run: RunId, end: RunEnd, check: Callable[[Run], None]) -> None:
        with read_transaction(self._database) as connection:
            lease = _lease_of(connection, fence, run)
            mine = (jobs.c.id == lease.job, jobs.c.fence == fence, jobs.c.state == "leased")
            is_held = connection.execute(select(jobs.c.seq).where(*mine)).first() is not None
            start = load_run(connection, run).start
        if is_held:  # otherwise the transaction that follows explains why the lease is not valid
            check(Run(start, replace(end, ended_at=max(end.ended_at, start.started_at))))

    def release(self, fence: Fence, ended: LeaseEnd, reason: str) -> None:
        """Give the job back without a result."""
        size_limits.check_text(reason, size_limits.REASON, "reason")
        with write_transaction(self._database) as connection:
            job = connection.execute(select_held().where(*_own(fence), jobs.c.fence == fence)).first()
            if job is not None:
                moment = self._moment(connection)
                job_leases.end_lease(connection, job, ended, replace_nul(reason), moment)
                self._clock.note(connection, moment.now)

    def holds(self, fence: Fence) -> bool:
        """Return whether the lease is still valid."""
        self.settle()
        with read_transaction(self._database) as connection:
            query = select(jobs.c.seq).join(leases, leases.c.job == jobs.c.id).where(leases.c.fence == fence)
            valid = query.where(jobs.c.fence == fence, jobs.c.state == "leased")
            return connection.execute(valid).first() is not None

    def name(self) -> str:
        """Return the queue's own id."""
        with row_lock_transaction(self._database) as connection:
            return queue_id(connection)

    def _insert(
        self,
        connection: Connection,
        requests: Sequence[JobRequest],
        turn: ComparisonTurn | None = None,
        *,
        is_logged: bool = True,
    ) -> None:
        wanted = {request.lock for request in requests}
        missing = wanted - set(connection.execute(select(locks.c.id).where(locks.c.id.in_(wanted))).scalars())
        if missing:
            raise UnknownNameError(f"the registry has no lock {min(missing)}", next_step="store the lock first")
        different = {id(request.wants): request.wants for request in requests}
        classes = {key: store_class(connection, wants) for key, wants in different.items()}
        now = self._clock.now(connection)
        shared = {
            "state": "queued",
            "cancel_asked": False,
            **dict.fromkeys(("lost", "engine", "crash"), 0),
            "owner": get_actor().id,
            "submitted_at": self._now(),
            "comparison": None if turn is None else turn.id,
            "part_of": None if turn is None else to_builtins(turn),
        }
        own = [
            {
                "id": request.id,
                "lock": request.lock,
                "class": classes[id(request.wants)],
                "isolation": request.wants.isolation,
                "allow_code": request.allow_code,
                "priority": request.priority,
                "since": now - request.priority * PRIORITY_SECONDS,
            }
            for request in requests
        ]
        if own:
            start_owner(connection, get_actor().id, now)
            connection.execute(insert(jobs), [shared | values for values in own])
            send_signal(connection, JOBS)
        for request in requests if is_logged else ():
            record_action(connection, "job.submit", f"{request.id} {request.lock}", self._now())

    def clock_now(self, connection: Connection) -> float:
        """Return the time of the queue's clock."""
        return self._clock.now(connection)

    def _give_again(self, connection: Connection, fence: Fence, nonce: str, now: float) -> Lease | None:
        """Return the current lease of the machine if it is the result of the same request."""
        same_request = (leases.c.nonce == nonce, leases.c.run.is_(None), jobs.c.fence == fence)
        job = connection.execute(select_held().where(*_own(fence), *same_request)).first()
        if job is None:
            return None
        connection.execute(update(jobs).where(jobs.c.seq == job.seq).values(lease_until=now + self._times.lease))
        return lease_of(job, self._named(connection), self._times)

    def _named(self, connection: Connection) -> str:
        if self._name is None:
            self._name = queue_id(connection)
        return self._name

    def _moment(self, connection: Connection) -> Moment:
        return Moment(self._clock.now(connection), self._now(), self._times)

    @property
    def times(self) -> Times:
        """The durations of its leases."""
        return self._times

    def settle(self) -> bool:
        """End expired leases and delays, so that no reader sees them; return whether there may be more."""
        if self._may_look:
            with read_transaction(self._database) as connection:
                if not connection.execute(DUE, {"now": self._clock.now(connection)}).scalar_one():
                    return False
        with write_transaction(self._database) as connection:
            moment = self._moment(connection)
            counts = job_leases.expire(connection, moment), job_leases.wake(connection, moment.now)
            self._clock.note(connection, moment.now)
        return job_leases.AT_ONCE in counts

    def cancel_token_work(self) -> bool:
        """Cancel the jobs of revoked and expired tokens, and end the leases of their workers.

        Returns:
            Whether there may be more to do.
        """
        with read_transaction(self._database) as connection:
            if not job_leases.find_ended_tokens(connection, self._now()):
                return False
        with write_transaction(self._database) as connection:
            moment = self._moment(connection)
            more = job_leases.cancel_token_work(connection, moment)
            self._clock.note(connection, moment.now)
        return more

    def _glance(self, machine: MachineId, nonce: str | None, *, settled: bool = False) -> list[Candidate] | None:
        """List jobs for the machine without a lock; None if it was seen lately and gets no job.

        A machine that repeats the request for its current lease gets a list, so that the request is answered.

        Args:
            machine: The machine that requests work.
            nonce: Identifies its request.
            settled: Whether expired leases and delays were ended just before; by default they are ended first.
        """
        if not self._may_look:
            self.settle()
            settled = True
        with read_transaction(self._database) as connection:
            now = self._clock.now(connection)
            row = connection.execute(GLANCE, {"machine": machine, "nonce": nonce, "now": now}).one()
            check_own(row.owner, machine)
            if settled or not row.due:
                candidates = [] if row.busy else list_candidates(connection, machine, row.comparison, now)
                heard = row.seen is not None and now - row.seen < self._times.beat
                return None if heard and not candidates and not row.asked else candidates
        self.settle()
        return self._glance(machine, nonce, settled=True)

    @property
    def _may_look(self) -> bool:
        """Whether the queue's time can be read without a write."""
        return self._clock.is_set or self._database.dialect.name == "postgresql"


class _EndedOwnerError(Exception):
    """The claim of a job whose token is revoked or expired."""


def _own(fence: Fence) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for a lease that the actor may use: the actor took it, or is an administrator."""
    actor = get_actor()
    mine = () if actor.scopes.allow("admin") else (leases.c.owner == actor.id,)
    return (leases.c.fence == fence, *mine)


def _lease_of(connection: Connection, fence: Fence, run: RunId) -> Row[Any]:
    """Return the lease that began the run.

    Raises:
        FencedError: There is no such lease, or it is another token's.
    """
    lease = connection.execute(select(leases).where(*_own(fence))).first()
    if lease is None or lease.run != run:
        raise FencedError(f"{run} does not belong to lease {fence}", where=run)
    return lease


def _unknown(machine: MachineId) -> UnknownNameError:
    return UnknownNameError(f"unknown machine {machine}", next_step="start a worker on it")
