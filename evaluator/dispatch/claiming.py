"""The one statement that must stay fast however long the queue is: which job a machine gets.

Each class is asked for its own first jobs, through an index that holds queued jobs alone, and the oldest of them is
taken. One question over all classes at once would sort every job of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Row, text

from benchlock.evaluator.dispatch.queue import MachineId
from benchlock.registry.access.actors import acting

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

SEEN = text("UPDATE machines SET seen = :now WHERE id = :machine RETURNING draining, owner, held_until")
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
class Asked:
    """A machine's question for work, as of ``now``. The same ``nonce`` again is the same question."""

    machine: MachineId
    boot: str
    nonce: str | None
    now: float


def heads(connection: Connection, machine: MachineId, tried: int = 0) -> list[int]:
    """The numbers of the oldest jobs that the machine may take, as far as can be seen without a lock.

    They are more where that was ``tried`` before.
    """
    question = POSTGRESQL[tried] if connection.dialect.name == "postgresql" else SQLITE
    return list(connection.execute(question, {"machine": machine}).scalars())


def claim(connection: Connection, asked: Asked, seen: Sequence[int], lease: float) -> Row[Any] | None:
    """A job that the machine now has, for ``lease`` seconds; None where there is none for it.

    ``seen`` are ``heads`` of a moment ago. The row has what ``lease_of`` needs.
    """
    values = {**asdict(asked), "owner": acting().id, "until": asked.now + lease}
    if connection.dialect.name != "postgresql":
        return _claim_alone(connection, values)
    found = list(seen)
    for tried, most in enumerate(_HEADS):
        if tried or not found:
            found = heads(connection, asked.machine, tried)
        row = connection.execute(GIVE, {**values, "found": found}).first() if found else None
        if row is not None or len(found) < most:
            return row
    return None


def _claim_alone(connection: Connection, values: Mapping[str, Any]) -> Row[Any] | None:
    """Whoever writes is alone: the first that can be seen is free."""
    seq = next(iter(heads(connection, values["machine"])), None)
    if seq is None:
        return None
    fence = connection.execute(LEASE, {**values, "seq": seq}).scalar_one()
    connection.execute(SLOT, {**values, "fence": fence})
    return connection.execute(TAKE, {**values, "seq": seq, "fence": fence}).one()
