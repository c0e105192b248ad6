"""The queue: jobs, machines, leases; and which open run is under which lease.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import TEXT, WHOLE, letters
from benchlock.migrations.frozen.triggers import Guard, leftovers, triggers

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

GUARD = Guard("job_results", (("job",), ("fence",), ("run",)))
TABLES = ("dispatch", "classes", "machines", "eligible", "jobs", "avoided", "leases", "lease_slots", "job_results")
JOB, RUN, DIGEST = letters(30), letters(30), letters(71)
COUNTED = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.add_column("open_runs", sa.Column("fence", sa.BigInteger))
    create_machines()
    create_jobs()
    create_leases()
    for statement in triggers(GUARD, op.get_context().dialect.name).values():
        op.execute(statement)


def downgrade() -> None:
    """Drop it; the triggers go with their table."""
    for name in reversed(TABLES):
        op.drop_table(name)
    for statement in leftovers(GUARD, op.get_context().dialect.name):
        op.execute(statement)
    op.drop_column("open_runs", "fence")


def create_machines() -> None:
    table(
        "dispatch",
        sa.Column("id", WHOLE, nullable=False, autoincrement=False),
        sa.Column("queue", TEXT, nullable=False),
        sa.Column("boot", TEXT),
        sa.Column("base", sa.Float),
        sa.Column("latest", sa.Float),
        keys=("id",),
        sqlite_with_rowid=True,
    )
    table(
        "classes",
        sa.Column("id", DIGEST, nullable=False),
        sa.Column("wants", sa.JSON, nullable=False),
        keys=("id",),
    )
    table(
        "machines",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("boot", TEXT, nullable=False),
        sa.Column("facts", sa.JSON, nullable=False),
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("draining", TEXT),
        sa.Column("faults", WHOLE, nullable=False),
        sa.Column("seen", sa.Float, nullable=False),
        keys=("id",),
    )
    table(
        "eligible",
        sa.Column("machine", TEXT, nullable=False),
        sa.Column("class", DIGEST, nullable=False),
        sa.Column("fits", sa.Boolean, nullable=False),
        sa.Column("lacks", sa.JSON, nullable=False),
        foreign("eligible", "machine", "machines.id"),
        foreign("eligible", "class", "classes.id"),
        keys=("machine", "class"),
    )
    op.create_index("ix_eligible_class_fits", "eligible", ["class", "fits"])


def create_jobs() -> None:
    table(
        "jobs",
        sa.Column("seq", COUNTED, nullable=False),
        sa.Column("id", JOB, nullable=False),
        sa.Column("lock", DIGEST, nullable=False),
        sa.Column("class", DIGEST, nullable=False),
        sa.Column("isolation", letters(16)),
        sa.Column("allow_code", sa.Boolean, nullable=False),
        sa.Column("state", letters(16), nullable=False),
        sa.Column("phase", letters(16)),
        sa.Column("fence", COUNTED),
        sa.Column("lease_until", sa.Float),
        sa.Column("not_before", sa.Float),
        sa.Column("cancel_asked", sa.Boolean, nullable=False),
        *(sa.Column(name, WHOLE, nullable=False) for name in ("lost", "engine", "crash")),
        sa.Column("failure", TEXT),
        sa.Column("reason", TEXT),
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("submitted_at", letters(27), nullable=False),
        sa.UniqueConstraint("id", name="uq_jobs_id"),
        foreign("jobs", "lock", "locks.id"),
        foreign("jobs", "class", "classes.id"),
        keys=("seq",),
        sqlite_with_rowid=True,
        sqlite_autoincrement=True,
    )
    for state, columns in {"queued": ["class", "seq"], "delayed": ["not_before"], "leased": ["lease_until"]}.items():
        only = sa.text(f"state = '{state}'")
        op.create_index(f"ix_jobs_{state}", "jobs", columns, sqlite_where=only, postgresql_where=only)
    op.create_index("ix_jobs_state_submitted_at", "jobs", ["state", "submitted_at"])


def create_leases() -> None:
    table(
        "avoided",
        sa.Column("job", JOB, nullable=False),
        sa.Column("machine", TEXT, nullable=False),
        foreign("avoided", "job", "jobs.id"),
        foreign("avoided", "machine", "machines.id"),
        keys=("job", "machine"),
    )
    table(
        "leases",
        sa.Column("fence", COUNTED, nullable=False),
        sa.Column("job", JOB, nullable=False),
        sa.Column("machine", TEXT, nullable=False),
        sa.Column("boot", TEXT, nullable=False),
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("run", RUN),
        sa.Column("ended", letters(16)),
        sa.Column("reason", TEXT),
        sa.UniqueConstraint("run", name="uq_leases_run"),
        foreign("leases", "job", "jobs.id"),
        foreign("leases", "machine", "machines.id"),
        foreign("leases", "run", "runs.id"),
        keys=("fence",),
        sqlite_with_rowid=True,
        sqlite_autoincrement=True,
    )
    op.create_index("ix_leases_job_fence", "leases", ["job", "fence"])
    table(
        "lease_slots",
        sa.Column("machine", TEXT, nullable=False),
        sa.Column("slot", WHOLE, nullable=False, autoincrement=False),
        sa.Column("fence", COUNTED, nullable=False),
        sa.UniqueConstraint("fence", name="uq_lease_slots_fence"),
        foreign("lease_slots", "machine", "machines.id"),
        foreign("lease_slots", "fence", "leases.fence"),
        keys=("machine", "slot"),
    )
    table(
        "job_results",
        sa.Column("job", JOB, nullable=False),
        sa.Column("run", RUN, nullable=False),
        sa.Column("fence", COUNTED, nullable=False),
        sa.UniqueConstraint("run", name="uq_job_results_run"),
        sa.UniqueConstraint("fence", name="uq_job_results_fence"),
        foreign("job_results", "job", "jobs.id"),
        foreign("job_results", "run", "runs.id"),
        foreign("job_results", "fence", "leases.fence"),
        keys=("job",),
    )


def foreign(name: str, column: str, referred: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint((column,), (referred,), name=f"fk_{name}_{column}_{referred.partition('.')[0]}")


def table(name: str, *parts: Any, keys: tuple[str, ...], sqlite_with_rowid: bool = False, **options: Any) -> None:  # noqa: ANN401 - columns, constraints, options as Table takes them
    key = sa.PrimaryKeyConstraint(*keys, name=f"pk_{name}")
    op.create_table(name, *parts, key, sqlite_with_rowid=sqlite_with_rowid, **options)
