"""The database tables of the queue.

Their rows change: a job is queued, leased and ended. Append-only tables stand beside them: runs, their ends, and
``job_results``, which makes one run the result of a job. Times are seconds of the queue's own clock
(``queue_clock.py``), so setting a clock begins or ends no lease.
"""

from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, Table, text

from benchlock.artifacts.size_limits import TASK
from benchlock.evaluator.records.runs_schema import RUN_ID
from benchlock.registry.database.column_types import DIGEST, TEXT, WHOLE, Moment, bounded_text
from benchlock.registry.database.registry_schema import APPEND_ONLY, metadata

JOB_ID = bounded_text(len("job/") + 26)
COUNTED = BigInteger().with_variant(Integer, "sqlite")
"""A number that the database increments and never reuses."""

dispatch = Table(  # one row
    "dispatch",
    metadata,
    Column("id", WHOLE, primary_key=True, autoincrement=False),
    Column("queue", TEXT, nullable=False),  # distinguishes the containers of this queue from those of another
    Column("boot", TEXT),  # the rest is the clock of a database that has none: the boot of the host,
    Column("base", Float),  # the offset from the seconds since that boot,
    Column("latest", Float),  # and the latest time that was written down
)

classes = Table(  # the requirements of jobs on machines, each once
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
    Column("draining", TEXT),  # why it gets no jobs; null if it gets jobs
    Column("faults", WHOLE, nullable=False),  # number of consecutive ends that it may have caused
    Column("seen", Float, nullable=False),
    Column("owner", TEXT),  # the token that enrolled it; null without one
    Column("faulty", JSON(none_as_null=True)),  # the jobs or locks of these ends
    Column("held", TEXT),  # why it is held back; null if it is not
    Column("held_until", Float),  # then it gets one job as a probe
    Column("holds", WHOLE, nullable=False, server_default="0"),  # how often it was held back since its last success
    Column("skew", Float),  # seconds by which its clock was ahead at its enrolment; null if it did not report the time
    Column("comparison", bounded_text(16)),  # the interleaved comparison of its last job; null without one
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
    """Return an index of the jobs in one state."""
    only = text(f"state = '{state}'")
    return Index(f"ix_jobs_{state}{name}", *columns, sqlite_where=only, postgresql_where=only)


_COMPARED = text("comparison IS NOT NULL")
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
    Column("phase", bounded_text(16)),  # of a leased job
    Column("fence", COUNTED),  # of the last lease
    Column("lease_until", Float),
    Column("not_before", Float),
    Column("cancel_asked", Boolean, nullable=False),
    Column("lost", WHOLE, nullable=False),
    Column("engine", WHOLE, nullable=False),
    Column("crash", WHOLE, nullable=False),
    Column("failure", TEXT),  # the class of a failed job
    Column("reason", TEXT),  # the message of its last failure
    Column("owner", TEXT, nullable=False),  # the token that submitted it, or a fixed word without tokens
    Column("submitted_at", Moment, nullable=False),
    # The first key of the order of an owner's jobs: the time of submission, and with a priority an earlier or a later
    # time (``PRIORITY_SECONDS``). If ``seq`` were the only key, a planner might follow the primary key and read every
    # job of other classes before the first one of this class.
    Column("since", Float, nullable=False, server_default="0"),
    Column("priority", WHOLE, nullable=False, server_default="0"),
    Column("leased_at", Float),  # the time of its last lease
    Column("start_tag", Float),  # the time of its owner then (``fair_shares.py``)
    Column("comparison", bounded_text(16)),  # the interleaved comparison that it belongs to; null without one
    Column("part_of", JSON(none_as_null=True)),  # its turn in that comparison, for the record of its run
    Index("ix_jobs_comparison", "comparison", "seq", sqlite_where=_COMPARED, postgresql_where=_COMPARED),
    _of_state("queued", "class"),  # without the order, so that no planner follows it through the jobs of other owners
    _of_state("queued", "owner", "class", "since", "seq", name="_owner"),
    _of_state("delayed", "not_before"),
    _of_state("leased", "lease_until"),
    Index(None, "state", "seq"),
    sqlite_autoincrement=True,
)

shares = Table(  # what an operator set for owners of jobs
    "shares",
    metadata,
    Column("owner", TEXT, primary_key=True),
    Column("weight", Float, nullable=False),
    Column("max_running", WHOLE),  # null: no limit
    sqlite_with_rowid=False,
)

usages = Table(  # the machine time of owners of jobs, without that of running jobs
    "usages",
    metadata,
    Column("owner", TEXT, primary_key=True),
    Column("used", Float, nullable=False),  # seconds divided by the weight, and raised for newcomers: the fair order
    Column("seconds", Float, nullable=False),  # the seconds themselves
    Column("leases", WHOLE, nullable=False),  # the number of leases that took them
    Column("start_tag", Float),  # that of the last of them
    sqlite_with_rowid=False,
)

avoided = Table(  # machines on which a job failed, where another machine may succeed
    "avoided",
    metadata,
    Column("job", JOB_ID, ForeignKey("jobs.id"), primary_key=True),
    Column("machine", TEXT, ForeignKey("machines.id"), primary_key=True),
    sqlite_with_rowid=False,
)

leases = Table(  # one row per lease, never deleted; its number is the fence
    "leases",
    metadata,
    Column("fence", COUNTED, primary_key=True),
    Column("job", JOB_ID, ForeignKey("jobs.id"), nullable=False),
    Column("machine", TEXT, ForeignKey("machines.id"), nullable=False),
    Column("boot", TEXT, nullable=False),
    Column("owner", TEXT, nullable=False),  # the actor that took it, and that alone may use it
    Column("at", Float, nullable=False),
    Column("run", RUN_ID, ForeignKey("runs.id"), unique=True),
    Column("ended", bounded_text(16)),  # null as long as it is valid
    Column("reason", TEXT),
    Column("nonce", TEXT),  # of the request that it answers
    Index(None, "job", "fence"),
    Index(None, "machine", "fence"),
    sqlite_autoincrement=True,
)

progress_lines = Table(  # the last lines of progress of each lease; a worker numbers its own
    "progress_lines",
    metadata,
    Column("fence", COUNTED, ForeignKey("leases.fence"), primary_key=True, autoincrement=False),
    Column("number", WHOLE, primary_key=True, autoincrement=False),
    Column("task", bounded_text(TASK), nullable=False),
    Column("done", BigInteger, nullable=False),
    Column("total", BigInteger),  # null if it is unknown
    sqlite_with_rowid=False,
)

lease_slots = Table(  # a machine measures one job at a time: the primary key refuses a second
    "lease_slots",
    metadata,
    Column("machine", TEXT, ForeignKey("machines.id"), primary_key=True),
    Column("slot", WHOLE, primary_key=True, autoincrement=False),
    Column("fence", COUNTED, ForeignKey("leases.fence"), nullable=False, unique=True),
    sqlite_with_rowid=False,
)

job_results = Table(  # the primary key allows one result for a job
    "job_results",
    metadata,
    Column("job", JOB_ID, ForeignKey("jobs.id"), primary_key=True),
    Column("run", RUN_ID, ForeignKey("runs.id"), nullable=False, unique=True),
    Column("fence", COUNTED, ForeignKey("leases.fence"), nullable=False, unique=True),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)
