"""Version ranges as sets in a normal form, and constraints, which add the rules for pre-releases.

A range is a plain set of versions, without a policy for pre-releases (see ``Constraint``). Every set that the grammar
can express is a finite union of half-open intervals, because every version has a successor: 1.2.4-0 follows 1.2.3, and
1.2.3-a.0 follows 1.2.3-a. Build metadata is not part of the order and is dropped.

**Order.** "Pre-release versions have a lower precedence than the associated normal version." (SemVer 2.0.0, item 9.)
"Precedence for two pre-release versions with the same major, minor, and patch version MUST be determined by comparing
each dot separated identifier from left to right until a difference is found as follows: identifiers consisting of only
digits are compared numerically and identifiers with letters or hyphens are compared lexically in ASCII sort order.
Numeric identifiers always have lower precedence than non-numeric identifiers. A larger set of pre-release fields has a
higher precedence than a smaller set, if all of the preceding identifiers are equal." (Item 11.) So a set contains the
pre-releases between its ends: ``<2.0.0`` contains 2.0.0-rc.1, ``^1.2`` (below 2.0.0-0) does not.

**Pre-releases.** "If a version has a prerelease tag (for example, ``1.2.3-alpha.3``) then it will only be allowed to
satisfy comparator sets if at least one comparator with the same ``[major, minor, patch]`` tuple also has a prerelease
tag." (https://github.com/npm/node-semver#prerelease-tags) A comparator set is one alternative of ``||``, and the rule
applies to each alternative alone. ``!=``, which npm does not have, does not permit a pre-release.

**Permitted pre-releases.** "Note that this behavior can be suppressed (treating all prerelease versions as if they were
normal versions, for range-matching)" (ibid.): if a request permits the pre-releases of a kind, the set alone decides,
and it is the same set. npm's ``includePrerelease`` moves some ends too; this and all other differences are in
``tests/cases/ranges``.

**Build metadata** "MUST be ignored when determining version precedence. Thus two versions that differ only in the build
metadata, have the same precedence." (SemVer 2.0.0, item 10.) So it has no effect in a constraint or in a version.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import ClassVar

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.versions import range_grammar
from benchlock.registry.versions.range_grammar import LEAST, Alternative
from benchlock.registry.versions.semantic_version import Version, key, release_key, successor, version_of

_END = "~"
"""The key of an open upper end: above the key of every version, since these begin with a digit."""

_BEGINNING = key(LEAST)
_ENDS = 2
"""Largest number of cuts of one interval."""

# Whether an operation keeps versions in neither set, in the left set only, in the right set only, in both.
_Operation = tuple[bool, bool, bool, bool]
_OR: _Operation = (False, True, True, True)
_AND: _Operation = (False, False, False, True)
_MINUS: _Operation = (False, True, False, False)


@dataclass(frozen=True, slots=True)
class Interval:
    """The versions from ``low`` up to but excluding ``high``; ``None`` means no end. The keys are precomputed."""

    low: Version = field(compare=False)
    high: Version | None = field(compare=False)
    low_key: str = ""
    high_key: str = ""

    def __post_init__(self) -> None:
        """Compute the keys that are not given."""
        if not self.low_key:
            object.__setattr__(self, "low_key", key(self.low))
        if not self.high_key:
            object.__setattr__(self, "high_key", _END if self.high is None else key(self.high))


@dataclass(frozen=True, slots=True)
class Range:
    """A set of versions.

    ``cuts`` are the keys at which the set begins and ends, alternately, in ascending order, without duplicates; a last
    beginning has no end. So a version is inside if an odd number of cuts is at or below it, and equal sets have equal
    cuts.
    """

    cuts: tuple[str, ...]

    ALL: ClassVar["Range"]
    NONE: ClassVar["Range"]

    @classmethod
    def parse(cls, text: str) -> "Range":
        """Parse a range (see ``range_grammar``).

        Raises:
            InvalidInputError: The text is malformed, or a bare partial version.
        """
        return cls.union(cls.of(alternative) for alternative in range_grammar.parse(text))

    @classmethod
    def of(cls, alternative: Alternative) -> "Range":
        """Return the intersection of all bounds of an alternative."""
        result = cls.ALL
        for bounds in alternative.bounds:
            part = cls.between(bounds.low, bounds.high)
            result = result - part if bounds.excluded else result & part
        return result

    @classmethod
    def between(cls, low: Version, high: Version | None) -> "Range":
        """Return the versions from ``low`` up to but excluding ``high``; ``None`` means no end."""
        if high is None:
            return cls((key(low),))
        cuts = (key(low), key(high))
        return cls(cuts) if cuts[0] < cuts[1] else cls.NONE

    @classmethod
    def exactly(cls, version: Version) -> "Range":
        """Return the range of one version."""
        place = key(version)
        return cls((place, _after(place)))

    @classmethod
    def union(cls, ranges: Iterable["Range"]) -> "Range":
        """Return the union of the ranges: their intervals are sorted once, and joined where they meet."""
        parts = [part for part in ranges if part.cuts]
        if len(parts) <= 1:
            return parts[0] if parts else cls.NONE
        ends = sorted(
            chain.from_iterable(zip(part.cuts[::2], (*part.cuts[1::2], _END), strict=False) for part in parts)
        )
        cuts: list[str] = []
        for low, high in ends:
            if cuts and low <= cuts[-1]:
                cuts[-1] = max(cuts[-1], high)
            else:
                cuts += (low, high)
        return cls(tuple(cuts[:-1] if cuts[-1] == _END else cuts))

    @property
    def intervals(self) -> tuple[Interval, ...]:
        """The set as intervals, in order: not empty, not overlapping, not touching."""
        return tuple(map(_interval, self.cuts[::2], (*self.cuts[1::2], _END)))

    @property
    def hull(self) -> Interval:
        """The smallest interval that contains the set, which must not be empty."""
        return _interval(self.cuts[0], self.cuts[-1] if len(self.cuts) % 2 == 0 else _END)

    def __or__(self, other: "Range") -> "Range":
        """Return the union."""
        if self is other or not other.cuts:
            return self
        return Range(_combine(self.cuts, other.cuts, _OR)) if self.cuts else other

    def __and__(self, other: "Range") -> "Range":
        """Return the intersection."""
        if self is other or not self.cuts or other is Range.ALL:
            return self
        if not other.cuts or self is Range.ALL:
            return other
        if len(self.cuts) <= _ENDS and len(other.cuts) <= _ENDS:
            low, high = max(self.cuts[0], other.cuts[0]), min((*self.cuts, _END)[1], (*other.cuts, _END)[1])
            return Range((low,) if high == _END else (low, high)) if low < high else Range.NONE
        return Range(_combine(self.cuts, other.cuts, _AND))

    def __sub__(self, other: "Range") -> "Range":
        """Return the difference."""
        return Range(_combine(self.cuts, other.cuts, _MINUS))

    def __invert__(self) -> "Range":
        """Return the complement."""
        return Range(self.cuts[1:] if self.cuts[:1] == (_BEGINNING,) else (_BEGINNING, *self.cuts))

    def __contains__(self, version: Version) -> bool:
        """Return whether the version is in the set."""
        return self.contains(version)

    def contains(self, version: Version) -> bool:
        """Return whether the version is in the set."""
        return self.contains_key(key(version))

    def contains_key(self, place: str) -> bool:
        """Return whether the version with this key is in the set."""
        return bisect_right(self.cuts, place) % 2 == 1

    def is_empty(self) -> bool:
        """Return whether the set is empty."""
        return not self.cuts

    def is_subset(self, other: "Range") -> bool:
        """Return whether every version of this set is in the other."""
        if self is other or not self.cuts or other is Range.ALL:
            return True
        if len(self.cuts) <= _ENDS:
            at = bisect_right(other.cuts, self.cuts[0])
            return at % 2 == 1 and (*self.cuts, _END)[1] <= (other.cuts[at] if at < len(other.cuts) else _END)
        return not _combine(self.cuts, other.cuts, _MINUS)

    def is_disjoint(self, other: "Range") -> bool:
        """Return whether no version is in both sets."""
        if not self.cuts or not other.cuts:
            return True
        few, many = (self.cuts, other.cuts) if len(self.cuts) <= len(other.cuts) else (other.cuts, self.cuts)
        if len(few) <= _ENDS:
            at = bisect_right(many, few[0])
            return at % 2 == 0 and (at == len(many) or (*few, _END)[1] <= many[at])
        return not _combine(few, many, _AND)

    def single(self) -> Version | None:
        """Return the only version of a set of one version, otherwise ``None``."""
        if len(self.cuts) != _ENDS or self.cuts[1].endswith("~"):  # the successor of a version is a pre-release
            return None
        return version_of(self.cuts[0]) if _after(self.cuts[0]) == self.cuts[1] else None

    def __str__(self) -> str:
        """Return the simplest text of the set: ``Range.parse(str(r)) == r``.

        The intervals are in order, joined by ``||``; a single version missing between two of them is excluded by ``!=``
        instead. Each interval is ``*`` (omitted before a ``!=``), one version, ``^`` or ``~`` before a version or its
        first numbers, or a ``>`` or ``>=``, a ``<`` or ``<=``, or both, each before a version. No text of this form for
        the set is shorter; of equally short ones it is the first in that order.
        """
        groups = _groups(self.intervals)
        return " || ".join(map(_spell_group, groups)) or f"<{LEAST}"


Range.NONE = Range(())
Range.ALL = Range((_BEGINNING,))


def _combine(left: tuple[str, ...], right: tuple[str, ...], operation: _Operation) -> tuple[str, ...]:
    """Return the cuts of a combination of two sets, in one walk along the part in which both have cuts."""
    # Before the first cut of the other set, and after its last, either all cuts of a set are kept, or none.
    at_left = bisect_left(left, right[0]) if right else len(left)
    at_right = bisect_left(right, left[0]) if left else len(right)
    cuts = [*(left[:at_left] if operation[1] else ()), *(right[:at_right] if operation[2] else ())]
    inside = operation[at_left % 2 + at_right % 2 * 2]
    while at_left < len(left) and at_right < len(right):
        cut, other = left[at_left], right[at_right]
        if cut <= other:
            at_left += 1
            at_right += cut == other
        else:
            cut, at_right = other, at_right + 1
        if operation[at_left % 2 + at_right % 2 * 2] is not inside:
            inside = not inside
            cuts.append(cut)
    if operation[at_right % 2 * 2] is not operation[1 + at_right % 2 * 2]:
        cuts += left[at_left:]
    if operation[at_left % 2] is not operation[at_left % 2 + 2]:
        cuts += right[at_right:]
    return tuple(cuts)


@lru_cache(maxsize=65536)
def _after(place: str) -> str:
    """Return the key of the successor."""
    return key(successor(version_of(place)))


@lru_cache(maxsize=65536)
def _interval(low: str, high: str) -> Interval:
    return Interval(version_of(low), None if high == _END else version_of(high), low, high)


def _groups(intervals: Iterable[Interval]) -> list[list[Interval]]:
    """Group neighbouring intervals between which a single version is missing."""
    groups: list[list[Interval]] = []
    for interval in intervals:
        if groups and _after(groups[-1][-1].high_key) == interval.low_key:
            groups[-1].append(interval)
        else:
            groups.append([interval])
    return groups


def _spell_group(group: list[Interval]) -> str:
    whole = _shortest(group[0].low, group[-1].high)
    missing = [f"!={interval.high}" for interval in group[:-1]]
    return " ".join(missing if missing and whole == "*" else [whole, *missing])


def _shortest(low: Version, high: Version | None) -> str:
    ends = " ".join(filter(None, (_lower(low), _upper(high)))) or "*"
    if high is None or high.prerelease is None:  # ranges of the short forms end before a pre-release
        return ends
    major, minor = str(low.major), f"{low.major}.{low.minor}"
    forms = (str(low), f"^{major}", f"^{minor}", f"^{low}", f"~{minor}", f"~{low}")
    return min((*(form for form in forms if _spells(form, low, high)), ends), key=len)


def _spells(form: str, low: Version, high: Version) -> bool:
    (alternative,) = range_grammar.parse(form)
    (bounds,) = alternative.bounds
    return (bounds.low, bounds.high) == (low, high)


def _lower(low: Version) -> str:
    before = _predecessor(low)
    return f">{before}" if before else "" if low == LEAST else f">={low}"


def _upper(high: Version | None) -> str:
    before = high and _predecessor(high)
    return f"<={before}" if before else f"<{high}" if high else ""


def _predecessor(version: Version) -> Version | None:
    """Return the version with this successor; ``None`` for 1.3.0-0 (no patch is the last) and for releases."""
    tag = version.prerelease or ""
    if tag == "0" and version.patch:
        return version.replace(patch=version.patch - 1, prerelease=None)
    return version.replace(prerelease=tag.removesuffix(".0")) if tag.endswith(".0") else None


LONGEST = 1000
"""Longest constraint, in characters."""


_NUMBERS = r"((?:0|[1-9][0-9]{0,8})(?:\.(?:0|[1-9][0-9]{0,8})){0,2})"
_INTERVAL = re.compile(rf">={_NUMBERS}(?: |,|, )<{_NUMBERS}")
"""The form of most requirements, from one release up to another, parsed without the grammar for speed."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A range with its original ``text``, and its rules for pre-releases.

    ``prereleases`` are exactly the pre-releases that may be chosen without permission of the request; it contains no
    release.
    """

    range: Range
    prereleases: Range
    text: str

    @staticmethod
    def parse(text: str) -> "Constraint":
        """Parse a constraint (see ``range_grammar``).

        Raises:
            InvalidInputError: The text is malformed, or a bare partial version.
        """
        return _parse(text)

    @property
    def releases(self) -> Range:
        """The range that decides about releases; its pre-releases need ``prereleases`` or permission."""
        return self.range

    @property
    def pinned(self) -> Version | None:
        """The only version that the constraint can admit, otherwise ``None``."""
        return self.range.single()

    def admits(self, version: Version, *, prereleases: bool = False) -> bool:
        """Return whether ``version`` may be chosen: a release in the range, or an admitted pre-release.

        With ``prereleases`` the request permits pre-releases, so that the range alone decides.
        """
        decisive = self.releases if version.prerelease is None or prereleases else self.prereleases
        return decisive.contains(version)

    def __str__(self) -> str:
        """Return the original text."""
        return self.text


@lru_cache(maxsize=65536)
def _parse(text: str) -> Constraint:
    if len(text) > LONGEST:
        raise InvalidInputError(
            f"the constraint is too long: {len(text)} characters", next_step=f"write at most {LONGEST} characters"
        )
    interval = _INTERVAL.fullmatch(text)
    if interval is not None:
        low, high = (release_key(*map(int, end.split("."))) for end in interval.groups())
        return Constraint(Range((low, high)) if low < high else Range.NONE, Range.NONE, text)
    alternatives = [(Range.of(alternative), alternative.triples) for alternative in range_grammar.parse(text)]
    if len(alternatives) == 1 and not alternatives[0][1]:
        return Constraint(alternatives[0][0], Range.NONE, text)
    whole = Range.union(part for part, _ in alternatives)
    prereleases = Range.union(part & _prereleases_of(triples) for part, triples in alternatives)
    return Constraint(whole, prereleases, text)


def _prereleases_of(triples: Iterable[tuple[int, int, int]]) -> Range:
    """Return all pre-releases of the triples: those of 1.2.3 reach from 1.2.3-0 up to 1.2.3."""
    return Range.union(Range.between(Version(*triple, prerelease="0"), Version(*triple)) for triple in triples)


ANY = Constraint.parse("*")
"""The constraint that admits every release."""
