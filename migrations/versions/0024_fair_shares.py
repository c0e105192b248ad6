"""Fair shares of the queue: weights and quotas of owners, their machine time, and priorities of jobs.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import TEXT, WHOLE, letters
from benchlock.migrations.frozen.triggers import TextLimits, text_limit_leftovers, text_limit_triggers

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

LIMITS = (TextLimits("shares", (("owner", 128),)), TextLimits("usages", (("owner", 128),)))
QUEUED = sa.text("state = 'queued'")


def upgrade() -> None:
    op.create_table(
        "shares",
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("weight", sa.Float, nullable=False),
        sa.Column("max_running", WHOLE),
        sa.PrimaryKeyConstraint("owner", name="pk_shares"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "usages",
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("used", sa.Float, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("leases", WHOLE, nullable=False),
        sa.Column("start_tag", sa.Float),
        sa.PrimaryKeyConstraint("owner", name="pk_usages"),
        sqlite_with_rowid=False,
    )
    op.add_column("machines", sa.Column("comparison", letters(16)))
    op.add_column("jobs", sa.Column("priority", WHOLE, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("leased_at", sa.Float))
    op.add_column("jobs", sa.Column("start_tag", sa.Float))
    op.execute("INSERT INTO usages (owner, used, seconds, leases) SELECT DISTINCT owner, 0, 0, 0 FROM jobs")
    index_queued(("class",), ("owner", "class", "since", "seq"))
    for limits in LIMITS:
        for statement in text_limit_triggers(limits, op.get_context().dialect.name).values():
            op.execute(statement)


def downgrade() -> None:
    for limits in LIMITS:
        for statement in text_limit_leftovers(limits, op.get_context().dialect.name):
            op.execute(statement)
    index_queued(("class", "since", "seq"), ("owner",))
    for name in ("start_tag", "leased_at", "priority"):
        op.drop_column("jobs", name)
    op.drop_column("machines", "comparison")
    op.drop_table("usages")
    op.drop_table("shares")


def index_queued(by_class: tuple[str, ...], by_owner: tuple[str, ...]) -> None:
    """Create the indexes of queued jobs again, with these columns."""
    for name, columns in (("ix_jobs_queued", by_class), ("ix_jobs_queued_owner", by_owner)):
        op.drop_index(name, "jobs")
        op.create_index(name, "jobs", list(columns), sqlite_where=QUEUED, postgresql_where=QUEUED)
