"""Conflicts: who asked for what, what exists, why each was rejected, and the nearest change that would do."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import pairwise
from typing import Any, ClassVar, Literal

from benchlock.artifacts.errors import BenchlockError
from benchlock.registry.names import Kind
from benchlock.registry.resolution.candidates import COUNTED, Snapshot

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
class Asked:
    """A requirement, in words: ``text`` is the whole line."""

    kind: Kind
    name: str
    constraint: str
    by: str
    text: str

    def as_json(self) -> dict[str, str]:
        return {"kind": self.kind, "name": self.name, "constraint": self.constraint, "by": self.by}


@dataclass(frozen=True, slots=True)
class Rejected:
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
    asked: tuple[Asked, ...] = ()
    rejected: tuple[Rejected, ...] = ()
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


def listed(versions: Sequence[str], count: int | None = None, oldest: str = "") -> str:
    """The first few of ``versions``, newest first, how many more there are, and the last of them."""
    count = len(versions) if count is None else count
    if count <= SHOWN + 1:
        return ", ".join(versions)
    more = f"over {COUNTED - 1 - SHOWN}" if count >= COUNTED else count - SHOWN
    return f"{', '.join(versions[:SHOWN])} and {more} more down to {oldest or versions[-1]}"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The known name that ``name`` may be a misspelling of.

    Of many names only those are compared letter by letter that share most pairs of neighbouring letters with it.
    """
    pairs = _pairs(name)
    likely = heapq.nsmallest(_COMPARED, names, key=lambda one: (len(pairs ^ _pairs(one)), one))
    return next(iter(get_close_matches(name, sorted(likely), n=1)), None)


def nearest_name(snapshot: Snapshot, kind: Kind, name: str) -> str | None:
    """The published name that ``name`` may be a misspelling of, among those that stand next to it in their order."""
    return nearest(name, snapshot.names(kind, name, _NEXT_TO))


def _pairs(name: str) -> set[tuple[str, str]]:
    return set(pairwise(name))
