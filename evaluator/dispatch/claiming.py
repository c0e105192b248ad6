"""The one statement that must stay fast however long the queue is: which job a machine gets.

Each class is asked for its own first jobs, through an index that holds queued jobs alone, and the oldest of them is
taken. One question over all classes at once would sort every job of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select, text

from evaluator.dispatch.queue import MachineId
from evaluator.dispatch.tables import jobs

_HEADS = 4
_TRIES = 4

_OWN = """
    SELECT jobs.seq, jobs.since FROM jobs
    WHERE jobs.state = 'queued' AND jobs.class = eligible.class AND NOT EXISTS (
        SELECT 1 FROM avoided WHERE avoided.job = jobs.id AND avoided.machine = eligible.machine
    )
    ORDER BY jobs.since, jobs.seq LIMIT """

POSTGRESQL = text(f"""
SELECT head.seq FROM eligible CROSS JOIN LATERAL ({_OWN} :heads) AS head
WHERE eligible.machine = :machine AND eligible.fits
ORDER BY head.since, head.seq LIMIT :heads
""")  # noqa: S608 - our own words
"""The oldest jobs of the classes that a machine may take. Several, since others may have their hands on the first."""

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

SEEN = text("UPDATE machines SET seen = :now WHERE id = :machine RETURNING draining, owner")
"""The machine is heard of, and its row is this transaction's until its end: nobody else gives it a job."""

BUSY = text("SELECT fence FROM lease_slots WHERE machine = :machine")

LEASE = text("""
INSERT INTO leases (job, machine, boot, owner, nonce, at)
SELECT jobs.id, :machine, :boot, :owner, :nonce, :now FROM jobs WHERE jobs.seq = :seq RETURNING fence
""")
"""A lease on a job; its number is the fence."""

SLOT = text("INSERT INTO lease_slots (machine, slot, fence) VALUES (:machine, 0, :fence)")
"""The one slot of a machine: one run at a time, whether or not it is timed."""

TAKE = text("""
UPDATE jobs SET state = 'leased', phase = 'preparing', fence = :fence, lease_until = :until
WHERE seq = :seq RETURNING id, lock, isolation, allow_code
""")


@dataclass(frozen=True, slots=True)
class Asked:
    """A machine's question for work. The same ``nonce`` again is the same question."""

    machine: MachineId
    boot: str
    nonce: str | None


def heads(connection: Connection, machine: MachineId, most: int = _HEADS) -> list[int]:
    """The numbers of the oldest jobs that the machine may take, as far as can be seen without a lock."""
    if connection.dialect.name == "postgresql":
        return list(connection.execute(POSTGRESQL, {"machine": machine, "heads": most}).scalars())
    return list(connection.execute(SQLITE, {"machine": machine}).scalars())


def claim(connection: Connection, machine: MachineId, seen: Sequence[int]) -> int | None:
    """The number of a job that is now locked for this transaction, None where there is none for the machine.

    ``seen`` are ``heads`` of a moment ago.
    """
    if connection.dialect.name != "postgresql":
        return next(iter(heads(connection, machine)), None)
    most, found = _HEADS, list(seen)
    for _ in range(_TRIES):
        taken = connection.execute(_LOCK, {"found": found}).scalar() if found else None
        if taken is not None:
            return int(taken)
        found = heads(connection, machine, most)
        most *= _HEADS
    return None


_LOCK = (
    select(jobs.c.seq)
    .where(jobs.c.seq.in_(bindparam("found", expanding=True)), jobs.c.state == "queued")
    .order_by(jobs.c.since, jobs.c.seq)
    .limit(1)
    .with_for_update(skip_locked=True)
)
