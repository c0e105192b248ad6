"""Indexes by which jobs of a state, and runs of an outcome, are listed a page at a time.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_jobs_state_submitted_at", "jobs")
    op.create_index("ix_jobs_state_seq", "jobs", ["state", "seq"])
    op.create_index("ix_run_ends_outcome_run", "run_ends", ["outcome", "run"])


def downgrade() -> None:
    op.drop_index("ix_run_ends_outcome_run", "run_ends")
    op.drop_index("ix_jobs_state_seq", "jobs")
    op.create_index("ix_jobs_state_submitted_at", "jobs", ["state", "submitted_at"])
