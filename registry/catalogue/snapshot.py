"""The resolver's view of the catalogue: few queries, each over an index, all inside one read transaction."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, select, true

from artifacts.digest import Digest
from registry.candidates import Candidate
from registry.catalogue.queries import of_name, yank_reasons
from registry.catalogue.tables import platforms, requirements, versions
from registry.names import Kind, Name
from registry.versions import parse_version


class CatalogueSnapshot:
    """What was published, and yanked, at a time; without a time, when the transaction began.

    Implements ``registry.candidates.Snapshot``.
    """

    def __init__(self, connection: Connection, as_of: datetime | None) -> None:
        self._connection = connection
        self._as_of = as_of

    def versions(self, kind: Kind, name: str) -> tuple[Candidate, ...]:
        """Every version of the name, oldest first in SemVer order, yanked ones included."""
        query = select(versions).where(of_name(versions, kind, name), self._published()).order_by(versions.c.precedence)
        yanked = yank_reasons(self._connection, {"kind": kind, "name": name}, self._as_of)
        required = self._parts(requirements, kind, name)
        offered = self._parts(platforms, kind, name)
        return tuple(
            Candidate(
                kind=row.kind,
                name=Name(row.name),
                version=parse_version(row.version),
                yanked=yanked.get((row.kind, row.name, row.precedence)),
                digest=Digest(row.digest),
                requires=tuple(
                    (part.required_kind, part.required_name, part.range) for part in required[row.precedence]
                ),
                provides=(row.framework, parse_version(row.framework_version)) if row.framework else None,
                platforms=tuple(
                    (part.os, part.arch, part.device, part.python, part.layered) for part in offered[row.precedence]
                ),
            )
            for row in self._connection.execute(query)
        )

    def names(self, kind: Kind) -> tuple[str, ...]:
        """The names of that kind, sorted."""
        query = select(versions.c.name).distinct().where(versions.c.kind == kind, self._published())
        return tuple(sorted(self._connection.execute(query).scalars()))

    def images_for(self, framework: str) -> tuple[str, ...]:
        """The names of the images of which a version provides the framework, sorted."""
        query = select(versions.c.name).distinct().where(versions.c.framework == framework, self._published())
        return tuple(sorted(self._connection.execute(query).scalars()))

    def _published(self) -> ColumnElement[bool]:
        return true() if self._as_of is None else versions.c.published_at <= self._as_of

    def _parts(self, table: Table, kind: Kind, name: str) -> Mapping[str, Sequence[Row[Any]]]:
        rows: defaultdict[str, list[Row[Any]]] = defaultdict(list)
        query = select(table).where(of_name(table, kind, name)).order_by(*table.primary_key.columns)
        for row in self._connection.execute(query):
            rows[row.precedence].append(row)
        return rows
