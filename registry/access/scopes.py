"""What a token allows: ``read``, ``publish:NAMESPACE`` or ``publish:*``, ``run``, ``admin``."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.names import LONGEST, WORD

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
