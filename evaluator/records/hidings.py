"""Hidden runs: rows beside the records, which stay as they are."""

from datetime import datetime
from typing import Final

from sqlalchemy import Connection, Select, func, select

from benchlock.evaluator.records.runs import Hiding, RunId
from benchlock.evaluator.records.tables import hidings
from benchlock.registry.access.log import note
from benchlock.registry.catalogue.chain import insert_record

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
"""The ids of the runs that are hidden."""


def find_hiding(connection: Connection, run: RunId) -> Hiding | None:
    """Return why a run is hidden; None where it is not."""
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
    note(connection, "run.unhide" if reason is None else "run.hide", f"{run} {reason or ''}".rstrip(), at)
