"""Whose the held blobs are, and their sizes: a blob that nothing names counts as its owner's.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import DIGEST, letters

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    rows = remove()
    table = op.create_table(
        "blob_holds",
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("owner", letters(16), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("until", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("digest", "owner", name="pk_blob_holds"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_blob_holds_owner", "blob_holds", ["owner"])
    op.bulk_insert(table, [{"digest": digest, "owner": "", "size": 0, "until": until} for digest, until in rows])


def downgrade() -> None:
    rows = remove()
    table = op.create_table(
        "blob_holds",
        sa.Column("digest", DIGEST, nullable=False),
        sa.Column("until", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_blob_holds"),
        sqlite_with_rowid=False,
    )
    op.bulk_insert(table, [{"digest": digest, "until": until} for digest, until in rows])


def remove() -> Sequence[tuple[Any, ...]]:
    """Remove the table; return what it held, and until when."""
    holds = sa.table("blob_holds", sa.column("digest"), sa.column("until"))
    query = sa.select(holds.c.digest, sa.func.max(holds.c.until)).group_by(holds.c.digest)
    rows = [tuple(row) for row in op.get_bind().execute(query)]
    op.drop_table("blob_holds")
    return rows
