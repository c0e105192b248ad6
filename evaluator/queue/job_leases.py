"""Leases of jobs: claim, end, expiry, and revocation with their token.

Each class is asked for its own first jobs, through an index that holds queued jobs alone, and the oldest of them is
taken. One question over all classes at once would sort every job of them.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, cast, get_args

from sqlalchemy import Connection, Row, delete, exists, select, text, update
from sqlalchemy.exc import OperationalError

from benchlock.artifacts.size_limits import REASON, truncate
from benchlock.evaluator.queue.job_status import select_held, tally_of
from benchlock.evaluator.queue.lease_clock import Moment
from benchlock.evaluator.queue.machines import count_fault, discount_job, is_free_probe, token_states
from benchlock.evaluator.queue.queue_model import OWN_FAULTS, LeaseEnd, MachineId, NextState, decide_next_state
from benchlock.evaluator.queue.queue_schema import avoided, eligible, job_results, jobs, lease_slots, leases, machines
from benchlock.evaluator.records.run_model import RunEnd, RunId
from benchlock.evaluator.records.run_store import record_end
from benchlock.evaluator.runner.outcome import FailureClass
from benchlock.registry.auth.access_schema import token_revocations, tokens
from benchlock.registry.auth.audit_log import record_action
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.auth.tokens import State, expiry
from benchlock.registry.database.record_chain import insert_record

_HEADS = (2, 8, 32, 128)
"""So many of the oldest jobs are tried, and then more: others may have their hands on the first."""

_OWN = """
    SELECT jobs.seq, jobs.since FROM jobs
    WHERE jobs.state = 'queued' AND jobs.class = eligible.class AND NOT EXISTS (
        SELECT 1 FROM avoided WHERE avoided.job = jobs.id AND avoided.machine = eligible.machine
    )
    ORDER BY jobs.since, jobs.seq LIMIT """


def _oldest(count: int) -> str:
    # The count is written out: a server that does not know it plans the question anew each time.
    return f"""
SELECT head.seq FROM eligible CROSS JOIN LATERAL ({_OWN} {count}) AS head
WHERE eligible.machine = :machine AND eligible.fits
ORDER BY head.since, head.seq LIMIT {count}
"""  # noqa: S608 - our own words


POSTGRESQL = tuple(text(_oldest(count)) for count in _HEADS)
"""The oldest jobs of the classes that a machine may take: a few of them, then more."""

SQLITE = text(f"""
SELECT head.seq FROM eligible CROSS JOIN jobs AS head ON head.seq = (SELECT own.seq FROM ({_OWN} 1) AS own)
WHERE eligible.machine = :machine AND eligible.fits
ORDER BY head.since, head.seq LIMIT 1
""")  # noqa: S608 - our own words
"""The oldest of them: whoever writes is alone."""


_DUE = """
    EXISTS (SELECT 1 FROM jobs WHERE jobs.state = 'leased' AND jobs.lease_until < :now)
    OR EXISTS (SELECT 1 FROM jobs WHERE jobs.state = 'delayed' AND jobs.not_before <= :now)
"""
DUE = text(f"SELECT {_DUE}")
"""Whether a lease is over or a wait."""

GLANCE = text(f"""
SELECT
    (SELECT machines.seen FROM machines WHERE machines.id = :machine) AS seen,
    (SELECT machines.owner FROM machines WHERE machines.id = :machine) AS owner,
    EXISTS (SELECT 1 FROM lease_slots WHERE lease_slots.machine = :machine) AS busy,
    EXISTS (
        SELECT 1 FROM lease_slots JOIN leases ON leases.fence = lease_slots.fence
        WHERE lease_slots.machine = :machine AND leases.nonce = :nonce
    ) AS asked,
    {_DUE} AS due
""")  # noqa: S608 - our own words
"""What a machine that asks for work must know, before anything is written."""

MARK_SEEN = text("UPDATE machines SET seen = :now WHERE id = :machine RETURNING draining, owner, held_until")
"""The machine is heard of, and its row is this transaction's until its end: nobody else gives it a job."""

BUSY = text("SELECT fence FROM lease_slots WHERE machine = :machine")

_LEASE = """
INSERT INTO leases (job, machine, boot, owner, nonce, at)
SELECT {job}.id, :machine, :boot, :owner, :nonce, :now FROM {job} {where} RETURNING fence
"""
_SLOT = "INSERT INTO lease_slots (machine, slot, fence)"
_TAKE = "UPDATE jobs SET state = 'leased', phase = 'preparing', fence = {fence}, lease_until = :until"
_TAKEN = "RETURNING jobs.id, jobs.lock, jobs.isolation, jobs.allow_code, jobs.fence, jobs.owner"

LEASE = text(_LEASE.format(job="jobs", where="WHERE jobs.seq = :seq"))
"""A lease on a job; its number is the fence."""

SLOT = text(f"{_SLOT} VALUES (:machine, 0, :fence)")
"""The one slot of a machine: one run at a time, whether or not it is timed."""

TAKE = text(f"{_TAKE.format(fence=':fence')} WHERE seq = :seq {_TAKEN}")

GIVE = text(f"""
WITH free AS (
    SELECT jobs.seq, jobs.id FROM jobs WHERE jobs.seq = ANY(:found) AND jobs.state = 'queued'
    ORDER BY jobs.since, jobs.seq LIMIT 1 FOR UPDATE SKIP LOCKED
), given AS ({_LEASE.format(job="free", where="")}
), slot AS ({_SLOT} SELECT :machine, 0, given.fence FROM given)
{_TAKE.format(fence="given.fence")} FROM free, given WHERE jobs.seq = free.seq {_TAKEN}
""")  # noqa: S608 - our own words
"""All of it in one, of the first job that nobody has his hands on."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A machine's question for work, as of ``now``. The same ``nonce`` again is the same question."""

    machine: MachineId
    boot: str
    nonce: str | None
    now: float


def list_oldest_jobs(connection: Connection, machine: MachineId, tried: int = 0) -> list[int]:
    """The numbers of the oldest jobs that the machine may take, as far as can be seen without a lock.

    They are more where that was ``tried`` before.
    """
    question = POSTGRESQL[tried] if connection.dialect.name == "postgresql" else SQLITE
    return list(connection.execute(question, {"machine": machine}).scalars())


def claim(connection: Connection, asked: ClaimRequest, seen: Sequence[int], lease: float) -> Row[Any] | None:
    """A job that the machine now has, for ``lease`` seconds; None where there is none for it.

    ``seen`` are ``heads`` of a moment ago. The row has what ``lease_of`` needs.
    """
    values = {**asdict(asked), "owner": get_actor().id, "until": asked.now + lease}
    if connection.dialect.name != "postgresql":
        return _claim_alone(connection, values)
    found = list(seen)
    for tried, most in enumerate(_HEADS):
        if tried or not found:
            found = list_oldest_jobs(connection, asked.machine, tried)
        row = connection.execute(GIVE, {**values, "found": found}).first() if found else None
        if row is not None or len(found) < most:
            return row
    return None


def _claim_alone(connection: Connection, values: Mapping[str, Any]) -> Row[Any] | None:
    """Whoever writes is alone: the first that can be seen is free."""
    seq = next(iter(list_oldest_jobs(connection, values["machine"])), None)
    if seq is None:
        return None
    fence = connection.execute(LEASE, {**values, "seq": seq}).scalar_one()
    connection.execute(SLOT, {**values, "fence": fence})
    return connection.execute(TAKE, {**values, "seq": seq, "fence": fence}).one()


AT_ONCE: Final = 16
"""So many leases end in one transaction, and so many jobs are queued again."""
_log = logging.getLogger("benchlock")


def classify_lease_end(end: RunEnd) -> LeaseEnd:
    """How a lease ended, by the end of its run."""
    if end.outcome == "done":
        return "done"
    if end.outcome == "failed":
        return cast("LeaseEnd", end.failure_class if end.failure_class in get_args(FailureClass) else "crash")
    return "cancelled"


def end_lease(
    connection: Connection,
    held: Row[Any],
    ended: LeaseEnd,
    reason: str | None,
    moment: Moment,
    end: RunEnd | None = None,
) -> None:
    """End the lease of the leased job ``held``. Its run, where it began one, gets ``end``, else it was abandoned."""
    reason = None if reason is None else truncate(reason, REASON)
    probe = is_free_probe(connection, held, ended)
    found = decide_next_state(ended, tally_of(held), cancel_asked=held.cancel_asked, is_probe=probe)
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


def _changes(found: NextState, reason: str | None, moment: Moment) -> dict[str, Any]:
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


FAILURES: Final[Mapping[State, str]] = {"revoked": "token-revoked", "expired": "token-expired"}
"""The failure of a job whose token ended before the job did."""


def find_ended_tokens(connection: Connection, at: datetime) -> dict[str, State]:
    """Find the revoked and expired tokens that still have a waiting or running job, or a lease."""
    held = select(leases.c.owner).join(lease_slots, lease_slots.c.fence == leases.c.fence)
    waiting = [select(jobs.c.owner).where(text(f"jobs.state = '{state}'")) for state in ("leased", "delayed")]
    owners = {owner for query in (held, *waiting) for owner in connection.execute(query.distinct()).scalars()}
    queued = exists().where(text("jobs.state = 'queued'"), jobs.c.owner == tokens.c.id)
    revoked = exists().where(token_revocations.c.token == tokens.c.id)
    ended = select(tokens.c.id).where((expiry() <= at) | revoked, queued)
    owners |= set(connection.execute(ended).scalars())
    states = token_states(connection, owners, at)
    return {token: state for token, state in states.items() if state != "valid"}


def cancel_token_work(connection: Connection, moment: Moment) -> bool:
    """Cancel the waiting jobs of ended tokens, and end the leases of their workers, a few at a time.

    A running job continues if its token expired. If its token was revoked, its worker is asked to stop it.

    Returns:
        Whether there may be more to do.
    """
    ended, more = find_ended_tokens(connection, moment.at), False
    for token, state in ended.items():
        rows = connection.execute(select_held().where(leases.c.owner == token).limit(AT_ONCE)).all()
        for lease in rows:
            end_lease(connection, lease, "returned", f"the token of its worker is {state}", moment)
        more = more or len(rows) == AT_ONCE
        _cancel_jobs(connection, token, state, moment.at)
    return more


def _cancel_jobs(connection: Connection, token: str, state: State, at: datetime) -> None:
    values = {
        "state": "cancelled",
        "not_before": None,
        "failure": FAILURES[state],
        "reason": f"the token that submitted it is {state}",
    }
    of_token = update(jobs).where(jobs.c.owner == token)
    count = sum(
        connection.execute(of_token.where(text(f"jobs.state = '{waiting}'")).values(values)).rowcount
        for waiting in ("queued", "delayed")
    )
    if state == "revoked":
        running = of_token.where(text("jobs.state = 'leased'"), jobs.c.cancel_asked.is_(False))
        count += connection.execute(running.values(cancel_asked=True)).rowcount
    if count:
        record_action(connection, "job.cancel", f"{count} of {token}, which is {state}", at)
