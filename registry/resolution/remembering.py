"""A snapshot that puts each question to another one once: solving again with a changed request asks the same."""

from collections.abc import Sequence
from functools import cache

from benchlock.registry.names import Kind
from benchlock.registry.resolution.candidates import (
    EVERY,
    RARE,
    Environments,
    Extent,
    Need,
    Population,
    Snapshot,
    Status,
)
from benchlock.registry.versions import Version


class Remembering:
    """Implements ``registry.resolution.candidates.Snapshot``; for as long as the other one does not change.

    Of what is rare it asks once whether the name has any: most have none, and then no interval of it has.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.names = cache(snapshot.names)
        self.needs = cache(snapshot.needs)
        self.candidates = cache(snapshot.candidates)
        self.platforms = cache(snapshot.platforms)
        self.images = cache(snapshot.images)
        self._needed = cache(snapshot.needed)
        self._newest = cache(snapshot.newest)
        self._oldest = cache(snapshot.oldest)
        self._extent = cache(snapshot.extent)
        self._provided = cache(snapshot.provided)
        self._providers = cache(snapshot.providers)

    def needed(self, wanted: Population) -> Sequence[tuple[Need, str]]:
        return self._needed(wanted) if self._has(wanted.kind, wanted.name, wanted.status) else ()

    def newest(self, wanted: Population, most: int) -> Sequence[Version]:
        return self._newest(wanted, most) if self._has(wanted.kind, wanted.name, wanted.status) else ()

    def oldest(self, wanted: Population, most: int) -> Sequence[Version]:
        return self._oldest(wanted, most) if self._has(wanted.kind, wanted.name, wanted.status) else ()

    def extent(self, wanted: Population) -> Extent | None:
        return self._extent(wanted) if self._has(wanted.kind, wanted.name, wanted.status) else None

    def provided(self, wanted: Environments) -> Version | None:
        return self._provided(wanted) if self._has_both(wanted) else None

    def providers(self, wanted: Environments) -> Sequence[tuple[str, Version]]:
        return self._providers(wanted) if self._has_both(wanted) else ()

    def _has_both(self, wanted: Environments) -> bool:
        images = wanted.image is None or self._has("image", wanted.image, wanted.image_status)
        return images and self._has("framework", wanted.framework, wanted.status)

    def _has(self, kind: Kind, name: str, status: Status | None) -> bool:
        """Whether the name may have versions of that status."""
        return status not in RARE or bool(self._newest(Population(kind, name, EVERY, status), 1))
