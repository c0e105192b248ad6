"""What was found before and still holds: bytes about what never changes, and what holds until anyone commits."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """What was found by a key that says all that it depends on; what was asked for longest ago goes first.

    Several threads may use it.
    """

    def __init__(self, most: int) -> None:
        """``most``: bytes of all that is kept."""
        self._most = most
        self._size = 0
        self._found: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._own = threading.Lock()

    def get(self, key: Hashable) -> T | None:
        with self._own:
            found = self._found.get(key)
            if found is None:
                return None
            self._found.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, found: T, size: int) -> None:
        """Keep ``found``, of ``size`` bytes with its key, unless it alone is a good part of all that may be kept."""
        if size > self._most // 8:
            return
        with self._own:
            _, before = self._found.pop(key, (None, 0))
            self._size += size - before
            self._found[key] = (found, size)
            while self._size > self._most:
                self._size -= self._found.popitem(last=False)[1][1]

    def clear(self) -> None:
        with self._own:
            self._found.clear()
            self._size = 0


class UntilCommitted(Generic[T]):
    """What was read from the database by what it was asked, until anybody commits anything.

    ``commits`` tells by its number that somebody has. Without it nothing is kept.
    """

    def __init__(self, commits: Callable[[], int] | None, most: int) -> None:
        """``most``: bytes of all that is kept."""
        self._commits = commits
        self._number = 0
        self._kept: Kept[T] = Kept(most)

    def get(self, key: Hashable) -> tuple[T | None, int]:
        """What is kept, and the number of commits to ``put`` under what is read instead."""
        if self._commits is None:
            return None, self._number
        number = self._commits()
        if number != self._number:
            self._kept.clear()
            self._number = number
        return self._kept.get(key), number

    def put(self, key: Hashable, found: T, size: int, number: int) -> None:
        """Keep what was read after ``get`` said ``number``, unless a commit was noticed since: it may be older."""
        if self._commits is not None and number == self._number:
            self._kept.put(key, found, size)
