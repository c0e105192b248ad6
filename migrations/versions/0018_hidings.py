"""Records that administrators have hidden.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen import triggers as text_limits
from benchlock.migrations.frozen.chain import BATCH, Head, chain_entry
from benchlock.migrations.frozen.columns import TEXT, WHOLE, letters
from benchlock.migrations.frozen.triggers import Guard, leftovers, triggers

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

KEY = ("kind", "subject", "position")
GUARD = Guard("hidings", (KEY,))
CHAIN_GUARD = Guard("record_chain", (("seq",), ("kind", "key")))
LIMITS = text_limits.TextLimits("hidings", (("reason", 4000),))


def upgrade() -> None:
    op.create_table(
        "hidings",
        sa.Column("kind", letters(16), nullable=False),
        sa.Column("subject", letters(71), nullable=False),
        sa.Column("position", WHOLE, nullable=False, autoincrement=False),
        sa.Column("hidden", sa.Boolean, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("at", letters(27), nullable=False),
        sa.PrimaryKeyConstraint(*KEY, name="pk_hidings"),
        sqlite_with_rowid=False,
    )
    dialect = op.get_context().dialect.name
    for statement in (*triggers(GUARD, dialect).values(), *text_limits.text_limit_triggers(LIMITS, dialect).values()):
        op.execute(statement)


def downgrade() -> None:
    """Drop it, with its entries of the chain; the triggers of SQLite go with their table."""
    unchain()
    dialect = op.get_context().dialect.name
    for statement in text_limits.text_limit_leftovers(LIMITS, dialect):
        op.execute(statement)
    op.drop_table("hidings")
    for statement in leftovers(GUARD, dialect):
        op.execute(statement)


def unchain() -> None:
    """Remove the entries of hidings, and link those after them anew, in their order and with their digests."""
    connection = op.get_bind()
    chain = sa.Table("record_chain", sa.MetaData(), autoload_with=connection)
    hidings = chain.c.kind == "hidings"
    first = connection.execute(sa.select(sa.func.min(chain.c.seq)).where(hidings)).scalar()
    if first is None:
        return
    guard(active=False)
    connection.execute(chain.delete().where(hidings))
    before = connection.execute(sa.select(chain.c.seq, chain.c.link).where(chain.c.seq == first - 1)).first()
    head, last = Head(0, "") if before is None else Head(*before), first
    change = chain.update().where(chain.c.seq == sa.bindparam("old"))
    following = sa.select(chain).order_by(chain.c.seq).limit(BATCH)
    while rows := connection.execute(following.where(chain.c.seq > last)).all():
        changes = []
        for row in rows:
            entry = chain_entry(head, row.kind, row.key, row.digest)
            head, last = Head(entry["seq"], entry["link"]), row.seq
            changes.append({"old": last, "seq": head.seq, "link": head.link})
        connection.execute(change.values(seq=sa.bindparam("seq"), link=sa.bindparam("link")), changes)
    guard(active=True)


def guard(*, active: bool) -> None:
    """Turn the triggers on and off that let nobody change the chain."""
    dialect = op.get_context().dialect.name
    made = triggers(CHAIN_GUARD, dialect)
    if dialect == "sqlite":
        statements = made.values() if active else [f"DROP TRIGGER IF EXISTS {name}" for name in made]
    else:
        change = "ENABLE ALWAYS" if active else "DISABLE"
        names = [name for name, statement in made.items() if statement.startswith("CREATE TRIGGER ")]
        statements = [f"ALTER TABLE record_chain {change} TRIGGER {name}" for name in names]
    for statement in statements:
        op.execute(statement)
