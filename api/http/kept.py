"""Encoded answers about what never changes, kept as far as a number of bytes allows."""

from collections import OrderedDict
from collections.abc import Hashable


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
