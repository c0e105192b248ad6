"""Pages of versions, and the newest published version, each by index seeks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Column, Connection, Select, Table, bindparam, select, tuple_

from benchlock.registry.artifact_names import Kind, Name, Reference
from benchlock.registry.catalogue.catalogue_protocol import (
    ANY_CONTENT,
    ContentFilter,
    Entry,
    Key,
    ListedVersion,
    no_version_error,
)
from benchlock.registry.catalogue.resolver_snapshot import CatalogueSnapshot
from benchlock.registry.catalogue.version_rows import SHOWN_VERSIONS, unknown_name
from benchlock.registry.database.engine import damage_error
from benchlock.registry.database.registry_schema import VERSION, manifests, versions, yanks
from benchlock.registry.resolution.resolver_types import EVERY, Population, Status
from benchlock.registry.versions.semantic_version import Version, key, parse_version
from benchlock.registry.versions.version_ranges import Constraint, Range

_FIXED: Final = ("kind", "name")
EXAMINED: Final = 2000
"""The maximum number of manifests that a page of a search reads."""
AT_ONCE: Final = 50
"""The number of manifests in memory at once."""
_LAST: Final = tuple(f"last_{column}" for column in VERSION)


class _RequiredFramework(msgspec.Struct, frozen=True):
    name: str = ""


class _ProvidedFramework(msgspec.Struct, frozen=True):
    framework: str = ""


class _Platform(msgspec.Struct, frozen=True):
    os: str = ""
    arch: str = ""
    device: str = ""


class _SearchedContent(msgspec.Struct, frozen=True):
    """The fields of a manifest that a search compares."""

    task: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    framework: _RequiredFramework = _RequiredFramework()
    provides: _ProvidedFramework = _ProvidedFramework()
    license: str = ""
    platforms: tuple[_Platform, ...] = ()


_decode_content: Final = msgspec.json.Decoder(_SearchedContent).decode


@dataclass(frozen=True, slots=True)
class VersionFilter:
    """A filter of versions by kind, name, namespace and content; the list starts behind the key ``after``."""

    kind: Kind | None = None
    name: Name | None = None
    namespace: str | None = None
    after: Key | None = None
    content: ContentFilter = ANY_CONTENT


def entry_of_listed(version: ListedVersion) -> Entry:
    """Return the entry of a version on a page."""
    reference = Reference(version.kind, version.name, parse_version(version.version))
    return Entry(reference, version.digest, version.published_at, version.yanked)


def read_version_page(connection: Connection, listing: VersionFilter, limit: int) -> tuple[ListedVersion, ...]:
    """Read at most ``limit`` versions by kind, name and version."""
    values = _values(listing)
    shape = frozenset(values)
    rows = connection.execute(_page(shape), values | {"most": limit}).all()
    if not rows:
        return ()
    last = dict(zip(_LAST, rows[-1][: len(VERSION)], strict=True))
    marks = connection.execute(_marks(shape), values | last)
    reasons = {mark[: len(VERSION)]: mark[-1] if mark[-2] else None for mark in marks}
    return tuple(ListedVersion._make((*row, reasons.get(row[: len(VERSION)]))) for row in rows)


class SearchPage(NamedTuple):
    """Versions whose manifests match; the search continues behind the key ``after``, unless that is None."""

    versions: tuple[ListedVersion, ...]
    after: Key | None


def search_versions(connection: Connection, listing: VersionFilter, limit: int) -> SearchPage:
    """Find at most ``limit`` versions with matching manifests among the next ``EXAMINED`` versions of a listing.

    A page may therefore be empty although the search continues: its cost does not depend on the number of versions.

    Raises:
        DamagedDatabaseError: The manifest of a version is missing or cannot be decoded.
    """
    matching: list[ListedVersion] = []
    for _ in range(0, EXAMINED, AT_ONCE):
        values = _values(listing)
        rows = connection.execute(_contents(frozenset(values)), values | {"most": AT_ONCE})
        contents = {(kind, name, precedence): content for kind, name, precedence, content in rows}
        page = read_version_page(connection, listing, AT_ONCE)
        for version in page:
            if _matches(listing.content, version, contents.get(version.key, "")):
                matching.append(version)
                if len(matching) == limit:
                    return SearchPage(tuple(matching), version.key)
        if len(page) < AT_ONCE:
            return SearchPage(tuple(matching), None)
        listing = replace(listing, after=page[-1].key)
    return SearchPage(tuple(matching), listing.after)


def _matches(wanted: ContentFilter, version: ListedVersion, text: str) -> bool:
    """Return whether the manifest with this text meets the conditions of ``wanted``."""
    try:
        content = _decode_content(text)
    except msgspec.MsgspecError as error:
        raise damage_error(f"the manifest of {version.kind}/{version.name}@{version.version}: {error}") from None
    frameworks = (content.framework.name, content.provides.framework, version.name * (version.kind == "framework"))
    searched = "\n".join((version.name, content.description, *content.tags)).lower()
    return (
        wanted.task in (None, content.task)
        and (wanted.tag is None or wanted.tag in content.tags)
        and (wanted.framework is None or wanted.framework in frameworks)
        and (wanted.search is None or wanted.search.lower() in searched)
        and (wanted.license is None or wanted.license.lower() == content.license.lower())
        and (wanted.platform is None or any(_is_on(platform, wanted.platform) for platform in content.platforms))
    )


def _is_on(platform: _Platform, wanted: str) -> bool:
    """Return whether a platform is OS, OS/ARCH or OS/ARCH/DEVICE."""
    return f"{platform.os}/{platform.arch}/{platform.device}/".startswith(f"{wanted}/")


def _values(listing: VersionFilter) -> dict[str, str]:
    """Return the parameters of a listing; their names are its shape."""
    values = {name: value for name in _FIXED if (value := getattr(listing, name)) is not None}
    if listing.namespace is not None:  # 0 follows / in the order of characters
        values |= {"first": f"{listing.namespace}/", "beyond": f"{listing.namespace}0"}
    if listing.after is not None:
        keys = zip(VERSION, listing.after, strict=True)
        values |= {f"after_{column}": value for column, value in keys if column not in values}
    return values


@cache
def _page(shape: frozenset[str]) -> Select[Any]:
    """Return the statement for a shape. It is cached, because building it takes longer than executing it."""
    columns = (versions.c.version, versions.c.digest, versions.c.published_at)
    return _build_query(versions, columns, shape).limit(bindparam("most"))


@cache
def _contents(shape: frozenset[str]) -> Select[Any]:
    """Return the statement for the manifests of a page, which have the keys of their versions."""
    return _build_query(manifests, (manifests.c.content,), shape).limit(bindparam("most"))


@cache
def _marks(shape: frozenset[str]) -> Select[Any]:
    """Return the statement for the yank rows of a page, ordered so that the current row of each version comes last."""
    up_to = tuple_(*_key(yanks)) <= tuple_(*map(bindparam, _LAST))
    columns = (yanks.c.yanked, yanks.c.reason)
    return _build_query(yanks, columns, shape).order_by(yanks.c.position).where(up_to)


def _build_query(table: Table, columns: Iterable[Column[Any]], shape: frozenset[str]) -> Select[Any]:
    query = select(*_key(table), *columns).order_by(*_key(table))
    for column in _FIXED:
        if column in shape:
            query = query.where(table.c[column] == bindparam(column))
    if "first" in shape:
        query = query.where(table.c.name >= bindparam("first"), table.c.name < bindparam("beyond"))
    # Only columns that are not fixed are compared as a tuple, so that the index seek starts at the whole key.
    rest = [column for column in VERSION if f"after_{column}" in shape]
    if rest:
        after = tuple_(*(bindparam(f"after_{column}") for column in rest))
        query = query.where(tuple_(*(table.c[column] for column in rest)) > after)
    return query


def _key(table: Table) -> list[Column[Any]]:
    return [table.c[column] for column in VERSION]


def read_names(connection: Connection, listing: VersionFilter, limit: int) -> tuple[tuple[Kind, Name], ...]:
    """Read at most ``limit`` kinds and names of a listing, in their order; its content does not count."""
    key = (versions.c.kind, versions.c.name)
    query = select(*key).distinct().order_by(*key).limit(limit)
    for column in _FIXED:
        if (value := getattr(listing, column)) is not None:
            query = query.where(versions.c[column] == value)
    if listing.namespace is not None:  # 0 follows / in the order of characters
        query = query.where(versions.c.name >= f"{listing.namespace}/", versions.c.name < f"{listing.namespace}0")
    if listing.after is not None:
        query = query.where(tuple_(*key) > tuple_(*listing.after[:2]))
    return tuple((kind, name) for kind, name in connection.execute(query))


def find_newest_versions(
    connection: Connection,
    kind: Kind,
    name: Name,
    below: Version | None,
    limit: int,
    within: Constraint | None = None,
) -> tuple[Reference, ...]:
    """Find at most ``limit`` versions of a name, newest first, yanked versions included.

    Args:
        connection: The connection.
        kind: The kind.
        name: The name.
        below: Only versions below this one.
        limit: The maximum number of versions.
        within: Only releases and pre-releases that this constraint admits, and yanked versions in its range.
    """
    snapshot = CatalogueSnapshot(connection, None)
    wanted = Range.ALL if below is None else Range.between(EVERY.low, below)
    parts: list[tuple[Range, Status | None]] = [(wanted, None)]
    if within is not None:
        admitted: tuple[tuple[Range, Status], ...] = (
            (within.releases, "release"),
            (within.prereleases, "pre-release"),
            (within.range, "yanked"),
        )
        parts = [(wanted & part, status) for part, status in admitted]
    found = [version for part, status in parts for version in _newest_of(snapshot, kind, name, part, status, limit)]
    found.sort(key=key, reverse=True)
    return tuple(Reference(kind, name, version) for version in found[:limit])


def _newest_of(
    snapshot: CatalogueSnapshot, kind: Kind, name: Name, wanted: Range, status: Status | None, limit: int
) -> list[Version]:
    """Return the newest ``limit`` versions of a status in a range."""
    found: list[Version] = []
    for interval in reversed(wanted.intervals):
        if len(found) >= limit:
            break
        found += snapshot.newest(Population(kind, name, interval, status), limit - len(found))
    return found


def find_newest(connection: Connection, kind: Kind, name: Name, constraint: Constraint | None) -> Reference:
    """Find the version of ``Catalogue.newest``, with index seeks whose number does not depend on the versions.

    Raises:
        UnknownNameError: No version of this name is published, or none is admitted. The message lists the newest.
    """
    snapshot = CatalogueSnapshot(connection, None)
    newest = snapshot.newest(Population(kind, name, EVERY), SHOWN_VERSIONS)
    if not newest:
        raise unknown_name(connection, kind, name)
    if constraint is None:
        candidates = [*_newest(snapshot, kind, name, Range.ALL, "release")] or [newest[0]]
    elif constraint.pinned is not None:
        pinned = _newest(snapshot, kind, name, constraint.range, None)
        candidates = [version for version in pinned if constraint.admits(version)]
    else:
        candidates = [
            *_newest(snapshot, kind, name, constraint.releases, "release"),
            *_newest(snapshot, kind, name, constraint.prereleases, "pre-release"),
        ]
    if not candidates:
        assert constraint is not None
        yanked = [
            version
            for version in _newest(snapshot, kind, name, constraint.range, "yanked")
            if constraint.admits(version)
        ]
        existing = f"{', '.join(map(str, newest))} (newest first)"
        raise no_version_error(kind, name, constraint, existing, max(yanked, key=key, default=None))
    return Reference(kind, name, max(candidates, key=key))


def _newest(
    snapshot: CatalogueSnapshot, kind: Kind, name: Name, version_range: Range, status: Status | None
) -> Iterator[Version]:
    """Yield the newest version in each interval."""
    for interval in version_range.intervals:
        yield from snapshot.newest(Population(kind, name, interval, status), 1)
