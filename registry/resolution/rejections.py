"""How many versions of a name there are of each sort, and why they may not be chosen.

Every answer is about a set of versions, and the snapshot counts them: the effort does not grow with their number.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from benchlock.artifacts.escaping import escape_line
from benchlock.registry.names import Kind
from benchlock.registry.ranges import Range
from benchlock.registry.resolution.admission import Admitted
from benchlock.registry.resolution.candidates import (
    COUNTED,
    EVERY,
    Candidate,
    Need,
    Population,
    Requirement,
    Snapshot,
    Status,
)
from benchlock.registry.resolution.conflicts import LISTED, Code, Rejected, listed
from benchlock.registry.resolution.search import Search
from benchlock.registry.versions import Version, key

_FEW_CUTS = 16
"""Ends of intervals up to which each interval is asked for."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Versions of one name, at least one: the newest ``LISTED`` newest first, and the oldest.

    ``count`` of them, counted up to ``COUNTED``.
    """

    versions: tuple[Version, ...]
    count: int
    oldest: Version

    @property
    def newest(self) -> Version:
        return self.versions[0]

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(map(str, self.versions))

    def __or__(self, other: "Crowd") -> "Crowd":
        """Both, which have nothing in common."""
        versions = sorted((*self.versions, *other.versions), key=key, reverse=True)
        oldest = min(self.oldest, other.oldest, key=key)
        return Crowd(tuple(versions[:LISTED]), min(self.count + other.count, COUNTED), oldest)

    def __str__(self) -> str:
        return listed(self.texts, self.count, str(self.oldest))


def crowd(snapshot: Snapshot, population: Population, versions: Range) -> Crowd | None:
    """Those of the population, whatever its own interval, that lie in ``versions``."""
    if len(versions.cuts) > _FEW_CUTS:
        # One question in place of one an interval, where fewer versions are published than there are intervals.
        most = len(versions.cuts) // 2
        published = snapshot.newest(replace(population, interval=versions.hull), most)
        if len(published) < most:
            return _crowd_among(tuple(filter(versions.contains, published)))
    found: list[Version] = []
    count, oldest = 0, None
    for interval in reversed(versions.intervals):
        wanted = Population(population.kind, population.name, interval, population.status, population.need)
        extent = snapshot.extent(wanted)
        if extent is not None:
            found += snapshot.newest(wanted, LISTED - len(found)) if len(found) < LISTED else ()
            count, oldest = min(count + extent.count, COUNTED), extent.oldest
    return Crowd(tuple(found), count, oldest) if oldest is not None else None


def _crowd_among(versions: Sequence[Version]) -> Crowd | None:
    """Return all of ``versions``, newest first, as a crowd."""
    if not versions:
        return None
    return Crowd(tuple(versions[:LISTED]), min(len(versions), COUNTED), versions[-1])


def crowd_of(snapshot: Snapshot, kind: Kind, name: str, versions: Admitted, need: Need | None = None) -> Crowd | None:
    """Those of the name that may be chosen."""
    crowds = (crowd(snapshot, Population(kind, name, EVERY, status, need), part) for status, part in versions.items())
    there = [one for one in crowds if one is not None]
    return reduce(Crowd.__or__, there) if there else None


def rejected(search: Search, requirements: Sequence[Requirement], among: Range = Range.ALL) -> Iterator[Rejected]:
    """The versions ``among`` those of the name that ``requirements``, of that one name, do not let in, by reason."""
    kind, name = requirements[0].kind, requirements[0].name
    inside = among
    for requirement in requirements:
        outside = inside - requirement.constraint.range
        yield from _line(search, "outside", requirement, outside, None)
        inside &= requirement.constraint.range
    if kind not in search.question.prereleases:
        named = inside
        for requirement in requirements:
            unnamed = named - requirement.constraint.prereleases
            yield from _line(search, "pre-release", requirement, unnamed, "pre-release")
            named &= requirement.constraint.prereleases
    kept = search.available.admitted(kind, name, *(one.constraint for one in requirements)).get("yanked", Range.NONE)
    yield from _yanked(search, kind, name, inside - kept)


def _line(
    search: Search, code: Code, requirement: Requirement, versions: Range, status: Status | None
) -> Iterator[Rejected]:
    kind, name = requirement.kind, requirement.name
    found = crowd(search.snapshot, Population(kind, name, EVERY, status), versions)
    if found is not None:
        by = f"{requirement.constraint} ({requirement.asked_by})"
        because = f"outside {by}" if code == "outside" else f"pre-release, not allowed by {by}"
        text = f"{kind}/{name} {found}: {because}"
        yield Rejected(kind, name, found.texts, found.count, code, text)


def _yanked(search: Search, kind: Kind, name: str, versions: Range) -> Iterator[Rejected]:
    """One line for each reason among the newest."""
    found = crowd(search.snapshot, Population(kind, name, EVERY, "yanked"), versions)
    if found is not None:
        candidates = search.snapshot.candidates(kind, name, found.versions)
        yield from grouped(candidates, found.count, lambda one: ("yanked", f"yanked ({escape_line(one.yanked or '')})"))


def grouped(
    candidates: Sequence[Candidate], count: int, reason: Callable[[Candidate], tuple[Code, str]]
) -> Iterator[Rejected]:
    """Candidates of one name, newest first, that are out for the same reason share a line.

    ``count`` is of all there are; where ``candidates`` are fewer, the rest is in the last line.
    """
    groups: dict[tuple[Code, str], list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(reason(candidate), []).append(candidate)
    kind, name, total = candidates[0].kind, candidates[0].name, count
    code, _ = reason(candidates[-1])
    for (code, because), some in groups.items():
        versions = tuple(str(one.version) for one in some)
        yield Rejected(kind, name, versions, len(some), code, f"{kind}/{name} {listed(versions)}: {because}")
        count -= len(some)
    if count > 0:
        older = f"{'over ' if total >= COUNTED else ''}{count} older ones are not told apart"
        yield Rejected(kind, name, (), count, code, f"{kind}/{name}: {older}")
