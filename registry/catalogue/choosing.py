"""Choosing one version to look at among entries; what a lock chooses is for the resolver to say."""

from collections.abc import Sequence

from benchlock.artifacts.errors import UnknownNameError
from benchlock.registry.catalogue.entries import Entry
from benchlock.registry.constraints import Constraint
from benchlock.registry.names import Kind, Name
from benchlock.registry.versions import Version, key


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
        fitting = [entry.reference.version for entry in versions if constraint.admits(entry.reference.version)]
        raise unfitting(reference.kind, reference.name, constraint, there, max(fitting, key=key, default=None))
    return admitted[-1]


def unfitting(
    kind: Kind, name: Name, constraint: Constraint, there: str, yanked: Version | None = None
) -> UnknownNameError:
    """The error of a name without a version that is admitted; ``there`` are the ones that it has.

    ``yanked`` is the newest of those that would be, were they not yanked.
    """
    what = f"{kind}/{name} has no version that fits {constraint}"
    if yanked is None:
        return UnknownNameError(what, next_step=f"there are: {there}")
    return UnknownNameError(
        f"{what} but yanked ones: {yanked} is the newest of them",
        next_step=f"name it exactly, {kind}/{name}@{yanked}, if you want it all the same; there are: {there}",
    )
