"""Who may do what: every route says what it needs, and an authority says whether the caller has it.

A route without ``opt={"needs": …}`` does not start: what is not declared is not served.
"""

from collections.abc import Iterable
from contextvars import ContextVar
from ipaddress import ip_address
from typing import Any, Final, Literal, Protocol, get_args

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.routes import HTTPRoute

from artifacts.errors import InvalidInputError

Need = Literal["public", "read", "upload", "publish", "run", "admin"]
NEEDS: Final = frozenset(get_args(Need))
PUBLIC: Final = {"needs": "public"}
READ: Final = {"needs": "read"}
UPLOAD: Final = {"needs": "upload"}
PUBLISH: Final = {"needs": "publish"}
RUN: Final = {"needs": "run"}
ADMIN: Final = {"needs": "admin"}

BEARER: Final = "bearer "


class UnauthorizedError(InvalidInputError):
    """Nobody is known by what the request brought: no token, or one that is not valid."""

    code = "unauthorized"


class ForbiddenError(InvalidInputError):
    """The caller is known, and may not do this."""

    code = "forbidden"


class Caller(Protocol):
    """Somebody whom an authority knows. ``name`` is for logs, and no secret."""

    @property
    def name(self) -> str: ...

    def require(self, need: Need, target: str = "") -> None:
        """Nothing, where the caller may do this to ``target``: the name of an artifact, for ``publish``.

        Raises:
            ForbiddenError: not this one.
        """
        ...


class Authority(Protocol):
    """Knows callers by their tokens."""

    def caller(self, token: str | None) -> Caller:
        """Who brings ``token``; it takes no longer than a look into an index.

        Raises:
            UnauthorizedError: nobody, or not any more.
        """
        ...


class _Anyone:
    name = "anyone"

    def require(self, need: Need, target: str = "") -> None:
        """Everything is allowed."""


class Open:
    """The authority of a service that was started to serve anyone who reaches it: on this machine alone."""

    def caller(self, token: str | None) -> Caller:  # noqa: ARG002 - nobody is asked for one
        return _Anyone()


CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)
"""Who made the request that is being answered; None before that is known, and for what is public."""


def require(need: Need, target: str = "") -> None:
    """What a route asks of its caller beside what it declares: that this one thing may be done.

    Raises:
        ForbiddenError: it may not.
    """
    caller = CALLER.get()
    if caller is None:
        raise UnauthorizedError("this needs a token", next_step="send one: `Authorization: Bearer TOKEN`")
    caller.require(need, target)


def guard_with(authority: Authority) -> Any:  # noqa: ANN401 - Litestar's own type of a guard
    """The guard of all routes: lets a request in whose caller has what its route needs at least."""

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> None:
        need: Need = route.opt["needs"]
        if need == "public":
            return
        caller = authority.caller(_token(connection.headers.get("authorization")))
        caller.require(need)
        CALLER.set(caller)

    return guard


def check_needs(routes: Iterable[object]) -> None:
    """Nothing, where every route says what it needs.

    Raises:
        ValueError: one does not; that is a fault of ours, and nothing is served.
    """
    for route in routes:
        if isinstance(route, HTTPRoute):
            for one in route.route_handlers:
                declared = one.opt.get("needs")
                if declared not in NEEDS and not _answers_options(one):
                    raise ValueError(f"{one.http_methods} {route.path} needs {declared!r}, which is none of {NEEDS}")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens at ``host``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token(header: str | None) -> str | None:
    """What the header ``Authorization`` brings as a bearer."""
    if header is None or not header.lower().startswith(BEARER):
        return None
    return header[len(BEARER) :].strip()


def _answers_options(route: object) -> bool:
    """Whether it is what Litestar adds to each path by itself: it says which methods there are, and nothing more."""
    return getattr(route, "http_methods", None) == {"OPTIONS"}
