"""The models of the jobs, and the caches of the machines: each lock has a model of its own, of one file."""

import math
import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from sqlalchemy import Connection, insert

from benchlock.artifacts.digest import Digest
from benchlock.registry.auth.permissions import EMBEDDED, EVERYTHING, Actor
from benchlock.registry.database.registry_schema import files, versions

GB = 10**9
_SMALLEST, _LARGEST = 0.1 * GB, 20 * GB
CAPACITY = 200 * GB


@dataclass(frozen=True)
class Files:
    """The models. ``are_preferred`` if machines have caches that the queue knows of, else it ignores their files."""

    models: int = 300
    are_preferred: bool = False

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The bytes of the models: log-uniform."""
        order = random.Random("models")  # noqa: S311 - no secret
        return tuple(int(math.exp(order.uniform(math.log(_SMALLEST), math.log(_LARGEST)))) for _ in range(self.models))

    @property
    def actor(self) -> Actor:
        """Who enrols the machines: those of a token have caches."""
        return Actor("token/fleet", EVERYTHING) if self.are_preferred else EMBEDDED


class Cache:
    """The cache of a machine, of which the least recently used models are removed."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes, self._models = sizes, OrderedDict[int, int]()
        self.moved = 0

    def fetch(self, model: int) -> None:
        """Use a model; fetch it unless it is there."""
        if model not in self._models:
            self.moved += self._sizes[model]
        self._models[model] = self._sizes[model]
        self._models.move_to_end(model)
        while sum(self._models.values()) > CAPACITY:
            self._models.popitem(last=False)


def publish(connection: Connection, names: Sequence[Digest], sizes: Sequence[int], at: datetime) -> None:
    """Put a model for each name into the catalogue."""
    for name, size in zip(names, sizes, strict=False):
        key = {"kind": "model", "name": name, "precedence": "1"}
        file = {"path": "weights", "digest": name, "size": size, "tree": False}
        connection.execute(insert(files).values(key | file))
        connection.execute(insert(versions).values(key | {"version": "1.0.0", "digest": name, "published_at": at}))
