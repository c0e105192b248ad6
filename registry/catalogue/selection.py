"""Choosing one version to look at; what a lock chooses is for the resolver to say."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection

from artifacts.errors import UnknownNameError
from registry.catalogue.entries import Entry
from registry.catalogue.queries import SHOWN_VERSIONS, unknown_name
from registry.catalogue.snapshot import CatalogueSnapshot
from registry.constraints import Constraint
from registry.names import Kind, Name, Reference
from registry.ranges import Range
from registry.resolution.candidates import EVERY, Population, Status
from registry.versions import Version, key


def newest(versions: Sequence[Entry], constraint: Constraint | None) -> Entry:
    """The newest version that ``constraint`` admits, oldest first in ``versions``.

    Without a constraint: the newest that is neither yanked nor a pre-release, else the newest of all. A constraint
    that pins a version exactly finds it yanked or not.

    Raises:
        UnknownNameError: none is admitted; the message lists what there is.
    """
    if constraint is None:
        plain = [entry for entry in versions if entry.yanked is None and not entry.reference.version.prerelease]
        return (plain or list(versions))[-1]
    pinned = constraint.pinned is not None
    admitted = [
        entry for entry in versions if constraint.admits(entry.reference.version) and (pinned or entry.yanked is None)
    ]
    if not admitted:
        reference = versions[-1].reference
        there = ", ".join(str(entry.reference.version) for entry in versions)
        raise _unfitting(reference.kind, reference.name, constraint, there)
    return admitted[-1]


def newest_published(connection: Connection, kind: Kind, name: Name, constraint: Constraint | None) -> Reference:
    """The same version, found by seeks in indexes however many there are.

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
        raise _unfitting(kind, name, constraint, f"{', '.join(map(str, last))} as the newest")
    return Reference(kind, name, max(found, key=key))


def _newest(
    snapshot: CatalogueSnapshot, kind: Kind, name: Name, wanted: Range, status: Status | None
) -> Iterator[Version]:
    """The newest of each interval."""
    for interval in wanted.intervals:
        yield from snapshot.newest(Population(kind, name, interval, status), 1)


def _unfitting(kind: Kind, name: Name, constraint: Constraint, there: str) -> UnknownNameError:
    return UnknownNameError(f"{kind}/{name} has no version that fits {constraint}", next_step=f"there are: {there}")
