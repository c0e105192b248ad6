"""How a page is asked for: a cursor, and how much at most."""

from typing import Annotated

from litestar.openapi.spec import Example
from litestar.params import Parameter

from api.http.settings import Settings

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
        examples=[Example(value=100)],
    ),
]


def bounded(limit: int | None, settings: Settings) -> int:
    """How many are given."""
    return settings.usual_page if limit is None else min(limit, settings.largest_page)
