"""The database tables of runs, and the queries for hidden runs.

A run has a row for its start and a row for its end. The measurements are written before the row of the end, in the
same transaction, and are sealed by it. Only ``open_runs`` changes: it lists the runs without an end.
``imported_runs`` lists those that came in a bundle, and so ran somewhere else.
"""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Select,
    Table,
    func,
    select,
)

from benchlock.evaluator.records.run_types import Hiding, RunId
from benchlock.registry.auth.audit_log import record_action
from benchlock.registry.database.column_types import DIGEST, TEXT, WHOLE, Moment, bounded_text
from benchlock.registry.database.record_chain import insert_record
from benchlock.registry.database.registry_schema import APPEND_ONLY, deferred_key, metadata

RUN_ID = bounded_text(len("run/") + 26)

runs = Table(
    "runs",
    metadata,
    Column("id", RUN_ID, primary_key=True),
    Column("lock", DIGEST, ForeignKey("locks.id"), nullable=False),
    Column("attempt", WHOLE, nullable=False),
    Column("isolation", bounded_text(16), nullable=False),
    Column("platform", JSON, nullable=False),
    Column("host", JSON, nullable=False),
    Column("image_id", DIGEST),  # null if the run is a process
    Column("process", JSON, nullable=False),  # the process that executes it, to recognize an abandoned run
    Column("started_at", Moment, nullable=False),
    Index(None, "lock", "id"),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)

open_runs = Table(
    "open_runs",
    metadata,
    Column("run", RUN_ID, ForeignKey("runs.id"), primary_key=True),
    Column("fence", BigInteger),  # of its lease; null if a process of this host executes it
    sqlite_with_rowid=False,
)

held_runs = Table(  # open runs that clients execute and keep open by heartbeats
    "held_runs",
    metadata,
    Column("run", RUN_ID, ForeignKey("runs.id"), primary_key=True),
    Column("owner", TEXT, nullable=False),  # the token that began it, or a fixed word without tokens
    Column("until", Float, nullable=False),  # by the queue's clock; after that it counts as abandoned
    Index(None, "until"),
    sqlite_with_rowid=False,
)

run_ends = Table(
    "run_ends",
    metadata,
    Column("run", RUN_ID, primary_key=True),
    Column("outcome", bounded_text(16), nullable=False),
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
    """Return a table whose rows belong to a run's end and are sealed by it."""
    return Table(
        name,
        metadata,
        Column("run", RUN_ID, primary_key=True),
        *columns,
        deferred_key(["run"], ["run_ends.run"]),
        info=APPEND_ONLY | {"sealed_by": "run_ends"},
        sqlite_with_rowid=False,
    )


def _metric_columns() -> tuple[Column[Any], ...]:
    return (
        Column("value", Float, nullable=False),
        Column("unit", TEXT, nullable=False),
        Column("direction", bounded_text(8), nullable=False),
        Column("n", WHOLE, nullable=False),
        Column("ci_low", Float),  # null if n is too small for this bound
        Column("ci_high", Float),
        Column("version", WHOLE, nullable=False),  # of the metric's definition
    )


run_metrics = _of_end("run_metrics", Column("name", TEXT, primary_key=True), *_metric_columns())

run_batch_metrics = _of_end(
    "run_batch_metrics",  # metrics of a single batch size, of runs that measured several
    Column("name", TEXT, primary_key=True),
    Column("batch", WHOLE, primary_key=True, autoincrement=False),
    *_metric_columns(),
)

run_packages = _of_end("run_packages", Column("name", TEXT, primary_key=True), Column("version", TEXT, nullable=False))

run_blobs = _of_end(
    "run_blobs",
    Column("role", TEXT, primary_key=True),
    Column("digest", DIGEST, nullable=False),
    Column("size", WHOLE, nullable=False),
)

hidings = Table(  # for each subject the row with the largest position is in force
    "hidings",
    metadata,
    Column("kind", bounded_text(16), primary_key=True),  # run
    Column("subject", bounded_text(71), primary_key=True),  # its id
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


_RUN: Final = "run"
_later = hidings.alias()

HIDDEN_RUNS: Final[Select[tuple[str]]] = select(hidings.c.subject).where(
    hidings.c.kind == _RUN,
    hidings.c.hidden,
    ~select(_later.c.position)
    .where(_later.c.kind == hidings.c.kind, _later.c.subject == hidings.c.subject)
    .where(_later.c.position > hidings.c.position)
    .exists(),
)
"""The query for the ids of the hidden runs."""


def find_hiding(connection: Connection, run: RunId) -> Hiding | None:
    """Return why a run is hidden; None if it is not."""
    own = select(hidings).where(hidings.c.kind == _RUN, hidings.c.subject == run)
    row = connection.execute(own.order_by(hidings.c.position.desc()).limit(1)).first()
    return Hiding(row.reason, row.at) if row is not None and row.hidden else None


def insert_hiding(connection: Connection, run: RunId, reason: str | None, at: datetime) -> None:
    """Hide a run, or show it again.

    Args:
        connection: A transaction that writes.
        run: The run.
        reason: Why it is hidden; None shows it again.
        at: The time of the change.
    """
    own = (hidings.c.kind == _RUN, hidings.c.subject == run)
    last = connection.execute(select(func.max(hidings.c.position)).where(*own)).scalar() or 0
    row = {"kind": _RUN, "subject": run, "position": last + 1, "hidden": reason is not None, "reason": reason or ""}
    insert_record(connection, hidings, row | {"at": at})
    record_action(connection, "run.unhide" if reason is None else "run.hide", f"{run} {reason or ''}".rstrip(), at)
