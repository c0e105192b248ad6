"""Authentication and authorization of requests by the scope that each route declares.

A route without ``opt={"needs": …}`` does not start: what is not declared is not served. What a route changes, the rooms
below ask about too: they know who is acting.
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
"""Names of hosts, asked for with every request, of which it is remembered what they are."""


class Authority(Protocol):
    """Knows who asks."""

    def known(self, authorization: str | None, request: str | None) -> Actor | None:
        """Who sends this header, where that is known without asking anybody; it takes no time."""
        ...

    def admit(self, authorization: str | None, request: str | None) -> Actor:
        """Who sends this header, for the request of that id; it takes no longer than a look into an index.

        Raises:
            UnauthorizedError: nobody, or not any more.
        """
        ...

    def forget(self) -> None:
        """Take nobody for known: a token was revoked."""


class OpenAuthority:
    """The authority of a service that was started to serve anyone who reaches it: on this machine alone.

    Where it is ``local``, that is no page that a browser of this machine shows, whoever made it: those name the host
    that they come from, or, where its name was made to lead here, the one that they ask.
    """

    def __init__(self, *, local: bool = False) -> None:
        self._local = local

    def check(self, headers: Headers) -> None:
        """Nothing, where a program of this machine may have sent these headers.

        Raises:
            ForbiddenError: a page of another host did.
        """
        asked = [f"//{headers.get('host', '')}", *headers.getall("origin", [])]
        if self._local and not all(is_loopback(_host(one)) for one in asked):
            raise ForbiddenError(
                "this service is open to this machine alone, and a page of another host asks",
                next_step="ask for it as 127.0.0.1 or localhost, or serve it with tokens",
            )

    def known(self, authorization: str | None, request: str | None) -> Actor:  # noqa: ARG002 - nobody is asked for one
        return Actor(OPEN.id, OPEN.scopes, request)

    admit = known

    def forget(self) -> None:
        """There is nobody to forget."""


def make_authorization_guard(authority: Authority, work: FairThreadPool, strangers: AnonymousLimiter) -> Any:  # noqa: ANN401 - Litestar's own type
    """The guard of all routes: lets a request in whose sender has what its route needs at least, and acts as they."""

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> None:
        if _answers_options(route):
            return
        need: Need = route.opt["needs"]
        if need == "public":
            return
        if isinstance(authority, OpenAuthority):
            authority.check(connection.headers)
        asked = (connection.headers.get("authorization"), REQUEST_ID.get())
        actor = authority.known(*asked)
        if actor is None:
            network = client_network(client_address(connection))
            with strangers.asking(network, asked[0]):
                try:
                    with use_actor(Actor(f"{ANONYMOUS.id} {network}", NOTHING, asked[1])):  # each has its threads
                        actor = await work.look_up(authority.admit, *asked)
                except UnavailableError as error:
                    raise _lookup_error(error) from error
                except UnauthorizedError as error:
                    if error.where is not None:  # a token of this registry that is not valid: logged as its own
                        act_as(Actor(error.where, NOTHING, asked[1]))
                    raise
        act_as(actor)
        actor.require(need)

    return guard


def _lookup_error(error: UnavailableError) -> UnavailableError:
    """What a stranger hears where nobody can be looked up: not where the tokens are, nor as whom they are asked for."""
    if isinstance(error, BusyError):
        return error
    log.error(error.what, extra={"fields": {"code": error.code, "where": error.where}})
    return UnavailableError("who asks cannot be looked up now", next_step="the log of the service says why")


def chain_guards(*guards: Any) -> Any:  # noqa: ANN401 - Litestar's own type
    """The guards as what Litestar calls before a request is read: of guards it calls each with a copy of the route."""

    async def all_of_them(request: Request[Any, Any, Any]) -> None:
        route = request.route_handler
        for guard in guards:
            await guard(request, route)

    return all_of_them


def check_guarded(routes: Iterable[object], guard: object) -> None:
    """Nothing, where every route says what it needs, and ``guard`` is asked before anything of it is answered.

    Raises:
        ValueError: one does not, or is of a kind that no guard is asked for; that is a fault of ours, and nothing is
            served.
    """
    for route in routes:
        if not isinstance(route, HTTPRoute):
            raise ValueError(f"{route} is no route over HTTP, and so has no guard")  # noqa: TRY004 - no caller's type
        for one in route.route_handlers:
            declared, named = one.opt.get("needs"), f"{one.http_methods} {route.path}"
            if declared not in NEEDS and not _answers_options(one):
                raise ValueError(f"{named} needs {declared!r}, which is none of {NEEDS}")
            if one.resolve_before_request() is not guard or one.cache:  # what is cached, nobody is asked about
                raise ValueError(f"{named} has no guard: it does something else before a request, or is cached")


@lru_cache(_HOSTS)
def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens at ``host``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@lru_cache(_HOSTS)
def _host(url: str) -> str:
    """The host of a URL; of what is none, nothing."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _answers_options(route: object) -> bool:
    """Whether it is what Litestar adds to each path by itself: it says which methods there are, and nothing more."""
    return getattr(route, "http_methods", None) == {"OPTIONS"}
