"""Sets of the versions that a kind may still be: the values that the search reasons with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
        return self._with(other, _both)

    def __or__(self, other: "Choices") -> "Choices":
        return self._with(other, _either)

    def __invert__(self) -> "Choices":
        return Choices({strand: ~part for strand, part in self.parts.items()}, ~self.rest)

    def is_empty(self) -> bool:
        return self.rest.is_empty() and all(part.is_empty() for part in self.parts.values())

    def is_subset(self, other: "Choices") -> bool:
        strands = self.parts.keys() | other.parts.keys()
        return _within(self.rest, other.rest) and all(_within(self.of(one), other.of(one)) for one in strands)

    def _with(self, other: "Choices", combined: Callable[[Range, Range], Range]) -> "Choices":
        rest = combined(self.rest, other.rest)
        strands = {**self.parts, **other.parts}
        parts = {strand: combined(self.of(strand), other.of(strand)) for strand in strands}
        return Choices({strand: part for strand, part in parts.items() if part != rest}, rest)


Choices.ALL = Choices(rest=Range.ALL)


def _both(one: Range, other: Range) -> Range:
    """The intersection; most ranges met here are none, all, or the same."""
    if one is other or one.is_empty() or other is Range.ALL:
        return one
    return other if other.is_empty() or one is Range.ALL else one & other


def _either(one: Range, other: Range) -> Range:
    if one is other or other.is_empty() or one is Range.ALL:
        return one
    return other if one.is_empty() or other is Range.ALL else one | other


def _within(one: Range, other: Range) -> bool:
    return one is other or one.is_empty() or other is Range.ALL or one.is_subset(other)
