"""The check of every request: authentication, authorization by the scope that its route declares, and limits.

The service does not start if a route lacks ``opt={"needs": …}``. Code below the routes checks the scope of a change
again, since it knows the current actor.
"""

import time
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.datastructures import Headers
from litestar.routes import HTTPRoute

from benchlock.api.http.page_sessions import find_authorization
from benchlock.api.http.request_limits import (
    ANY_SCHEMA,
    BODY,
    RELEASE_SLOTS,
    AnonymousLimiter,
    ConcurrencyLimiter,
    SchemaWatch,
    TokenBuckets,
    TooManyRequestsError,
    client_address,
    client_network,
    has_long_body,
    reserve_share,
)
from benchlock.api.http.service_settings import Settings
from benchlock.api.http.slow_client_flow_control import METHODS_WITH_BODY
from benchlock.api.http.thread_pools import FairThreadPool
from benchlock.api.service_log import REQUEST_ID, log
from benchlock.artifacts.errors import BusyError, UnavailableError
from benchlock.artifacts.net.urls import is_loopback
from benchlock.artifacts.uploads.disk_quotas import DiskReserve
from benchlock.registry.auth.permissions import (
    ANONYMOUS,
    NEEDS,
    NOTHING,
    OPEN,
    Actor,
    ForbiddenError,
    Need,
    UnauthorizedError,
    act_as,
    get_actor,
    use_actor,
)

PUBLIC: Final = {"needs": "public"}
READ: Final = {"needs": "read"}
UPLOAD: Final = {"needs": "upload"}
PUBLISH: Final = {"needs": "publish"}
RUN: Final = {"needs": "run"}
ADMIN: Final = {"needs": "admin"}

_HOSTS: Final = 1024
"""The number of host names whose results are cached."""


class Authority(Protocol):
    """An authenticator of requests by their tokens."""

    def known(self, authorization: str | None, request: str | None) -> Actor | None:
        """Return the actor of an Authorization header if it is cached, else None; never blocks."""
        ...

    def admit(self, authorization: str | None, request: str | None) -> Actor:
        """Return the actor of an Authorization header for a request, with at most a lookup in an index.

        Raises:
            UnauthorizedError: The token is missing, invalid, expired or revoked.
        """
        ...

    def forget(self) -> None:
        """Clear the cache, because a token was revoked."""


class OpenAuthority:
    """The authority of a service without tokens, which accepts every client that reaches it.

    A ``local`` service rejects requests of web pages in a browser of this machine. Such a request names the page's host
    in Origin, or in Host if the page's own name resolves to this machine (DNS rebinding).
    """

    def __init__(self, *, local: bool = False) -> None:
        """Accept every client, but no web pages if ``local``."""
        self._local = local

    def accept(self, headers: Headers) -> Actor:
        """Return the actor with all scopes of an open service.

        Raises:
            ForbiddenError: The service is local, and a web page of another host sent these headers.
        """
        urls = [f"//{headers.get('host', '')}", *headers.getall("origin", [])]
        if self._local and not all(map(_is_local, urls)):
            raise ForbiddenError(
                "this service accepts requests only from this machine; the request has another host or origin",
                next_step="use 127.0.0.1 or localhost as host, or start the service with tokens",
            )
        return Actor(OPEN.id, OPEN.scopes, REQUEST_ID.get())

    def forget(self) -> None:
        """Do nothing, since nothing is cached."""


async def authenticate(
    connection: ASGIConnection[Any, Any, Any, Any],
    authority: Authority | OpenAuthority,
    work: FairThreadPool,
    strangers: AnonymousLimiter,
) -> Actor:
    """Return the actor of a request.

    Args:
        connection: The request.
        authority: The authenticator.
        work: Threads that look tokens up; each network has its share of them.
        strangers: The limit of failed lookups.

    Raises:
        UnauthorizedError: The token is missing or invalid.
        ForbiddenError: A web page of another host sent the request.
        UnavailableError: The token cannot be looked up now.
    """
    if isinstance(authority, OpenAuthority):
        return authority.accept(connection.headers)
    credentials = (find_authorization(connection), REQUEST_ID.get())
    actor = authority.known(*credentials)
    if actor is not None:
        return actor
    network = client_network(client_address(connection))
    with strangers.limit_lookup(network, credentials[0]):
        try:
            with use_actor(Actor(f"{ANONYMOUS.id} {network}", NOTHING, credentials[1])):
                return await work.look_up(authority.admit, *credentials)
        except UnavailableError as error:
            raise _lookup_error(error) from error
        except UnauthorizedError as error:
            if error.where is not None:  # a token of this registry that is not valid: logged as its own
                act_as(Actor(error.where, NOTHING, credentials[1]))
            raise


def _lookup_error(error: UnavailableError) -> UnavailableError:
    """Return the error for a client whose token cannot be looked up, without details of the database."""
    if isinstance(error, BusyError):
        return error
    log.error(error.what, extra={"fields": {"code": error.code, "where": error.where}})
    return UnavailableError("the token cannot be verified now", next_step="the log of the service has the reason")


RequestCheck = Callable[[Request[Any, Any, Any]], Awaitable[None]]


def make_request_check(
    authority: Authority | OpenAuthority,
    settings: Settings,
    work: FairThreadPool,
    schema: SchemaWatch,
    reserve: DiskReserve,
) -> RequestCheck:
    """Make the function that checks each request before its handler, and sets the actor.

    It is one hook, because Litestar gives each guard of its own a copy of the route. A client is a token at an address,
    or an address without a token.

    Args:
        authority: The authenticator.
        settings: The limits.
        work: Threads that look tokens up.
        schema: Watches the schema revision.
        reserve: The reserve of the disk.
    """
    strangers, buckets, slots = (
        AnonymousLimiter(settings.strangers),
        TokenBuckets(),
        ConcurrencyLimiter(settings.at_once),
    )

    async def check_request(request: Request[Any, Any, Any]) -> None:
        """Check the schema, the caller, the rate, the concurrency and the disk space, in this order."""
        options = request.route_handler.opt
        need: Need = options.get("needs", "public")  # Litestar's own OPTIONS routes only list methods
        if not options.get(ANY_SCHEMA):
            await schema.require_schema()
        if need != "public":
            act_as(await authenticate(request, authority, work, strangers))
        actor = get_actor()
        actor.require(need)
        client, rate = f"{actor.id} {client_address(request)}", min(settings.rate, options.get("rate", settings.rate))
        if not buckets.take(client, rate, time.monotonic()):
            raise TooManyRequestsError(
                f"more than {rate:g} requests a second", next_step="wait a second, then try again"
            )
        is_changing = request.method in METHODS_WITH_BODY
        if RELEASE_SLOTS.get() is None:
            sorts = [options["at_once"]] if "at_once" in options else []
            if is_changing and has_long_body(request):
                sorts.append(BODY)
            RELEASE_SLOTS.set(slots.take(sorts, client) if sorts else None)
        if is_changing and need not in ("public", "read") and not options.get("while_full"):
            reserve.require(0, reserve_share())

    return check_request


def check_guarded(routes: Iterable[object], guard: object) -> None:
    """Require that every route declares its scope and calls ``guard`` before anything else.

    Raises:
        ValueError: A route does not, or is of a kind without guards. This is a programming error: nothing is served.
    """
    for route in routes:
        if not isinstance(route, HTTPRoute):
            raise ValueError(f"{route} is no route over HTTP, and so has no guard")  # noqa: TRY004 - not the type of an argument
        for handler in route.route_handlers:
            declared, place = handler.opt.get("needs"), f"{handler.http_methods} {route.path}"
            if declared not in NEEDS and not _answers_options(handler):
                raise ValueError(f"{place} needs {declared!r}, which is none of {NEEDS}")
            if handler.resolve_before_request() is not guard or handler.cache:  # a cached response bypasses the guard
                raise ValueError(f"{place} has no guard: it does something else before a request, or is cached")


@lru_cache(_HOSTS)
def _is_local(url: str) -> bool:
    """Return whether the host of a URL is this machine; an invalid URL is not."""
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def _answers_options(route: object) -> bool:
    """Check whether a route is Litestar's own OPTIONS route, which only lists methods."""
    return getattr(route, "http_methods", None) == {"OPTIONS"}
