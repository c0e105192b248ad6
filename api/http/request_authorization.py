"""Authentication and authorization of requests by the scope that each route declares.

The service does not start if a route lacks ``opt={"needs": …}``. Code below the routes checks the scope of a change
again, since it knows the current actor.
"""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.datastructures import Headers
from litestar.handlers import BaseRouteHandler
from litestar.routes import HTTPRoute

from benchlock.api.http.admission_control import AnonymousLimiter, client_address, client_network
from benchlock.api.http.thread_pools import FairThreadPool
from benchlock.api.service_log import REQUEST_ID, log
from benchlock.artifacts.errors import BusyError, UnavailableError
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
    """An authenticator of requests."""

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

    def check(self, headers: Headers) -> None:
        """Require that no web page of another host sent these headers, if the service is local.

        Raises:
            ForbiddenError: A web page of another host sent them.
        """
        urls = [f"//{headers.get('host', '')}", *headers.getall("origin", [])]
        if self._local and not all(is_loopback(_host(url)) for url in urls):
            raise ForbiddenError(
                "this service accepts requests only from this machine; the request has another host or origin",
                next_step="use 127.0.0.1 or localhost as host, or start the service with tokens",
            )

    def known(self, authorization: str | None, request: str | None) -> Actor:  # noqa: ARG002 - tokens are ignored
        """Return the actor with all scopes of an open service."""
        return Actor(OPEN.id, OPEN.scopes, request)

    admit = known

    def forget(self) -> None:
        """Do nothing, since nothing is cached."""


def make_authorization_guard(authority: Authority, work: FairThreadPool, strangers: AnonymousLimiter) -> Any:  # noqa: ANN401 - Litestar's own type
    """Make the guard of all routes: it authenticates the caller, requires the route's scope, and sets the actor."""

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> None:
        if _answers_options(route):
            return
        need: Need = route.opt["needs"]
        if need == "public":
            return
        if isinstance(authority, OpenAuthority):
            authority.check(connection.headers)
        credentials = (connection.headers.get("authorization"), REQUEST_ID.get())
        actor = authority.known(*credentials)
        if actor is None:
            network = client_network(client_address(connection))
            with strangers.limit_lookup(network, credentials[0]):
                try:
                    with use_actor(
                        Actor(f"{ANONYMOUS.id} {network}", NOTHING, credentials[1])
                    ):  # each network has its share of the threads
                        actor = await work.look_up(authority.admit, *credentials)
                except UnavailableError as error:
                    raise _lookup_error(error) from error
                except UnauthorizedError as error:
                    if error.where is not None:  # a token of this registry that is not valid: logged as its own
                        act_as(Actor(error.where, NOTHING, credentials[1]))
                    raise
        act_as(actor)
        actor.require(need)

    return guard


def _lookup_error(error: UnavailableError) -> UnavailableError:
    """Return the error for a client whose token cannot be looked up, without details of the database."""
    if isinstance(error, BusyError):
        return error
    log.error(error.what, extra={"fields": {"code": error.code, "where": error.where}})
    return UnavailableError("the token cannot be verified now", next_step="the log of the service has the reason")


def chain_guards(*guards: Any) -> Any:  # noqa: ANN401 - Litestar's own type
    """Combine guards into one hook before each request; Litestar's own guards would each get a copy of the route."""

    async def all_of_them(request: Request[Any, Any, Any]) -> None:
        route = request.route_handler
        for guard in guards:
            await guard(request, route)

    return all_of_them


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
def is_loopback(host: str) -> bool:
    """Check whether ``host`` is reachable from this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@lru_cache(_HOSTS)
def _host(url: str) -> str:
    """Return the host of a URL, empty if the URL is invalid."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _answers_options(route: object) -> bool:
    """Check whether a route is Litestar's own OPTIONS route, which only lists methods."""
    return getattr(route, "http_methods", None) == {"OPTIONS"}
