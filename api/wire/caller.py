"""Who asks, on the way."""

from msgspec import Struct


class Caller(Struct, frozen=True, kw_only=True):
    """Who asks: a token by its id, or a word where there is none; and what they may do."""

    id: str
    scopes: tuple[str, ...]
