"""Machines that end jobs for a reason of their own: held back after the second, and probed with one job at a time."""

from typing import Any, Final

from sqlalchemy import Connection, Row, func, select, update

from evaluator.dispatch.states import NEUTRAL, OWN_FAULTS, Ended
from evaluator.dispatch.tables import leases, machines
from evaluator.dispatch.times import Moment

STRIKES: Final = 2
"""So many jobs in a row may end for a reason of the machine, until it is held back.

Of jobs whose bytes were not as locked, those of one lock count once: everybody may fetch the same bytes.
"""
SPARED: Final = 3
"""So often a job is not charged for a probe that failed: a job that takes machines with it is found all the same."""
_LONGEST_HOLD: Final = 8
_LONGEST_REASON: Final = 300
_WORDS: Final = {
    "lost": "nothing was heard of it while it had a job",
    "engine": "its engine failed",
    "integrity": "its bytes were not those that were locked",
}


def is_probe(connection: Connection, held: Row[Any], ended: Ended) -> bool:
    """Whether the job of a lease is not charged for its end: the machine is held back, and was probed with it."""
    if ended not in OWN_FAULTS:
        return False
    query = select(machines.c.held).where(machines.c.id == held.machine).with_for_update()
    if connection.execute(query).scalar() is None:
        return False
    ends = select(func.count()).select_from(leases).where(leases.c.job == held.id, leases.c.ended.in_(OWN_FAULTS))
    return bool(connection.execute(ends).scalar_one() - held.lost - held.engine < SPARED)


def judge_machine(connection: Connection, held: Row[Any], ended: Ended, reason: str | None, moment: Moment) -> None:
    """Count ends that are the machine's own fault, hold it back after the second, forget them after an answer."""
    mine = machines.c.id == held.machine
    if ended in NEUTRAL:
        return
    if ended not in OWN_FAULTS:
        release_machine(connection, held.machine)
        return
    row = connection.execute(select(machines.c.faulty, machines.c.holds).where(mine).with_for_update()).one()
    strikes = sorted({_strike(held, ended), *(row.faulty or ())})[: STRIKES + 1]
    values: dict[str, Any] = {"faults": len(strikes), "faulty": strikes}
    if len(strikes) >= STRIKES:
        seconds = moment.times.unseen * min(2**row.holds, _LONGEST_HOLD)
        said = " ".join((reason or "").split())[:_LONGEST_REASON]
        values |= {
            "held": f"{STRIKES} jobs in a row ended for a reason of this machine; the last one: {_WORDS[ended]}"
            + (f" ({said})" if said else ""),
            "held_until": moment.now + seconds,
            "holds": row.holds + 1,
        }
    connection.execute(update(machines).where(mine).values(values))


def release_machine(connection: Connection, machine: str) -> None:
    """Give the machine jobs as any other, and forget what it was held back for."""
    forgotten = {"faults": 0, "faulty": None, "held": None, "held_until": None, "holds": 0}
    connection.execute(update(machines).where(machines.c.id == machine, machines.c.faults > 0).values(forgotten))


def acquit_machines(connection: Connection, held: Row[Any]) -> None:
    """Forget the strikes of a job that failed on several machines alike: the job was at fault, and not they."""
    query = select(leases.c.machine).where(leases.c.job == held.id, leases.c.ended.in_(OWN_FAULTS)).distinct()
    found = sorted(connection.execute(query).scalars())
    for machine in found if len(found) > 1 else ():
        row = connection.execute(select(machines.c.faulty).where(machines.c.id == machine).with_for_update()).one()
        strikes = [one for one in row.faulty or () if one not in (held.id, held.lock)]
        if not strikes:
            release_machine(connection, machine)
        elif len(strikes) < len(row.faulty):
            fewer = {"faults": len(strikes), "faulty": strikes}
            free = {} if len(strikes) >= STRIKES else {"held": None, "held_until": None, "holds": 0}
            connection.execute(update(machines).where(machines.c.id == machine).values(fewer | free))


def _strike(held: Row[Any], ended: Ended) -> str:
    return str(held.lock if ended == "integrity" else held.id)
