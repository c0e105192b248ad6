"""The progress that workers report of their leased jobs.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import WHOLE, letters

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

COUNTED = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "progress_lines",
        sa.Column("fence", COUNTED, nullable=False, autoincrement=False),
        sa.Column("number", WHOLE, nullable=False, autoincrement=False),
        sa.Column("task", letters(64), nullable=False),
        sa.Column("done", sa.BigInteger, nullable=False),
        sa.Column("total", sa.BigInteger),
        sa.PrimaryKeyConstraint("fence", "number", name="pk_progress_lines"),
        sa.ForeignKeyConstraint(["fence"], ["leases.fence"], name="fk_progress_lines_fence_leases"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("progress_lines")
