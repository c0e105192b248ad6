"""Tokens: creation, listing, rotation and revocation, and authentication of requests by their token."""

import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Engine, Row, ScalarSelect, func, select

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError, RefusedError, UnknownNameError
from benchlock.artifacts.size_limits import SCOPES, check_text
from benchlock.registry.artifact_names import WORD
from benchlock.registry.auth.audit_log import record_action
from benchlock.registry.auth.permissions import Actor, Scopes, UnauthorizedError, get_actor
from benchlock.registry.auth.token_format import (
    DEFAULT_LIFETIME_DAYS,
    Secret,
    Token,
    TokenId,
    new_secret,
    parse_secret,
)
from benchlock.registry.database.column_types import begins_with
from benchlock.registry.database.commit_signals import JOBS, send_signal
from benchlock.registry.database.engine import read_transaction, write_transaction
from benchlock.registry.database.ids_and_timestamps import is_id, new_id
from benchlock.registry.database.record_chain import check_records, digest_record, insert_record, record_kind
from benchlock.registry.database.registry_schema import token_revocations, token_rotations, tokens

DEFAULT_LIFETIME: Final = timedelta(days=DEFAULT_LIFETIME_DAYS)
LONGEST_LIFETIME: Final = timedelta(days=365)
DEFAULT_GRACE: Final = timedelta(hours=1)
LONGEST_GRACE: Final = timedelta(days=7)

_TABLES: Final = {tokens: "id", token_revocations: "token", token_rotations: "token"}
_PREFIX: Final = "token/"
_NAME: Final = re.compile(WORD)
_LONGEST_NAME: Final = 64
_LIFETIME: Final = re.compile(r"([1-9][0-9]{0,5})([dhm])")
_UNITS: Final = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}


class Tokens:
    """The tokens of a registry.

    Args:
        engine: The database.
        clock: Returns the current time with its time zone.
    """

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        """Open the tokens in the database ``engine``."""
        self._engine = engine
        self._clock = clock

    def create(self, name: str, scopes: Scopes, lifetime: timedelta = DEFAULT_LIFETIME) -> tuple[Token, Secret]:
        """Create a token and return it with its text, which is not available later.

        Args:
            name: A name for people, such as the owner's.
            scopes: The permissions of the token.
            lifetime: How long the token is valid.

        Raises:
            InvalidInputError: The name is invalid, or the lifetime is not between a minute and a year.
        """
        _check_name(name)
        _check_lifetime(lifetime)
        check_text(str(scopes), SCOPES, "scopes")
        secret = new_secret()
        with write_transaction(self._engine) as connection:
            at = self._clock()
            id_ = TokenId(_PREFIX + new_id(at))
            token = Token(id_, name, scopes, get_actor().id, at, at + lifetime, None)
            insert_record(connection, tokens, _row(token, secret))
            record_action(connection, "token.create", f"{token.id} {name}: {scopes}", at)
        return token, secret

    def list(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> tuple[Token, ...]:
        """Return tokens of every state, oldest first.

        Args:
            prefix: Only tokens whose ids begin with this.
            after: Only tokens after this id.
            limit: The maximum number of tokens.
        """
        conditions = [begins_with(tokens.c.id, prefix or _PREFIX), *([] if after is None else [tokens.c.id > after])]
        with read_transaction(self._engine) as connection:
            return _tokens(connection, *conditions, limit=limit)

    def revoke(self, token: TokenId) -> bool:
        """Revoke a token; return ``False`` if it is revoked already.

        Raises:
            UnknownNameError: No token has this id.
        """
        with write_transaction(self._engine) as connection:
            current = _load(connection, token)
            if current.revoked_at is not None:
                return False
            at = self._clock()
            insert_record(connection, token_revocations, {"token": token, "at": at})
            send_signal(connection, JOBS)  # a worker that waits with this token is told at once
            record_action(connection, "token.revoke", f"{token} {current.name}", at)
        return True

    def rotate(
        self, token: TokenId, lifetime: timedelta = DEFAULT_LIFETIME, grace: timedelta = DEFAULT_GRACE
    ) -> tuple[Token, Secret]:
        """Give a token a new secret; its id, scopes, machines, jobs and runs stay the same.

        Args:
            token: The id of the token.
            lifetime: How long the token is valid from now on, with the new secret.
            grace: How long the current secret stays valid, at most until its own expiry.

        Returns:
            The token and its new secret, which is not available later.

        Raises:
            InvalidInputError: The lifetime or the grace period is out of range.
            UnknownNameError: No token has this id.
            RefusedError: The token is revoked or expired.
        """
        _check_lifetime(lifetime)
        _check_grace(grace)
        secret = new_secret()
        with write_transaction(self._engine) as connection:
            at = self._clock()
            current = _load(connection, token)
            state = current.state(at)
            if state != "valid":
                raise RefusedError(
                    f"{token} is {state} and cannot be rotated",
                    where=token,
                    next_step="create another token",
                )
            row = {
                "token": token,
                "number": _count_rotations(connection, token) + 1,
                "digest": secret.digest,
                "at": at,
                "grace_until": min(at + grace, current.expires_at),
                "expires_at": at + lifetime,
            }
            insert_record(connection, token_rotations, row)
            record_action(connection, "token.rotate", f"{token} {current.name}", at)
            return _load(connection, token), secret

    def find(self, secret: Secret) -> Token | None:
        """Return the token with this secret, valid or not, with the expiry of the secret, or ``None``."""
        with read_transaction(self._engine) as connection:
            for table, id_ in ((tokens, tokens.c.id), (token_rotations, token_rotations.c.token)):
                query = select(id_.label("id"), table.c.digest).where(table.c.digest == secret.digest)
                row = connection.execute(query).first()
                # The index matched a digest, which a client cannot choose; the comparison takes constant time.
                if row is not None and hmac.compare_digest(str(row.digest), secret.digest):
                    token = _load(connection, TokenId(row.id))
                    return replace(token, expires_at=_end_of(connection, token, secret))
            return None


def parse_token_id(text: str) -> TokenId:
    """Parse the id of a token.

    Raises:
        InvalidInputError: The text is not an id.
    """
    if not text.startswith(_PREFIX) or not is_id(text.removeprefix(_PREFIX)):
        raise InvalidInputError(
            "invalid token id", next_step="write token/ and its 26 characters, as in the list of tokens"
        )  # the text may be the token itself, so the message must not contain it
    return TokenId(text)


def parse_lifetime(text: str) -> timedelta:
    """Parse a number of days, hours or minutes, such as ``30d``.

    Raises:
        InvalidInputError: The text has another form.
    """
    match = _LIFETIME.fullmatch(text)
    if match is None:
        raise InvalidInputError(
            f"invalid lifetime {text[:40]!r}", where="expires", next_step="write a number and d, h or m, such as 30d"
        )
    return int(match[1]) * _UNITS[match[2]]


def parse_grace(text: str) -> timedelta:
    """Parse a grace period: ``0``, or a number of days, hours or minutes, such as ``1h``.

    Raises:
        InvalidInputError: The text has another form.
    """
    try:
        return timedelta(0) if text == "0" else parse_lifetime(text)
    except InvalidInputError:
        raise InvalidInputError(
            f"invalid grace period {text[:40]!r}", where="grace", next_step="write 0, or a period such as 30m, 1h or 2d"
        ) from None


def expiry() -> ColumnElement[Any]:
    """Return the SQL expression of a token's expiry: that of its last rotation, if any."""
    return func.coalesce(_last_rotation("expires_at"), tokens.c.expires_at)


def _last_rotation(column: str) -> ScalarSelect[Any]:
    of_token = select(token_rotations.c[column]).where(token_rotations.c.token == tokens.c.id)
    return of_token.order_by(token_rotations.c.number.desc()).limit(1).correlate(tokens).scalar_subquery()


def _count_rotations(connection: Connection, token: TokenId) -> int:
    query = select(func.count()).select_from(token_rotations).where(token_rotations.c.token == token)
    return connection.execute(query).scalar_one()


def _end_of(connection: Connection, token: Token, secret: Secret) -> datetime:
    """Return the expiry of a secret: that of the token, or the end of the shortest grace period of later rotations."""
    rotations = select(token_rotations).where(token_rotations.c.token == token.id).order_by(token_rotations.c.number)
    end = token.expires_at
    for row in reversed(connection.execute(rotations).all()):
        if row.digest == secret.digest:
            break
        end = min(end, row.grace_until)
    return end


def _check_name(name: str) -> None:
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise InvalidInputError(
            "invalid token name",  # without the name: it may be a token by mistake
            where="name",
            next_step=f"write at most {_LONGEST_NAME} lower-case letters and digits, joined by single . _ or -",
        )


def _check_lifetime(lifetime: timedelta) -> None:
    if not timedelta(minutes=1) <= lifetime <= LONGEST_LIFETIME:
        raise InvalidInputError(
            f"the lifetime of a token must be from 1 minute to {LONGEST_LIFETIME.days} days",
            where="expires",
            next_step=f"write at most {LONGEST_LIFETIME.days}d, and rotate the token before it expires",
        )


def _check_grace(grace: timedelta) -> None:
    if not timedelta(0) <= grace <= LONGEST_GRACE:
        raise InvalidInputError(
            f"the grace period of a rotation is at most {LONGEST_GRACE.days} days",
            where="grace",
            next_step=f"write at most {LONGEST_GRACE.days}d",
        )


def _row(token: Token, secret: Secret) -> dict[str, Any]:
    names = ("id", "name", "created_by", "created_at", "expires_at")
    return {name: getattr(token, name) for name in names} | {"digest": secret.digest, "scopes": str(token.scopes)}


def _load(connection: Connection, token: TokenId) -> Token:
    matching = _tokens(connection, tokens.c.id == token)
    if not matching:
        raise UnknownNameError(f"unknown {token}", where=token, next_step="list the tokens")
    return matching[0]


def _tokens(connection: Connection, *conditions: ColumnElement[bool], limit: int | None = None) -> tuple[Token, ...]:
    joined = tokens.outerjoin(token_revocations, token_revocations.c.token == tokens.c.id)
    columns = (
        tokens,
        token_revocations.c.at.label("revoked_at"),
        expiry().label("ends_at"),
        _last_rotation("at").label("rotated_at"),
    )
    query = select(*columns).select_from(joined)
    rows = connection.execute(query.where(*conditions).order_by(tokens.c.id).limit(limit)).all()
    _check_tokens(connection, [row.id for row in rows])
    return tuple(_token(row) for row in rows)


def _check_tokens(connection: Connection, ids: Sequence[str]) -> None:
    """Require that tokens, with their revocations and rotations, agree with the chain of records."""
    for table, column in _TABLES.items():
        kind, digests = record_kind(table), dict[tuple[str, str], Digest]()
        for record in connection.execute(select(table).where(table.c[column].in_(ids))):
            row = record._asdict()
            digests[kind.name, kind.key(row)] = digest_record({kind.name: [row]})
        keys = {*ids, *(key for _, key in digests)}
        check_records(connection, (kind.name,), keys, digests)


def _token(row: Row[Any]) -> Token:
    return Token(
        id=TokenId(row.id),
        name=row.name,
        scopes=Scopes(frozenset(row.scopes.split())),
        created_by=row.created_by,
        created_at=row.created_at,
        expires_at=row.ends_at,
        revoked_at=row.revoked_at,
        rotated_at=row.rotated_at,
    )


CACHE_LIFETIME: Final = timedelta(seconds=2)
"""How long the result of a token lookup is cached; a revocation takes effect within this time."""

_MAX_CACHED: Final = 4096
_SCHEME: Final = "bearer"
UNAUTHENTICATED: Final = "a token is required"
"""What is wrong with a request without a token."""


class Authenticator:
    """Authentication of requests by bearer tokens, with a short cache."""

    def __init__(self, tokens: Tokens, clock: Callable[[], datetime]) -> None:
        """Create an authenticator with an empty cache."""
        self._tokens = tokens
        self._clock = clock
        self._cache: dict[str, tuple[Token, datetime]] = {}

    def known(self, authorization: str | None, request: str | None = None) -> Actor | None:
        """Return the actor of an ``Authorization`` header if its token is in the cache, without using the database."""
        scheme, _, text = (authorization or "").partition(" ")
        if scheme.lower() != _SCHEME:
            return None
        token, looked_up = self._cache.get(Secret(text.strip()).digest, (None, None))
        at = self._clock()
        if token is None or looked_up is None or at - looked_up > CACHE_LIFETIME or token.state(at) != "valid":
            return None
        return Actor(token.id, token.scopes, request)

    def admit(self, authorization: str | None, request: str | None = None) -> Actor:
        """Return the actor of an ``Authorization`` header.

        Args:
            authorization: The value of the header; ``None`` if it is missing.
            request: The id of the request, for the audit log.

        Raises:
            UnauthorizedError: The header is missing, or has no valid token.
        """
        if not authorization:
            raise UnauthorizedError(
                UNAUTHENTICATED,
                next_step="set BENCHLOCK_TOKEN to a token that the administrator created; other clients send the "
                "header Authorization: Bearer TOKEN",
            )
        scheme, _, text = authorization.partition(" ")
        if scheme.lower() != _SCHEME:
            raise UnauthorizedError(
                "the Authorization header does not contain a bearer token", next_step="send Authorization: Bearer TOKEN"
            )
        secret, at = parse_secret(text.strip()), self._clock()
        token = self._tokens.find(secret)
        state = "unknown" if token is None else token.state(at)
        if token is None or state != "valid":
            rotated = token is not None and token.rotated_at is not None and state == "expired"
            raise UnauthorizedError(
                f"the token is {state}",
                where=None if token is None else token.id,
                next_step="ask an administrator for a new one"
                + (", or use the secret from its last rotation" if rotated else ""),
            )
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[secret.digest] = (token, at)
        return Actor(token.id, token.scopes, request)

    def forget(self) -> None:
        """Empty the cache, after a token was revoked."""
        self._cache.clear()
