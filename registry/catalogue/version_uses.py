"""What uses a version, and what became of it: locks, versions that need it, and the history of its yanks.

Each list is read by index seeks, in pages.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Exists, Row, Select, and_, exists, literal, select, tuple_

from benchlock.artifacts.digest import Digest
from benchlock.registry.artifact_names import Kind, Name, Reference
from benchlock.registry.catalogue.catalogue_protocol import Key
from benchlock.registry.catalogue.version_lists import EXAMINED
from benchlock.registry.catalogue.version_rows import of_version
from benchlock.registry.database.column_types import Moment, begins_with
from benchlock.registry.database.ids_and_timestamps import new_id
from benchlock.registry.database.registry_schema import actions, lock_blobs, locks, requirements, versions, yanks
from benchlock.registry.versions.version_ranges import Constraint

WITHOUT_COLUMN: Final = ("operator", "recipe")
"""The kinds whose versions no column of a lock names."""
EXAMINED_LOCKS: Final = 1000
"""The maximum number of locks without a model that a page examines to find those of one version."""
WITHOUT_MODEL: Final = (locks.c.model == "", locks.c.model_version == "")
"""The conditions that a lock is of an operator or a recipe, as an index has them."""
_TIME_DIGITS: Final = 10
"""The digits of an id that are its time."""


class ListedLock(NamedTuple):
    """A stored lock on a page; ``model`` and ``dataset`` are None in a lock without one."""

    id: Digest
    created_at: datetime
    model: str | None
    dataset: str | None

    @property
    def key(self) -> tuple[datetime, str]:
        """The key behind which the next page starts."""
        return (self.created_at, self.id)


class LockPage(NamedTuple):
    """Locks, newest first; the list continues behind the key ``after``, unless that is None."""

    locks: tuple[ListedLock, ...]
    after: tuple[datetime, str] | None


class Dependent(NamedTuple):
    """A version that needs another, and the constraint by which it admits that one."""

    kind: Kind
    name: Name
    precedence: str
    version: str
    constraint: str

    @property
    def key(self) -> Key:
        """The key behind which the next page starts."""
        return (self.kind, self.name, self.precedence)


class DependentPage(NamedTuple):
    """Dependents by kind, name and version; the list continues behind the key ``after``, unless that is None."""

    dependents: tuple[Dependent, ...]
    after: Key | None


class YankChange(NamedTuple):
    """A yank, or the undoing of one; ``actor`` is None if the audit log does not say who did it."""

    yanked: bool
    reason: str
    at: datetime
    actor: str | None


def read_yank_changes(connection: Connection, reference: Reference, limit: int) -> tuple[YankChange, ...]:
    """Read at most ``limit`` yanks of a version and their undoings, newest first."""
    query = select(yanks).where(of_version(yanks, reference)).order_by(yanks.c.position.desc()).limit(limit)
    rows = connection.execute(query).all()
    return tuple(
        YankChange(bool(row.yanked), row.reason, row.at, _find_actor(connection, reference, row)) for row in rows
    )


def _find_actor(connection: Connection, reference: Reference, yank: Row[Any]) -> str | None:
    """Return who yanked a version: the audit log has an entry of the same time, whose id begins with it."""
    action = "version.yank" if yank.yanked else "version.unyank"
    same_time = begins_with(actions.c.id, new_id(yank.at, b"")[:_TIME_DIGITS])
    query = select(actions.c.actor, actions.c.target).where(same_time, actions.c.at == yank.at)
    rows = connection.execute(query.where(actions.c.action == action))
    return next((row.actor for row in rows if row.target.partition(" ")[0] == str(reference)), None)


def read_locks(connection: Connection, prefix: str, limit: int) -> tuple[ListedLock, ...]:
    """Read at most ``limit`` locks whose ids begin with a text, by id."""
    query = _select_locks().where(begins_with(locks.c.id, prefix)).order_by(locks.c.id).limit(limit)
    return tuple(map(_lock_of, connection.execute(query)))


def read_locks_with(
    connection: Connection, reference: Reference, limit: int, after: tuple[datetime, str] | None = None
) -> LockPage:
    """Read at most ``limit`` locks with a version, newest first.

    No column names the operator or the recipe of a lock, so the newest locks without a model are examined, by whether
    the manifest is among their blobs: a page may be short although the list continues. No text of a lock is read.

    Args:
        connection: The connection.
        reference: The version.
        limit: The maximum number of locks.
        after: The key behind which the list starts.
    """
    order = (locks.c.created_at, locks.c.id)
    query = _select_locks().order_by(*(column.desc() for column in order))
    if after is not None:
        query = query.where(tuple_(*order) < tuple_(literal(after[0], Moment), literal(after[1])))
    if reference.kind not in WITHOUT_COLUMN:
        name, version = locks.c[reference.kind], locks.c[f"{reference.kind}_version"]
        query = query.where(name == reference.name, version == str(reference.version))
        found = tuple(map(_lock_of, connection.execute(query.limit(limit + 1))))
        return LockPage(found[:limit], found[limit - 1].key if len(found) > limit else None)
    manifest = select(versions.c.digest).where(of_version(versions, reference))
    examined = query.where(*WITHOUT_MODEL).with_only_columns(*order, has_manifest(manifest).label("has_it"))
    keys: list[tuple[datetime, str]] = []
    next_key = None
    for number, row in enumerate(connection.execute(examined.limit(EXAMINED_LOCKS)), start=1):
        if row.has_it and len(keys) == limit:
            next_key = keys[-1]
            break
        if row.has_it:
            keys.append((row.created_at, row.id))
        if number == EXAMINED_LOCKS:
            next_key = (row.created_at, row.id)
    ids = [id_ for _, id_ in keys]
    rows = connection.execute(_select_locks().where(locks.c.id.in_(ids))) if ids else ()
    return LockPage(tuple(sorted(map(_lock_of, rows), key=lambda lock: lock.key, reverse=True)), next_key)


def has_manifest(digests: Select[tuple[str]]) -> Exists:
    """Return the condition that one of the manifests is among the blobs of a lock."""
    return exists().where(lock_blobs.c.lock == locks.c.id, lock_blobs.c.digest.in_(digests))


def _select_locks() -> Select[Any]:
    return select(
        locks.c.id,
        locks.c.created_at,
        locks.c.model,
        locks.c.model_version,
        locks.c.dataset,
        locks.c.dataset_version,
    )


def _lock_of(row: Row[Any]) -> ListedLock:
    model = f"{row.model} {row.model_version}" if row.model else None
    return ListedLock(
        Digest(row.id), row.created_at, model, f"{row.dataset} {row.dataset_version}" if row.dataset else None
    )


def read_dependents(
    connection: Connection, reference: Reference, limit: int, after: Key | None = None
) -> DependentPage:
    """Read at most ``limit`` versions that need a version.

    These are the images that provide it, and the models whose constraint admits it.

    At most ``EXAMINED`` constraints on the name are compared with the version, so that a page may be short although the
    list continues. Only frameworks are needed by versions.

    Args:
        connection: The connection.
        reference: The version.
        limit: The maximum number of versions.
        after: The key behind which the list starts.
    """
    matching: list[Dependent] = []
    examined = None
    for number, dependent in enumerate(_needing(connection, reference, after)):
        if number == EXAMINED or len(matching) == limit:
            return DependentPage(tuple(matching), examined)
        examined = dependent.key
        if Constraint.parse(dependent.constraint).admits(reference.version):
            matching.append(dependent)
    return DependentPage(tuple(matching), None)


def _needing(connection: Connection, reference: Reference, after: Key | None) -> Iterator[Dependent]:
    """Yield the versions that have a constraint on the name, by kind, name and version; one more than are examined."""
    if reference.kind != "framework":
        return
    provided = select(versions.c.name, versions.c.precedence, versions.c.version, versions.c.framework_version)
    provided = provided.where(versions.c.kind == "image", versions.c.framework == reference.name)
    own = and_(*(versions.c[column] == requirements.c[column] for column in ("kind", "name", "precedence")))
    needed = select(requirements.c.name, requirements.c.precedence, versions.c.version, requirements.c.range)
    needed = needed.join(versions, own).where(
        requirements.c.required_kind == reference.kind,
        requirements.c.required_name == reference.name,
        requirements.c.kind == "model",
    )
    sources: Sequence[tuple[Kind, Select[Any], Sequence[ColumnElement[str]]]] = (
        ("image", provided, (versions.c.name, versions.c.precedence)),
        ("model", needed, (requirements.c.name, requirements.c.precedence)),
    )
    for kind, query, order in sources:
        if after is not None and kind < after[0]:
            continue
        behind = [tuple_(*order) > tuple_(*after[1:])] if after is not None and kind == after[0] else []
        page = query.where(*behind).order_by(*order).limit(EXAMINED + 1)
        for name, precedence, version, constraint in connection.execute(page):
            yield Dependent(kind, Name(name), precedence, version, constraint)
