"""Pages of versions: each a seek in the key's index and so many rows, whatever the number of versions."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, Engine, Select, Table, bindparam, select, tuple_

from benchlock.artifacts.digest import Digest
from benchlock.registry.catalogue.direct import Lookup
from benchlock.registry.catalogue.queries import Key
from benchlock.registry.catalogue.tables import VERSION, versions, yanks
from benchlock.registry.names import Kind, Name

_FIXED: Final = ("kind", "name")
_LAST: Final = tuple(f"last_{column}" for column in VERSION)


@dataclass(frozen=True, slots=True)
class Listing:
    """Which versions are listed: of a kind, of a namespace, of a name, where these are given; after a key."""

    kind: Kind | None = None
    name: Name | None = None
    namespace: str | None = None
    after: Key | None = None


class Listed(NamedTuple):
    """A version on a page, in the texts of its row: pages have a hundred, and nobody asks how their versions compare.

    ``yanked`` is the reason, where it is yanked.
    """

    kind: Kind
    name: Name
    precedence: str
    version: str
    digest: Digest
    published_at: datetime
    yanked: str | None

    @property
    def key(self) -> Key:
        """What a page after this one begins behind."""
        return (self.kind, self.name, self.precedence)


def version_page(engine: Engine, listing: Listing, limit: int) -> tuple[Listed, ...]:
    """At most ``limit`` versions, by kind, name and version; of a yank that comes meanwhile it may know already.

    Raises:
        UnavailableError: the database cannot be used.
    """
    values = _values(listing)
    shape = frozenset(values)
    rows = _page(shape).every(engine, values | {"most": limit})
    if not rows:
        return ()
    last = dict(zip(_LAST, rows[-1][: len(VERSION)], strict=True))
    marks = _marks(shape).every(engine, values | last)
    reasons = {mark[: len(VERSION)]: mark[-1] if mark[-2] else None for mark in marks}
    return tuple(Listed._make((*row, reasons.get(row[: len(VERSION)]))) for row in rows)


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
def _page(shape: frozenset[str]) -> Lookup:
    """A statement is made once for a shape: making it takes longer than asking it."""
    columns = (versions.c.version, versions.c.digest, versions.c.published_at)
    return Lookup(_limited(versions, columns, shape).limit(bindparam("most")))


@cache
def _marks(shape: frozenset[str]) -> Lookup:
    """The yank rows from the page's beginning up to its last version, the last of each version last."""
    up_to = tuple_(*_key(yanks)) <= tuple_(*map(bindparam, _LAST))
    columns = (yanks.c.yanked, yanks.c.reason)
    return Lookup(_limited(yanks, columns, shape).order_by(yanks.c.position).where(up_to))


def _limited(table: Table, columns: Iterable[Column[Any]], shape: frozenset[str]) -> Select[Any]:
    query = select(*_key(table), *columns).order_by(*_key(table))
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
