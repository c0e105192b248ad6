"""The catalogue and the records, guarded.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import TEXT, WHOLE, letters
from benchlock.migrations.frozen.triggers import Guard, Seal, leftovers, triggers

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

VERSION = ("kind", "name", "precedence")
BY_VERSION = Seal("versions", tuple(zip(VERSION, VERSION, strict=True)))
BY_END = Seal("run_ends", (("run", "run"),))

GUARDS = (
    Guard("versions", (VERSION, ("digest",))),
    Guard("manifests", (VERSION,), BY_VERSION),
    Guard("files", ((*VERSION, "path"),), BY_VERSION),
    Guard("requirements", ((*VERSION, "required_kind", "required_name"),), BY_VERSION),
    Guard("platforms", ((*VERSION, "os", "arch", "device", "python"),), BY_VERSION),
    Guard("yanks", ((*VERSION, "position"),)),
    Guard("locks", (("id",),)),
    Guard("lock_blobs", (("lock", "digest"),), Seal("locks", (("lock", "id"),))),
    Guard("runs", (("id",),)),
    Guard("run_ends", (("run",),)),
    Guard("run_metrics", (("run", "name"),), BY_END),
    Guard("run_packages", (("run", "name"),), BY_END),
    Guard("run_blobs", (("run", "role"),), BY_END),
)


def upgrade() -> None:
    create_versions()
    create_locks()
    create_runs()
    for guard in GUARDS:
        for statement in triggers(guard, op.get_context().dialect.name).values():
            op.execute(statement)


def downgrade() -> None:
    """Drop everything; the triggers go with their tables."""
    for guard in reversed(GUARDS):
        if guard.table == "runs":
            op.drop_table("open_runs")
        op.drop_table(guard.table)
        for statement in leftovers(guard, op.get_context().dialect.name):
            op.execute(statement)


def create_versions() -> None:
    table(
        "versions",
        *version_key(),
        sa.Column("version", TEXT, nullable=False),
        sa.Column("digest", letters(71), nullable=False),
        sa.Column("framework", TEXT),
        sa.Column("framework_version", TEXT),
        sa.Column("published_at", letters(27), nullable=False),
        key=VERSION,
    )
    op.create_index("ix_versions_digest", "versions", ["digest"], unique=True)
    op.create_index("ix_versions_framework_name", "versions", ["framework", "name"])
    table(
        "manifests",
        *version_key(),
        sa.Column("content", TEXT, nullable=False),
        sa.Column("authored", TEXT, nullable=False),
        sa.Column("sources", TEXT, nullable=False),
        of_version("manifests"),
        key=VERSION,
    )
    table(
        "files",
        *version_key(),
        sa.Column("path", TEXT, nullable=False),
        sa.Column("digest", letters(71), nullable=False),
        sa.Column("size", WHOLE, nullable=False),
        sa.Column("tree", sa.Boolean, nullable=False),
        of_version("files"),
        key=(*VERSION, "path"),
    )
    op.create_index("ix_files_digest", "files", ["digest"])
    table(
        "requirements",
        *version_key(),
        sa.Column("required_kind", letters(16), nullable=False),
        sa.Column("required_name", TEXT, nullable=False),
        sa.Column("range", TEXT, nullable=False),
        of_version("requirements"),
        key=(*VERSION, "required_kind", "required_name"),
    )
    table(
        "platforms",
        *version_key(),
        sa.Column("os", TEXT, nullable=False),
        sa.Column("arch", TEXT, nullable=False),
        sa.Column("device", TEXT, nullable=False),
        sa.Column("python", TEXT, nullable=False),
        sa.Column("layered", sa.Boolean, nullable=False),
        of_version("platforms"),
        key=(*VERSION, "os", "arch", "device", "python"),
    )
    table(
        "yanks",
        *version_key(),
        sa.Column("position", WHOLE, nullable=False),
        sa.Column("yanked", sa.Boolean, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("at", letters(27), nullable=False),
        foreign_key("yanks", VERSION, "versions", VERSION),
        key=(*VERSION, "position"),
    )


def create_locks() -> None:
    chosen = (f"{kind}{suffix}" for kind in ("model", "dataset", "framework", "image") for suffix in ("", "_version"))
    table(
        "locks",
        sa.Column("id", letters(71), nullable=False),
        sa.Column("text", TEXT, nullable=False),
        sa.Column("request", TEXT, nullable=False),
        *(sa.Column(name, TEXT, nullable=False) for name in chosen),
        sa.Column("created_at", letters(27), nullable=False),
        key=("id",),
    )
    op.create_index("ix_locks_created_at", "locks", ["created_at"])
    table(
        "lock_blobs",
        sa.Column("lock", letters(71), nullable=False),
        sa.Column("digest", letters(71), nullable=False),
        sa.Column("tree", sa.Boolean, nullable=False),
        foreign_key("lock_blobs", ("lock",), "locks", ("id",), deferred=True),
        key=("lock", "digest"),
    )


def create_runs() -> None:
    table(
        "runs",
        sa.Column("id", letters(30), nullable=False),
        sa.Column("lock", letters(71), nullable=False),
        sa.Column("attempt", WHOLE, nullable=False),
        sa.Column("isolation", letters(16), nullable=False),
        sa.Column("platform", sa.JSON, nullable=False),
        sa.Column("host", sa.JSON, nullable=False),
        sa.Column("image_id", letters(71)),
        sa.Column("process", sa.JSON, nullable=False),
        sa.Column("started_at", letters(27), nullable=False),
        foreign_key("runs", ("lock",), "locks", ("id",)),
        key=("id",),
    )
    op.create_index("ix_runs_lock_id", "runs", ["lock", "id"])
    table("open_runs", run_column(), foreign_key("open_runs", ("run",), "runs", ("id",)), key=("run",))
    table(
        "run_ends",
        run_column(),
        sa.Column("outcome", letters(16), nullable=False),
        sa.Column("failure_class", TEXT),
        sa.Column("failure_message", TEXT),
        sa.Column("timings", sa.JSON, nullable=False),
        sa.Column("details", sa.JSON, nullable=False),
        sa.Column("ended_at", letters(27), nullable=False),
        foreign_key("run_ends", ("run",), "runs", ("id",)),
        key=("run",),
    )
    table(
        "run_metrics",
        run_column(),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("value", sa.Float, nullable=False),
        sa.Column("unit", TEXT, nullable=False),
        sa.Column("direction", letters(8), nullable=False),
        sa.Column("n", WHOLE, nullable=False),
        sa.Column("ci_low", sa.Float),
        sa.Column("ci_high", sa.Float),
        sa.Column("version", WHOLE, nullable=False),
        of_end("run_metrics"),
        key=("run", "name"),
    )
    table(
        "run_packages",
        run_column(),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("version", TEXT, nullable=False),
        of_end("run_packages"),
        key=("run", "name"),
    )
    table(
        "run_blobs",
        run_column(),
        sa.Column("role", TEXT, nullable=False),
        sa.Column("digest", letters(71), nullable=False),
        sa.Column("size", WHOLE, nullable=False),
        of_end("run_blobs"),
        key=("run", "role"),
    )


def table(name: str, *parts: sa.schema.SchemaItem, key: tuple[str, ...]) -> None:
    """Create a table without a hidden row number."""
    op.create_table(name, *parts, sa.PrimaryKeyConstraint(*key, name=f"pk_{name}"), sqlite_with_rowid=False)


def version_key() -> tuple[sa.Column[str], ...]:
    return (
        sa.Column("kind", letters(16), nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("precedence", TEXT, nullable=False),
    )


def run_column() -> sa.Column[str]:
    return sa.Column("run", letters(30), nullable=False)


def of_version(name: str) -> sa.ForeignKeyConstraint:
    return foreign_key(name, VERSION, "versions", VERSION, deferred=True)


def of_end(name: str) -> sa.ForeignKeyConstraint:
    return foreign_key(name, ("run",), "run_ends", ("run",), deferred=True)


def foreign_key(
    name: str, columns: tuple[str, ...], referred: str, theirs: tuple[str, ...], *, deferred: bool = False
) -> sa.ForeignKeyConstraint:
    """A foreign key; ``deferred`` is checked at the commit."""
    return sa.ForeignKeyConstraint(
        columns,
        [f"{referred}.{column}" for column in theirs],
        name=f"fk_{name}_{'_'.join(columns)}_{referred}",
        deferrable=True if deferred else None,
        initially="DEFERRED" if deferred else None,
    )
