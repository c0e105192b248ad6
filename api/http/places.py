"""How much somebody may have under way at once: what takes long holds a connection, and there are so many of them."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any, Final, cast

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.types import HTTPScope

from benchlock.api.http.asked import LONG_BODY
from benchlock.api.http.limits import TooManyRequestsError, address_of
from benchlock.api.http.patience import LENGTHS, WITH_BODY, announced
from benchlock.api.http.settings import Bound
from benchlock.artifacts.errors import BusyError
from benchlock.registry.access.actors import acting

LEAVE: Final = ContextVar[Callable[[], None] | None]("LEAVE", default=None)
"""Called when the answer to the request is over: what it held is free again."""

WATCH: Final = {"at_once": "watch"}
WAIT: Final = {"at_once": "wait"}
READ_BLOB: Final = {"at_once": "read"}
SEND: Final = {"at_once": "send"}
ASK: Final = {"at_once": "ask"}
LIST: Final = {"at_once": "list"}
END: Final = {"at_once": "end"}
COMPARE: Final = {"at_once": "compare"}
_BODY: Final = "body"


class Places:
    """Places of some sorts: so many for each who comes, and so many for all together."""

    def __init__(self, bounds: Mapping[str, Bound]) -> None:
        self._bounds = bounds
        self._each: Counter[tuple[str, str]] = Counter()
        self._all: Counter[str] = Counter()

    def take(self, sort: str, who: str) -> Callable[[], None]:
        """A place of that sort; what is returned gives it back.

        Raises:
            TooManyRequestsError: they have as many as they may.
            BusyError: all are taken.
        """
        bound, key = self._bounds[sort], (sort, who)
        if self._each[key] >= bound.each:
            raise TooManyRequestsError(
                f"{bound.each} such requests are under way already", next_step="wait until one is over, then ask again"
            )
        if self._all[sort] >= bound.together:
            raise BusyError("the service has too much of this under way", next_step="try again in a few seconds")
        self._each[key] += 1
        self._all[sort] += 1

        def leave() -> None:
            self._all[sort] -= 1
            self._each[key] -= 1
            if not self._each[key]:
                del self._each[key]

        return leave


def place_with(places: Places) -> Any:  # noqa: ANN401 - Litestar's own type of a guard
    """A guard behind the one that knows who asks: a route that says ``at_once`` in its ``opt`` needs such a place.

    A long body needs another one, since it is kept in memory, and so does one of unknown length; uploads do not.
    """

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> None:
        if LEAVE.get() is not None:
            return
        who = f"{acting().id} {address_of(connection)}"
        sorts = [str(route.opt["at_once"])] if "at_once" in route.opt else []
        if _has_long_body(connection, route):
            sorts.append(_BODY)
        with ExitStack() as taken:
            for sort in sorts:
                taken.callback(places.take(sort, who))
            LEAVE.set(taken.pop_all().close)

    return guard


def _has_long_body(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> bool:
    """Return whether the request has a body for a route that reads it into memory, and that is long."""
    scope = cast("HTTPScope", connection.scope)
    if scope["method"] not in WITH_BODY or cast("HTTPRouteHandler", route).resolve_request_max_body_size() is None:
        return False
    size = announced(scope)
    return size > LONG_BODY if size is not None else any(name in LENGTHS for name, _ in scope["headers"])
