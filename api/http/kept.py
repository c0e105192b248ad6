"""What was found before and still holds: bytes about what never changes, and what holds until anyone commits."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept:
    """Bytes by a key that says all that they depend on; those that were asked for longest ago go first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._found: OrderedDict[Hashable, bytes] = OrderedDict()

    def get(self, key: Hashable) -> bytes | None:
        found = self._found.get(key)
        if found is not None:
            self._found.move_to_end(key)
        return found

    def put(self, key: Hashable, content: bytes) -> None:
        """Keep ``content``, unless it alone is a good part of all that may be kept."""
        if len(content) > self._most // 8:
            return
        self._size += len(content) - len(self._found.pop(key, b""))
        self._found[key] = content
        while self._size > self._most:
            self._size -= len(self._found.popitem(last=False)[1])


class UntilCommitted(Generic[T]):
    """What was read from the database by what it was asked, until anybody commits anything; ``most`` of them.

    ``commits`` tells by its number that somebody has. Without it nothing is kept. What is put was read after the last
    ``get``, so it is no older than the number that it is kept under.
    """

    def __init__(self, commits: Callable[[], int] | None, most: int) -> None:
        self._commits = commits
        self._most = most
        self._number: int | None = None
        self._found: dict[Hashable, T] = {}

    def get(self, key: Hashable) -> T | None:
        if self._commits is None:
            return None
        number = self._commits()
        if number != self._number:
            self._found.clear()
            self._number = number
        return self._found.get(key)

    def put(self, key: Hashable, found: T) -> None:
        if self._commits is not None:
            if len(self._found) >= self._most:
                self._found.clear()
            self._found[key] = found
