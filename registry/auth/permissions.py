"""Permissions: the scopes of a token, the current actor, and the errors of denied access.

A process that opens the folder of a registry has every permission: the file system controls its access. A server
determines the actor of each request first.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, get_args

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.artifact_names import LONGEST, WORD


class UnauthorizedError(InvalidInputError):
    """A request without a valid token: the token is missing, malformed, unknown, expired or revoked."""

    code = "unauthorized"


class ForbiddenError(InvalidInputError):
    """An action that the scopes of the actor do not allow."""

    code = "forbidden"


class TokenRefusedError(UnauthorizedError):
    """A token of a long-lived process, such as a worker, that became invalid; the process ends."""

    code = "token-refused"


class MachineRefusedError(ForbiddenError):
    """A valid worker token that may not act for the worker's machine; the worker ends."""

    code = "machine-refused"


Need = Literal["public", "read", "upload", "publish", "run", "admin"]
"""The permission that a route requires. Every scope may read; publishers and runners may both ``upload`` blobs."""

NEEDS: Final = get_args(Need)
_PLAIN: Final = ("read", "run", "admin")
_PUBLISH: Final = "publish:"
_ANYWHERE: Final = f"{_PUBLISH}*"
_NAMESPACE: Final = re.compile(WORD)


@dataclass(frozen=True, slots=True)
class Scopes:
    """A set of scopes; an action is allowed if one of them allows it."""

    texts: frozenset[str]

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "Scopes":
        """Parse the texts of scopes.

        Raises:
            InvalidInputError: A text is not a scope, or there are no texts.
        """
        scopes = frozenset(_parse(text) for text in texts)
        if not scopes:
            raise InvalidInputError(
                "a token needs at least one scope", where="scope", next_step="add a scope, such as read"
            )
        return cls(scopes)

    def __str__(self) -> str:
        """Return the scopes sorted and separated by spaces."""
        return " ".join(sorted(self.texts))

    def allow(self, need: Need) -> bool:
        """Return whether the scopes suffice for a route. A route that publishes checks the name as well."""
        if need == "public" or "admin" in self.texts:
            return True
        may_publish = any(text.startswith(_PUBLISH) for text in self.texts)
        is_allowed = {
            "read": bool(self.texts),
            "publish": may_publish,
            "run": "run" in self.texts,
            "upload": may_publish or "run" in self.texts,
        }
        return is_allowed.get(need, False)


EVERYTHING: Final = Scopes(frozenset({"admin"}))
NOTHING: Final = Scopes(frozenset())


def _parse(text: str) -> str:
    namespace = text.removeprefix(_PUBLISH)
    is_publish = text.startswith(_PUBLISH) and len(namespace) <= LONGEST
    if text in (*_PLAIN, _ANYWHERE) or (is_publish and _NAMESPACE.fullmatch(namespace)):
        return text
    raise InvalidInputError(
        f"unknown scope {text[:LONGEST]!r}",
        where="scope",
        next_step="write read, run, admin, publish:NAMESPACE, or publish:* for every name",
    )


@dataclass(frozen=True, slots=True)
class Actor:
    """The user of an action: a token's id, or a word such as "embedded" without one; and the id of the HTTP request."""

    id: str
    scopes: Scopes
    request: str | None = None

    def require(self, need: Need) -> None:
        """Raise unless the actor has the scope ``need``.

        Raises:
            ForbiddenError: The actor does not have it.
        """
        if not self.scopes.allow(need):
            raise _forbidden(self, f"the scope {_SCOPES.get(need, need)} is required")

    def require_publishing(self, name: str) -> None:
        """Raise unless the actor may publish and yank versions of this name, by its namespace.

        Raises:
            ForbiddenError: The actor may not.
        """
        if not self.may_publish(name):
            raise _forbidden(self, f"{name} needs the scope {_publishing_scope(name)}", where=name)

    def may_publish(self, name: str) -> bool:
        """Return whether the actor may publish and yank versions of this name."""
        return not self.scopes.texts.isdisjoint({"admin", _ANYWHERE, _publishing_scope(name)})

    def owns(self, owner: str) -> bool:
        """Return whether the actor is ``owner`` or has the scope ``admin``."""
        return owner == self.id or self.scopes.allow("admin")

    def require_own(self, owner: str, what: str) -> None:
        """Raise unless the actor ``owns`` an object of ``owner``; ``what`` names the object in the error.

        Raises:
            ForbiddenError: The object belongs to another actor.
        """
        if not self.owns(owner):
            raise _forbidden(self, f"{what} belongs to another token", where=what)


EMBEDDED: Final = Actor("embedded", EVERYTHING)
"""The actor of a process that opened the registry's folder."""

OPEN: Final = Actor("open", EVERYTHING)
"""The actor of every request to a server that runs without tokens."""

SERVER: Final = Actor("server", EVERYTHING)
"""The actor of a server's own actions."""

ANONYMOUS: Final = Actor("anonymous", NOTHING)
"""The actor of a request without a token."""

_SCOPES: Final = {"publish": "publish:NAMESPACE", "upload": "publish:NAMESPACE or run"}
_acting: ContextVar[Actor] = ContextVar("acting", default=EMBEDDED)


def get_actor() -> Actor:
    """Return the actor of the current thread or task."""
    return _acting.get()


def act_as(actor: Actor) -> None:
    """Make ``actor`` the actor of the current task from now on."""
    _acting.set(actor)


@contextmanager
def use_actor(actor: Actor) -> Iterator[None]:
    """Make ``actor`` the actor of this thread or task while the context is open."""
    before = _acting.set(actor)
    try:
        yield
    finally:
        _acting.reset(before)


def _publishing_scope(name: str) -> str:
    namespace, slash, _ = name.partition("/")
    return f"{_PUBLISH}{namespace}" if slash else _ANYWHERE


def _forbidden(actor: Actor, what: str, where: str | None = None) -> ForbiddenError:
    has = f"; the token has {actor.scopes}" if actor.scopes.texts else ""
    return ForbiddenError(f"{what}{has}", where=where, next_step="use another token, or ask an administrator for one")


Outcome = Literal["done", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An action that was done, denied or failed; ``request`` is the id of the HTTP request, if any."""

    id: str
    at: datetime
    actor: str
    action: str
    target: str
    request: str | None
    outcome: Outcome
    reason: str
