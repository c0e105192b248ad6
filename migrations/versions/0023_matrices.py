"""Matrices of evaluations, and the locks and jobs of their runs.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

import sqlalchemy as sa
from alembic import op

from benchlock.migrations.frozen.columns import TEXT, WHOLE, letters
from benchlock.migrations.frozen.triggers import TextLimits, text_limit_leftovers, text_limit_triggers

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

LIMITS = (
    TextLimits("matrices", (("document", 262144), ("owner", 128))),
    TextLimits("matrix_cells", (("conflict", 4000),)),
)
KEY = ("matrix", "cell", "repeat")


def upgrade() -> None:
    op.create_table(
        "matrices",
        sa.Column("id", letters(71), nullable=False),
        sa.Column("document", sa.JSON, nullable=False),
        sa.Column("runs", WHOLE, nullable=False),
        sa.Column("as_of", letters(27), nullable=False),
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("submitted_at", letters(27), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_matrices"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "matrix_cells",
        sa.Column("matrix", letters(71), nullable=False),
        sa.Column("cell", letters(256), nullable=False),
        sa.Column("repeat", WHOLE, nullable=False, autoincrement=False),
        sa.Column("lock", letters(71)),
        sa.Column("job", letters(30)),
        sa.Column("conflict", TEXT),
        sa.PrimaryKeyConstraint(*KEY, name="pk_matrix_cells"),
        sa.ForeignKeyConstraint(["matrix"], ["matrices.id"], name="fk_matrix_cells_matrix_matrices"),
        sa.ForeignKeyConstraint(["lock"], ["locks.id"], name="fk_matrix_cells_lock_locks"),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_matrix_cells_job_jobs"),
        sa.UniqueConstraint("job", name="uq_matrix_cells_job"),
        sqlite_with_rowid=False,
    )
    for limits in LIMITS:
        for statement in text_limit_triggers(limits, op.get_context().dialect.name).values():
            op.execute(statement)


def downgrade() -> None:
    for limits in LIMITS:
        for statement in text_limit_leftovers(limits, op.get_context().dialect.name):
            op.execute(statement)
    op.drop_table("matrix_cells")
    op.drop_table("matrices")
