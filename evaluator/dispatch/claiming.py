"""The one statement that must stay fast however long the queue is: which job a machine gets.

Each class is asked for its own first jobs, through an index that holds queued jobs alone, and the oldest of them is
taken. One question over all classes at once would sort every job of them.
"""

from sqlalchemy import Connection, bindparam, select, text

from evaluator.dispatch.queue import MachineId
from evaluator.dispatch.tables import jobs

_HEADS = 8
_TRIES = 4

_OWN = """
    SELECT jobs.seq FROM jobs
    WHERE jobs.state = 'queued' AND jobs.class = eligible.class AND NOT EXISTS (
        SELECT 1 FROM avoided WHERE avoided.job = jobs.id AND avoided.machine = eligible.machine
    )
    ORDER BY jobs.seq LIMIT """

POSTGRESQL = text(f"""
SELECT head.seq FROM eligible CROSS JOIN LATERAL ({_OWN} :heads) AS head
WHERE eligible.machine = :machine AND eligible.fits
ORDER BY head.seq LIMIT :heads
""")  # noqa: S608 - our own words
"""The oldest jobs of the classes that a machine may take. Several, since others may have their hands on the first."""

SQLITE = text(f"""
SELECT head.seq FROM eligible CROSS JOIN jobs AS head ON head.seq = ({_OWN} 1)
WHERE eligible.machine = :machine AND eligible.fits
ORDER BY head.seq LIMIT 1
""")  # noqa: S608 - our own words
"""The oldest of them: whoever writes is alone."""


def first(connection: Connection, machine: MachineId) -> int | None:
    """The number of the oldest job that the machine may take, as far as can be seen without a lock."""
    found = _heads(connection, machine, 1)
    return found[0] if found else None


def claim(connection: Connection, machine: MachineId) -> int | None:
    """The number of a job that is now locked for this transaction, None where there is none for the machine."""
    if connection.dialect.name != "postgresql":
        return first(connection, machine)
    heads = _HEADS
    for _ in range(_TRIES):
        found = _heads(connection, machine, heads)
        taken = connection.execute(_LOCK, {"found": found}).scalar() if found else None
        if taken is not None or len(found) < heads:
            return taken
        heads *= _HEADS
    return None


def _heads(connection: Connection, machine: MachineId, heads: int) -> list[int]:
    if connection.dialect.name == "postgresql":
        return list(connection.execute(POSTGRESQL, {"machine": machine, "heads": heads}).scalars())
    return list(connection.execute(SQLITE, {"machine": machine}).scalars())


_LOCK = (
    select(jobs.c.seq)
    .where(jobs.c.seq.in_(bindparam("found", expanding=True)), jobs.c.state == "queued")
    .order_by(jobs.c.seq)
    .limit(1)
    .with_for_update(skip_locked=True)
)
