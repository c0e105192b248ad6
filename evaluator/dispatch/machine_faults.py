"""Machines that make jobs fail: held back after the second such job, then probed with one job at a time."""

from typing import Any, Final

from sqlalchemy import Connection, Row, func, select, update

from benchlock.evaluator.dispatch.states import NEUTRAL, OWN_FAULTS, Ended
from benchlock.evaluator.dispatch.tables import leases, machines
from benchlock.evaluator.dispatch.times import Moment

MAX_FAULTS: Final = 2
"""Number of jobs in a row that end because of the machine before it is held back.

Jobs of one lock whose bytes were not as locked count once: every machine may fetch the same wrong bytes.
"""
MAX_FREE_PROBES: Final = 3
"""Number of failed probes that are not counted against a job; a job that breaks every machine is found all the same."""
_MAX_BACKOFF: Final = 8
"""A machine is held back for at most so many times its timeout."""
_MAX_REASON: Final = 300
"""Characters of the last reason that the machine shows."""
_CAUSES: Final = {
    "lost": "it sent no heartbeat while it had a job",
    "engine": "its engine failed",
    "integrity": "its bytes were not those that were locked",
}


def is_free_probe(connection: Connection, lease: Row[Any], ended: Ended) -> bool:
    """Return whether the end of this lease is not counted against its job: it was a probe of a machine held back."""
    if ended not in OWN_FAULTS:
        return False
    query = select(machines.c.held).where(machines.c.id == lease.machine).with_for_update()
    if connection.execute(query).scalar() is None:
        return False
    ends = select(func.count()).select_from(leases).where(leases.c.job == lease.id, leases.c.ended.in_(OWN_FAULTS))
    return bool(connection.execute(ends).scalar_one() - lease.lost - lease.engine < MAX_FREE_PROBES)


def count_fault(connection: Connection, lease: Row[Any], ended: Ended, reason: str | None, moment: Moment) -> None:
    """Count the end of a lease against its machine, if the machine is the cause; reset the count after an answer.

    Args:
        connection: The transaction that ends the lease.
        lease: The lease's row, with its job and its machine.
        ended: How the lease ended.
        reason: The message of the end; shown with a machine that is held back.
        moment: The time, and the queue's intervals.
    """
    if ended in NEUTRAL:
        return
    if ended not in OWN_FAULTS:
        release_machine(connection, lease.machine)
        return
    machine = machines.c.id == lease.machine
    row = connection.execute(select(machines.c.faulty, machines.c.holds).where(machine).with_for_update()).one()
    faults = sorted({_fault_key(lease, ended), *(row.faulty or ())})[: MAX_FAULTS + 1]
    values: dict[str, Any] = {"faults": len(faults), "faulty": faults}
    if len(faults) >= MAX_FAULTS:
        seconds = moment.times.unseen * min(2**row.holds, _MAX_BACKOFF)
        detail = " ".join((reason or "").split())[:_MAX_REASON]
        values |= {
            "held": f"{MAX_FAULTS} jobs in a row ended because of this machine; the last one: {_CAUSES[ended]}"
            + (f" ({detail})" if detail else ""),
            "held_until": moment.now + seconds,
            "holds": row.holds + 1,
        }
    connection.execute(update(machines).where(machine).values(values))


def release_machine(connection: Connection, machine: str) -> None:
    """Reset the machine's faults, so that it gets jobs as any other."""
    released = {"faults": 0, "faulty": None, "held": None, "held_until": None, "holds": 0}
    connection.execute(update(machines).where(machines.c.id == machine, machines.c.faults > 0).values(released))


def discount_job(connection: Connection, lease: Row[Any]) -> None:
    """Remove a job from the faults of its machines, if it failed on several: the job was the cause."""
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


def _fault_key(lease: Row[Any], ended: Ended) -> str:
    return str(lease.lock if ended == "integrity" else lease.id)
