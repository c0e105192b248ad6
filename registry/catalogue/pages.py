"""Pages of versions: each a seek in the key's index and so many rows, whatever the number of versions."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sqlalchemy import Column, Connection, Select, Table, bindparam, select, tuple_

from artifacts.digest import Digest
from registry.catalogue.entries import Entry
from registry.catalogue.queries import Key
from registry.catalogue.tables import VERSION, versions, yanks
from registry.names import Kind, Name, Reference
from registry.versions import key, parse_version

_FIXED: Final = ("kind", "name")


@dataclass(frozen=True, slots=True)
class Listing:
    """Which versions are listed: of a kind, of a namespace, of a name, where these are given; after a key."""

    kind: Kind | None = None
    name: Name | None = None
    namespace: str | None = None
    after: Key | None = None


def key_of_entry(entry: Entry) -> Key:
    """The key that a page after ``entry`` begins behind."""
    reference = entry.reference
    return (reference.kind, reference.name, key(reference.version))


def version_page(connection: Connection, listing: Listing, limit: int) -> tuple[Entry, ...]:
    """At most ``limit`` versions, by kind, name and version."""
    values = _values(listing)
    shape = frozenset(values)
    rows = connection.execute(_page(shape), values | {"most": limit}).all()
    if not rows:
        return ()
    last = {f"last_{column}": getattr(rows[-1], column) for column in VERSION}
    reasons = {
        (row.kind, row.name, row.precedence): row.reason if row.yanked else None
        for row in connection.execute(_marks(shape), values | last)
    }
    return tuple(
        Entry(
            Reference(row.kind, Name(row.name), parse_version(row.version)),
            Digest(row.digest),
            row.published_at,
            reasons.get((row.kind, row.name, row.precedence)),
        )
        for row in rows
    )


def _values(listing: Listing) -> dict[str, str]:
    """The parameters of a listing; which there are is its shape."""
    given = {name: value for name in _FIXED if (value := getattr(listing, name)) is not None}
    if listing.namespace is not None:  # 0 follows / in the order of characters
        given |= {"first": f"{listing.namespace}/", "beyond": f"{listing.namespace}0"}
    if listing.after is not None:
        keys = zip(VERSION, listing.after, strict=True)
        given |= {f"after_{column}": value for column, value in keys if column not in given}
    return given


@cache
def _page(shape: frozenset[str]) -> Select[Any]:
    """A statement is made once for a shape: making it takes longer than asking it."""
    return _limited(versions, shape).limit(bindparam("most"))


@cache
def _marks(shape: frozenset[str]) -> Select[Any]:
    """The yank rows from the page's beginning up to its last version, the last of each version last."""
    up_to = tuple_(*_key(yanks)) <= tuple_(*(bindparam(f"last_{column}") for column in VERSION))
    return _limited(yanks, shape).order_by(yanks.c.position).where(up_to)


def _limited(table: Table, shape: frozenset[str]) -> Select[Any]:
    query = select(table).order_by(*_key(table))
    for column in _FIXED:
        if column in shape:
            query = query.where(table.c[column] == bindparam(column))
    if "first" in shape:
        query = query.where(table.c.name >= bindparam("first"), table.c.name < bindparam("beyond"))
    # Only columns that are not fixed are compared as a tuple: the seek begins at the whole key then.
    rest = [column for column in VERSION if f"after_{column}" in shape]
    if rest:
        after = tuple_(*(bindparam(f"after_{column}") for column in rest))
        query = query.where(tuple_(*(table.c[column] for column in rest)) > after)
    return query


def _key(table: Table) -> list[Column[Any]]:
    return [table.c[column] for column in VERSION]
