"""Machines that are held back since they lose jobs for a reason of their own, and how far their clocks are off.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import TEXT, WHOLE

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("machines", sa.Column("held", TEXT))
    op.add_column("machines", sa.Column("held_until", sa.Float))
    op.add_column("machines", sa.Column("holds", WHOLE, nullable=False, server_default="0"))
    op.add_column("machines", sa.Column("skew", sa.Float))


def downgrade() -> None:
    for column in ("skew", "holds", "held_until", "held"):
        op.drop_column("machines", column)
