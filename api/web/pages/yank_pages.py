"""The pages of what uses a version, and on which it is yanked or unyanked."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.schemas.pagination_cursors import decode_cursor, encode_cursor
from benchlock.api.web.links import artifact_path, used_by_path
from benchlock.api.web.page import Page
from benchlock.api.web.run_lists import RUN_COLUMNS, list_run_rows
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.size_limits import REASON
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.records.run_types import SELECTED_KINDS, filter_version
from benchlock.registry.artifact_names import Reference
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.catalogue.version_uses import ListedLock, YankChange
from benchlock.registry.database.ids_and_timestamps import format_time

ROWS: Final = 50
"""The number of rows of each list on a page."""
_TIME: Final = "%Y-%m-%dT%H:%M:%S.%fZ"
"""The form of the time in a cursor, as ``format_time`` writes it."""
_PERIOD: Final = timedelta(days=30)
_LOCKS: Final = (
    Column("lock", None, "The id of the lock."),
    Column("created", None, "When it was stored, UTC."),
    Column("model", None, "The locked model."),
    Column("dataset", None, "The locked dataset."),
    Column("runs", None, "The number of its runs, in any state."),
)
_PROMOTED: Final = (
    Column("artifact", None, "The model, whose manifest states the lock."),
    Column("lock", None, "The lock of the training."),
    Column("run", None, "The newest run of the lock that recorded the weights of the model."),
    Column("weights", None, "Which of its files they are."),
)
_VERSIONS: Final = (
    Column("artifact", None, "The version that needs it."),
    Column("constraint", None, "The versions that it admits; of an image, the version that it provides."),
)
_HISTORY: Final = (
    Column("change", None, "Whether the version was yanked, or that was undone."),
    Column("at", None, "When, UTC."),
    Column("by", None, "Who did it, by the audit log."),
    Column("reason", None, "The reason of a yank."),
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
    locks = registry.catalogue.list_locks_with(reference, ROWS)
    changes = registry.catalogue.list_yank_changes(reference, ROWS)
    tables = {
        "locks": tabulate_locks(registry, locks.locks),
        "history": Table(
            "history", "Yanks and their undoings, newest first", _HISTORY, tuple(map(_list_change, changes))
        ),
    }
    if reference.kind in SELECTED_KINDS:
        runs = registry.records.list_entries(chosen=filter_version(reference, since=at - _PERIOD), limit=ROWS)
        title = f"Runs of the last {_PERIOD.days} days, at most the newest {ROWS}"
        tables["runs"] = Table("runs", title, RUN_COLUMNS, list_run_rows(registry, runs))
    path = artifact_path(reference.kind, name, version)
    verb = "Yank" if entry.yanked is None else "Unyank"
    return Page(
        "yank",
        f"{verb} {name} {version}",
        {
            "entry": entry,
            "yank": changes[0] if changes and changes[0].yanked else None,
            "target": str(reference),
            "path": path,
            "limit": REASON,
            "used_by": used_by_path(str(reference)),
        },
        tables,
        f"/v1/artifacts{path}",
        ((path, f"{name} {version}"),),
    )


def _list_change(change: YankChange) -> tuple[Cell, ...]:
    verb = "yanked" if change.yanked else "undone"
    return verb, f"{change.at:%Y-%m-%d %H:%M}", change.actor, change.reason or None


def make_used_by(registry: LocalRegistry, reference: Reference, versions: str, locks: str) -> Page:
    """Make the page of what uses a version: the versions that need it, its locks, and the models promoted from them.

    Args:
        registry: The registry.
        reference: The version.
        versions: The cursor of the list of versions; empty for its first page.
        locks: The cursor of the list of locks; empty for its first page.

    Raises:
        UnknownNameError: The version is not published.
        InvalidInputError: A cursor is malformed.
    """
    reference = registry.catalogue.get(reference).reference
    after = decode_cursor(versions, 3) if versions else None
    key = None if after is None else (after[0], after[1], after[2])
    dependents = registry.catalogue.list_dependents(reference, ROWS, key)
    pinned = registry.catalogue.list_locks_with(reference, ROWS, _read_place(locks) if locks else None)
    target, path = str(reference), artifact_path(reference.kind, reference.name, str(reference.version))
    rows = tuple((f"{one.kind}/{one.name}@{one.version}", one.constraint) for one in dependents.dependents)
    next_versions = None if dependents.after is None else encode_cursor(dependents.after)
    next_locks = None if pinned.after is None else encode_cursor((format_time(pinned.after[0]), pinned.after[1]))
    return Page(
        "used_by",
        f"Used by: {reference.name} {reference.version}",
        {
            "kind": reference.kind,
            "next_versions": next_versions and used_by_path(target, next_versions, locks),
            "next_locks": next_locks and used_by_path(target, versions, next_locks),
        },
        {
            "versions": Table("versions", "Versions that need it", _VERSIONS, rows),
            "locks": tabulate_locks(registry, pinned.locks),
            **tabulate_promoted(registry, reference, ROWS),
        },
        f"/v1{used_by_path(target, versions, locks)}",
        ((path, f"{reference.name} {reference.version}"),),
        facts={"next_versions": next_versions, "next_locks": next_locks},
    )


def _read_place(cursor: str) -> tuple[datetime, str]:
    """Return the time and the id of the lock behind which a list continues."""
    at, lock = decode_cursor(cursor, 2)
    try:
        return datetime.strptime(at, _TIME).replace(tzinfo=UTC), lock
    except ValueError:
        what = "malformed cursor of the list of locks"
        raise InvalidInputError(what, where="locks", next_step="leave out locks for the first page") from None


def tabulate_locks(registry: LocalRegistry, locks: Sequence[ListedLock]) -> Table:
    """Return locks as a table, with the numbers of their runs."""
    counts = registry.records.count_each([lock.id for lock in locks])
    rows = tuple(
        (lock.id, f"{lock.created_at:%Y-%m-%d %H:%M}", lock.model, lock.dataset, counts.get(lock.id, 0))
        for lock in locks
    )
    return Table("locks", "Locks with this version, newest first", _LOCKS, rows)


def tabulate_promoted(registry: LocalRegistry, reference: Reference, limit: int) -> dict[str, Table]:
    """Return the models that were promoted from trainings with a recipe or a dataset; nothing for other kinds."""
    if reference.kind not in ("recipe", "dataset"):
        return {}
    models = registry.records.list_promoted(reference, limit)
    rows = tuple((f"model/{one.name}@{one.version}", one.lock, one.run, one.role) for one in models)
    title = f"Models promoted from its newest trainings, at most {limit}"
    return {"promoted": Table("promoted", title, _PROMOTED, rows)}
