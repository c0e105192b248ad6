"""Whose database it is.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import letters
from benchlock.migrations.frozen.triggers import Guard, leftovers, triggers

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

GUARD = Guard("owners", (("id",),))


def upgrade() -> None:
    op.create_table(
        "owners",
        sa.Column("id", letters(32), nullable=False),
        sa.Column("at", letters(27), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_owners"),
        sqlite_with_rowid=False,
    )
    for statement in triggers(GUARD, op.get_context().dialect.name).values():
        op.execute(statement)


def downgrade() -> None:
    """Drop it; the triggers go with their table."""
    op.drop_table("owners")
    for statement in leftovers(GUARD, op.get_context().dialect.name):
        op.execute(statement)
