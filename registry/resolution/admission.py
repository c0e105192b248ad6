"""Which versions may be chosen under some constraints: by what they are, since the rules differ.

A release may that lies in every range. A pre-release may that every constraint admits, or that lies in every range
where the request allows pre-releases of the kind. A yanked version may that every constraint admits, if one of them
pins it exactly or an existing lock has chosen it.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_

from benchlock.registry.constraints import Constraint
from benchlock.registry.ranges import Range
from benchlock.registry.resolution.candidates import Status
from benchlock.registry.versions import Version

Admitted = Mapping[Status, Range]
"""The versions that may be chosen, by status; a status that is absent has none."""


def admitted(
    constraints: Sequence[Constraint], preferred: Version | None, *, prereleases: bool, yanked: bool
) -> Admitted:
    """What all of ``constraints`` let in. ``preferred`` is what a lock has chosen of that name.

    ``prereleases`` and ``yanked``: they may be chosen wherever the ranges alone let them in.
    """
    singles = [one for one in (preferred, *(constraint.pinned for constraint in constraints)) if one is not None]
    kept = [one for one in singles if all(by.admits(one, prereleases=prereleases) for by in constraints)]
    found: dict[Status, Range] = {
        "release": _all(constraint.releases for constraint in constraints),
        "pre-release": _all(one.range if prereleases else one.prereleases for one in constraints),
        "yanked": _all(one.range for one in constraints) if yanked else Range.union(map(Range.exactly, kept)),
    }
    return {status: versions for status, versions in found.items() if not versions.is_empty()}


def _all(ranges: Iterable[Range]) -> Range:
    return reduce(and_, ranges, Range.ALL)
