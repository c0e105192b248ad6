"""The chain of records, with an entry for every record that is there already.

The tables are written out: a revision says what the schema was when it was made, whatever the table modules say later.
The form of an entry is the one that ``registry.database.record_chain`` checks; there is one form for all entries.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.chain import BATCH, Head, chain_entry, in_batches, read_records
from benchlock.migrations.frozen.columns import TEXT, WHOLE, letters
from benchlock.migrations.frozen.triggers import Guard, leftovers, triggers

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

GUARD = Guard("record_chain", (("seq",), ("kind", "key")))
RECORDS = {
    "owners": (),
    "tokens": (),
    "token_revocations": (),
    "token_rotations": (),
    "versions": ("manifests", "files", "requirements", "platforms", "environments"),
    "yanks": (),
    "locks": ("lock_blobs",),
    "imported_platforms": (),
    "runs": (),
    "run_ends": ("run_metrics", "run_batch_metrics", "run_packages", "run_blobs"),
    "imported_runs": (),
    "job_results": (),
    "actions": (),
}
"""Kinds of record with the tables of their parts. In which order they were inserted, nothing says any more."""


def upgrade() -> None:
    chain = op.create_table(
        "record_chain",
        sa.Column("seq", WHOLE, nullable=False, autoincrement=False),
        sa.Column("kind", letters(32), nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("digest", letters(71), nullable=False),
        sa.Column("link", letters(71), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_record_chain"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_record_chain_kind_key", "record_chain", ["kind", "key"], unique=True)
    fill(chain)
    for statement in triggers(GUARD, op.get_context().dialect.name).values():
        op.execute(statement)


def downgrade() -> None:
    """Drop it; triggers and index go with the table."""
    op.drop_table("record_chain")
    for statement in leftovers(GUARD, op.get_context().dialect.name):
        op.execute(statement)


def fill(chain: sa.Table) -> None:
    """Insert an entry for every record, a batch at a time."""
    connection, stored, head = op.get_bind(), sa.MetaData(), Head(0, "")
    for name, parts in RECORDS.items():
        tables = [sa.Table(one, stored, autoload_with=connection) for one in (name, *parts)]
        for batch in in_batches(read_records(connection, tables[0], tables[1:]), BATCH):
            entries = []
            for key, digest in batch:
                entries.append(chain_entry(head, name, key, digest))
                head = Head(entries[-1]["seq"], entries[-1]["link"])
            connection.execute(chain.insert(), entries)
