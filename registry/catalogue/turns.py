"""Threads that want the same thing one after the other, in the order in which they ask."""

import threading
from collections import deque
from threading import get_ident


class Turn:
    """A lock that is handed over: whoever leaves gives it to the thread that has waited longest, and wakes that one.

    With ``threading.Lock`` a thread that leaves and asks again may be faster than the one that is woken.
    """

    def __init__(self) -> None:
        self._own = threading.Lock()
        self._holder: int | None = None
        self._waiting: deque[tuple[int, threading.Lock]] = deque()

    def take(self, seconds: float) -> bool:
        """Wait for the turn; false where it did not come in time."""
        me, woken = get_ident(), threading.Lock()
        with self._own:
            # One who has it and asks again was interrupted between taking it and the block that leaves it.
            if self._holder in (None, me):
                self._holder = me
                return True
            woken.acquire()
            self._waiting.append((me, woken))
        try:
            if woken.acquire(timeout=seconds):
                return True
        except BaseException:  # a signal: nobody may hand it to one who does not wait any more
            if self._withdraws(me, woken):
                self.leave()
            raise
        return self._withdraws(me, woken)

    def _withdraws(self, me: int, woken: threading.Lock) -> bool:
        """Wait no longer; true where the turn came just now."""
        with self._own:
            if self._holder == me:
                return True
            self._waiting.remove((me, woken))
            return False

    def leave(self) -> None:
        """Hand it over."""
        with self._own:
            self._holder = None
            if self._waiting:
                self._holder, woken = self._waiting.popleft()
                woken.release()
