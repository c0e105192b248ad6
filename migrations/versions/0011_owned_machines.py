"""Whose a machine is, which question a lease answers, and of which locks a machine had other bytes.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import TEXT

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("machines", sa.Column("owner", TEXT))
    op.add_column("machines", sa.Column("faulty", sa.JSON))
    op.add_column("leases", sa.Column("nonce", TEXT))


def downgrade() -> None:
    op.drop_column("leases", "nonce")
    op.drop_column("machines", "faulty")
    op.drop_column("machines", "owner")
