"""Tokens, their revocations, and who did what.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from registry.catalogue.guards import Guard, triggers

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TOKEN_ID = sa.String(32)
GUARDS = (
    Guard("tokens", (("id",), ("digest",))),
    Guard("token_revocations", (("token",),)),
    Guard("actions", (("id",),)),
)


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", TOKEN_ID, nullable=False),
        sa.Column("digest", sa.String(71), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(27), nullable=False),
        sa.Column("expires_at", sa.String(27), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_tokens_digest", "tokens", ["digest"], unique=True)
    op.create_table(
        "token_revocations",
        sa.Column("token", TOKEN_ID, nullable=False),
        sa.Column("at", sa.String(27), nullable=False),
        sa.PrimaryKeyConstraint("token", name="pk_token_revocations"),
        sa.ForeignKeyConstraint(("token",), ("tokens.id",), name="fk_token_revocations_token_tokens"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "actions",
        sa.Column("id", sa.String(26), nullable=False),
        sa.Column("at", sa.String(27), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("request", sa.Text),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_actions"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_actions_actor_id", "actions", ["actor", "id"])
    for guard in GUARDS:
        for statement in triggers(guard, op.get_context().dialect.name).values():
            op.execute(statement)


def downgrade() -> None:
    """Drop them; on SQLite triggers and indexes go with their tables."""
    for guard in reversed(GUARDS):
        op.drop_table(guard.table)
