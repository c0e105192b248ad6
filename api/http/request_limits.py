"""Limits that admit a request: rate, concurrency, free disk space and the schema revision."""

import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Interface, ip_address
from typing import Any, Final

from litestar import Request
from litestar.connection import ASGIConnection
from sqlalchemy import Engine

from benchlock.api.http.request_parsing import LONG_BODY
from benchlock.api.http.service_settings import ConcurrencyBound
from benchlock.api.http.slow_client_flow_control import LENGTH_HEADERS, announced_length
from benchlock.api.http.thread_pools import FairThreadPool
from benchlock.artifacts.errors import BusyError, SchemaRevisionError, UnavailableError
from benchlock.migrations import HEAD
from benchlock.registry.auth.permissions import UnauthorizedError, get_actor
from benchlock.registry.database.engine import (
    database_location,
    read_revision,
    read_transaction,
    require_revision,
)

_MAX_CLIENTS: Final = 10_000
_ONE_MACHINE: Final = 64
"""Bits of the network in an IPv6 address; a machine may use any address of its network."""
_BURST: Final = 2.0
"""Size of a bucket in seconds of its rate."""


class TooManyRequestsError(UnavailableError):
    """A client that exceeds its rate or concurrency limit."""

    code = "too-many-requests"


class TokenBuckets:
    """Token buckets, one per client: initially full, refilled at the client's rate, and evicted by least recent use."""

    def __init__(self) -> None:
        """Start without clients."""
        self._left: OrderedDict[tuple[str, float], tuple[float, float]] = OrderedDict()

    def take(self, who: str, rate: float, now: float, count: int = 1) -> bool:
        """Take tokens from a bucket; return false, and take nothing, if it has less than one.

        Args:
            who: The client.
            rate: Tokens a second that refill the bucket.
            now: The current time in seconds.
            count: How many tokens to take.
        """
        capacity = max(rate * _BURST, 1.0)
        left, since = self._left.pop((who, rate), (capacity, now))
        left = min(capacity, left + (now - since) * rate)
        has_token = left >= 1
        self._left[who, rate] = (left - count if has_token else left, now)
        if len(self._left) > _MAX_CLIENTS:
            self._left.popitem(last=False)
        return has_token


class AnonymousLimiter:
    """A limit per address for requests without a valid token, because looking tokens up keeps the database busy.

    Recently accepted tokens are always looked up, because many clients may share the address of a proxy.
    """

    def __init__(self, rate: float) -> None:
        """Allow ``rate`` failed lookups a second for each address."""
        self._rate = rate
        self._buckets = TokenBuckets()
        self._accepted: OrderedDict[bytes, None] = OrderedDict()

    @contextmanager
    def limit_lookup(self, address: str, authorization: str | None) -> Iterator[None]:
        """Count the lookup of ``authorization`` within the context as failed if it raises ``UnauthorizedError``.

        Raises:
            TooManyRequestsError: Too many lookups for that address failed.
        """
        digest = hashlib.sha256((authorization or "").encode()).digest()
        if digest not in self._accepted and not self._buckets.take(address, self._rate, time.monotonic(), 0):
            raise TooManyRequestsError(
                f"more than {self._rate:g} requests a second without a valid token",
                next_step="wait a second, then try again with a valid token",
            )
        try:
            yield
        except UnauthorizedError:
            self._buckets.take(address, self._rate, time.monotonic())
            self._accepted.pop(digest, None)
            raise
        self._accepted[digest] = None
        self._accepted.move_to_end(digest)
        if len(self._accepted) > _MAX_CLIENTS:
            self._accepted.popitem(last=False)


def client_address(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """Return the client's address in its canonical form, empty if it is unknown."""
    host = connection.client.host if connection.client else ""
    return _normalize_address(host) if ":" in host else host


def client_network(address: str) -> str:
    """Return the addresses that one machine may have: for IPv6 the whole network."""
    return _normalize_network(address) if ":" in address else address


@lru_cache(_MAX_CLIENTS)
def _normalize_address(host: str) -> str:
    """Remove the port and brackets that proxies write, and unwrap an IPv4-mapped IPv6 address."""
    text = host[1:].partition("]")[0] if host.startswith("[") else host
    if text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


@lru_cache(_MAX_CLIENTS)
def _normalize_network(address: str) -> str:
    """Return the network of an IPv6 address; an address with a scope stands for itself, as one machine on the link."""
    if "%" in address:
        return address
    try:
        return str(IPv6Interface(f"{address}/{_ONE_MACHINE}").network)
    except ValueError:  # a proxy may send anything
        return address


RELEASE_SLOTS: Final = ContextVar[Callable[[], None] | None]("LEAVE", default=None)
"""Releases the slots of the current request; called when its response is complete."""

WATCH: Final = {"at_once": "watch"}
WATCH_PAGE: Final = {"at_once": "page"}
WAIT: Final = {"at_once": "wait"}
IDLE: Final = {"at_once": "idle"}
READ_BLOB: Final = {"at_once": "read"}
SEND: Final = {"at_once": "send"}
ASK: Final = {"at_once": "ask"}
LIST: Final = {"at_once": "list"}
END: Final = {"at_once": "end"}
COMPARE: Final = {"at_once": "compare"}
BODY: Final = "body"
"""The category of requests with a body that is long or of unknown length, because it is kept in memory."""


class ConcurrencyLimiter:
    """Limits of concurrent requests by category, per client and for all clients together."""

    def __init__(self, bounds: Mapping[str, ConcurrencyBound]) -> None:
        """Use the bounds of each category."""
        self._bounds = bounds
        self._each: Counter[tuple[str, str]] = Counter()
        self._all: Counter[str] = Counter()

    def take(self, sorts: Sequence[str], who: str) -> Callable[[], None]:
        """Take a slot of each category for ``who``, or none; return the function that releases them.

        Raises:
            TooManyRequestsError: The client has all of its slots.
            BusyError: All slots are taken.
        """
        for sort in sorts:
            bound = self._bounds[sort]
            if self._each[sort, who] >= bound.each:
                raise TooManyRequestsError(
                    f"{bound.each} such requests are already in progress",
                    next_step="wait until one has finished, then try again",
                )
            if self._all[sort] >= bound.together:
                raise BusyError(
                    "the service has too many such requests in progress", next_step="try again in a few seconds"
                )
        for sort in sorts:
            self._each[sort, who] += 1
            self._all[sort] += 1

        def release() -> None:
            for sort in sorts:
                self._all[sort] -= 1
                self._each[sort, who] -= 1
                if not self._each[sort, who]:
                    del self._each[sort, who]

        return release


def has_long_body(request: Request[Any, Any, Any]) -> bool:
    """Check whether the route reads the body of the request into memory and the body is long."""
    if request.route_handler.resolve_request_max_body_size() is None:
        return False
    size = announced_length(request.scope)
    if size is not None:
        return size > LONG_BODY
    return any(name in LENGTH_HEADERS for name, _ in request.scope["headers"])


WHILE_FULL: Final = {"while_full": True}
"""The option of a changing route that works on a full disk: it frees space, or requires space itself."""
_SHARE_WHILE_RUNNING: Final = 0.5


def reserve_share() -> float:
    """Return the part of the disk reserve that the caller must not use: half of it if the caller may record runs.

    So a claimed run can be ended, and the other half stays for the database.
    """
    return _SHARE_WHILE_RUNNING if get_actor().scopes.allow("run") else 1.0


ANY_SCHEMA: Final = "any_schema"
"""The option of a route that works with any revision."""


class SchemaWatch:
    """A check of the database's revision, at most every ``seconds``. Write transactions check it themselves."""

    def __init__(self, database: Engine, work: FairThreadPool, seconds: float) -> None:
        """Check the revision of ``database`` on the threads of ``work``."""
        self._database = database
        self._work = work
        self._seconds = seconds
        self._next = time.monotonic() + seconds
        self._error: SchemaRevisionError | None = None

    async def require_schema(self) -> None:
        """Check the revision, at most every ``seconds``.

        Raises:
            SchemaRevisionError: The revision differs.
        """
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._seconds
            with suppress(UnavailableError):  # the request itself reports that the database is unavailable
                self._error = await self._work.look_up(self._compare)
        if self._error is not None:
            raise self._error.with_traceback(None)

    def _compare(self) -> SchemaRevisionError | None:
        with read_transaction(self._database) as connection:
            revision = read_revision(connection)
        try:
            require_revision(revision, HEAD, database_location(self._database))
        except SchemaRevisionError as error:
            return error
        return None
