"""Runs that somebody elsewhere holds, for as long as they say that it goes on.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import TEXT, letters

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "held_runs",
        sa.Column("run", letters(30), nullable=False),
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("until", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("run", name="pk_held_runs"),
        sa.ForeignKeyConstraint(("run",), ("runs.id",), name="fk_held_runs_run_runs"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_held_runs_until", "held_runs", ["until"])


def downgrade() -> None:
    op.drop_table("held_runs")
