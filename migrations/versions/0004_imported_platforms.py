"""Which platforms of a lock came in bundles, and when: a bundle may bring some of them.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import TEXT, letters
from benchlock.migrations.frozen.triggers import Guard, leftovers, triggers

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

KEY = ("lock", "os", "arch", "device", "python")
GUARD = Guard("imported_platforms", (KEY,))


def upgrade() -> None:
    op.create_table(
        "imported_platforms",
        sa.Column("lock", letters(71), nullable=False),
        *(sa.Column(name, TEXT, nullable=False) for name in KEY[1:]),
        sa.Column("at", letters(27), nullable=False),
        sa.PrimaryKeyConstraint(*KEY, name="pk_imported_platforms"),
        sa.ForeignKeyConstraint(("lock",), ("locks.id",), name="fk_imported_platforms_lock_locks"),
        sqlite_with_rowid=False,
    )
    for statement in triggers(GUARD, op.get_context().dialect.name).values():
        op.execute(statement)


def downgrade() -> None:
    """Drop it; the triggers go with their table."""
    op.drop_table("imported_platforms")
    for statement in leftovers(GUARD, op.get_context().dialect.name):
        op.execute(statement)
