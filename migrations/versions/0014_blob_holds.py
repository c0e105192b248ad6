"""Blobs that are no garbage yet though nothing names them, for services whose processes share the database.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import DIGEST

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "blob_holds",
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("until", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_blob_holds"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("blob_holds")
