"""Jobs of interleaved comparisons: the comparison that a job belongs to, and its turn in it.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

from collections.abc import Iterable

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import letters
from benchlock.migrations.frozen.triggers import TextLimits, text_limit_leftovers, text_limit_triggers

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

BEFORE = TextLimits("jobs", (("failure", 255), ("owner", 128), ("reason", 4000)))
AFTER = TextLimits("jobs", (("failure", 255), ("owner", 128), ("part_of", 16384), ("reason", 4000)))
COMPARED = sa.text("comparison IS NOT NULL")


def upgrade() -> None:
    execute(text_limit_leftovers(BEFORE, op.get_context().dialect.name))
    op.add_column("jobs", sa.Column("comparison", letters(16)))
    op.add_column("jobs", sa.Column("part_of", sa.JSON))
    op.create_index(
        "ix_jobs_comparison", "jobs", ["comparison", "seq"], sqlite_where=COMPARED, postgresql_where=COMPARED
    )
    execute(text_limit_triggers(AFTER, op.get_context().dialect.name).values())


def downgrade() -> None:
    execute(text_limit_leftovers(AFTER, op.get_context().dialect.name))
    op.drop_index("ix_jobs_comparison", "jobs")
    op.drop_column("jobs", "part_of")
    op.drop_column("jobs", "comparison")
    execute(text_limit_triggers(BEFORE, op.get_context().dialect.name).values())


def execute(statements: Iterable[str]) -> None:
    """Execute statements in order."""
    for statement in statements:
        op.execute(statement)
