"""The tables of runs, in the catalogue's schema. Migrations make them; nothing else does.

A run is a row at its start and a row at its end; what was measured is written before the row of the end, in the same
transaction, and sealed by it. Only ``open_runs`` changes: it says which runs have no end yet. ``imported_runs`` says
which came in a bundle, and so ran somewhere else.
"""

from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, ForeignKey, ForeignKeyConstraint, Index, Table

from benchlock.registry.catalogue.columns import DIGEST, TEXT, WHOLE, Moment, letters
from benchlock.registry.catalogue.tables import APPEND_ONLY, deferred_key, metadata

RUN_ID = letters(len("run/") + 26)

runs = Table(
    "runs",
    metadata,
    Column("id", RUN_ID, primary_key=True),
    Column("lock", DIGEST, ForeignKey("locks.id"), nullable=False),
    Column("attempt", WHOLE, nullable=False),
    Column("isolation", letters(16), nullable=False),
    Column("platform", JSON, nullable=False),
    Column("host", JSON, nullable=False),
    Column("image_id", DIGEST),  # null where the run is a process
    Column("process", JSON, nullable=False),  # who runs it, so that an abandoned run can be told from a living one
    Column("started_at", Moment, nullable=False),
    Index(None, "lock", "id"),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)

open_runs = Table(
    "open_runs",
    metadata,
    Column("run", RUN_ID, ForeignKey("runs.id"), primary_key=True),
    Column("fence", BigInteger),  # of the lease that it is under; null where a process of this host holds it
    sqlite_with_rowid=False,
)

held_runs = Table(  # open ones that somebody elsewhere runs, and says so again and again
    "held_runs",
    metadata,
    Column("run", RUN_ID, ForeignKey("runs.id"), primary_key=True),
    Column("owner", TEXT, nullable=False),  # who began it: a token's id, or a word where there is none
    Column("until", Float, nullable=False),  # of the queue's clock: then it counts as abandoned
    Index(None, "until"),
    sqlite_with_rowid=False,
)

run_ends = Table(
    "run_ends",
    metadata,
    Column("run", RUN_ID, primary_key=True),
    Column("outcome", letters(16), nullable=False),
    Column("failure_class", TEXT),  # null unless failed
    Column("failure_message", TEXT),
    Column("timings", JSON, nullable=False),  # seconds by phase
    Column("details", JSON, nullable=False),
    Column("ended_at", Moment, nullable=False),
    ForeignKeyConstraint(["run"], ["runs.id"]),
    Index(None, "outcome", "run"),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)


def _of_end(name: str, *columns: Any) -> Table:  # noqa: ANN401 - columns of any type
    """A table whose rows belong to a run's end and are sealed by it."""
    return Table(
        name,
        metadata,
        Column("run", RUN_ID, primary_key=True),
        *columns,
        deferred_key(["run"], ["run_ends.run"]),
        info=APPEND_ONLY | {"sealed_by": "run_ends"},
        sqlite_with_rowid=False,
    )


def _figure() -> tuple[Column[Any], ...]:
    return (
        Column("value", Float, nullable=False),
        Column("unit", TEXT, nullable=False),
        Column("direction", letters(8), nullable=False),
        Column("n", WHOLE, nullable=False),
        Column("ci_low", Float),  # null where n cannot bound that end
        Column("ci_high", Float),
        Column("version", WHOLE, nullable=False),  # of the metric's definition
    )


run_metrics = _of_end("run_metrics", Column("name", TEXT, primary_key=True), *_figure())

run_batch_metrics = _of_end(
    "run_batch_metrics",  # of runs that measured several batches: a metric of one of them
    Column("name", TEXT, primary_key=True),
    Column("batch", WHOLE, primary_key=True, autoincrement=False),
    *_figure(),
)

run_packages = _of_end("run_packages", Column("name", TEXT, primary_key=True), Column("version", TEXT, nullable=False))

run_blobs = _of_end(
    "run_blobs",
    Column("role", TEXT, primary_key=True),
    Column("digest", DIGEST, nullable=False),
    Column("size", WHOLE, nullable=False),
)

hidings = Table(  # of a subject the row with the largest position holds
    "hidings",
    metadata,
    Column("kind", letters(16), primary_key=True),  # run
    Column("subject", letters(71), primary_key=True),  # its id
    Column("position", WHOLE, primary_key=True, autoincrement=False),  # 1, 2, ...
    Column("hidden", Boolean, nullable=False),
    Column("reason", TEXT, nullable=False),
    Column("at", Moment, nullable=False),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)

imported_runs = Table(
    "imported_runs",
    metadata,
    Column("run", RUN_ID, ForeignKey("runs.id"), primary_key=True),
    Column("at", Moment, nullable=False),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)
