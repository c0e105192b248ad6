"""Rows of the queue's tables as its values."""

from typing import Any, Final

from sqlalchemy import Connection, Row, Select, func, select

from benchlock.artifacts import limits
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import UnknownNameError
from benchlock.evaluator.dispatch.matching import MachineFacts
from benchlock.evaluator.dispatch.owners import token_states
from benchlock.evaluator.dispatch.queue import Fence, Job, JobId, Lease, Machine, MachineId
from benchlock.evaluator.dispatch.states import Tally
from benchlock.evaluator.dispatch.tables import job_results, jobs, lease_slots, leases, machines
from benchlock.evaluator.dispatch.times import Moment, Times
from benchlock.evaluator.records.hidings import HIDDEN_RUNS
from benchlock.evaluator.records.runs import RunId
from benchlock.registry.access.actors import acting
from benchlock.registry.access.tokens import State

SEE: Final = "see "
"""With the id of a failed run it is the reason of the job: the message stays with the run, which may be hidden."""
_JOB = (
    *(column for column in jobs.columns if column.name != "reason"),
    func.substr(jobs.c.reason, 1, limits.REASON).label("reason"),  # jobs may be older than the limits
)


def select_jobs() -> Select[Any]:
    """Jobs with their last lease and their result, and whether that, or the run that the reason names, is hidden."""
    run = func.coalesce(job_results.c.run, leases.c.run)
    hidden = run.in_(HIDDEN_RUNS) | func.substr(jobs.c.reason, len(SEE) + 1).in_(HIDDEN_RUNS)
    return (
        select(*_JOB, leases.c.machine, run.label("run"), hidden.label("hidden"))
        .outerjoin(leases, leases.c.fence == jobs.c.fence)
        .outerjoin(job_results, job_results.c.job == jobs.c.id)
    )


def select_held() -> Select[Any]:
    """Leased jobs with their lease, to be changed by this transaction alone."""
    return (
        select(jobs, leases.c.machine, leases.c.run)
        .join(leases, leases.c.fence == jobs.c.fence)
        .where(jobs.c.state == "leased")
        .with_for_update(of=jobs)
    )


def job_of(row: Row[Any], now: float) -> Job:
    """Return the job of a row; nothing of a hidden run is in it but for administrators."""
    shown = not row.hidden or acting().scopes.allow("admin")
    return Job(
        id=JobId(row.id),
        lock=Digest(row.lock),
        state=row.state,
        phase=row.phase,
        machine=None if row.machine is None else MachineId(row.machine),
        run=RunId(row.run) if row.run is not None and shown else None,
        tally=tally_of(row),
        cancel_asked=row.cancel_asked,
        failure=row.failure if shown else None,
        reason=row.reason if shown else None,
        due=None if row.not_before is None else max(0.0, row.not_before - now),
        submitted_at=row.submitted_at,
    )


def tally_of(row: Row[Any]) -> Tally:
    return Tally(row.lost, row.engine, row.crash)


def lease_of(row: Row[Any], queue: str, times: Times) -> Lease:
    return Lease(Fence(row.fence), JobId(row.id), Digest(row.lock), row.isolation, bool(row.allow_code), queue, times)


def load_job(connection: Connection, job: JobId, now: float) -> Job:
    """The job of that id. Raises as ``Queue.job``."""
    row = connection.execute(select_jobs().where(jobs.c.id == job)).first()
    if row is None:
        raise UnknownNameError(f"the queue has no {job}", where=job, next_step="`benchlock jobs` lists what it has")
    return job_of(row, now)


def load_machines(
    connection: Connection, moment: Moment, *, after: MachineId | None = None, limit: int | None = None
) -> list[Machine]:
    """Every machine, by name, with the job that it has: those ``after`` one, and so many, where that is given."""
    query = (
        select(machines, leases.c.job)
        .outerjoin(lease_slots, lease_slots.c.machine == machines.c.id)
        .outerjoin(leases, leases.c.fence == lease_slots.c.fence)
        .order_by(machines.c.id)
        .limit(limit)
    )
    if after is not None:
        query = query.where(machines.c.id > after)
    rows = connection.execute(query).all()
    states = token_states(connection, {row.owner for row in rows if row.owner is not None}, moment.at)
    return [_machine_of(row, states.get(row.owner, "valid"), moment) for row in rows]


def _machine_of(row: Row[Any], state: State, moment: Moment) -> Machine:
    """The machine of a row, whose token has that ``state``."""
    unseen = max(0.0, moment.now - row.seen)
    return Machine(
        id=MachineId(row.id),
        boot=row.boot,
        facts=MachineFacts.read(row.facts),
        draining=row.draining,
        unseen=unseen,
        gone=unseen > moment.times.unseen or state != "valid",
        job=None if row.job is None else JobId(row.job),
        held=row.held,
        held_for=0.0 if row.held_until is None else max(0.0, row.held_until - moment.now),
        skew=row.skew,
        gone_because=None if state == "valid" else f"its token is {state}",
    )
