"""The server's time, as a client knows it from the ``Date`` of its answers."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import Final

_TOLERANCE: Final = timedelta(seconds=2)
"""``Date`` has whole seconds: a smaller difference between the clocks is none that is known."""


class ServerClock:
    """Tells the server's time, so that records of a machine whose own clock is wrong have right times.

    Until an answer said the time, and where the clocks agree, it is the machine's own time.
    """

    def __init__(self, own: Callable[[], datetime] | None = None, elapsed: Callable[[], float] | None = None) -> None:
        self._own = own or _now
        self._elapsed = elapsed or _since_boot
        self._base: datetime | None = None
        self._turn = Lock()

    def note(self, date: str | None) -> None:
        """Take over the ``Date`` of an answer that arrived just now; what is no date is ignored."""
        try:
            said = parsedate_to_datetime(date or "")
        except ValueError:
            return
        if said.tzinfo is None:
            return
        base = said - timedelta(seconds=self._elapsed())
        with self._turn:  # whole seconds are never late: of values that agree, the latest is the most exact
            if self._base is None or not -_TOLERANCE < self._base - base < _TOLERANCE:
                self._base = base
            self._base = max(self._base, base)

    @property
    def is_set(self) -> bool:
        """Whether an answer said the time."""
        return self._base is not None

    def __call__(self) -> datetime:
        """Return the time."""
        own, base = self._own(), self._base
        if base is None:
            return own
        there = base + timedelta(seconds=self._elapsed())
        return own if -_TOLERANCE < own - there < _TOLERANCE else there


def _since_boot() -> float:
    """Seconds that no setting of a clock changes, and in which a suspended host's sleep counts."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _now() -> datetime:
    return datetime.now(UTC)
