"""Rotations of tokens (further secrets of one token), and the queued jobs of a token.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import WHOLE, letters
from benchlock.migrations.frozen.triggers import Guard, leftovers, triggers

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

GUARD = Guard("token_rotations", (("token", "number"), ("digest",)))


def upgrade() -> None:
    op.create_table(
        "token_rotations",
        sa.Column("token", letters(32), nullable=False),
        sa.Column("number", WHOLE, nullable=False),
        sa.Column("digest", letters(71), nullable=False),
        sa.Column("at", letters(27), nullable=False),
        sa.Column("grace_until", letters(27), nullable=False),
        sa.Column("expires_at", letters(27), nullable=False),
        sa.PrimaryKeyConstraint("token", "number", name="pk_token_rotations"),
        sa.ForeignKeyConstraint(("token",), ("tokens.id",), name="fk_token_rotations_token_tokens"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_token_rotations_digest", "token_rotations", ["digest"], unique=True)
    only = sa.text("state = 'queued'")
    op.create_index("ix_jobs_queued_owner", "jobs", ["owner"], sqlite_where=only, postgresql_where=only)
    for statement in triggers(GUARD, op.get_context().dialect.name).values():
        op.execute(statement)


def downgrade() -> None:
    """Drop the table; its triggers and index go with it."""
    op.drop_index("ix_jobs_queued_owner", "jobs")
    op.drop_table(GUARD.table)
    for statement in leftovers(GUARD, op.get_context().dialect.name):
        op.execute(statement)
