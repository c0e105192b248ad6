"""Memory of answers on their way out: shared by all, and small for each client that is slow."""

from typing import Final

LEAST_PIECE: Final = 32 << 10
LARGEST_PIECE: Final = 1 << 20
PIECES_HELD: Final = 8
"""Pieces of one answer in memory: four in the queue of the server's core, one or two that it writes, one that waits for
the queue, one that is read ahead."""
_SLOW_SECONDS: Final = 0.25
"""A piece that waits longer for the client makes the next one smaller."""
_QUICK_PIECES: Final = 2
"""So many pieces in a row that did not wait make the next one larger."""


class SendMemory:
    """Bytes that answers on their way out may hold together.

    Args:
        size: Their number.
    """

    def __init__(self, size: int) -> None:
        self._size = self._left = size

    def take(self, size: int) -> bool:
        """Take ``size`` bytes; false where there are not so many left, unless nobody holds any."""
        if size > self._left and self._left < self._size:
            return False
        self._left -= size
        return True

    @property
    def left(self) -> int:
        """Bytes that nobody holds."""
        return self._left

    def give_back(self, size: int) -> None:
        """Give back ``size`` bytes that were taken."""
        self._left += size


class Window:
    """The size of the next piece: it doubles while the client takes pieces at once, and halves while it is slow.

    What ``PIECES_HELD`` pieces need beyond the smallest size is taken from ``memory`` until the window is closed, and
    never more than half of what is left: the next reader gets some too.
    """

    def __init__(self, memory: SendMemory) -> None:
        self.size = LEAST_PIECE
        self._memory = memory
        self._reserved = LEAST_PIECE
        self._quick = 0

    def adapt(self, seconds: float) -> None:
        """Account for a piece that the client took after ``seconds``."""
        if seconds > _SLOW_SECONDS:
            self.size, self._quick = max(LEAST_PIECE, self.size // 2), 0
            return
        self._quick += 1
        if self._quick >= _QUICK_PIECES and self._reserve(self.size * 2):
            self.size, self._quick = self.size * 2, 0

    def _reserve(self, size: int) -> bool:
        if size <= self._reserved:
            return True
        more = (size - self._reserved) * PIECES_HELD
        if size > LARGEST_PIECE or more > self._memory.left // 2 or not self._memory.take(more):
            return False
        self._reserved = size
        return True

    def close(self) -> None:
        """Give the memory back."""
        self._memory.give_back((self._reserved - LEAST_PIECE) * PIECES_HELD)
        self._reserved = self.size = LEAST_PIECE
