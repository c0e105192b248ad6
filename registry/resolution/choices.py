"""Sets of the versions that a kind may still be: the values that the search reasons with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import and_, or_
from typing import Any, ClassVar

from registry.ranges import Range
from registry.versions import Version

Strand = tuple[Any, ...]
"""Versions of one kind that are alike in all that decides which go together: name, requirement, status."""


@dataclass(frozen=True, slots=True)
class Choices:
    """A range of each strand in ``parts``, and ``rest`` of every other."""

    parts: Mapping[Strand, Range] = field(default_factory=dict)
    rest: Range = Range.NONE

    ALL: ClassVar["Choices"]

    @classmethod
    def one(cls, strand: Strand, version: Version) -> "Choices":
        return cls({strand: Range.exactly(version)})

    def single(self) -> tuple[Strand, Version]:
        """What the set was made of by ``one``."""
        ((strand, versions),) = self.parts.items()
        version = versions.single()
        assert version is not None
        return strand, version

    def of(self, strand: Strand) -> Range:
        return self.parts.get(strand, self.rest)

    def __and__(self, other: "Choices") -> "Choices":
        return self._with(other, and_, Range.ALL)

    def __or__(self, other: "Choices") -> "Choices":
        return self._with(other, or_, Range.NONE)

    def __invert__(self) -> "Choices":
        return Choices({strand: ~part for strand, part in self.parts.items()}, ~self.rest)

    def is_empty(self) -> bool:
        return self.rest.is_empty() and all(part.is_empty() for part in self.parts.values())

    def is_everything(self) -> bool:
        return self.rest == Range.ALL and all(part == Range.ALL for part in self.parts.values())

    def is_subset(self, other: "Choices") -> bool:
        if not self.rest.is_subset(other.rest):
            return False
        if not all(part.is_subset(other.of(strand)) for strand, part in self.parts.items()):
            return False
        return self.rest.is_empty() or all(self.of(strand).is_subset(part) for strand, part in other.parts.items())

    def is_disjoint(self, other: "Choices") -> bool:
        if not self.rest.is_disjoint(other.rest):
            return False
        few, many = (self, other) if len(self.parts) <= len(other.parts) else (other, self)
        if not all(part.is_disjoint(many.of(strand)) for strand, part in few.parts.items()):
            return False
        return few.rest.is_empty() or all(few.of(strand).is_disjoint(part) for strand, part in many.parts.items())

    def _with(self, other: "Choices", combined: Callable[[Range, Range], Range], neutral: Range) -> "Choices":
        """Strand by strand; where the rest of one changes nothing, only its strands are looked at."""
        few, many = (other, self) if other.rest == neutral else (self, other)
        rest = combined(few.rest, many.rest)
        strands = few.parts if few.rest == neutral else {**many.parts, **few.parts}
        parts = dict(many.parts)
        for strand in strands:
            part = combined(self.of(strand), other.of(strand))
            if part == rest:
                parts.pop(strand, None)
            else:
                parts[strand] = part
        return Choices(parts, rest)


Choices.ALL = Choices(rest=Range.ALL)
