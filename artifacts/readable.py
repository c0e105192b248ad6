"""Types that documents are read as, by several threads."""

from typing import TypeVar

import msgspec

T = TypeVar("T")


def readable(kind: type[T]) -> type[T]:
    """Lets msgspec look at the type now: two threads that let it do so first at the same time end the process."""
    msgspec.json.Decoder(kind)
    return kind
