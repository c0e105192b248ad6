"""The database tables of the queue.

They change: a job is queued, leased, ended. What is never changed stands beside them: a run, its end, and the row of
``job_results`` that makes it the one result of a job. Times are seconds of the queue's own clock (clock.py), so that
no lease begins or ends because somebody set a clock.
"""

from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, Table, text

from benchlock.evaluator.records.runs_schema import RUN_ID
from benchlock.registry.database.catalogue_schema import APPEND_ONLY, metadata
from benchlock.registry.database.column_types import DIGEST, TEXT, WHOLE, Moment, bounded_text

JOB_ID = bounded_text(len("job/") + 26)
COUNTED = BigInteger().with_variant(Integer, "sqlite")
"""A number that the database counts up and never gives twice."""

dispatch = Table(  # one row
    "dispatch",
    metadata,
    Column("id", WHOLE, primary_key=True, autoincrement=False),
    Column("queue", TEXT, nullable=False),  # tells the containers of this queue from those of another
    Column("boot", TEXT),  # the rest is the clock where the database has none: which boot of the host,
    Column("base", Float),  # what to add to the seconds since it,
    Column("latest", Float),  # and the latest time that was written down
)

classes = Table(  # what jobs ask of machines, each once
    "classes",
    metadata,
    Column("id", DIGEST, primary_key=True),
    Column("wants", JSON, nullable=False),
    sqlite_with_rowid=False,
)

machines = Table(
    "machines",
    metadata,
    Column("id", TEXT, primary_key=True),
    Column("boot", TEXT, nullable=False),
    Column("facts", JSON, nullable=False),
    Column("digest", DIGEST, nullable=False),  # of the facts
    Column("draining", TEXT),  # why it gets no jobs; null where it gets some
    Column("faults", WHOLE, nullable=False),  # ends in a row for a reason of its own
    Column("seen", Float, nullable=False),
    Column("owner", TEXT),  # the token that enrolled it; null where none did
    Column("faulty", JSON(none_as_null=True)),  # of these jobs, or locks
    Column("held", TEXT),  # why it is held back; null where it is not
    Column("held_until", Float),  # then it is probed with a job
    Column("holds", WHOLE, nullable=False, server_default="0"),  # how often it was held back without a success
    Column("skew", Float),  # seconds by which its clock was ahead when it said what it is; null where it did not say
    sqlite_with_rowid=False,
)

eligible = Table(  # what a machine lacks for a class; complete while a job of the class is open
    "eligible",
    metadata,
    Column("machine", TEXT, ForeignKey("machines.id"), primary_key=True),
    Column("class", DIGEST, ForeignKey("classes.id"), primary_key=True),
    Column("fits", Boolean, nullable=False),
    Column("lacks", JSON, nullable=False),
    Index(None, "class", "fits"),
    sqlite_with_rowid=False,
)


def _of_state(state: str, *columns: str, name: str = "") -> Index:
    """An index of the jobs in that state alone."""
    only = text(f"state = '{state}'")
    return Index(f"ix_jobs_{state}{name}", *columns, sqlite_where=only, postgresql_where=only)


jobs = Table(
    "jobs",
    metadata,
    Column("seq", COUNTED, primary_key=True),
    Column("id", JOB_ID, nullable=False, unique=True),
    Column("lock", DIGEST, ForeignKey("locks.id"), nullable=False),
    Column("class", DIGEST, ForeignKey("classes.id"), nullable=False),
    Column("isolation", bounded_text(16)),
    Column("allow_code", Boolean, nullable=False),
    Column("state", bounded_text(16), nullable=False),
    Column("phase", bounded_text(16)),  # of a leased one
    Column("fence", COUNTED),  # of the last lease
    Column("lease_until", Float),
    Column("not_before", Float),
    Column("cancel_asked", Boolean, nullable=False),
    Column("lost", WHOLE, nullable=False),
    Column("engine", WHOLE, nullable=False),
    Column("crash", WHOLE, nullable=False),
    Column("failure", TEXT),  # the class of a failed one
    Column("reason", TEXT),  # of its last trouble, in words
    Column("owner", TEXT, nullable=False),  # who submitted it: a token's id, or a word where there is none
    Column("submitted_at", Moment, nullable=False),
    # The order in which jobs of a class go out, first of all. By the number alone a planner may take the primary key's
    # order, and look through every job of other classes for the first of this one.
    Column("since", Float, nullable=False, server_default="0"),
    _of_state("queued", "class", "since", "seq"),
    _of_state("queued", "owner", name="_owner"),
    _of_state("delayed", "not_before"),
    _of_state("leased", "lease_until"),
    Index(None, "state", "seq"),
    sqlite_autoincrement=True,
)

avoided = Table(  # machines on which a job failed in a way that another may not share
    "avoided",
    metadata,
    Column("job", JOB_ID, ForeignKey("jobs.id"), primary_key=True),
    Column("machine", TEXT, ForeignKey("machines.id"), primary_key=True),
    sqlite_with_rowid=False,
)

leases = Table(  # one row a lease, ever: its number is the fence
    "leases",
    metadata,
    Column("fence", COUNTED, primary_key=True),
    Column("job", JOB_ID, ForeignKey("jobs.id"), nullable=False),
    Column("machine", TEXT, ForeignKey("machines.id"), nullable=False),
    Column("boot", TEXT, nullable=False),
    Column("owner", TEXT, nullable=False),  # who took it, and alone may use it
    Column("at", Float, nullable=False),
    Column("run", RUN_ID, ForeignKey("runs.id"), unique=True),
    Column("ended", bounded_text(16)),  # null as long as it holds
    Column("reason", TEXT),
    Column("nonce", TEXT),  # of the question that it answers
    Index(None, "job", "fence"),
    sqlite_autoincrement=True,
)

lease_slots = Table(  # a machine measures one job at a time: the key refuses a second
    "lease_slots",
    metadata,
    Column("machine", TEXT, ForeignKey("machines.id"), primary_key=True),
    Column("slot", WHOLE, primary_key=True, autoincrement=False),
    Column("fence", COUNTED, ForeignKey("leases.fence"), nullable=False, unique=True),
    sqlite_with_rowid=False,
)

job_results = Table(  # the key makes it one
    "job_results",
    metadata,
    Column("job", JOB_ID, ForeignKey("jobs.id"), primary_key=True),
    Column("run", RUN_ID, ForeignKey("runs.id"), nullable=False, unique=True),
    Column("fence", COUNTED, ForeignKey("leases.fence"), nullable=False, unique=True),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)
