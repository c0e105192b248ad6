"""Free disk space of the service: who may use the reserve, and what is refused while nothing else is free."""

from typing import Any, Final, cast

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import HTTPScope

from benchlock.artifacts.space import DiskReserve
from benchlock.registry.access.actors import acting

WHILE_FULL: Final = {"while_full": True}
"""For a route that changes something and goes on while the disk is full: it frees space, or asks for it itself."""
_SHARE_WHILE_RUNNING: Final = 0.5
_ADDING: Final = frozenset(("POST", "PUT", "PATCH"))


def reserve_share() -> float:
    """Return the part of the reserve that the caller leaves alone: half of it where the caller may record runs.

    So a run that was claimed can be ended, and the other half stays for the database.
    """
    return _SHARE_WHILE_RUNNING if acting().scopes.allow("run") else 1.0


def refuse_while_full(reserve: DiskReserve) -> Any:  # noqa: ANN401 - Litestar's own type of a guard
    """A guard behind the one that knows who asks: what adds to the registry needs free space beside the reserve.

    That is every request that changes something, unless its route says ``WHILE_FULL``.
    """

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], route: BaseRouteHandler) -> None:
        may_read = route.opt.get("needs") in ("public", "read")
        method = cast("HTTPScope", connection.scope)["method"]
        if method in _ADDING and not may_read and not route.opt.get("while_full"):
            reserve.require(0, reserve_share())

    return guard
