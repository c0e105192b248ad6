"""Sets of the versions that a kind may still be: the values that the search reasons with.

Strands with the same range are one group. A model may have many thousands of strands, of which most share a range, so
that operations take the groups as sets, and look at strands one by one only where nearly each has its own range.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from operator import and_, or_
from typing import Any, ClassVar

from benchlock.registry.ranges import Range
from benchlock.registry.versions import Version

Strand = tuple[Any, ...]
"""Versions of one kind that are alike in all that decides which go together: name, requirement, status."""

Groups = Mapping[Range, frozenset[Strand]]

_FEW = 4
"""Groups of which each is looked into for a strand: a mapping of all strands costs more."""


@dataclass(frozen=True)
class Choices:
    """A range of each strand in ``groups``, and ``rest`` of every other. No strand is in two groups."""

    groups: Groups = field(default_factory=dict)
    rest: Range = Range.NONE

    ALL: ClassVar["Choices"]

    @classmethod
    def of_parts(cls, parts: Mapping[Strand, Range], rest: Range = Range.NONE) -> "Choices":
        """Return the set that has these ranges of these strands."""
        groups: defaultdict[Range, list[Strand]] = defaultdict(list)
        for strand, part in parts.items():
            if part != rest:
                groups[part].append(strand)
        return cls({part: frozenset(strands) for part, strands in groups.items()}, rest)

    @classmethod
    def of_strands(cls, strands: Iterable[Strand]) -> "Choices":
        """Return the set of all versions of these strands, and no others."""
        some = frozenset(strands)
        return cls({Range.ALL: some} if some else {})

    @classmethod
    def one(cls, strand: Strand, version: Version) -> "Choices":
        return cls({Range.exactly(version): frozenset((strand,))})

    @cached_property
    def parts(self) -> Mapping[Strand, Range]:
        """The range of each strand that has its own."""
        return {strand: part for part, strands in self.groups.items() for strand in strands}

    @cached_property
    def strands(self) -> frozenset[Strand]:
        """The strands that have a range of their own."""
        if len(self.groups) == 1:
            return next(iter(self.groups.values()))
        return frozenset(chain.from_iterable(self.groups.values()))

    def single(self) -> tuple[Strand, Version]:
        """What the set was made of by ``one``."""
        ((strand, versions),) = self.parts.items()
        version = versions.single()
        assert version is not None
        return strand, version

    def of(self, strand: Strand) -> Range:
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
        groups: dict[Range, frozenset[Strand]] = {}
        for one, two, strands in self._pairs(other, lambda *_: True):
            part = combined(one, two)
            if strands and part != rest:
                groups[part] = groups[part] | strands if part in groups else strands
        return Choices(groups, rest)

    def _pairs(
        self, other: "Choices", wanted: Callable[[Range, Range], bool]
    ) -> Iterator[tuple[Range, Range, frozenset[Strand]]]:
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
