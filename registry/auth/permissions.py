"""Permissions: the scopes of a token, the current actor, and the errors of denied access.

Whoever opens a registry's folder may do everything in it: the file system let them in. A server says who asks before
it does anything for them.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Literal, get_args

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.names import LONGEST, WORD


class UnauthorizedError(InvalidInputError):
    """Nobody is known to be asking: there is no token, or one that is none, unknown, expired or revoked."""

    code = "unauthorized"


class ForbiddenError(InvalidInputError):
    """It is known who asks, and they may not."""

    code = "forbidden"


class TokenRefusedError(UnauthorizedError):
    """The token of a long-lived process, such as a worker, is not accepted any more: the process ends."""

    code = "token-refused"


class MachineRefusedError(ForbiddenError):
    """The token of a worker is valid, but may not speak for its machine: the worker ends."""

    code = "machine-refused"


Need = Literal["public", "read", "upload", "publish", "run", "admin"]
"""What a route asks for. Every scope may read; ``upload`` is what publishers and runners do alike: sending blobs."""

NEEDS: Final = get_args(Need)
_PLAIN: Final = ("read", "run", "admin")
_PUBLISH: Final = "publish:"
_ANYWHERE: Final = f"{_PUBLISH}*"
_NAMESPACE: Final = re.compile(WORD)


@dataclass(frozen=True, slots=True)
class Scopes:
    """A set of scopes, which allow what any of them allows."""

    texts: frozenset[str]

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "Scopes":
        """The scopes that ``texts`` spell.

        Raises:
            InvalidInputError: one is none, or there is none at all.
        """
        found = frozenset(_parse(text) for text in texts)
        if not found:
            raise InvalidInputError(
                "a token without a scope allows nothing", where="scope", next_step="give at least one scope"
            )
        return cls(found)

    def __str__(self) -> str:
        """As they are written, in order, with spaces between them."""
        return " ".join(sorted(self.texts))

    def allow(self, need: Need) -> bool:
        """Whether they are enough for a route that needs this. A route that publishes asks for the name too."""
        if need == "public" or "admin" in self.texts:
            return True
        publishes = any(text.startswith(_PUBLISH) for text in self.texts)
        enough = {
            "read": bool(self.texts),
            "publish": publishes,
            "run": "run" in self.texts,
            "upload": publishes or "run" in self.texts,
        }
        return enough.get(need, False)

    def allow_publishing(self, name: str) -> bool:
        """Whether versions of this name may be published and yanked: its namespace is theirs."""
        namespace, slash, _ = name.partition("/")
        own = {f"{_PUBLISH}{namespace}"} if slash else set[str]()
        return not self.texts.isdisjoint({"admin", _ANYWHERE} | own)


EVERYTHING: Final = Scopes(frozenset({"admin"}))
NOTHING: Final = Scopes(frozenset())


def _parse(text: str) -> str:
    namespace = text.removeprefix(_PUBLISH)
    is_publish = text.startswith(_PUBLISH) and len(namespace) <= LONGEST
    if text in (*_PLAIN, _ANYWHERE) or (is_publish and _NAMESPACE.fullmatch(namespace)):
        return text
    raise InvalidInputError(
        f"{text[:LONGEST]!r} is no scope",
        where="scope",
        next_step="write read, run, admin, publish:NAMESPACE, or publish:* for every name",
    )


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something: a token by its id, or a word where there is none; and for which request."""

    id: str
    scopes: Scopes
    request: str | None = None

    def require(self, need: Need) -> None:
        """Nothing, where they may do what needs this.

        Raises:
            ForbiddenError: they may not.
        """
        if not self.scopes.allow(need):
            raise _forbidden(self, f"this needs the scope {_SCOPES.get(need, need)}")

    def require_publishing(self, name: str) -> None:
        """Nothing, where they may publish and yank versions of this name.

        Raises:
            ForbiddenError: they may not.
        """
        if not self.scopes.allow_publishing(name):
            namespace, slash, _ = name.partition("/")
            raise _forbidden(self, f"{name} needs the scope publish:{namespace if slash else '*'}", where=name)

    def require_own(self, owner: str, what: str) -> None:
        """Nothing, where ``owner`` began what is now to be changed, or they may do everything.

        Raises:
            ForbiddenError: another did.
        """
        if owner != self.id and not self.scopes.allow("admin"):
            raise _forbidden(self, f"{what} belongs to another token", where=what)


EMBEDDED: Final = Actor("embedded", EVERYTHING)
"""Whoever opened the registry's folder."""

OPEN: Final = Actor("open", EVERYTHING)
"""Whoever reaches a server that was told to ask nobody for a token."""

SERVER: Final = Actor("server", EVERYTHING)
"""A server, of its own accord."""

ANONYMOUS: Final = Actor("anonymous", NOTHING)
"""Somebody without a token."""

_SCOPES: Final = {"publish": "publish:NAMESPACE", "upload": "publish:NAMESPACE or run"}
_acting: ContextVar[Actor] = ContextVar("acting", default=EMBEDDED)


def get_actor() -> Actor:
    """Who is doing what is done here and now."""
    return _acting.get()


def act_as(actor: Actor) -> None:
    """From here on, to the end of this task, ``actor`` does what is done in it."""
    _acting.set(actor)


@contextmanager
def use_actor(actor: Actor) -> Iterator[None]:
    """While held, ``actor`` does what is done in this thread or task."""
    before = _acting.set(actor)
    try:
        yield
    finally:
        _acting.reset(before)


def _forbidden(actor: Actor, what: str, where: str | None = None) -> ForbiddenError:
    has = f", and the token has {actor.scopes}" if actor.scopes.texts else ""
    return ForbiddenError(f"{what}{has}", where=where, next_step="use another token, or ask an administrator for one")
