"""Choosing one version to look at; what a lock chooses is for the resolver to say."""

from collections.abc import Sequence

from artifacts.errors import UnknownNameError
from registry.catalogue.entries import Entry
from registry.constraints import Constraint


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
        raise UnknownNameError(
            f"{reference.kind}/{reference.name} has no version that fits {constraint}", next_step=f"there are: {there}"
        )
    return admitted[-1]
