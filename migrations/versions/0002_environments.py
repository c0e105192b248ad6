"""What images provide on each platform, and what models need, so that the resolver's questions seek in an index.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

from collections.abc import Iterator
from itertools import islice

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import TEXT, letters, precedence
from benchlock.migrations.frozen.triggers import Guard, Seal, leftovers, triggers

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

VERSION = ("kind", "name", "precedence")
PLATFORM = ("os", "arch", "device")
GUARD = Guard("environments", ((*VERSION, *PLATFORM),), Seal("versions", tuple(zip(VERSION, VERSION, strict=True))))
NEEDS = ("kind", "name", "required_kind", "required_name", "range", "precedence")
PROVIDED = ("framework", *PLATFORM, "framework_precedence", "name", "precedence")
INDEXES = (  # name, table, columns, and of which column only the pre-releases are in it
    ("ix_versions_prereleases", "versions", VERSION, "precedence"),
    ("ix_requirements_needs", "requirements", NEEDS, None),
    ("ix_environments_provided", "environments", PROVIDED, None),
    ("ix_environments_of_prereleases", "environments", PROVIDED, "framework_precedence"),
    ("ix_environments_in_prereleases", "environments", PROVIDED, "precedence"),
)
AT_ONCE = 10_000
PUBLISHED = """
SELECT DISTINCT v.kind, v.name, v.precedence, v.framework, v.framework_version, p.os, p.arch, p.device
FROM versions AS v JOIN platforms AS p ON p.kind = v.kind AND p.name = v.name AND p.precedence = v.precedence
WHERE v.framework IS NOT NULL
"""


def upgrade() -> None:
    table = create_environments()
    fill(table)
    for statement in triggers(GUARD, op.get_context().dialect.name).values():
        op.execute(statement)
    for name, of, columns, prereleases in INDEXES:
        condition = None if prereleases is None else sa.text(f"{prereleases} NOT LIKE '%~'")
        op.create_index(name, of, list(columns), sqlite_where=condition, postgresql_where=condition)


def downgrade() -> None:
    """Drop them; the triggers go with their table."""
    for name, of, *_ in INDEXES:
        op.drop_index(name, of)
    op.drop_table("environments")
    for statement in leftovers(GUARD, op.get_context().dialect.name):
        op.execute(statement)


def create_environments() -> sa.Table:
    return op.create_table(
        "environments",
        sa.Column("kind", letters(16), nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("precedence", TEXT, nullable=False),
        sa.Column("os", TEXT, nullable=False),
        sa.Column("arch", TEXT, nullable=False),
        sa.Column("device", TEXT, nullable=False),
        sa.Column("framework", TEXT, nullable=False),
        sa.Column("framework_precedence", TEXT, nullable=False),
        sa.PrimaryKeyConstraint(*VERSION, *PLATFORM, name="pk_environments"),
        sa.ForeignKeyConstraint(
            VERSION,
            [f"versions.{column}" for column in VERSION],
            name="fk_environments_kind_name_precedence_versions",
            deferrable=True,
            initially="DEFERRED",
        ),
        sqlite_with_rowid=False,
    )


def fill(environments: sa.Table) -> None:
    """A row for each platform of each image that is published already."""
    rows = provided(op.get_bind())
    while part := list(islice(rows, AT_ONCE)):
        op.bulk_insert(environments, part)
    if op.get_context().dialect.name == "postgresql":  # which alters no table whose keys it has still to check
        op.execute("SET CONSTRAINTS ALL IMMEDIATE")


def provided(connection: sa.Connection) -> Iterator[dict[str, str]]:
    for row in connection.execute(sa.text(PUBLISHED)).mappings():
        values = dict(row)
        yield values | {"framework_precedence": precedence(values.pop("framework_version"))}
