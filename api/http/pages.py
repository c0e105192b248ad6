"""How a page is asked for: a cursor, and how much at most."""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import msgspec
from litestar.params import Parameter

from benchlock.api.http.documented import example
from benchlock.api.http.settings import Settings
from benchlock.artifacts.limits import PAGE

Item = TypeVar("Item", bound=msgspec.Struct)

Cursor = Annotated[
    str | None,
    Parameter(description="`next` of the page before; absent for the first.", required=False, max_length=1024),
]
Limit = Annotated[
    int | None,
    Parameter(
        description="How many at most; the server gives fewer where it has a smaller bound.",
        required=False,
        ge=1,
        le=1_000_000,
        examples=[example(100)],
    ),
]


def bounded(limit: int | None, settings: Settings) -> int:
    """How many are given."""
    return settings.usual_page if limit is None else min(limit, settings.largest_page)


def fit_page(
    items: Sequence[Item], most: int, cursor: Callable[[Item], str]
) -> tuple[tuple[Item, ...], str | msgspec.UnsetType]:
    """Return the items that one page takes, and the cursor of the rest.

    Args:
        items: What was found: one more than the page may have, where there are more.
        most: The largest number of items.
        cursor: Makes the cursor of what follows an item.

    Returns:
        As many items as fit into ``limits.PAGE`` bytes, at least one; and the cursor, unset where nothing follows.
    """
    shown = 0
    left = PAGE
    for item in items[:most]:
        left -= len(msgspec.json.encode(item))
        if left < 0 and shown:
            break
        shown += 1
    page = tuple(items[:shown])
    return page, cursor(page[-1]) if len(items) > shown else msgspec.UNSET
