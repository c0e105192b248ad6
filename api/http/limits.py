"""How often somebody may ask: so many requests a second, and for a while twice as many."""

import time
from collections import OrderedDict
from typing import Any, Final

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from artifacts.errors import UnavailableError
from registry.access.actors import acting

_MOST_KNOWN: Final = 10_000
_BURST: Final = 2.0
"""Seconds whose requests may be made at once."""


class TooManyRequestsError(UnavailableError):
    """Somebody asks more often than they may."""

    code = "too-many-requests"


class Buckets:
    """A bucket for each who asks: full at first, and refilled at its rate. Those not seen for longest are forgotten."""

    def __init__(self) -> None:
        self._left: OrderedDict[tuple[str, float], tuple[float, float]] = OrderedDict()

    def take(self, who: str, rate: float, now: float) -> bool:
        """Take one request of somebody who may make ``rate`` a second; false where none is left."""
        key, most = (who, rate), max(rate * _BURST, 1.0)
        left, since = self._left.pop(key, (most, now))
        left = min(most, left + (now - since) * rate)
        taken = left >= 1
        self._left[key] = (left - taken, now)
        if len(self._left) > _MOST_KNOWN:
            self._left.popitem(last=False)
        return taken


def limit_with(usual: float) -> Any:  # noqa: ANN401 - Litestar's own type of a guard
    """A guard behind the one that knows who asks: ``usual`` requests a second, or fewer where a route says ``rate``.

    Each token has a share of its own at each address, and so has each address without one.
    """
    buckets = Buckets()

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> None:
        rate = min(usual, float(route.opt.get("rate", usual)))
        who = f"{acting().id} {connection.client.host if connection.client else ''}"
        if not buckets.take(who, rate, time.monotonic()):
            raise TooManyRequestsError(f"more than {rate:g} requests a second", next_step="wait a second, then go on")

    return guard
