"""How often somebody may ask: so many requests a second, and for a while twice as many."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Interface, ip_address
from typing import Any, Final

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from benchlock.artifacts.errors import UnavailableError
from benchlock.registry.access.actors import acting
from benchlock.registry.access.errors import UnauthorizedError

_MOST_KNOWN: Final = 10_000
_ONE_MACHINE: Final = 64
"""Bits of an IPv6 address that say which network it is; a machine may take any address of it."""
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
        left = self._level(who, rate, now)
        taken = left >= 1
        self._left.pop((who, rate), None)
        self._left[who, rate] = (left - taken, now)
        if len(self._left) > _MOST_KNOWN:
            self._left.popitem(last=False)
        return taken

    def is_left(self, who: str, rate: float, now: float) -> bool:
        """Whether ``take`` would be true."""
        return self._level(who, rate, now) >= 1

    def _level(self, who: str, rate: float, now: float) -> float:
        most = max(rate * _BURST, 1.0)
        left, since = self._left.get((who, rate), (most, now))
        return min(most, left + (now - since) * rate)


class Strangers:
    """How often an address may come without a token that is valid: looking tokens up keeps the database busy.

    Who was let in lately is asked in again, whoever else comes from there: many may come through one proxy.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._buckets = Buckets()
        self._let_in: OrderedDict[bytes, None] = OrderedDict()

    @contextmanager
    def asking(self, address: str, authorization: str | None) -> Iterator[None]:
        """While held, it is looked up who sends ``authorization``.

        Raises:
            TooManyRequestsError: too many of that address were nobody; nothing is looked up.
        """
        said = hashlib.sha256((authorization or "").encode()).digest()
        if said not in self._let_in and not self._buckets.is_left(address, self._rate, time.monotonic()):
            raise TooManyRequestsError(
                f"more than {self._rate:g} requests a second without a valid token",
                next_step="wait a second, then ask with a token that is valid",
            )
        try:
            yield
        except UnauthorizedError:
            self._buckets.take(address, self._rate, time.monotonic())
            self._let_in.pop(said, None)
            raise
        self._let_in[said] = None
        self._let_in.move_to_end(said)
        if len(self._let_in) > _MOST_KNOWN:
            self._let_in.popitem(last=False)


def address_of(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """Where somebody asks from, as far as that is known: an address in its plain form, whatever it came in."""
    host = connection.client.host if connection.client else ""
    return _plain(host) if ":" in host else host


def network_of(address: str) -> str:
    """What one machine may have of addresses: of IPv6 a whole network."""
    return _network(address) if ":" in address else address


@lru_cache(_MOST_KNOWN)
def _plain(host: str) -> str:
    """An IPv4 address that came as one of IPv6 is itself; proxies write ports behind an address, and brackets."""
    text = host[1:].partition("]")[0] if host.startswith("[") else host
    if text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return host
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)


@lru_cache(_MOST_KNOWN)
def _network(address: str) -> str:
    """Addresses with a scope are of machines on the same link, each of one's own."""
    if "%" in address:
        return address
    try:
        return str(IPv6Interface(f"{address}/{_ONE_MACHINE}").network)
    except ValueError:  # a proxy may say anything
        return address


def limit_with(usual: float) -> Any:  # noqa: ANN401 - Litestar's own type of a guard
    """A guard behind the one that knows who asks: ``usual`` requests a second, or fewer where a route says ``rate``.

    Each token has a share of its own at each address, and so has each address without one.
    """
    buckets = Buckets()

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> None:
        rate = min(usual, float(route.opt.get("rate", usual)))
        who = f"{acting().id} {address_of(connection)}"
        if not buckets.take(who, rate, time.monotonic()):
            raise TooManyRequestsError(f"more than {rate:g} requests a second", next_step="wait a second, then go on")

    return guard
