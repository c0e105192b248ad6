"""What was refused, or failed: written down, so often and no more."""

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Engine

from registry.access.actors import Actor
from registry.access.log import Outcome, note_refusal
from registry.catalogue.database import writing


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
