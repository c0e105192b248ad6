"""Sets of versions: a pure set algebra over SemVer's order, in a normal form that makes equal sets equal values.

A range is what it says and nothing else: no pre-release policy (see ``registry.constraints``). Every set that the
grammar can say is a finite union of half-open intervals, because every version has a successor: 1.2.4-0 follows 1.2.3,
and 1.2.3-a.0 follows 1.2.3-a. Build metadata has no place in the order and is dropped.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from registry import grammar
from registry.grammar import LEAST, Alternative
from registry.versions import Version, key, successor

_END = "~"
"""The key of no upper end: above every version's key, since those begin with a digit."""

_BEGINNING = key(LEAST)


@dataclass(frozen=True, slots=True)
class Interval:
    """The versions from ``low`` up to, without, ``high``; ``None`` is no end. Never empty inside a range.

    The keys say the same as sortable text. They are made with the interval, once: sets of versions are compared far
    more often than made, and by these.
    """

    low: Version = field(compare=False)
    high: Version | None = field(compare=False)
    low_key: str = ""
    high_key: str = ""

    def __post_init__(self) -> None:
        if not self.low_key:
            object.__setattr__(self, "low_key", key(self.low))
        if not self.high_key:
            object.__setattr__(self, "high_key", _END if self.high is None else key(self.high))

    def until(self, other: "Interval") -> "Interval":
        """From where this one begins up to where the ``other`` ends."""
        return self if self is other else Interval(self.low, other.high, self.low_key, other.high_key)


@dataclass(frozen=True, slots=True)
class Range:
    """A set of versions. ``intervals`` are in order, and neither empty, nor overlapping, nor touching."""

    intervals: tuple[Interval, ...]

    ALL: ClassVar["Range"]
    NONE: ClassVar["Range"]

    @classmethod
    def parse(cls, text: str) -> "Range":
        """The set that ``text`` spells (see ``registry.grammar``).

        Raises:
            InvalidInputError: it spells none, or a bare partial version.
        """
        return cls.union(cls.of(alternative) for alternative in grammar.parse(text))

    @classmethod
    def of(cls, alternative: Alternative) -> "Range":
        """The versions on which all bounds of the alternative agree."""
        found = cls.ALL
        for bounds in alternative.bounds:
            part = cls.between(bounds.low, bounds.high)
            found &= ~part if bounds.excluded else part
        return found

    @classmethod
    def between(cls, low: Version, high: Version | None) -> "Range":
        """From ``low`` up to, without, ``high``; ``None`` is no end."""
        return cls(tuple(_normal([Interval(_plain(low), None if high is None else _plain(high))])))

    @classmethod
    def exactly(cls, version: Version) -> "Range":
        plain = _plain(version)
        return cls((Interval(plain, successor(plain)),))

    @classmethod
    def union(cls, ranges: Iterable["Range"]) -> "Range":
        return cls(tuple(_normal(interval for part in ranges for interval in part.intervals)))

    def __or__(self, other: "Range") -> "Range":
        return Range.union((self, other))

    def __and__(self, other: "Range") -> "Range":
        return Range(tuple(_common(self.intervals, other.intervals)))

    def __invert__(self) -> "Range":
        found, low, low_key = list[Interval](), LEAST, _BEGINNING
        for interval in self.intervals:
            if low_key < interval.low_key:
                found.append(Interval(low, interval.low, low_key, interval.low_key))
            if interval.high is None:
                return Range(tuple(found))
            low, low_key = interval.high, interval.high_key
        return Range((*found, Interval(low, None, low_key, _END)))

    def __sub__(self, other: "Range") -> "Range":
        return self & ~other

    def __contains__(self, version: Version) -> bool:
        return self.contains(version)

    def contains(self, version: Version) -> bool:
        place = key(version)
        interval = self._beginning_at(place)
        return interval is not None and place < interval.high_key

    def _beginning_at(self, place: str) -> Interval | None:
        """The last interval that begins at the key ``place`` or before it."""
        index = bisect_right(self.intervals, place, key=lambda interval: interval.low_key)
        return self.intervals[index - 1] if index else None

    def is_empty(self) -> bool:
        return not self.intervals

    def is_subset(self, other: "Range") -> bool:
        around = ((one, other._beginning_at(one.low_key)) for one in self.intervals)  # noqa: SLF001 - of its own class
        return all(outer is not None and one.high_key <= outer.high_key for one, outer in around)

    def is_disjoint(self, other: "Range") -> bool:
        """Whether no version is in both."""
        return next(_common(self.intervals, other.intervals), None) is None

    def single(self) -> Version | None:
        """The only version of the set, where it is one."""
        if len(self.intervals) == 1:
            interval = self.intervals[0]
            if interval.high is not None and key(successor(interval.low)) == interval.high_key:
                return interval.low
        return None

    def __str__(self) -> str:
        """The shortest text that spells the set: ``Range.parse(str(r)) == r``."""
        if self.is_empty():
            return f"<{LEAST}"
        return " || ".join(_spelled(group) for group in _groups(self.intervals))


Range.NONE = Range(())
Range.ALL = Range((Interval(LEAST, None),))


def _plain(version: Version) -> Version:
    return version if version.build is None else version.replace(build=None)


def _normal(intervals: Iterable[Interval]) -> Iterator[Interval]:
    """In order, empty ones left out, overlapping and touching ones made one."""
    current: Interval | None = None
    for interval in sorted(intervals, key=lambda interval: interval.low_key):
        if interval.low_key >= interval.high_key:
            continue
        if current is None:
            current = interval
        elif interval.low_key <= current.high_key:
            current = current.until(max(current, interval, key=lambda one: one.high_key))
        else:
            yield current
            current = interval
    if current is not None:
        yield current


def _common(left: Sequence[Interval], right: Sequence[Interval]) -> Iterator[Interval]:
    """What two normal forms share, in normal form, in one walk along both."""
    at_left = at_right = 0
    while at_left < len(left) and at_right < len(right):
        one, other = left[at_left], right[at_right]
        low = max(one, other, key=lambda interval: interval.low_key)
        high = min(one, other, key=lambda interval: interval.high_key)
        if low.low_key < high.high_key:
            yield low.until(high)
        if high is one:
            at_left += 1
        else:
            at_right += 1


def _groups(intervals: tuple[Interval, ...]) -> list[list[Interval]]:
    """Neighbours between which one version alone is missing stand together: they are written with ``!=``."""
    groups: list[list[Interval]] = []
    for interval in intervals:
        hole = groups[-1][-1].high if groups else None
        if hole is not None and key(successor(hole)) == interval.low_key:
            groups[-1].append(interval)
        else:
            groups.append([interval])
    return groups


def _spelled(group: list[Interval]) -> str:
    outer = Interval(group[0].low, group[-1].high)
    holes = [f"!={interval.high}" for interval in group[:-1]]
    whole = _interval(outer)
    return " ".join(holes) if holes and whole == "*" else " ".join([whole, *holes])


def _interval(interval: Interval) -> str:
    """The first of the short forms that spells the interval, else its two ends."""
    low, high = interval.low, interval.high
    if high is not None:
        major, minor = str(low.major), f"{low.major}.{low.minor}"
        for form in (str(low), f"^{major}", f"^{minor}", f"^{low}", f"~{minor}", f"~{low}"):
            (alternative,) = grammar.parse(form)
            (bounds,) = alternative.bounds
            if (bounds.low, bounds.high) == (low, high):
                return form
    return " ".join(filter(None, (_lower(low), _upper(high)))) or "*"


def _lower(low: Version) -> str:
    if key(low) == key(LEAST):
        return ""
    return f">{low.replace(patch=low.patch - 1, prerelease=None)}" if _follows_release(low) else f">={low}"


def _upper(high: Version | None) -> str:
    if high is None:
        return ""
    return f"<={high.replace(patch=high.patch - 1, prerelease=None)}" if _follows_release(high) else f"<{high}"


def _follows_release(version: Version) -> bool:
    """Whether it is the successor of a release: 1.2.4-0 is, 1.3.0-0 is not (no patch is the last)."""
    return version.patch > 0 and version.prerelease == "0"
