"""An index of the leases of each machine, from which follows which files it has.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_leases_machine_fence", "leases", ["machine", "fence"])


def downgrade() -> None:
    op.drop_index("ix_leases_machine_fence", "leases")
