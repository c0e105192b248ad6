"""Conflicts: requirements, existing versions, and the reasons for their rejection.

Every answer is about a set of versions, and the snapshot counts them: the effort does not grow with their number.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import reduce
from itertools import pairwise
from typing import Any, ClassVar, Literal

from benchlock.artifacts.display import escape_line
from benchlock.artifacts.errors import BenchlockError
from benchlock.registry.names import Kind
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
from benchlock.registry.resolution.version_search import Search
from benchlock.registry.resolution.version_sets import AdmittedVersions
from benchlock.registry.versions.semantic_version import Version, key
from benchlock.registry.versions.version_ranges import Range

Code = Literal[
    "outside", "pre-release", "yanked", "platform", "framework", "no-image", "unknown", "conflict", "order", "kept"
]
"""Why versions are out; the last three of versions that a lock could have (see ``registry.resolution.why``)."""

SHOWN = 3
"""Versions that a line names before it counts the rest; also the requirements of a model that are told apart."""

LISTED = 20
"""Versions of one reason that the JSON lists before it counts them alone."""

_COMPARED = 50
"""Names that are compared with a misspelt one letter by letter."""

_NEXT_TO = 500
"""Names on each side of a misspelt one that are looked at: all, but in catalogues of many hundreds of names."""

_LINES = 12
"""Reasons that the prose gives before it counts the rest."""


@dataclass(frozen=True, slots=True)
class RequirementText:
    """A requirement, in words: ``text`` is the whole line."""

    kind: Kind
    name: str
    constraint: str
    by: str
    text: str

    def as_json(self) -> dict[str, str]:
        return {"kind": self.kind, "name": self.name, "constraint": self.constraint, "by": self.by}


@dataclass(frozen=True, slots=True)
class Rejection:
    """Versions, newest first, that are out for one reason; none where the name itself is the trouble.

    ``count`` is of all of them, up to ``COUNTED``; ``versions`` are at most ``LISTED``.
    """

    kind: Kind
    name: str
    versions: tuple[str, ...]
    count: int
    reason: Code
    text: str

    def as_json(self) -> dict[str, Any]:
        """All but the kind of line: the newest versions, and how many there are."""
        return {
            "kind": self.kind,
            "name": self.name,
            "versions": list(self.versions),
            "count": self.count,
            "reason": self.reason,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Fix:
    """Changes of the request, tried together: fields and their values (``None``: left out), and what is then chosen."""

    changes: Mapping[str, Any]
    gives: Mapping[str, str]
    text: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why there is no answer. ``advice`` says what to do where no change of the request alone would do."""

    summary: str
    asked: tuple[RequirementText, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    fixes: tuple[Fix, ...] = ()
    advice: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def prose(self) -> str:
        """A few lines: what, who asked, why not."""
        asked, rejected = ([line.text for line in lines] for lines in (self.asked, self.rejected))
        if len(rejected) > _LINES:
            rejected[_LINES:] = [f"and {len(rejected) - _LINES} more reasons, all in --json"]
        return "\n  ".join((self.summary, *asked, *rejected))

    def next_step(self) -> str:
        """The nearest changes that would do, else what might be published."""
        return "; or ".join(fix.text for fix in self.fixes[:SHOWN]) or self.advice

    def as_json(self) -> dict[str, Any]:
        """The same as plain values. Each reason's versions are counted, and the newest of them listed."""
        return {
            "summary": self.summary,
            "asked": [one.as_json() for one in self.asked],
            "rejected": [one.as_json() for one in self.rejected],
            "fixes": [{"changes": dict(one.changes), "gives": dict(one.gives), "text": one.text} for one in self.fixes],
            **self.details,
        }


class ConflictError(BenchlockError):
    """The request has no answer. ``conflict`` is the explanation as plain values."""

    code: ClassVar[str] = "conflict"

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(conflict.prose(), next_step=conflict.next_step() or None)
        self.conflict = conflict.as_json()


def list_newest(versions: Sequence[str], count: int | None = None, oldest: str = "") -> str:
    """The first few of ``versions``, newest first, how many more there are, and the last of them."""
    count = len(versions) if count is None else count
    if count <= SHOWN + 1:
        return ", ".join(versions)
    more = f"over {COUNTED - 1 - SHOWN}" if count >= COUNTED else count - SHOWN
    return f"{', '.join(versions[:SHOWN])} and {more} more down to {oldest or versions[-1]}"


def find_nearest(name: str, names: Iterable[str]) -> str | None:
    """The known name that ``name`` may be a misspelling of.

    Of many names only those are compared letter by letter that share most pairs of neighbouring letters with it.
    """
    pairs = _pairs(name)
    likely = heapq.nsmallest(_COMPARED, names, key=lambda one: (len(pairs ^ _pairs(one)), one))
    return next(iter(get_close_matches(name, sorted(likely), n=1)), None)


def find_nearest_name(snapshot: Snapshot, kind: Kind, name: str) -> str | None:
    """The published name that ``name`` may be a misspelling of, among those that stand next to it in their order."""
    return find_nearest(name, snapshot.names(kind, name, _NEXT_TO))


def _pairs(name: str) -> set[tuple[str, str]]:
    return set(pairwise(name))


_FEW_CUTS = 16
"""Ends of intervals up to which each interval is asked for."""


@dataclass(frozen=True, slots=True)
class VersionGroup:
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

    def __or__(self, other: "VersionGroup") -> "VersionGroup":
        """Both, which have nothing in common."""
        versions = sorted((*self.versions, *other.versions), key=key, reverse=True)
        oldest = min(self.oldest, other.oldest, key=key)
        return VersionGroup(tuple(versions[:LISTED]), min(self.count + other.count, COUNTED), oldest)

    def __str__(self) -> str:
        return list_newest(self.texts, self.count, str(self.oldest))


def group_versions(snapshot: Snapshot, population: Population, versions: Range) -> VersionGroup | None:
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
    return VersionGroup(tuple(found), count, oldest) if oldest is not None else None


def _crowd_among(versions: Sequence[Version]) -> VersionGroup | None:
    """Return all of ``versions``, newest first, as a crowd."""
    if not versions:
        return None
    return VersionGroup(tuple(versions[:LISTED]), min(len(versions), COUNTED), versions[-1])


def group_admitted_versions(
    snapshot: Snapshot, kind: Kind, name: str, versions: AdmittedVersions, need: Need | None = None
) -> VersionGroup | None:
    """Those of the name that may be chosen."""
    crowds = (
        group_versions(snapshot, Population(kind, name, EVERY, status, need), part) for status, part in versions.items()
    )
    there = [one for one in crowds if one is not None]
    return reduce(VersionGroup.__or__, there) if there else None


def list_rejections(
    search: Search, requirements: Sequence[Requirement], among: Range = Range.ALL
) -> Iterator[Rejection]:
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
) -> Iterator[Rejection]:
    kind, name = requirement.kind, requirement.name
    found = group_versions(search.snapshot, Population(kind, name, EVERY, status), versions)
    if found is not None:
        by = f"{requirement.constraint} ({requirement.asked_by})"
        because = f"outside {by}" if code == "outside" else f"pre-release, not allowed by {by}"
        text = f"{kind}/{name} {found}: {because}"
        yield Rejection(kind, name, found.texts, found.count, code, text)


def _yanked(search: Search, kind: Kind, name: str, versions: Range) -> Iterator[Rejection]:
    """One line for each reason among the newest."""
    found = group_versions(search.snapshot, Population(kind, name, EVERY, "yanked"), versions)
    if found is not None:
        candidates = search.snapshot.candidates(kind, name, found.versions)
        yield from group_rejections(
            candidates, found.count, lambda one: ("yanked", f"yanked ({escape_line(one.yanked or '')})")
        )


def group_rejections(
    candidates: Sequence[Candidate], count: int, reason: Callable[[Candidate], tuple[Code, str]]
) -> Iterator[Rejection]:
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
        yield Rejection(kind, name, versions, len(some), code, f"{kind}/{name} {list_newest(versions)}: {because}")
        count -= len(some)
    if count > 0:
        older = f"{'over ' if total >= COUNTED else ''}{count} older ones are not told apart"
        yield Rejection(kind, name, (), count, code, f"{kind}/{name}: {older}")
