"""The end of a lease, however it comes: the run's record, the job's next state and the machine's slot, at once."""

import logging
from typing import Any, Final, cast, get_args

from sqlalchemy import Connection, Row, delete, exists, select, text, update
from sqlalchemy.exc import OperationalError

from benchlock.artifacts.limits import REASON, truncate
from benchlock.evaluator.dispatch.machine_faults import count_fault, discount_job, is_free_probe
from benchlock.evaluator.dispatch.rows import select_held, tally_of
from benchlock.evaluator.dispatch.states import OWN_FAULTS, Ended, Next, after
from benchlock.evaluator.dispatch.tables import avoided, eligible, job_results, jobs, lease_slots, leases, machines
from benchlock.evaluator.dispatch.times import Moment
from benchlock.evaluator.records.records import record_end
from benchlock.evaluator.records.runs import RunEnd, RunId
from benchlock.evaluator.runner.results import FailureClass
from benchlock.registry.catalogue.chain import insert_record

AT_ONCE: Final = 16
"""So many leases end in one transaction, and so many jobs are queued again."""
_log = logging.getLogger("benchlock")


def ended_by(end: RunEnd) -> Ended:
    """How a lease ended, by the end of its run."""
    if end.outcome == "done":
        return "done"
    if end.outcome == "failed":
        return cast("Ended", end.failure_class if end.failure_class in get_args(FailureClass) else "crash")
    return "cancelled"


def end_lease(
    connection: Connection, held: Row[Any], ended: Ended, reason: str | None, moment: Moment, end: RunEnd | None = None
) -> None:
    """End the lease of the leased job ``held``. Its run, where it began one, gets ``end``, else it was abandoned."""
    reason = None if reason is None else truncate(reason, REASON)
    probe = is_free_probe(connection, held, ended)
    found = after(ended, tally_of(held), cancel_asked=held.cancel_asked, is_probe=probe)
    if held.run is not None:
        record_end(connection, RunId(held.run), end or RunEnd(outcome="abandoned", ended_at=moment.at))
    if end is not None and found.state in ("done", "failed"):
        insert_record(connection, job_results, {"job": held.id, "run": held.run, "fence": held.fence})
    connection.execute(delete(lease_slots).where(lease_slots.c.fence == held.fence))
    connection.execute(update(leases).where(leases.c.fence == held.fence).values(ended=ended, reason=reason))
    connection.execute(update(jobs).where(jobs.c.seq == held.seq).values(_changes(found, reason, moment)))
    if found.elsewhere:
        _avoid(connection, held, moment)
    count_fault(connection, held, ended, reason, moment)
    if ended in OWN_FAULTS and found.state in ("failed", "quarantined"):
        discount_job(connection, held)


def expire(connection: Connection, moment: Moment) -> int:
    """End leases of which nothing was heard, a few at a time; how many were over.

    One that cannot be ended keeps no other from its end: it is said, and looked at again after a lease's length.
    """
    query = (
        select_held()
        .where(text("jobs.state = 'leased'"), jobs.c.lease_until < moment.now)
        .order_by(jobs.c.lease_until)
        .limit(AT_ONCE)
    )
    found = connection.execute(query.with_for_update(of=jobs, skip_locked=True)).all()
    for held in found:
        heard = moment.now - held.lease_until + moment.times.lease
        reason = f"nothing was heard of {held.machine} for {heard:.0f} s"
        try:
            with connection.begin_nested():
                end_lease(connection, held, "lost", reason, moment)
        except OperationalError:  # that is the database, not this lease
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the others end
            _log.exception("lease %s cannot be ended", held.fence)
            later = moment.now + moment.times.lease
            connection.execute(update(jobs).where(jobs.c.seq == held.seq).values(lease_until=later))
    return len(found)


def wake(connection: Connection, now: float) -> int:
    """Queue jobs again whose wait is over, a few at a time; how many."""
    due = select(jobs.c.seq).where(text("jobs.state = 'delayed'"), jobs.c.not_before <= now).order_by(jobs.c.not_before)
    found = connection.execute(due.limit(AT_ONCE).with_for_update(skip_locked=True)).scalars().all()
    if found:
        changes = update(jobs).where(jobs.c.seq.in_(found)).values(state="queued", not_before=None)
        connection.execute(changes)
    return len(found)


def _changes(found: Next, reason: str | None, moment: Moment) -> dict[str, Any]:
    return {
        "state": found.state,
        "phase": None,
        "lease_until": None,
        "not_before": moment.now + found.delay * moment.times.wait if found.state == "delayed" else None,
        "lost": found.tally.lost,
        "engine": found.tally.engine,
        "crash": found.tally.crash,
        "failure": found.failure,
        "reason": None if found.state == "done" else reason,
    }


def _avoid(connection: Connection, held: Row[Any], moment: Moment) -> None:
    """Keep the job from the machine, as long as there is another one that could have it."""
    failed = exists().where(avoided.c.job == held.id, avoided.c.machine == machines.c.id)
    other = (
        select(machines.c.id)
        .join(eligible, (eligible.c.machine == machines.c.id) & eligible.c.fits)
        .where(
            eligible.c["class"] == held._mapping["class"],  # noqa: SLF001 - SQLAlchemy's public name for it
            machines.c.id != held.machine,
            machines.c.draining.is_(None),
            machines.c.held.is_(None),
            machines.c.seen >= moment.now - moment.times.unseen,
            ~failed,
        )
    )
    if connection.execute(other.limit(1)).first() is not None:
        values = {"job": held.id, "machine": held.machine}
        connection.execute(
            text("INSERT INTO avoided (job, machine) VALUES (:job, :machine) ON CONFLICT DO NOTHING"), values
        )
