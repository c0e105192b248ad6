"""Worker machines: enrolment, owners, and machines that are held back after faults."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, delete, exists, func, insert, or_, select, text, update

from benchlock.artifacts.errors import RefusedError
from benchlock.artifacts.size_limits import LACKS, WORD, truncate
from benchlock.evaluator.queue.job_matching import JobRequirements, MachineFacts, list_lacks
from benchlock.evaluator.queue.lease_times import Moment
from benchlock.evaluator.queue.queue_clock import queue_id
from benchlock.evaluator.queue.queue_schema import (
    classes,
    dispatch,
    eligible,
    jobs,
    lease_slots,
    leases,
    machines,
)
from benchlock.evaluator.queue.queue_types import NEUTRAL, OWN_FAULTS, LeaseEnd, MachineId
from benchlock.registry.auth.audit_log import record_action
from benchlock.registry.auth.permissions import UnauthorizedError, get_actor
from benchlock.registry.auth.token_format import State
from benchlock.registry.auth.tokens import expiry
from benchlock.registry.database.registry_schema import token_revocations, tokens

MAX_OWNED: Final = 1000
"""The maximum number of machines of a token without the scope admin."""


_AT_ONCE: Final = 500
"""The number of tokens that one statement looks up."""


def check_own(owner: str | None, machine: MachineId) -> None:
    """Raise unless the actor may speak for the machine.

    Raises:
        ForbiddenError: Another token owns the machine.
    """
    if owner is not None:
        get_actor().require_own(owner, machine)


def owner_of(connection: Connection, machine: MachineId, before: str | None, at: datetime) -> str | None:
    """Return the owner of a machine after the actor has enrolled it.

    An administrator who speaks for the machine does not become its owner. A machine that was enrolled without a token,
    in the registry's folder or at a server without tokens, has no owner.

    Args:
        connection: The connection.
        machine: The machine.
        before: The owner before the enrolment.
        at: The calendar time.

    Raises:
        ForbiddenError: Another token owns the machine.
        RefusedError: The actor owns the maximum number of machines.
    """
    actor = get_actor()
    if before == actor.id and _is_token(before):
        return before
    if before is not None and token_states(connection, [before], at).get(before) == "valid":
        check_own(before, machine)
        return before
    if not _is_token(actor.id):
        return None
    mine = select(func.count()).select_from(machines).where(machines.c.owner == actor.id)
    if not actor.scopes.allow("admin") and connection.execute(mine).scalar_one() >= MAX_OWNED:
        raise RefusedError(
            f"{actor.id} has enrolled {MAX_OWNED} machines already",
            where=machine,
            next_step="use another token, or the name of a machine that this token has enrolled",
        )
    return actor.id


def token_states(connection: Connection, owners: Iterable[str], at: datetime) -> dict[str, State]:
    """Return the states at a time of those ``owners`` that are tokens of this registry."""
    ids = sorted(filter(_is_token, owners))
    joined = tokens.outerjoin(token_revocations, token_revocations.c.token == tokens.c.id)
    query = select(tokens.c.id, expiry().label("ends_at"), token_revocations.c.at.label("revoked_at"))
    states: dict[str, State] = {}
    for first in range(0, len(ids), _AT_ONCE):
        rows = connection.execute(query.select_from(joined).where(tokens.c.id.in_(ids[first : first + _AT_ONCE])))
        for row in rows:
            states[row.id] = "revoked" if row.revoked_at else "expired" if row.ends_at <= at else "valid"
    return states


def check_valid(connection: Connection, at: datetime) -> None:
    """Raise if the token of the actor is no longer valid.

    Raises:
        UnauthorizedError: It was revoked, or it expired.
    """
    actor = get_actor().id
    state = token_states(connection, [actor], at).get(actor, "valid")
    if state != "valid":
        raise UnauthorizedError(f"the token is {state}", where=actor, next_step="ask an administrator for a new one")


def _is_token(owner: str) -> bool:
    """Return whether an owner is a token, not the user of a folder or of a server without tokens."""
    return owner.startswith("token/")


_MAX_LACKS = LACKS // (WORD * 8)
"""The number of stored reasons that always fits into their size limit."""


def store_class(connection: Connection, wants: JobRequirements) -> str:
    """Store the class of these wants, compare it with every machine, and return its id.

    Its rows of ``eligible`` are complete as long as a job of the class is open; they may be removed afterwards.
    """
    digest = wants.digest
    if connection.execute(select(1).where(_has_queued(digest))).first() is not None:
        return digest
    _alone(connection)
    if connection.execute(select(classes.c.id).where(classes.c.id == digest)).first() is None:
        connection.execute(insert(classes), {"id": digest, "wants": wants.document()})
    compared = exists().where(eligible.c.machine == machines.c.id, eligible.c["class"] == digest)
    rows = connection.execute(select(machines.c.id, machines.c.facts).where(~compared))
    _insert(connection, [(row.id, digest, list_lacks(wants, MachineFacts.read(row.facts), row.id)) for row in rows])
    return digest


def remove_unused_matches(connection: Connection) -> int:
    """Remove the matches of classes without an open job and return the number of rows.

    The classes stay. Call it in a ``write_transaction``, as submission and enrolment do.
    """
    return connection.execute(delete(eligible).where(~_is_open(eligible.c["class"]))).rowcount


def store_machine(
    connection: Connection,
    machine: MachineId,
    boot: str,
    facts: MachineFacts,
    moment: Moment,
    skew: float | None = None,
) -> None:
    """Store a machine; compare it with every class if its facts are new; log what is new.

    Args:
        connection: The transaction.
        machine: The machine.
        boot: The id of its current boot.
        facts: Its facts.
        moment: The time, and the queue's intervals.
        skew: The seconds by which its clock is ahead of the queue's.

    Raises:
        As ``owner_of``.
    """
    of_it = select(machines.c.digest, machines.c.owner).where(machines.c.id == machine)
    row = connection.execute(of_it).first()
    if row is None or row.digest != facts.digest:
        _alone(connection)
        row = connection.execute(of_it).first()
    known_digest, before = (None, None) if row is None else (row.digest, row.owner)
    owner = owner_of(connection, machine, before, moment.at)
    values = {
        "boot": boot,
        "facts": facts.document(),
        "digest": facts.digest,
        "seen": moment.now,
        "owner": owner,
        "skew": skew,
    }
    if known_digest is None:
        connection.execute(insert(machines), {"id": machine, "faults": 0, **values})
    else:
        connection.execute(update(machines).where(machines.c.id == machine).values(values))
    if (known_digest, before) != (facts.digest, owner):
        record_action(connection, "machine.enrol", machine, moment.at)
    if known_digest != facts.digest:
        connection.execute(delete(eligible).where(eligible.c.machine == machine))
        rows = connection.execute(select(classes.c.id, classes.c.wants).where(_is_open(classes.c.id)))
        _insert(
            connection, [(machine, row.id, list_lacks(JobRequirements.read(row.wants), facts, machine)) for row in rows]
        )


def mark_departed(connection: Connection, machine: MachineId, moment: Moment) -> None:
    """Mark a machine as gone, as ``Queue.depart`` does: as one that has sent nothing for long."""
    row = connection.execute(select(machines.c.owner).where(machines.c.id == machine)).first()
    if row is not None:
        check_own(row.owner, machine)
        last = moment.now - moment.times.unseen - 1
        busy = select(lease_slots.c.fence).where(lease_slots.c.machine == machine).exists()
        heard = update(machines).where(machines.c.id == machine, machines.c.seen > last, ~busy)
        connection.execute(heard.values(seen=last))


def _has_queued(class_id: str | ColumnElement[str]) -> ColumnElement[bool]:
    return exists().where(text("jobs.state = 'queued'"), jobs.c["class"] == class_id)


def _is_open(class_id: ColumnElement[str]) -> ColumnElement[bool]:
    """Return the condition that a job of the class is queued or may be queued again; each state has an index."""
    others = [select(jobs.c["class"]).where(text(f"jobs.state = '{state}'")) for state in ("delayed", "leased")]
    return or_(_has_queued(class_id), *(class_id.in_(query) for query in others))


def _alone(connection: Connection) -> None:
    """Wait for concurrent enrolments and submissions: two of them at once would not see each other's rows."""
    queue_id(connection)
    connection.execute(select(dispatch.c.id).with_for_update())


def _insert(connection: Connection, rows: Iterable[tuple[str, str, tuple[str, ...]]]) -> None:
    values = [
        {
            "machine": machine,
            "class": class_id,
            "fits": not lacking,
            "lacks": [truncate(reason, WORD * 4) for reason in lacking[:_MAX_LACKS]],
        }
        for machine, class_id, lacking in rows
    ]
    if values:
        connection.execute(insert(eligible), values)


MAX_FAULTS: Final = 2
"""The number of consecutive jobs that end because of the machine before it is held back.

Integrity errors of the same lock count once, because every machine may fetch the same wrong bytes.
"""
MAX_FREE_PROBES: Final = 3
"""The number of failed probes not counted against a job; more count, so a job that breaks every machine ends."""
_MAX_BACKOFF: Final = 8
"""The maximum time for which a machine is held back, in multiples of ``Times.unseen``."""
_MAX_REASON: Final = 300
"""The maximum number of characters of the last reason that is shown with a machine."""
_CAUSES: Final = {
    "lost": "no heartbeat during a job",
    "engine": "its container engine failed",
    "integrity": "checksum mismatch",
}


def is_free_probe(connection: Connection, lease: Row[Any], lease_end: LeaseEnd) -> bool:
    """Return whether the end of a lease is not counted against its job: it was a probe of a machine that is held back.

    A job has at most ``MAX_FREE_PROBES`` such ends.
    """
    if lease_end not in OWN_FAULTS:
        return False
    query = select(machines.c.held).where(machines.c.id == lease.machine).with_for_update()
    if connection.execute(query).scalar() is None:
        return False
    ends = select(func.count()).select_from(leases).where(leases.c.job == lease.id, leases.c.ended.in_(OWN_FAULTS))
    return bool(connection.execute(ends).scalar_one() - lease.lost - lease.engine < MAX_FREE_PROBES)


def count_fault(
    connection: Connection, lease: Row[Any], lease_end: LeaseEnd, reason: str | None, moment: Moment
) -> None:
    """Count the end of a lease against its machine if the machine may be the cause.

    Any other end that proves the machine to work, a failed run included, resets the count.

    Args:
        connection: The transaction that ends the lease.
        lease: The row of the lease, with its job and its machine.
        lease_end: How the lease ended.
        reason: The message of the end; shown with a machine that is held back.
        moment: The time, and the queue's intervals.
    """
    if lease_end in NEUTRAL:
        return
    if lease_end not in OWN_FAULTS:
        release_machine(connection, lease.machine)
        return
    machine = machines.c.id == lease.machine
    row = connection.execute(select(machines.c.faulty, machines.c.holds).where(machine).with_for_update()).one()
    fault = str(lease.lock if lease_end == "integrity" else lease.id)
    faults = sorted({fault, *(row.faulty or ())})[: MAX_FAULTS + 1]
    values: dict[str, Any] = {"faults": len(faults), "faulty": faults}
    if len(faults) >= MAX_FAULTS:
        seconds = moment.times.unseen * min(2**row.holds, _MAX_BACKOFF)
        detail = " ".join((reason or "").split())[:_MAX_REASON]
        values |= {
            "held": f"{MAX_FAULTS} jobs in a row failed because of this machine; last cause: {_CAUSES[lease_end]}"
            + (f" ({detail})" if detail else ""),
            "held_until": moment.now + seconds,
            "holds": row.holds + 1,
        }
    connection.execute(update(machines).where(machine).values(values))


def release_machine(connection: Connection, machine: str) -> None:
    """Reset the machine's faults, so that it gets jobs again."""
    released = {"faults": 0, "faulty": None, "held": None, "held_until": None, "holds": 0}
    connection.execute(update(machines).where(machines.c.id == machine, machines.c.faults > 0).values(released))


def discount_job(connection: Connection, lease: Row[Any]) -> None:
    """Remove a job from the faults of its machines if it failed on several, because the job was the cause."""
    query = select(leases.c.machine).where(leases.c.job == lease.id, leases.c.ended.in_(OWN_FAULTS)).distinct()
    failed_on = sorted(connection.execute(query).scalars())
    for machine in failed_on if len(failed_on) > 1 else ():
        row = connection.execute(select(machines.c.faulty).where(machines.c.id == machine).with_for_update()).one()
        faults = [key for key in row.faulty or () if key not in (lease.id, lease.lock)]
        if not faults:
            release_machine(connection, machine)
        elif len(faults) < len(row.faulty):
            fewer = {"faults": len(faults), "faulty": faults}
            free = {} if len(faults) >= MAX_FAULTS else {"held": None, "held_until": None, "holds": 0}
            connection.execute(update(machines).where(machines.c.id == machine).values(fewer | free))
