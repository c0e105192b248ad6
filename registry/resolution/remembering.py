"""A snapshot that puts each question to another one once: solving again with a changed request asks the same."""

from functools import cache

from registry.resolution.candidates import Snapshot


class Remembering:
    """Implements ``registry.resolution.candidates.Snapshot``; for as long as the other one does not change."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.names = cache(snapshot.names)
        self.needs = cache(snapshot.needs)
        self.needed = cache(snapshot.needed)
        self.newest = cache(snapshot.newest)
        self.oldest = cache(snapshot.oldest)
        self.extent = cache(snapshot.extent)
        self.candidates = cache(snapshot.candidates)
        self.platforms = cache(snapshot.platforms)
        self.images = cache(snapshot.images)
        self.provided = cache(snapshot.provided)
        self.providers = cache(snapshot.providers)
