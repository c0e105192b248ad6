"""Admission guards: rate and concurrency limits, free disk space and the schema revision."""

import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Interface, ip_address
from typing import Any, Final, cast

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.types import HTTPScope
from sqlalchemy import Engine

from benchlock.api.http.request_parsing import LONG_BODY
from benchlock.api.http.service_settings import ConcurrencyBound
from benchlock.api.http.slow_clients import LENGTH_HEADERS, METHODS_WITH_BODY, announced_length
from benchlock.api.http.thread_pools import FairThreadPool
from benchlock.artifacts.errors import BusyError, UnavailableError
from benchlock.artifacts.uploads.disk_quotas import DiskReserve
from benchlock.migrations import HEAD, find_revision
from benchlock.registry.auth.permissions import UnauthorizedError, get_actor
from benchlock.registry.database.engine import (
    SchemaRevisionError,
    database_location,
    read_transaction,
    require_revision,
)

_MOST_KNOWN: Final = 10_000
_ONE_MACHINE: Final = 64
"""Bits of an IPv6 address that say which network it is; a machine may take any address of it."""
_BURST: Final = 2.0
"""Seconds whose requests may be made at once."""


class TooManyRequestsError(UnavailableError):
    """Somebody asks more often than they may."""

    code = "too-many-requests"


class TokenBuckets:
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


class AnonymousLimiter:
    """How often an address may come without a token that is valid: looking tokens up keeps the database busy.

    Who was let in lately is asked in again, whoever else comes from there: many may come through one proxy.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._buckets = TokenBuckets()
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


def client_address(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """Where somebody asks from, as far as that is known: an address in its plain form, whatever it came in."""
    host = connection.client.host if connection.client else ""
    return _normalize_address(host) if ":" in host else host


def client_network(address: str) -> str:
    """What one machine may have of addresses: of IPv6 a whole network."""
    return _normalize_network(address) if ":" in address else address


@lru_cache(_MOST_KNOWN)
def _normalize_address(host: str) -> str:
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
def _normalize_network(address: str) -> str:
    """Addresses with a scope are of machines on the same link, each of one's own."""
    if "%" in address:
        return address
    try:
        return str(IPv6Interface(f"{address}/{_ONE_MACHINE}").network)
    except ValueError:  # a proxy may say anything
        return address


def make_rate_guard(usual: float) -> Any:  # noqa: ANN401 - Litestar's own type of a guard
    """A guard behind the one that knows who asks: ``usual`` requests a second, or fewer where a route says ``rate``.

    Each token has a share of its own at each address, and so has each address without one.
    """
    buckets = TokenBuckets()

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> None:
        rate = min(usual, float(route.opt.get("rate", usual)))
        who = f"{get_actor().id} {client_address(connection)}"
        if not buckets.take(who, rate, time.monotonic()):
            raise TooManyRequestsError(f"more than {rate:g} requests a second", next_step="wait a second, then go on")

    return guard


RELEASE_SLOTS: Final = ContextVar[Callable[[], None] | None]("LEAVE", default=None)
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


class ConcurrencyLimiter:
    """Places of some sorts: so many for each who comes, and so many for all together."""

    def __init__(self, bounds: Mapping[str, ConcurrencyBound]) -> None:
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


def make_concurrency_guard(places: ConcurrencyLimiter) -> Any:  # noqa: ANN401 - Litestar's own type of a guard
    """A guard behind the one that knows who asks: a route that says ``at_once`` in its ``opt`` needs such a place.

    A long body needs another one, since it is kept in memory, and so does one of unknown length; uploads do not.
    """

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> None:
        if RELEASE_SLOTS.get() is not None:
            return
        who = f"{get_actor().id} {client_address(connection)}"
        sorts = [str(route.opt["at_once"])] if "at_once" in route.opt else []
        if _has_long_body(connection, route):
            sorts.append(_BODY)
        with ExitStack() as taken:
            for sort in sorts:
                taken.callback(places.take(sort, who))
            RELEASE_SLOTS.set(taken.pop_all().close)

    return guard


def _has_long_body(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> bool:
    """Return whether the request has a body for a route that reads it into memory, and that is long."""
    scope = cast("HTTPScope", connection.scope)
    if (
        scope["method"] not in METHODS_WITH_BODY
        or cast("HTTPRouteHandler", route).resolve_request_max_body_size() is None
    ):
        return False
    size = announced_length(scope)
    return size > LONG_BODY if size is not None else any(name in LENGTH_HEADERS for name, _ in scope["headers"])


WHILE_FULL: Final = {"while_full": True}
"""For a route that changes something and goes on while the disk is full: it frees space, or asks for it itself."""
_SHARE_WHILE_RUNNING: Final = 0.5
_ADDING: Final = frozenset(("POST", "PUT", "PATCH"))


def reserve_share() -> float:
    """Return the part of the reserve that the caller leaves alone: half of it where the caller may record runs.

    So a run that was claimed can be ended, and the other half stays for the database.
    """
    return _SHARE_WHILE_RUNNING if get_actor().scopes.allow("run") else 1.0


def make_disk_space_guard(reserve: DiskReserve) -> Any:  # noqa: ANN401 - Litestar's own type of a guard
    """A guard behind the one that knows who asks: what adds to the registry needs free space beside the reserve.

    That is every request that changes something, unless its route says ``WHILE_FULL``.
    """

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> None:
        may_read = route.opt.get("needs") in ("public", "read")
        method = cast("HTTPScope", connection.scope)["method"]
        if method in _ADDING and not may_read and not route.opt.get("while_full"):
            reserve.require(0, reserve_share())

    return guard


ANY_SCHEMA: Final = "any_schema"
"""The option of a route that answers whatever the revision."""


class SchemaWatch:
    """Compares the revision of the database at most every ``seconds``. Write transactions compare it themselves."""

    def __init__(self, database: Engine, work: FairThreadPool, seconds: float) -> None:
        self._database = database
        self._work = work
        self._seconds = seconds
        self._next = time.monotonic() + seconds
        self._error: SchemaRevisionError | None = None

    async def require_schema(self) -> None:
        """Compare the revision, at most every ``seconds``.

        Raises:
            SchemaRevisionError: The revision differs.
        """
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._seconds
            with suppress(UnavailableError):  # the request itself is told that the database cannot be used
                self._error = await self._work.look_up(self._compare)
        if self._error is not None:
            raise self._error.with_traceback(None)

    def _compare(self) -> SchemaRevisionError | None:
        with read_transaction(self._database) as connection:
            found = find_revision(connection)
        try:
            require_revision(found, HEAD, database_location(self._database))
        except SchemaRevisionError as error:
            return error
        return None


def make_schema_guard(watch: SchemaWatch) -> Any:  # noqa: ANN401 - Litestar's own type
    """Make the guard of all routes that refuses a request while the schema has another revision."""

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> None:
        del connection
        options: Mapping[str, Any] = route.opt
        if not options.get(ANY_SCHEMA):
            await watch.require_schema()

    return guard
