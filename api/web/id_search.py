"""Search for runs, jobs and locks by their ids or the beginnings of them."""

import re
from collections.abc import Iterator
from typing import Final

from benchlock.api.client.id_prefixes import describe_moment
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import job_path, lock_path, run_path
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_types import Run, RunFilter
from benchlock.registry.database.ids_and_timestamps import DIGITS, SHORTEST_PREFIX

MATCHES: Final = 20
"""The maximum number of ids of each kind that a search lists."""
_ID: Final = re.compile(rf"(?:(run|job)/)?([0-9a-hjkmnp-tv-z]{{{SHORTEST_PREFIX},{DIGITS}}})")
_LOCK: Final = re.compile(rf"(?:sha256:)?([0-9a-f]{{{SHORTEST_PREFIX},64}})")
_COLUMNS: Final = (
    Column("run", None, "The id, if it is that of a run."),
    Column("job", None, "The id, if it is that of a job."),
    Column("lock", None, "The id, if it is that of a lock."),
    Column("created", None, "When it began or was stored, UTC."),
    Column("subject", None, "The model of a lock, or the state of a job."),
)
_PATHS: Final = (run_path, job_path, lock_path)


def find_ids(registry: LocalRegistry, queue: SqlQueue, text: str) -> Table:
    """Find runs, jobs and locks whose ids begin with a text, by seeks in the indexes of the ids.

    Args:
        registry: The registry.
        queue: Its queue.
        text: The first 4 or more characters of an id, with or without ``run/``, ``job/`` or ``sha256:``. No id begins
            with a text of another form.

    Returns:
        A row for each id: at most ``MATCHES`` runs, then as many jobs, then as many locks.
    """
    text = text.strip().lower()
    rows: list[tuple[Cell, ...]] = []
    if found := _ID.fullmatch(text):
        kind, digits = found.groups()
        rows += _list_runs(registry, f"run/{digits}") if kind != "job" else ()
        rows += _list_jobs(queue, f"job/{digits}") if kind != "run" else ()
    if found := _LOCK.fullmatch(text):
        rows += _list_locks(registry, f"sha256:{found[1]}")
    notes = (f"At most {MATCHES} ids of each kind are listed; write more characters of the id.",)
    return Table("ids", "Ids that begin with this text", _COLUMNS, tuple(rows), notes=notes * (len(rows) >= MATCHES))


def find_only_path(ids: Table) -> str | None:
    """Return the path of the page of the only id of ``find_ids``; None if there are none or several."""
    if len(ids.rows) != 1:
        return None
    return next(path(str(cell)) for path, cell in zip(_PATHS, ids.rows[0], strict=False) if cell is not None)


def _list_runs(registry: LocalRegistry, prefix: str) -> Iterator[tuple[Cell, ...]]:
    for run in registry.records.list_entries(chosen=RunFilter(prefix=prefix), limit=MATCHES, examine=False):
        began = describe_moment(run.start.started_at) if isinstance(run, Run) else "damaged"
        yield run.id, None, None, began, None


def _list_jobs(queue: SqlQueue, prefix: str) -> Iterator[tuple[Cell, ...]]:
    for job in queue.jobs(prefix=prefix, limit=MATCHES):
        yield None, job.id, None, describe_moment(job.submitted_at), job.state


def _list_locks(registry: LocalRegistry, prefix: str) -> Iterator[tuple[Cell, ...]]:
    for lock in registry.catalogue.list_locks(prefix, MATCHES):
        yield None, None, lock.id, describe_moment(lock.created_at), lock.model or "no model (an operator or a recipe)"
