"""The memory of responses that are being sent: bounded for all together, and small for a slow client."""

from typing import Final

MIN_CHUNK: Final = 32 << 10
MAX_CHUNK: Final = 1 << 20
CHUNKS_IN_MEMORY: Final = 8
"""Chunks of one response in memory: four in granian's queue, one or two that it writes, one that waits for the queue,
one that is read ahead."""
_SLOW_SECONDS: Final = 0.25
"""A chunk that waits longer for the client halves the window."""
_QUICK_CHUNKS: Final = 2
"""Number of chunks in a row without a wait that double the window."""


class SendMemory:
    """The memory that all responses may use together, ``size`` bytes."""

    def __init__(self, size: int) -> None:
        self._size = self._left = size

    def take(self, size: int) -> bool:
        """Take ``size`` bytes if they are free, or if no response has any; return whether they were taken."""
        if size > self._left and self._left < self._size:
            return False
        self._left -= size
        return True

    @property
    def left(self) -> int:
        """Return the free bytes."""
        return self._left

    def give_back(self, size: int) -> None:
        """Free ``size`` bytes that were taken."""
        self._left += size


class SendWindow:
    """The size of the next chunk: doubles while the client keeps up, and halves while it is slow.

    What ``CHUNKS_IN_MEMORY`` chunks need beyond the smallest size is taken from ``memory`` until the window is closed.
    A window takes at most half of what is free, so that the next reader gets some too.
    """

    def __init__(self, memory: SendMemory) -> None:
        self.size = MIN_CHUNK
        self._memory = memory
        self._reserved = MIN_CHUNK
        self._quick = 0

    def adapt(self, seconds: float) -> None:
        """Adapt the size to a chunk that the client took after ``seconds``."""
        if seconds > _SLOW_SECONDS:
            self.size, self._quick = max(MIN_CHUNK, self.size // 2), 0
            return
        self._quick += 1
        if self._quick >= _QUICK_CHUNKS and self._reserve(self.size * 2):
            self.size, self._quick = self.size * 2, 0

    def _reserve(self, size: int) -> bool:
        if size <= self._reserved:
            return True
        more = (size - self._reserved) * CHUNKS_IN_MEMORY
        if size > MAX_CHUNK or more > self._memory.left // 2 or not self._memory.take(more):
            return False
        self._reserved = size
        return True

    def close(self) -> None:
        """Free the memory."""
        self._memory.give_back((self._reserved - MIN_CHUNK) * CHUNKS_IN_MEMORY)
        self._reserved = self.size = MIN_CHUNK
