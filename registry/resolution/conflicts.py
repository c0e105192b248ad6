"""Conflicts: requirements, existing versions, and the reasons for their rejection.

Every reason is about a set of versions, which the snapshot counts. So the effort does not grow with their number.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import reduce
from itertools import pairwise
from typing import Any, ClassVar, Literal

from benchlock.artifacts.errors import BenchlockError
from benchlock.artifacts.user_output import escape_line
from benchlock.registry.artifact_names import Kind
from benchlock.registry.resolution.resolver_types import (
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
"""The reason of a rejection; the last three are reasons in ``lock.selection_reasons``."""

SHOWN = 3
"""Number of versions that a line names, and of a model's requirements that are listed one by one."""

LISTED = 20
"""Number of versions of one reason that the JSON lists; further ones are only counted."""

_COMPARED = 50
"""Number of names that are compared with a misspelt name letter by letter."""

_NEXT_TO = 500
"""Number of names on each side of a misspelt name that are considered: all, except in very large catalogues."""

_LINES = 12
"""Number of reasons that the text lists; further ones are only counted."""


@dataclass(frozen=True, slots=True)
class RequirementText:
    """A requirement in words; ``text`` is the whole line."""

    kind: Kind
    name: str
    constraint: str
    by: str
    text: str

    def as_json(self) -> dict[str, str]:
        """Return the requirement as JSON values, without the line."""
        return {"kind": self.kind, "name": self.name, "constraint": self.constraint, "by": self.by}


@dataclass(frozen=True, slots=True)
class Rejection:
    """Versions, newest first, that are rejected for one reason; none where the name itself is the reason.

    ``count`` is the number of all of them, up to ``COUNTED``. ``versions`` has at most ``LISTED`` of them.
    """

    kind: Kind
    name: str
    versions: tuple[str, ...]
    count: int
    reason: Code
    text: str

    def as_json(self) -> dict[str, Any]:
        """Return the rejection as JSON values."""
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
    """Changes of the request that together make it solvable.

    Attributes:
        changes: The new value of each changed field; ``None`` where the field is left out.
        gives: The version of each kind that is then chosen.
        text: The fix in words.
    """

    changes: Mapping[str, Any]
    gives: Mapping[str, str]
    text: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """The explanation why a request has no answer.

    ``advice`` says what to do where no change of the request alone helps.
    """

    summary: str
    asked: tuple[RequirementText, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    fixes: tuple[Fix, ...] = ()
    advice: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def prose(self) -> str:
        """Return a few lines: the summary, the requirements, the rejections."""
        requirements, rejected = ([line.text for line in lines] for lines in (self.asked, self.rejected))
        if len(rejected) > _LINES:
            rejected[_LINES:] = [f"and {len(rejected) - _LINES} more reasons, all in the JSON output"]
        return "\n  ".join((self.summary, *requirements, *rejected))

    def next_step(self) -> str:
        """Return the nearest fixes; where there are none, what might be published."""
        return "; or ".join(fix.text for fix in self.fixes[:SHOWN]) or self.advice

    def as_json(self) -> dict[str, Any]:
        """Return the explanation as JSON values; the versions of each reason are counted, and the newest listed."""
        return {
            "summary": self.summary,
            "asked": [part.as_json() for part in self.asked],
            "rejected": [part.as_json() for part in self.rejected],
            "fixes": [
                {"changes": dict(part.changes), "gives": dict(part.gives), "text": part.text} for part in self.fixes
            ],
            **self.details,
        }


class ConflictError(BenchlockError):
    """The request has no answer.

    Attributes:
        conflict: The explanation as JSON values.
    """

    code: ClassVar[str] = "conflict"

    def __init__(self, conflict: Conflict) -> None:
        """Make the message from the explanation.

        Args:
            conflict: The explanation.
        """
        super().__init__(conflict.prose(), next_step=conflict.next_step() or None)
        self.conflict = conflict.as_json()


def list_newest(versions: Sequence[str], count: int | None = None, oldest: str = "") -> str:
    """List the first few of ``versions``, newest first, with the number of further ones and the oldest."""
    count = len(versions) if count is None else count
    if count <= SHOWN + 1:
        return ", ".join(versions)
    more = f"over {COUNTED - 1 - SHOWN}" if count >= COUNTED else count - SHOWN
    return f"{', '.join(versions[:SHOWN])} and {more} more down to {oldest or versions[-1]}"


def find_nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the known name that ``name`` may be a misspelling of.

    Of many names only those are compared letter by letter that share most pairs of neighbouring letters with ``name``.
    """
    pairs = _pairs(name)
    likely = heapq.nsmallest(_COMPARED, names, key=lambda known: (len(pairs ^ _pairs(known)), known))
    return next(iter(get_close_matches(name, sorted(likely), n=1)), None)


def find_nearest_name(snapshot: Snapshot, kind: Kind, name: str) -> str | None:
    """Return the published name that ``name`` may be a misspelling of, among its neighbours in alphabetical order."""
    return find_nearest(name, snapshot.names(kind, name, _NEXT_TO))


def _pairs(name: str) -> set[tuple[str, str]]:
    return set(pairwise(name))


_FEW_CUTS = 16
"""Number of ends of intervals up to which each interval has a query of its own."""


@dataclass(frozen=True, slots=True)
class VersionGroup:
    """At least one version of one name: the newest ``LISTED`` ones, newest first, and the oldest.

    ``count`` is the number of versions, up to ``COUNTED``.
    """

    versions: tuple[Version, ...]
    count: int
    oldest: Version

    @property
    def newest(self) -> Version:
        """The newest version."""
        return self.versions[0]

    @property
    def texts(self) -> tuple[str, ...]:
        """The listed versions as text."""
        return tuple(map(str, self.versions))

    def __or__(self, other: "VersionGroup") -> "VersionGroup":
        """Return the union of two disjoint groups."""
        versions = sorted((*self.versions, *other.versions), key=key, reverse=True)
        oldest = min(self.oldest, other.oldest, key=key)
        return VersionGroup(tuple(versions[:LISTED]), min(self.count + other.count, COUNTED), oldest)

    def __str__(self) -> str:
        """List the newest versions and the oldest."""
        return list_newest(self.texts, self.count, str(self.oldest))


def group_versions(snapshot: Snapshot, population: Population, versions: Range) -> VersionGroup | None:
    """Return the versions in ``versions`` that belong to the population, whatever its own interval."""
    if len(versions.cuts) > _FEW_CUTS:
        # One query instead of one per interval, where fewer versions are published than there are intervals.
        limit = len(versions.cuts) // 2
        published = snapshot.newest(replace(population, interval=versions.hull), limit)
        if len(published) < limit:
            return _group_of(tuple(filter(versions.contains, published)))
    newest: list[Version] = []
    count, oldest = 0, None
    for interval in reversed(versions.intervals):
        in_interval = Population(population.kind, population.name, interval, population.status, population.need)
        extent = snapshot.extent(in_interval)
        if extent is not None:
            newest += snapshot.newest(in_interval, LISTED - len(newest)) if len(newest) < LISTED else ()
            count, oldest = min(count + extent.count, COUNTED), extent.oldest
    return VersionGroup(tuple(newest), count, oldest) if oldest is not None else None


def _group_of(versions: Sequence[Version]) -> VersionGroup | None:
    """Return a group of all of ``versions``, which are newest first."""
    if not versions:
        return None
    return VersionGroup(tuple(versions[:LISTED]), min(len(versions), COUNTED), versions[-1])


def group_admitted_versions(
    snapshot: Snapshot, kind: Kind, name: str, versions: AdmittedVersions, need: Need | None = None
) -> VersionGroup | None:
    """Return the group of the versions of the name that may be chosen."""
    groups = (
        group_versions(snapshot, Population(kind, name, EVERY, status, need), part) for status, part in versions.items()
    )
    existing = [group for group in groups if group is not None]
    return reduce(VersionGroup.__or__, existing) if existing else None


def list_rejections(
    search: Search, requirements: Sequence[Requirement], among: Range = Range.ALL
) -> Iterator[Rejection]:
    """Yield a rejection for each reason why ``requirements`` do not admit versions of one name.

    Args:
        search: The search without an answer.
        requirements: Requirements on one name.
        among: The versions that are considered.
    """
    kind, name = requirements[0].kind, requirements[0].name
    remaining = among
    for requirement in requirements:
        outside = remaining - requirement.constraint.range
        yield from _line(search, "outside", requirement, outside, None)
        remaining &= requirement.constraint.range
    if kind not in search.question.prereleases:
        allowed = remaining
        for requirement in requirements:
            unnamed = allowed - requirement.constraint.prereleases
            yield from _line(search, "pre-release", requirement, unnamed, "pre-release")
            allowed &= requirement.constraint.prereleases
    admitted = search.available.admitted(kind, name, *(requirement.constraint for requirement in requirements))
    yield from _yanked(search, kind, name, remaining - admitted.get("yanked", Range.NONE))


def _line(
    search: Search, code: Code, requirement: Requirement, versions: Range, status: Status | None
) -> Iterator[Rejection]:
    """Yield the rejection of ``versions`` by one requirement, if such versions exist."""
    kind, name = requirement.kind, requirement.name
    group = group_versions(search.snapshot, Population(kind, name, EVERY, status), versions)
    if group is not None:
        by = f"{requirement.constraint} ({requirement.asked_by})"
        because = f"outside {by}" if code == "outside" else f"pre-release, not allowed by {by}"
        text = f"{kind}/{name} {group}: {because}"
        yield Rejection(kind, name, group.texts, group.count, code, text)


def _yanked(search: Search, kind: Kind, name: str, versions: Range) -> Iterator[Rejection]:
    """Yield a rejection for each reason given for yanked versions, among the newest."""
    group = group_versions(search.snapshot, Population(kind, name, EVERY, "yanked"), versions)
    if group is not None:
        candidates = search.snapshot.candidates(kind, name, group.versions)
        yield from group_rejections(
            candidates, group.count, lambda candidate: ("yanked", f"yanked ({escape_line(candidate.yanked or '')})")
        )


def group_rejections(
    candidates: Sequence[Candidate], count: int, reason: Callable[[Candidate], tuple[Code, str]]
) -> Iterator[Rejection]:
    """Yield one rejection for all candidates with the same reason.

    Args:
        candidates: Candidates of one name, newest first.
        count: The number of all rejected versions; if it is larger than the number of candidates, the last rejection
            has the rest.
        reason: Returns the code and the words of a candidate's rejection.
    """
    groups: dict[tuple[Code, str], list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(reason(candidate), []).append(candidate)
    kind, name, total = candidates[0].kind, candidates[0].name, count
    code, _ = reason(candidates[-1])
    for (code, because), members in groups.items():
        versions = tuple(str(member.version) for member in members)
        yield Rejection(kind, name, versions, len(members), code, f"{kind}/{name} {list_newest(versions)}: {because}")
        count -= len(members)
    if count > 0:
        older = f"{'over ' if total >= COUNTED else ''}{count} older versions, not listed separately"
        yield Rejection(kind, name, (), count, code, f"{kind}/{name}: {older}")
