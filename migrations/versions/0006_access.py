"""Tokens, their revocations, and who did what.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import TEXT, letters
from benchlock.migrations.frozen.triggers import Guard, leftovers, triggers

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TOKEN_ID = letters(32)
GUARDS = (
    Guard("tokens", (("id",), ("digest",))),
    Guard("token_revocations", (("token",),)),
    Guard("actions", (("id",),)),
)


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", TOKEN_ID, nullable=False),
        sa.Column("digest", letters(71), nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("scopes", TEXT, nullable=False),
        sa.Column("created_by", TEXT, nullable=False),
        sa.Column("created_at", letters(27), nullable=False),
        sa.Column("expires_at", letters(27), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_tokens_digest", "tokens", ["digest"], unique=True)
    op.create_table(
        "token_revocations",
        sa.Column("token", TOKEN_ID, nullable=False),
        sa.Column("at", letters(27), nullable=False),
        sa.PrimaryKeyConstraint("token", name="pk_token_revocations"),
        sa.ForeignKeyConstraint(("token",), ("tokens.id",), name="fk_token_revocations_token_tokens"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "actions",
        sa.Column("id", letters(26), nullable=False),
        sa.Column("at", letters(27), nullable=False),
        sa.Column("actor", TEXT, nullable=False),
        sa.Column("action", TEXT, nullable=False),
        sa.Column("target", TEXT, nullable=False),
        sa.Column("request", TEXT),
        sa.Column("outcome", letters(16), nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_actions"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_actions_actor_id", "actions", ["actor", "id"])
    for guard in GUARDS:
        for statement in triggers(guard, op.get_context().dialect.name).values():
            op.execute(statement)


def downgrade() -> None:
    """Drop them; triggers and indexes go with their tables."""
    for guard in reversed(GUARDS):
        op.drop_table(guard.table)
        for statement in leftovers(guard, op.get_context().dialect.name):
            op.execute(statement)
