"""From the ``Authorization`` of a request to who asks."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from benchlock.registry.access.actors import Actor
from benchlock.registry.access.errors import UnauthorizedError
from benchlock.registry.access.secret import Secret, parse_secret
from benchlock.registry.access.tokens import Token, Tokens

REMEMBERED: Final = timedelta(seconds=2)
"""How long a token that was looked up is taken for what it was; a revocation is known after that at the latest."""

_MOST_REMEMBERED: Final = 4096
_SCHEME: Final = "bearer"


class Gate:
    """Knows who asks, by their tokens."""

    def __init__(self, tokens: Tokens, clock: Callable[[], datetime]) -> None:
        self._tokens = tokens
        self._clock = clock
        self._remembered: dict[str, tuple[Token, datetime]] = {}

    def known(self, authorization: str | None, request: str | None = None) -> Actor | None:
        """Who sent this ``Authorization``, where it was looked up a moment ago, and nothing is asked again."""
        scheme, _, text = (authorization or "").partition(" ")
        if scheme.lower() != _SCHEME:
            return None
        found, looked_up = self._remembered.get(Secret(text.strip()).digest, (None, None))
        at = self._clock()
        if found is None or looked_up is None or at - looked_up > REMEMBERED or found.state(at) != "valid":
            return None
        return Actor(found.id, found.scopes, request)

    def admit(self, authorization: str | None, request: str | None = None) -> Actor:
        """Who sent this ``Authorization``, for the request of that id.

        Raises:
            UnauthorizedError: there is none, or no token that is valid.
        """
        if not authorization:
            raise UnauthorizedError(
                "this needs a token, and none was sent",
                next_step="set BENCHLOCK_TOKEN to one that `benchlock token create` printed; another client sends the "
                "header Authorization: Bearer TOKEN",
            )
        scheme, _, text = authorization.partition(" ")
        if scheme.lower() != _SCHEME:
            raise UnauthorizedError(
                "this needs a token, and something else was sent", next_step="send Authorization: Bearer TOKEN"
            )
        secret, at = parse_secret(text.strip()), self._clock()
        token = self._tokens.find(secret)
        state = "unknown" if token is None else token.state(at)
        if token is None or state != "valid":
            rotated = token is not None and token.rotated_at is not None and state == "expired"
            raise UnauthorizedError(
                f"the token is {state}",
                where=None if token is None else token.id,
                next_step="ask an administrator for another one"
                + (", or use the secret of its last rotation" if rotated else ""),
            )
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[secret.digest] = (token, at)
        return Actor(token.id, token.scopes, request)

    def forget(self) -> None:
        """Look every token up again: one was revoked."""
        self._remembered.clear()
