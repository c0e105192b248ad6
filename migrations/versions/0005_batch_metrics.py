"""Metrics of runs that measured several batches.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import TEXT, WHOLE, letters
from benchlock.migrations.frozen.triggers import Guard, Seal, leftovers, triggers

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

GUARD = Guard("run_batch_metrics", (("run", "name", "batch"),), Seal("run_ends", (("run", "run"),)))


def upgrade() -> None:
    op.create_table(
        "run_batch_metrics",
        sa.Column("run", letters(30), nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("batch", WHOLE, nullable=False),
        sa.Column("value", sa.Float, nullable=False),
        sa.Column("unit", TEXT, nullable=False),
        sa.Column("direction", letters(8), nullable=False),
        sa.Column("n", WHOLE, nullable=False),
        sa.Column("ci_low", sa.Float),
        sa.Column("ci_high", sa.Float),
        sa.Column("version", WHOLE, nullable=False),
        sa.PrimaryKeyConstraint("run", "name", "batch", name="pk_run_batch_metrics"),
        sa.ForeignKeyConstraint(
            ("run",), ("run_ends.run",), name="fk_run_batch_metrics_run_run_ends", deferrable=True, initially="DEFERRED"
        ),
        sqlite_with_rowid=False,
    )
    for statement in triggers(GUARD, op.get_context().dialect.name).values():
        op.execute(statement)


def downgrade() -> None:
    """Drop it; the triggers go with their table."""
    op.drop_table("run_batch_metrics")
    for statement in leftovers(GUARD, op.get_context().dialect.name):
        op.execute(statement)
