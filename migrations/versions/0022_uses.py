"""Indexes of what uses a version: the locks that have it, and the versions with a constraint on its name.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

LOCKED = ("model", "dataset", "framework", "image")


def upgrade() -> None:
    needed = ["required_kind", "required_name", "kind", "name", "precedence", "range"]
    op.create_index("ix_requirements_needed", "requirements", needed)
    for kind in LOCKED:
        op.create_index(f"ix_locks_with_{kind}", "locks", [kind, f"{kind}_version", "created_at", "id"])


def downgrade() -> None:
    for kind in LOCKED:
        op.drop_index(f"ix_locks_with_{kind}", "locks")
    op.drop_index("ix_requirements_needed", "requirements")
