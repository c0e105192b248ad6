"""Which runs came in a bundle, and when.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import letters
from benchlock.migrations.frozen.triggers import Guard, leftovers, triggers

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

GUARD = Guard("imported_runs", (("run",),))


def upgrade() -> None:
    op.create_table(
        "imported_runs",
        sa.Column("run", letters(30), nullable=False),
        sa.Column("at", letters(27), nullable=False),
        sa.PrimaryKeyConstraint("run", name="pk_imported_runs"),
        sa.ForeignKeyConstraint(("run",), ("runs.id",), name="fk_imported_runs_run_runs"),
        sqlite_with_rowid=False,
    )
    for statement in triggers(GUARD, op.get_context().dialect.name).values():
        op.execute(statement)


def downgrade() -> None:
    """Drop it; the triggers go with their table."""
    op.drop_table("imported_runs")
    for statement in leftovers(GUARD, op.get_context().dialect.name):
        op.execute(statement)
