"""Since when a job waits, and the index by which the first of a class is found.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

INDEX = "ix_jobs_queued"
QUEUED = sa.text("state = 'queued'")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("since", sa.Float, nullable=False, server_default="0"))
    op.drop_index(INDEX, "jobs")
    create_index("class", "since", "seq")


def downgrade() -> None:
    op.drop_index(INDEX, "jobs")
    create_index("class", "seq")
    op.drop_column("jobs", "since")


def create_index(*columns: str) -> None:
    op.create_index(INDEX, "jobs", list(columns), sqlite_where=QUEUED, postgresql_where=QUEUED)
