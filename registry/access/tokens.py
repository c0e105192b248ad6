"""Tokens: made and shown once, listed, revoked, and found again by their digests."""

import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NewType

from sqlalchemy import ColumnElement, Connection, Engine, Row, insert, select

from artifacts.errors import InvalidInputError, UnknownNameError
from registry.access.actors import acting
from registry.access.log import note
from registry.access.scopes import Scopes
from registry.access.secret import Secret, new_secret
from registry.access.tables import token_revocations, tokens
from registry.catalogue.database import reading, writing
from registry.ids import is_id, new_id
from registry.names import WORD

TokenId = NewType("TokenId", str)
State = Literal["valid", "expired", "revoked"]

DEFAULT_LIFETIME: Final = timedelta(days=90)
LONGEST_LIFETIME: Final = timedelta(days=365)

_PREFIX: Final = "token/"
_NAME: Final = re.compile(WORD)
_LONGEST_NAME: Final = 64
_LIFETIME: Final = re.compile(r"([1-9][0-9]{0,5})([dhm])")
_UNITS: Final = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token: everything but its text."""

    id: TokenId
    name: str
    scopes: Scopes
    created_by: str
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None

    def state(self, at: datetime) -> State:
        """Whether it is of use at a time."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at <= at else "valid"


class Tokens:
    """The tokens of a registry. ``clock`` says the time in a time zone."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def create(self, name: str, scopes: Scopes, lifetime: timedelta = DEFAULT_LIFETIME) -> tuple[Token, Secret]:
        """A new token, and its text, which nobody can ask for again.

        Raises:
            InvalidInputError: the name is none, or the lifetime is not between a minute and a year.
        """
        _check_name(name)
        _check_lifetime(lifetime)
        secret = new_secret()
        with writing(self._engine) as connection:
            at = self._clock()
            id_ = TokenId(_PREFIX + new_id(at))
            made = Token(id_, name, scopes, acting().id, at, at + lifetime, None)
            connection.execute(insert(tokens), _row(made, secret))
            note(connection, "token.create", f"{made.id} {name}: {scopes}", at)
        return made, secret

    def list(self, *, after: str | None = None, limit: int | None = None) -> tuple[Token, ...]:
        """Every token that was ever made, oldest first: those after an id, and so many, where that is given."""
        with reading(self._engine) as connection:
            return _tokens(connection, *([] if after is None else [tokens.c.id > after]), limit=limit)

    def revoke(self, token: TokenId) -> bool:
        """End a token; false where it is revoked already.

        Raises:
            UnknownNameError: there is none with that id.
        """
        with writing(self._engine) as connection:
            found = _tokens(connection, tokens.c.id == token)
            if not found:
                raise UnknownNameError(
                    f"there is no {token}", where=token, next_step="`benchlock token list` lists what there is"
                )
            if found[0].revoked_at is not None:
                return False
            at = self._clock()
            connection.execute(insert(token_revocations), {"token": token, "at": at})
            note(connection, "token.revoke", f"{token} {found[0].name}", at)
        return True

    def find(self, secret: Secret) -> Token | None:
        """The token with that text, valid or not; none where there is none."""
        with reading(self._engine) as connection:
            query = select(tokens.c.id, tokens.c.digest).where(tokens.c.digest == secret.digest)
            row = connection.execute(query).first()
            # An index found it, by a digest that nobody can choose; what is compared again takes the same time always.
            if row is None or not hmac.compare_digest(str(row.digest), secret.digest):
                return None
            return _tokens(connection, tokens.c.id == row.id)[0]


def parse_token_id(text: str) -> TokenId:
    """The id of a token that ``text`` spells.

    Raises:
        InvalidInputError: it spells none.
    """
    if not text.startswith(_PREFIX) or not is_id(text.removeprefix(_PREFIX)):
        raise InvalidInputError(
            "that is the id of no token", next_step="write token/ and its 26 characters, as `token list` lists them"
        )  # what was written may be the token itself: it is not repeated
    return TokenId(text)


def parse_lifetime(text: str) -> timedelta:
    """The time that ``text`` spells: days, hours or minutes, as ``30d``.

    Raises:
        InvalidInputError: it spells none.
    """
    found = _LIFETIME.fullmatch(text)
    if found is None:
        raise InvalidInputError(
            f"{text[:40]!r} is no lifetime", where="expires", next_step="write a number and d, h or m, such as 30d"
        )
    return int(found[1]) * _UNITS[found[2]]


def _check_name(name: str) -> None:
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise InvalidInputError(
            "that is no name of a token",  # which may be a token, by mistake
            where="name",
            next_step=f"write at most {_LONGEST_NAME} lower-case letters and digits, joined by single . _ or -",
        )


def _check_lifetime(lifetime: timedelta) -> None:
    if not timedelta(minutes=1) <= lifetime <= LONGEST_LIFETIME:
        raise InvalidInputError(
            f"a token lives for a minute at least and {LONGEST_LIFETIME.days} days at most",
            where="expires",
            next_step=f"write at most {LONGEST_LIFETIME.days}d, and make another one before it ends",
        )


def _row(token: Token, secret: Secret) -> dict[str, Any]:
    names = ("id", "name", "created_by", "created_at", "expires_at")
    return {name: getattr(token, name) for name in names} | {"digest": secret.digest, "scopes": str(token.scopes)}


def _tokens(connection: Connection, *conditions: ColumnElement[bool], limit: int | None = None) -> tuple[Token, ...]:
    joined = tokens.outerjoin(token_revocations, token_revocations.c.token == tokens.c.id)
    query = select(tokens, token_revocations.c.at.label("revoked_at")).select_from(joined)
    return tuple(_token(row) for row in connection.execute(query.where(*conditions).order_by(tokens.c.id).limit(limit)))


def _token(row: Row[Any]) -> Token:
    scopes = Scopes(frozenset(row.scopes.split()))
    return Token(TokenId(row.id), row.name, scopes, row.created_by, row.created_at, row.expires_at, row.revoked_at)
