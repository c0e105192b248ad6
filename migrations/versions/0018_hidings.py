"""Records that administrators have hidden.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from registry.catalogue import text_limits
from registry.catalogue.columns import TEXT, WHOLE, letters
from registry.catalogue.guards import Guard, leftovers, triggers

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

KEY = ("kind", "subject", "position")
GUARD = Guard("hidings", (KEY,))
LIMITS = text_limits.TextLimits("hidings", (("reason", 4000),))


def upgrade() -> None:
    op.create_table(
        "hidings",
        sa.Column("kind", letters(16), nullable=False),
        sa.Column("subject", letters(71), nullable=False),
        sa.Column("position", WHOLE, nullable=False, autoincrement=False),
        sa.Column("hidden", sa.Boolean, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("at", letters(27), nullable=False),
        sa.PrimaryKeyConstraint(*KEY, name="pk_hidings"),
        sqlite_with_rowid=False,
    )
    dialect = op.get_context().dialect.name
    for statement in (*triggers(GUARD, dialect).values(), *text_limits.triggers(LIMITS, dialect).values()):
        op.execute(statement)


def downgrade() -> None:
    """Drop it; the triggers of SQLite go with their table."""
    dialect = op.get_context().dialect.name
    for statement in text_limits.leftovers(LIMITS, dialect):
        op.execute(statement)
    op.drop_table("hidings")
    for statement in leftovers(GUARD, dialect):
        op.execute(statement)
