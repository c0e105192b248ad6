"""Refusals and failures in the audit log: written at first, then counted."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from sqlalchemy import Engine

from benchlock.registry.access.actors import Actor
from benchlock.registry.access.log import Outcome, note_refusal
from benchlock.registry.catalogue.database import writing

FIRST_SUMMARY: Final = timedelta(minutes=1)
"""The time from the first refusal of its kind to the line that counts those after it."""
NEXT_SUMMARY: Final = timedelta(hours=1)
"""The time between two such lines. A refusal that has not occurred for so long counts as a first one again."""
_MOST_KINDS: Final = 4096


@dataclass(frozen=True, slots=True)
class Repeated:
    """A refusal that occurs again and again; ``count`` are the occurrences that no line has told of yet."""

    actor: Actor
    action: str
    target: str
    reason: str
    written_at: datetime
    pause: timedelta = FIRST_SUMMARY
    count: int = 0

    @property
    def summary(self) -> str:
        """The reason, and how often it occurred since the last line."""
        return f"{self.reason} ({self.count} more since {self.written_at:%H:%M:%S} UTC)"


class Repeats:
    """Counts refusals of one kind: of the same actor, from the same address, for the same reason.

    It works in memory alone, is bounded, and may be used by several threads.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._kinds: OrderedDict[tuple[str, str, str], Repeated] = OrderedDict()
        self._mutex = Lock()

    def is_first(self, actor: Actor, action: str, target: str, reason: str, *, source: str = "") -> bool:
        """Count a refusal; false where one of its kind was written lately."""
        at, key = self._clock(), (actor.id, source, reason)
        with self._mutex:
            known = self._kinds.pop(key, None)
            is_first = known is None or (not known.count and at - known.written_at > NEXT_SUMMARY)
            if is_first:
                self._kinds[key] = Repeated(actor, action, target, reason, at)
            elif known is not None:
                self._kinds[key] = replace(known, action=action, target=target, count=known.count + 1)
            while len(self._kinds) > _MOST_KINDS:
                self._kinds.popitem(last=False)
            return is_first

    def summaries(self, *, at_once: bool = False) -> tuple[Repeated, ...]:
        """Return what is to be summarised now, and begin to count it anew; ``at_once``: all that was counted."""
        at, found = self._clock(), []
        with self._mutex:
            for key, one in list(self._kinds.items()):
                if one.count and (at_once or at - one.written_at >= one.pause):
                    found.append(one)
                    self._kinds[key] = replace(one, written_at=at, pause=NEXT_SUMMARY, count=0)
                elif not one.count and at - one.written_at > NEXT_SUMMARY:
                    del self._kinds[key]
        return tuple(found)


class Refusals:
    """Writes down what was refused: so many times a minute for each who asks, and then how often more.

    A row waits for the disk. Without a bound, whoever has no token could keep it busy.
    """

    MOST = 30

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock
        self._counted: dict[str, tuple[datetime, int]] = {}
        self._unsaid: dict[str, int] = {}
        self.repeats = Repeats(clock)

    def note(self, actor: Actor, action: str, target: str, outcome: Outcome, reason: str) -> bool:
        """Write it down; false where it is only counted."""
        at = self._clock()
        minute = at.replace(second=0, microsecond=0)
        since, count = self._counted.get(actor.id, (minute, 0))
        count = 0 if since != minute else count
        if count >= self.MOST:
            self._unsaid[actor.id] = self._unsaid.get(actor.id, 0) + 1
            return False
        self._counted[actor.id] = (minute, count + 1)
        more = self._unsaid.pop(actor.id, 0)
        said = f"{reason} ({more} more before were not written down)" if more else reason
        with writing(self._engine) as connection:
            note_refusal(connection, actor, action, target, at, outcome, said)
        return True

    def summarise(self, *, at_once: bool = False) -> tuple[Repeated, ...]:
        """Write a line for each refusal that repeated itself, and return them."""
        found = self.repeats.summaries(at_once=at_once)
        if found:
            with writing(self._engine) as connection:
                for one in found:
                    note_refusal(connection, one.actor, one.action, one.target, self._clock(), "refused", one.summary)
        return found
