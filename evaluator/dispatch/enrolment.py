"""What jobs ask and what machines are, and the table of which fits which, kept up to date while a job asks it."""

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, delete, exists, insert, or_, select, text, update

from benchlock.artifacts.limits import LACKS, WORD, truncate
from benchlock.evaluator.dispatch.matching import MachineFacts, Wants, lacks
from benchlock.evaluator.dispatch.owners import check_own, owner_of
from benchlock.evaluator.dispatch.queue import MachineId
from benchlock.evaluator.dispatch.tables import classes, dispatch, eligible, jobs, lease_slots, machines
from benchlock.evaluator.dispatch.times import Moment, queue_id
from benchlock.registry.access.log import note

_MOST_LACKS = LACKS // (WORD * 8)
"""Reasons of which all fit into their limit, whatever the jobs ask."""


def keep_class(connection: Connection, wants: Wants) -> str:
    """Return the class of what is wanted, compared with every machine: its rows of ``eligible`` are complete.

    They are complete as long as a job of the class is open, and may be removed afterwards.
    """
    digest = wants.digest
    if connection.execute(select(1).where(_has_queued(digest))).first() is not None:
        return digest
    _alone(connection)
    if connection.execute(select(classes.c.id).where(classes.c.id == digest)).first() is None:
        connection.execute(insert(classes), {"id": digest, "wants": wants.document()})
    compared = exists().where(eligible.c.machine == machines.c.id, eligible.c["class"] == digest)
    rows = connection.execute(select(machines.c.id, machines.c.facts).where(~compared))
    _insert(connection, [(row.id, digest, lacks(wants, MachineFacts.read(row.facts))) for row in rows])
    return digest


def remove_unused_matches(connection: Connection) -> int:
    """Remove which machines fit classes without an open job; return the number of rows.

    Classes stay: each is what some job asked. Hold a transaction of ``writing``, as whoever submits and enrols does.
    """
    return connection.execute(delete(eligible).where(~_is_open(eligible.c["class"]))).rowcount


def keep_machine(
    connection: Connection,
    machine: MachineId,
    boot: str,
    facts: MachineFacts,
    moment: Moment,
    skew: float | None = None,
) -> None:
    """The machine as it is now; where its facts are new it is held against every class. What is new is logged.

    ``skew`` is by how many seconds its clock is ahead of the queue's.

    Raises:
        As ``owner_of``.
    """
    of_it = select(machines.c.digest, machines.c.owner).where(machines.c.id == machine)
    row = connection.execute(of_it).first()
    if row is None or row.digest != facts.digest:
        _alone(connection)
        row = connection.execute(of_it).first()
    known, before = (None, None) if row is None else (row.digest, row.owner)
    owner = owner_of(connection, machine, before, moment.at)
    values = {
        "boot": boot,
        "facts": facts.document(),
        "digest": facts.digest,
        "seen": moment.now,
        "owner": owner,
        "skew": skew,
    }
    if known is None:
        connection.execute(insert(machines), {"id": machine, "faults": 0, **values})
    else:
        connection.execute(update(machines).where(machines.c.id == machine).values(values))
    if (known, before) != (facts.digest, owner):
        note(connection, "machine.enrol", machine, moment.at)
    if known != facts.digest:
        connection.execute(delete(eligible).where(eligible.c.machine == machine))
        rows = connection.execute(select(classes.c.id, classes.c.wants).where(_is_open(classes.c.id)))
        _insert(connection, [(machine, row.id, lacks(Wants.read(row.wants), facts)) for row in rows])


def part_machine(connection: Connection, machine: MachineId, moment: Moment) -> None:
    """The machine counts as one of which nothing was heard for long. Raises and does nothing as ``Queue.depart``."""
    row = connection.execute(select(machines.c.owner).where(machines.c.id == machine)).first()
    if row is not None:
        check_own(row.owner, machine)
        last = moment.now - moment.times.unseen - 1
        busy = select(lease_slots.c.fence).where(lease_slots.c.machine == machine).exists()
        heard = update(machines).where(machines.c.id == machine, machines.c.seen > last, ~busy)
        connection.execute(heard.values(seen=last))


def _has_queued(wanted: str | ColumnElement[str]) -> ColumnElement[bool]:
    return exists().where(text("jobs.state = 'queued'"), jobs.c["class"] == wanted)


def _is_open(wanted: ColumnElement[str]) -> ColumnElement[bool]:
    """Whether a job of the class is queued, or may be queued again. Each state is looked up in its own index."""
    others = [select(jobs.c["class"]).where(text(f"jobs.state = '{state}'")) for state in ("delayed", "leased")]
    return or_(_has_queued(wanted), *(wanted.in_(one) for one in others))


def _alone(connection: Connection) -> None:
    """Wait for whoever adds a class or a machine at this moment: both would miss the other."""
    queue_id(connection)
    connection.execute(select(dispatch.c.id).with_for_update())


def _insert(connection: Connection, rows: Iterable[tuple[str, str, tuple[str, ...]]]) -> None:
    made = [
        {
            "machine": machine,
            "class": wanted,
            "fits": not lacking,
            "lacks": [truncate(one, WORD * 4) for one in lacking[:_MOST_LACKS]],
        }
        for machine, wanted, lacking in rows
    ]
    if made:
        connection.execute(insert(eligible), made)
