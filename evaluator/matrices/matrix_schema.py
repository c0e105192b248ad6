"""The database tables of matrices: each matrix as it was submitted, and its runs with their locks and jobs."""

from sqlalchemy import JSON, Column, ForeignKey, Table

from benchlock.evaluator.queue.queue_schema import JOB_ID
from benchlock.registry.database.column_types import DIGEST, TEXT, WHOLE, Moment, bounded_text
from benchlock.registry.database.registry_schema import metadata

matrices = Table(
    "matrices",
    metadata,
    Column("id", DIGEST, primary_key=True),
    Column("document", JSON, nullable=False),
    Column("runs", WHOLE, nullable=False),
    Column("as_of", Moment, nullable=False),  # of the catalogue on which all cells are resolved
    Column("owner", TEXT, nullable=False),  # the token that submitted it, or a fixed word without tokens
    Column("submitted_at", Moment, nullable=False),
    sqlite_with_rowid=False,
)

matrix_cells = Table(  # a row for each run of a cell
    "matrix_cells",
    metadata,
    Column("matrix", DIGEST, ForeignKey("matrices.id"), primary_key=True),
    Column("cell", bounded_text(256), primary_key=True),
    Column("repeat", WHOLE, primary_key=True, autoincrement=False),
    Column("lock", DIGEST, ForeignKey("locks.id")),  # null with a conflict
    Column("job", JOB_ID, ForeignKey("jobs.id"), unique=True),  # as above
    Column("conflict", TEXT),  # why the cell has no lock
    sqlite_with_rowid=False,
)
