"""Sets of candidate versions, and the admission of versions by constraints.

Admission depends on the status of a version:

* A release is admitted if it lies in every range.
* A pre-release is admitted if every constraint admits it, or if the request allows pre-releases of the kind and it lies
  in every range.
* A yanked version is admitted if every constraint admits it, and one of them pins it exactly or an existing lock has
  chosen it.

Version classes with the same range form one group. A model may have many thousands of classes, most of which share a
range. So operations combine the groups as sets, and treat classes one by one only where nearly each has its own range.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import chain
from operator import and_, or_
from typing import Any, ClassVar

from benchlock.registry.resolution.resolver_types import Status
from benchlock.registry.versions.semantic_version import Version
from benchlock.registry.versions.version_ranges import Constraint, Range

AdmittedVersions = Mapping[Status, Range]
"""The versions that may be chosen, by status; an absent status has none."""


def admitted(
    constraints: Sequence[Constraint], preferred: Version | None, *, prereleases: bool, yanked: bool
) -> AdmittedVersions:
    """Return the versions that all ``constraints`` admit, by status.

    Args:
        constraints: The constraints on versions of one name.
        preferred: The version of that name in an existing lock.
        prereleases: Whether pre-releases may be chosen wherever they lie in the ranges.
        yanked: Whether yanked versions may be chosen wherever they lie in the ranges.
    """
    pins = [pin for pin in (preferred, *(constraint.pinned for constraint in constraints)) if pin is not None]
    fitting = [pin for pin in pins if all(each.admits(pin, prereleases=prereleases) for each in constraints)]
    by_status: dict[Status, Range] = {
        "release": _all(each.releases for each in constraints),
        "pre-release": _all(each.range if prereleases else each.prereleases for each in constraints),
        "yanked": _all(each.range for each in constraints) if yanked else Range.union(map(Range.exactly, fitting)),
    }
    return {status: versions for status, versions in by_status.items() if not versions.is_empty()}


def _all(ranges: Iterable[Range]) -> Range:
    """Return the intersection of all ranges."""
    return reduce(and_, ranges, Range.ALL)


VersionClass = tuple[Any, ...]
"""An equivalence class: versions with the same name, requirement and status, interchangeable for the search."""

VersionGroups = Mapping[Range, frozenset[VersionClass]]

_FEW = 4
"""Number of groups up to which a lookup goes through all groups: a mapping of all classes costs more."""


@dataclass(frozen=True)
class Choices:
    """A set of versions: one range for all classes of each group, and ``rest`` for every other class.

    No class is in two groups.
    """

    groups: VersionGroups = field(default_factory=dict)
    rest: Range = Range.NONE

    ALL: ClassVar["Choices"]

    @classmethod
    def of_parts(cls, parts: Mapping[VersionClass, Range], rest: Range = Range.NONE) -> "Choices":
        """Return the set that has these ranges of these version classes."""
        groups: defaultdict[Range, list[VersionClass]] = defaultdict(list)
        for version_class, part in parts.items():
            if part != rest:
                groups[part].append(version_class)
        return cls({part: frozenset(classes) for part, classes in groups.items()}, rest)

    @classmethod
    def of_classes(cls, classes: Iterable[VersionClass]) -> "Choices":
        """Return the set of all versions of these classes, and no others."""
        members = frozenset(classes)
        return cls({Range.ALL: members} if members else {})

    @classmethod
    def exactly(cls, version_class: VersionClass, version: Version) -> "Choices":
        """Return the set of one version."""
        return cls({Range.exactly(version): frozenset((version_class,))})

    @cached_property
    def parts(self) -> Mapping[VersionClass, Range]:
        """The range of each version class that has its own."""
        return {version_class: part for part, classes in self.groups.items() for version_class in classes}

    @cached_property
    def classes(self) -> frozenset[VersionClass]:
        """The version classes that have a range of their own."""
        if len(self.groups) == 1:
            return next(iter(self.groups.values()))
        return frozenset(chain.from_iterable(self.groups.values()))

    def single(self) -> tuple[VersionClass, Version]:
        """Return the class and the version of a set made by ``exactly``."""
        ((version_class, versions),) = self.parts.items()
        version = versions.single()
        assert version is not None
        return version_class, version

    def of(self, version_class: VersionClass) -> Range:
        """Return the range of a version class."""
        if len(self.groups) > _FEW:
            return self.parts.get(version_class, self.rest)
        return next((part for part, classes in self.groups.items() if version_class in classes), self.rest)

    def __and__(self, other: "Choices") -> "Choices":
        """Return the intersection."""
        return self._with(other, and_)

    def __or__(self, other: "Choices") -> "Choices":
        """Return the union."""
        return self._with(other, or_)

    def __invert__(self) -> "Choices":
        """Return the complement."""
        return Choices({~part: classes for part, classes in self.groups.items()}, ~self.rest)

    def is_empty(self) -> bool:
        """Return whether the set has no versions."""
        return self.rest.is_empty() and all(part.is_empty() for part in self.groups)

    def is_everything(self) -> bool:
        """Return whether the set has all versions."""
        return self.rest == Range.ALL and all(part == Range.ALL for part in self.groups)

    def is_subset(self, other: "Choices") -> bool:
        """Return whether ``other`` contains the set."""
        return self._all(other, Range.is_subset)

    def is_disjoint(self, other: "Choices") -> bool:
        """Return whether the sets have no common version."""
        return self._all(other, Range.is_disjoint)

    def _all(self, other: "Choices", holds: Callable[[Range, Range], bool]) -> bool:
        """Return whether a relation holds between the two ranges of every class.

        Classes are compared only where two ranges violate the relation.
        """
        if not holds(self.rest, other.rest):
            return False
        if not self._is_cheaper_by_group(other):
            every = self.classes | other.classes
            return all(holds(self.of(version_class), other.of(version_class)) for version_class in every)
        return not any(classes for _, _, classes in self._pairs(other, lambda first, second: not holds(first, second)))

    def _with(self, other: "Choices", combined: Callable[[Range, Range], Range]) -> "Choices":
        """Return the set with the two ranges of every class combined."""
        rest = combined(self.rest, other.rest)
        if not self._is_cheaper_by_group(other):
            every = self.classes | other.classes
            return Choices.of_parts(
                {version_class: combined(self.of(version_class), other.of(version_class)) for version_class in every},
                rest,
            )
        groups: dict[Range, frozenset[VersionClass]] = {}
        for first, second, classes in self._pairs(other, lambda *_: True):
            part = combined(first, second)
            if classes and part != rest:
                groups[part] = groups[part] | classes if part in groups else classes
        return Choices(groups, rest)

    def _pairs(
        self, other: "Choices", is_wanted: Callable[[Range, Range], bool]
    ) -> Iterator[tuple[Range, Range, frozenset[VersionClass]]]:
        """Yield each wanted pair of a range of this set and one of ``other``, with the classes that have both."""
        for first, classes in self.groups.items():
            yield from (
                (first, second, classes & theirs) for second, theirs in other.groups.items() if is_wanted(first, second)
            )
            if is_wanted(first, other.rest):
                yield first, other.rest, classes - other.classes
        for second, theirs in other.groups.items():
            if is_wanted(self.rest, second):
                yield self.rest, second, theirs - self.classes

    def _is_cheaper_by_group(self, other: "Choices") -> bool:
        """Return whether there are fewer pairs of groups than classes."""
        return len(self.groups) * len(other.groups) <= len(self.classes) + len(other.classes) + 1


Choices.ALL = Choices(rest=Range.ALL)
