"""Choosing one version to look at, by seeks in indexes; what a lock chooses is for the resolver to say."""

from collections.abc import Iterator

from sqlalchemy import Connection

from benchlock.registry.catalogue.choosing import unfitting
from benchlock.registry.catalogue.queries import SHOWN_VERSIONS, unknown_name
from benchlock.registry.catalogue.snapshot import CatalogueSnapshot
from benchlock.registry.constraints import Constraint
from benchlock.registry.names import Kind, Name, Reference
from benchlock.registry.ranges import Range
from benchlock.registry.resolution.candidates import EVERY, Population, Status
from benchlock.registry.versions import Version, key


def newest_published(connection: Connection, kind: Kind, name: Name, constraint: Constraint | None) -> Reference:
    """As ``choosing.newest``: the same version, found by seeks in indexes however many there are.

    Raises:
        UnknownNameError: nothing of that name is published, or none is admitted; the message names the newest.
    """
    snapshot = CatalogueSnapshot(connection, None)
    last = snapshot.newest(Population(kind, name, EVERY), SHOWN_VERSIONS)
    if not last:
        raise unknown_name(connection, kind, name)
    if constraint is None:
        found = [*_newest(snapshot, kind, name, Range.ALL, "release")] or [last[0]]
    elif constraint.pinned is not None:
        pinned = _newest(snapshot, kind, name, constraint.range, None)
        found = [version for version in pinned if constraint.admits(version)]
    else:
        found = [
            *_newest(snapshot, kind, name, constraint.releases, "release"),
            *_newest(snapshot, kind, name, constraint.prereleases, "pre-release"),
        ]
    if not found:
        assert constraint is not None
        kept_out = [one for one in _newest(snapshot, kind, name, constraint.range, "yanked") if constraint.admits(one)]
        there = f"{', '.join(map(str, last))} as the newest"
        raise unfitting(kind, name, constraint, there, max(kept_out, key=key, default=None))
    return Reference(kind, name, max(found, key=key))


def _newest(
    snapshot: CatalogueSnapshot, kind: Kind, name: Name, wanted: Range, status: Status | None
) -> Iterator[Version]:
    """The newest of each interval."""
    for interval in wanted.intervals:
        yield from snapshot.newest(Population(kind, name, interval, status), 1)
