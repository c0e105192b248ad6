"""From the ``Authorization`` of a request to who asks; and what was refused, written down."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Engine

from registry.access.actors import OPEN, Actor
from registry.access.errors import UnauthorizedError
from registry.access.log import Outcome, note_refusal
from registry.access.secret import parse_secret
from registry.access.tokens import Token, Tokens
from registry.catalogue.database import writing

REMEMBERED: Final = timedelta(seconds=2)
"""How long a token that was looked up is taken for what it was; a revocation is known after that at the latest."""

_MOST_REMEMBERED: Final = 4096
_SCHEME: Final = "bearer"


class Gate:
    """Knows who asks. With ``is_open``, whoever has no token may do everything."""

    def __init__(self, tokens: Tokens, clock: Callable[[], datetime], *, is_open: bool = False) -> None:
        self._tokens = tokens
        self._clock = clock
        self._is_open = is_open
        self._remembered: dict[str, tuple[Token, datetime]] = {}

    def admit(self, authorization: str | None, request: str | None = None) -> Actor:
        """Who sent this ``Authorization``, for the request of that id.

        Raises:
            UnauthorizedError: there is none, or no token that is valid.
        """
        if not authorization:
            if self._is_open:
                return Actor(OPEN.id, OPEN.scopes, request)
            raise UnauthorizedError(
                "this needs a token, and none was sent",
                next_step="set BENCHLOCK_TOKEN to one that `benchlock token create` printed",
            )
        scheme, _, text = authorization.partition(" ")
        if scheme.lower() != _SCHEME:
            raise UnauthorizedError(
                "this needs a token, and something else was sent", next_step="send Authorization: Bearer TOKEN"
            )
        token = self._find(text.strip())
        return Actor(token.id, token.scopes, request)

    def forget(self) -> None:
        """Look every token up again: one was revoked."""
        self._remembered.clear()

    def _find(self, text: str) -> Token:
        secret, at = parse_secret(text), self._clock()
        digest = secret.digest
        found, looked_up = self._remembered.get(digest, (None, at))
        if found is None or at - looked_up > REMEMBERED:
            found = self._tokens.find(secret)
            self._remembered.pop(digest, None)
        state = "unknown" if found is None else found.state(at)
        if found is None or state != "valid":
            raise UnauthorizedError(f"the token is {state}", next_step="ask an administrator for another one")
        if digest not in self._remembered:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[digest] = (found, at)
        return found


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
