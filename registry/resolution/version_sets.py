"""Sets of candidate versions, and the admission of versions by constraints.

A release may that lies in every range. A pre-release may that every constraint admits, or that lies in every range
where the request allows pre-releases of the kind. A yanked version may that every constraint admits, if one of them
pins it exactly or an existing lock has chosen it.

Strands with the same range are one group. A model may have many thousands of strands, of which most share a range, so
that operations take the groups as sets, and look at strands one by one only where nearly each has its own range.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import chain
from operator import and_, or_
from typing import Any, ClassVar

from benchlock.registry.resolution.candidates import Status
from benchlock.registry.versions.semantic_version import Version
from benchlock.registry.versions.version_ranges import Constraint, Range

AdmittedVersions = Mapping[Status, Range]
"""The versions that may be chosen, by status; a status that is absent has none."""


def admitted(
    constraints: Sequence[Constraint], preferred: Version | None, *, prereleases: bool, yanked: bool
) -> AdmittedVersions:
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


VersionClass = tuple[Any, ...]
"""Versions of one kind that are alike in all that decides which go together: name, requirement, status."""

VersionGroups = Mapping[Range, frozenset[VersionClass]]

_FEW = 4
"""Groups of which each is looked into for a strand: a mapping of all strands costs more."""


@dataclass(frozen=True)
class Choices:
    """A range of each strand in ``groups``, and ``rest`` of every other. No strand is in two groups."""

    groups: VersionGroups = field(default_factory=dict)
    rest: Range = Range.NONE

    ALL: ClassVar["Choices"]

    @classmethod
    def of_parts(cls, parts: Mapping[VersionClass, Range], rest: Range = Range.NONE) -> "Choices":
        """Return the set that has these ranges of these strands."""
        groups: defaultdict[Range, list[VersionClass]] = defaultdict(list)
        for strand, part in parts.items():
            if part != rest:
                groups[part].append(strand)
        return cls({part: frozenset(strands) for part, strands in groups.items()}, rest)

    @classmethod
    def of_strands(cls, strands: Iterable[VersionClass]) -> "Choices":
        """Return the set of all versions of these strands, and no others."""
        some = frozenset(strands)
        return cls({Range.ALL: some} if some else {})

    @classmethod
    def one(cls, strand: VersionClass, version: Version) -> "Choices":
        return cls({Range.exactly(version): frozenset((strand,))})

    @cached_property
    def parts(self) -> Mapping[VersionClass, Range]:
        """The range of each strand that has its own."""
        return {strand: part for part, strands in self.groups.items() for strand in strands}

    @cached_property
    def strands(self) -> frozenset[VersionClass]:
        """The strands that have a range of their own."""
        if len(self.groups) == 1:
            return next(iter(self.groups.values()))
        return frozenset(chain.from_iterable(self.groups.values()))

    def single(self) -> tuple[VersionClass, Version]:
        """What the set was made of by ``one``."""
        ((strand, versions),) = self.parts.items()
        version = versions.single()
        assert version is not None
        return strand, version

    def of(self, strand: VersionClass) -> Range:
        if len(self.groups) > _FEW:
            return self.parts.get(strand, self.rest)
        return next((part for part, strands in self.groups.items() if strand in strands), self.rest)

    def __and__(self, other: "Choices") -> "Choices":
        return self._with(other, and_)

    def __or__(self, other: "Choices") -> "Choices":
        return self._with(other, or_)

    def __invert__(self) -> "Choices":
        return Choices({~part: strands for part, strands in self.groups.items()}, ~self.rest)

    def is_empty(self) -> bool:
        return self.rest.is_empty() and all(part.is_empty() for part in self.groups)

    def is_everything(self) -> bool:
        return self.rest == Range.ALL and all(part == Range.ALL for part in self.groups)

    def is_subset(self, other: "Choices") -> bool:
        return self._all(other, Range.is_subset)

    def is_disjoint(self, other: "Choices") -> bool:
        return self._all(other, Range.is_disjoint)

    def _all(self, other: "Choices", holds: Callable[[Range, Range], bool]) -> bool:
        """Whether something holds of the two ranges of every strand; sets are only compared where it does not."""
        if not holds(self.rest, other.rest):
            return False
        if not self._is_cheaper_by_group(other):
            every = self.strands | other.strands
            return all(holds(self.of(strand), other.of(strand)) for strand in every)
        return not any(strands for _, _, strands in self._pairs(other, lambda one, two: not holds(one, two)))

    def _with(self, other: "Choices", combined: Callable[[Range, Range], Range]) -> "Choices":
        """Return the set that has the two ranges of every strand combined."""
        rest = combined(self.rest, other.rest)
        if not self._is_cheaper_by_group(other):
            every = self.strands | other.strands
            return Choices.of_parts({strand: combined(self.of(strand), other.of(strand)) for strand in every}, rest)
        groups: dict[Range, frozenset[VersionClass]] = {}
        for one, two, strands in self._pairs(other, lambda *_: True):
            part = combined(one, two)
            if strands and part != rest:
                groups[part] = groups[part] | strands if part in groups else strands
        return Choices(groups, rest)

    def _pairs(
        self, other: "Choices", wanted: Callable[[Range, Range], bool]
    ) -> Iterator[tuple[Range, Range, frozenset[VersionClass]]]:
        """Yield each wanted pair of a range of this set and one of the other, with the strands that have both."""
        for one, strands in self.groups.items():
            yield from ((one, two, strands & theirs) for two, theirs in other.groups.items() if wanted(one, two))
            if wanted(one, other.rest):
                yield one, other.rest, strands - other.strands
        for two, theirs in other.groups.items():
            if wanted(self.rest, two):
                yield self.rest, two, theirs - self.strands

    def _is_cheaper_by_group(self, other: "Choices") -> bool:
        """Whether there are fewer pairs of groups than strands."""
        return len(self.groups) * len(other.groups) <= len(self.strands) + len(other.strands) + 1


Choices.ALL = Choices(rest=Range.ALL)
