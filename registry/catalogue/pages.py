"""Pages of versions: each a seek in the key's index and so many rows, whatever the number of versions."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, Select, Table, select, tuple_

from artifacts.digest import Digest
from registry.catalogue.entries import Entry
from registry.catalogue.queries import Key
from registry.catalogue.tables import VERSION, versions, yanks
from registry.names import Kind, Name, Reference
from registry.versions import key, parse_version


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
    rows = connection.execute(_limited(select(versions), versions, listing).limit(limit)).all()
    if not rows:
        return ()
    last = rows[-1]
    marks = _limited(select(yanks), yanks, listing).order_by(yanks.c.position)
    up_to = tuple_(*_key(yanks)) <= (last.kind, last.name, last.precedence)
    reasons = {
        (row.kind, row.name, row.precedence): row.reason if row.yanked else None
        for row in connection.execute(marks.where(up_to))
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


def _limited(query: Select[Any], table: Table, listing: Listing) -> Select[Any]:
    given = {"kind": listing.kind, "name": listing.name}
    fixed = {column: value for column, value in given.items() if value is not None}
    for column, value in fixed.items():
        query = query.where(table.c[column] == value)
    if listing.namespace is not None:  # 0 follows / in the order of characters
        query = query.where(table.c.name >= f"{listing.namespace}/", table.c.name < f"{listing.namespace}0")
    if listing.after is not None:
        # Only columns that are not fixed are compared as a tuple: the seek begins at the whole key then.
        rest = [
            (table.c[column], value)
            for column, value in zip(VERSION, listing.after, strict=True)
            if column not in fixed
        ]
        query = query.where(tuple_(*(column for column, _ in rest)) > tuple(value for _, value in rest))
    return query.order_by(*_key(table))


def _key(table: Table) -> list[Column[Any]]:
    return [table.c[column] for column in VERSION]
