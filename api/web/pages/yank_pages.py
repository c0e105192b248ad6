"""The page on which a version is yanked or unyanked, with the locks and runs that use it."""

from datetime import datetime, timedelta
from typing import Final

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import artifact_path
from benchlock.api.web.page import Page
from benchlock.api.web.run_lists import RUN_COLUMNS, find_lock, list_run_rows
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.size_limits import REASON
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.records.run_types import RunFilter, VersionSelector
from benchlock.registry.artifact_names import Reference
from benchlock.registry.auth.permissions import get_actor

_ROWS: Final = 50
_PERIOD: Final = timedelta(days=30)
_LOCKS: Final = (
    Column("lock", None, "The id of the lock."),
    Column("created", None, "When it was stored, UTC."),
    Column("model", None, "The locked model."),
    Column("dataset", None, "The locked dataset."),
    Column("runs", None, "The number of its runs, in any state."),
)


def make_yank(registry: LocalRegistry, reference: Reference, at: datetime) -> Page:
    """Make the page that yanks a version, or undoes that.

    Args:
        registry: The registry.
        reference: The version.
        at: The current time.

    Raises:
        ForbiddenError: The viewer may not yank versions of this name.
        UnknownNameError: The version is not published.
    """
    get_actor().require_publishing(reference.name)
    entry = registry.catalogue.get(reference)
    reference, name, version = entry.reference, reference.name, str(entry.reference.version)
    locks = registry.catalogue.list_locks_with(reference, _ROWS + 1)
    tables = {"locks": Table("locks", "Locks with this version, newest first", _LOCKS, _list_rows(registry, locks))}
    if reference.kind in ("model", "dataset"):
        selector, since = VersionSelector.parse(f"{name}@={version}"), at - _PERIOD
        is_model = reference.kind == "model"
        chosen = RunFilter(model=selector, since=since) if is_model else RunFilter(dataset=selector, since=since)
        runs = registry.records.list_entries(chosen=chosen, limit=_ROWS)
        title = f"Runs of the last {_PERIOD.days} days, at most the newest {_ROWS}"
        tables["runs"] = Table("runs", title, RUN_COLUMNS, list_run_rows(registry, runs))
    path = artifact_path(reference.kind, name, version)
    verb = "Yank" if entry.yanked is None else "Unyank"
    return Page(
        "yank",
        f"{verb} {name} {version}",
        {"entry": entry, "target": str(reference), "path": path, "limit": REASON, "more": len(locks) > _ROWS},
        tables,
        f"/v1/artifacts{path}",
        ((path, f"{name} {version}"),),
    )


def _list_rows(registry: LocalRegistry, locks: tuple[tuple[Digest, datetime], ...]) -> tuple[tuple[Cell, ...], ...]:
    rows: list[tuple[Cell, ...]] = []
    for id_, created_at in locks[:_ROWS]:
        lock = find_lock(registry, id_)
        parts = (None, None) if lock is None else (lock.subject, lock.dataset or None)
        names = (None if part is None else f"{part.name} {part.version}" for part in parts)
        rows.append((id_, f"{created_at:%Y-%m-%d %H:%M}", *names, registry.records.count(id_)))
    return tuple(rows)
