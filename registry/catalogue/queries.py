"""What the catalogue reads of versions, each from an index; what the resolver asks is in snapshot.py."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, Select, Table, and_, bindparam, select

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import UnknownNameError
from benchlock.registry.catalogue.entries import Entry
from benchlock.registry.catalogue.rows import key_of
from benchlock.registry.catalogue.snapshot import CatalogueSnapshot
from benchlock.registry.catalogue.tables import VERSION, imported_platforms, manifests, versions, yanks
from benchlock.registry.lockfile import Lock, LockedPlatform
from benchlock.registry.names import Kind, Name, Reference
from benchlock.registry.resolution.candidates import EVERY, Population
from benchlock.registry.resolution.conflicts import nearest_name
from benchlock.registry.versions import parse_version

SHOWN_VERSIONS = 5
PLACE = ("os", "arch", "device", "python")
"""The columns that tell a platform of a lock from its others."""

Key = tuple[str, str, str]


def _entry() -> Select[Any]:
    """One version with its last yank row, by its key: made once, since making it takes longer than asking it."""
    later = yanks.alias("later")
    latest = select(later.c.position).where(_same(later, versions)).order_by(later.c.position.desc()).limit(1)
    last = and_(_same(yanks, versions), yanks.c.position == latest.correlate(versions).scalar_subquery())
    columns = (versions.c.version, versions.c.digest, versions.c.published_at, yanks.c.yanked, yanks.c.reason)
    given = (versions.c[column] == bindparam(column) for column in VERSION)
    return select(*columns).select_from(versions.outerjoin(yanks, last)).where(*given)


def _read() -> Select[Any]:
    """The same, with the text and the sources: all of one version."""
    return _entry().add_columns(manifests.c.content, manifests.c.sources).where(_same(manifests, versions))


def _yank() -> Select[Any]:
    given = (yanks.c[column] == bindparam(column) for column in VERSION)
    return select(yanks.c.yanked, yanks.c.reason).where(*given).order_by(yanks.c.position.desc()).limit(1)


def _same(one: FromClause, other: FromClause) -> ColumnElement[bool]:
    return and_(*(one.c[column] == other.c[column] for column in VERSION))


def _content() -> Select[Any]:
    given = (manifests.c[column] == bindparam(column) for column in VERSION)
    columns = (versions.c.digest, manifests.c.content, manifests.c.sources)
    return select(*columns).select_from(manifests.join(versions, _same(manifests, versions))).where(*given)


def _published() -> Select[Any]:
    given = (versions.c[column] == bindparam(column) for column in VERSION)
    return select(versions.c.version, versions.c.digest).where(*given)


def _text() -> Select[Any]:
    of_it = and_(versions.c.digest == bindparam("digest"), _same(manifests, versions))
    return select(manifests.c.content).select_from(versions.join(manifests, of_it))


ENTRY = _entry()
READ = _read()
YANK = _yank()
"""The last yank row of one version."""
CONTENT = _content()
TEXT = _text()
"""Of the version that has a digest: at most one has."""
PUBLISHED = _published()
"""Of one version, by its key: its text and digest."""


def of_version(table: Table, reference: Reference) -> ColumnElement[bool]:
    """The condition that a row of ``table`` belongs to the reference."""
    return and_(*(table.c[column] == value for column, value in key_of(reference).items()))


def entries(connection: Connection, kind: Kind | None = None, name: str | None = None) -> tuple[Entry, ...]:
    """What is published, of a kind and of a name where they are given, by kind, name and version."""
    given = {"kind": kind, "name": name}
    wanted = {column: value for column, value in given.items() if value is not None}
    rows = connection.execute(select(versions).filter_by(**wanted).order_by(*versions.primary_key.columns))
    yanked = yank_reasons(connection, wanted)
    return tuple(
        Entry(
            Reference(row.kind, Name(row.name), parse_version(row.version)),
            Digest(row.digest),
            row.published_at,
            yanked.get((row.kind, row.name, row.precedence)),
        )
        for row in rows
    )


def entry(connection: Connection, reference: Reference) -> Entry:
    """The entry of one version.

    Raises:
        UnknownNameError: it is not published; the message names what is near.
    """
    row = connection.execute(ENTRY, key_of(reference)).first()
    if row is None:
        raise unknown_version(connection, reference)
    return entry_of(reference, row)


def entry_of(reference: Reference, row: Sequence[Any]) -> Entry:
    """The entry that a row of ``ENTRY`` spells."""
    version, digest, published_at, yanked, reason = row
    published = Reference(reference.kind, reference.name, parse_version(version))
    return Entry(published, Digest(digest), published_at, reason if yanked else None)


def yank_reasons(connection: Connection, wanted: Mapping[str, str]) -> Mapping[Key, str]:
    """Why each version is yanked, by its key, among the rows with the ``wanted`` columns; its last yank row holds."""
    query = select(yanks).filter_by(**wanted).order_by(*yanks.primary_key.columns)
    last = {(row.kind, row.name, row.precedence): row for row in connection.execute(query)}
    return {key: row.reason for key, row in last.items() if row.yanked}


def platforms_here(connection: Connection, lock: Lock) -> tuple[LockedPlatform, ...]:
    """The platforms of a lock whose bytes should be here: those that bundles brought, or all if it came in none."""
    columns = [imported_platforms.c[name] for name in PLACE]
    brought = {tuple(row) for row in connection.execute(select(*columns).where(imported_platforms.c.lock == lock.id))}
    return tuple(one for one in lock.image.platforms if not brought or place_of(one) in brought)


def place_of(platform: LockedPlatform) -> tuple[str, ...]:
    """The values of the columns ``PLACE``."""
    return tuple(getattr(platform, name) for name in PLACE)


def unknown_name(connection: Connection, kind: Kind, name: str) -> UnknownNameError:
    """The error for a name of which nothing is published, with the nearest one that is."""
    near = nearest_name(CatalogueSnapshot(connection, None), kind, name)
    step = f"did you mean {kind}/{near}?" if near else f"`benchlock list {kind}` lists what is published"
    return UnknownNameError(f"no {kind} of the name {name!r} is published", where=f"{kind}/{name}", next_step=step)


def unknown_version(connection: Connection, reference: Reference) -> UnknownNameError:
    """The error for a version that is not published, with the newest ones that are, or the nearest name."""
    everything = Population(reference.kind, reference.name, EVERY)
    published = CatalogueSnapshot(connection, None).newest(everything, SHOWN_VERSIONS)
    if not published:
        return unknown_name(connection, reference.kind, reference.name)
    newest = ", ".join(map(str, published))
    return UnknownNameError(
        f"{reference} is not published", where=str(reference), next_step=f"published, newest first: {newest}"
    )
