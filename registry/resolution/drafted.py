"""A snapshot with a version that is not published: what would be chosen for it, if it were."""

from collections.abc import Sequence

from benchlock.registry.names import Kind
from benchlock.registry.resolution.candidates import (
    Candidate,
    Environments,
    Extent,
    Need,
    Platform,
    Population,
    Snapshot,
)
from benchlock.registry.versions import Version, key


class Drafted:
    """Another snapshot, where ``drafts`` hide the versions of their names.

    Implements ``registry.resolution.candidates.Snapshot``.
    """

    def __init__(self, snapshot: Snapshot, drafts: Sequence[Candidate]) -> None:
        self._snapshot = snapshot
        self._drafts = {(one.kind, one.name): one for one in drafts}

    def names(self, kind: Kind, near: str, most: int) -> Sequence[str]:
        return self._snapshot.names(kind, near, most)

    def needs(self, model: str) -> Sequence[Need]:
        draft = self._drafts.get(("model", model))
        return self._snapshot.needs(model) if draft is None else sorted(draft.requires)

    def needed(self, wanted: Population) -> Sequence[tuple[Need, str]]:
        found = self._found(wanted)
        if found is None:
            return self._snapshot.needed(wanted)
        return sorted((need, key(one.version)) for one in found for need in one.requires)

    def newest(self, wanted: Population, most: int) -> Sequence[Version]:
        found = self._found(wanted)
        return self._snapshot.newest(wanted, most) if found is None else [one.version for one in found][:most]

    def oldest(self, wanted: Population, most: int) -> Sequence[Version]:
        found = self._found(wanted)
        return self._snapshot.oldest(wanted, most) if found is None else [one.version for one in found][:most]

    def extent(self, wanted: Population) -> Extent | None:
        found = self._found(wanted)
        if found is None:
            return self._snapshot.extent(wanted)
        return Extent(1, found[0].version, found[0].version) if found else None

    def candidates(self, kind: Kind, name: str, versions: tuple[Version, ...]) -> Sequence[Candidate]:
        draft = self._drafts.get((kind, name))
        if draft is None:
            return self._snapshot.candidates(kind, name, versions)
        return [draft] if key(draft.version) in map(key, versions) else []

    def platforms(self, framework: str) -> Sequence[Platform]:
        return self._snapshot.platforms(framework)

    def images(self, framework: str) -> Sequence[str]:
        return self._snapshot.images(framework)

    def provided(self, wanted: Environments) -> Version | None:
        return self._snapshot.provided(wanted)

    def providers(self, wanted: Environments) -> Sequence[tuple[str, Version]]:
        return self._snapshot.providers(wanted)

    def _found(self, wanted: Population) -> list[Candidate] | None:
        """The draft, if it is in the population, as a list; None where the name has no draft."""
        draft = self._drafts.get((wanted.kind, wanted.name))
        if draft is None:
            return None
        inside = wanted.interval.low_key <= key(draft.version) < wanted.interval.high_key
        fits = wanted.status in (None, draft.status) and (wanted.need is None or wanted.need in draft.requires)
        return [draft] if inside and fits else []
