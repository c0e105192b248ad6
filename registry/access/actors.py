"""Who is doing something, for as long as they do it: what the log names, and what may be refused to them.

Whoever opens a registry's folder may do everything in it: the file system let them in. A server says who asks before
it does anything for them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from benchlock.registry.access.errors import ForbiddenError
from benchlock.registry.access.scopes import EVERYTHING, NOTHING, Need, Scopes


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


def acting() -> Actor:
    """Who is doing what is done here and now."""
    return _acting.get()


def act_as(actor: Actor) -> None:
    """From here on, to the end of this task, ``actor`` does what is done in it."""
    _acting.set(actor)


@contextmanager
def acting_as(actor: Actor) -> Iterator[None]:
    """While held, ``actor`` does what is done in this thread or task."""
    before = _acting.set(actor)
    try:
        yield
    finally:
        _acting.reset(before)


def _forbidden(actor: Actor, what: str, where: str | None = None) -> ForbiddenError:
    has = f", and the token has {actor.scopes}" if actor.scopes.texts else ""
    return ForbiddenError(f"{what}{has}", where=where, next_step="use another token, or ask an administrator for one")
