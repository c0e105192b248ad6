"""Who asks, as the service sees it."""

from litestar import Router, get

from benchlock.api.http.documented import answers, content
from benchlock.api.http.guards import READ
from benchlock.api.http.service import Service
from benchlock.api.wire.caller import Caller
from benchlock.registry.access.actors import acting

_CALLER = {"id": "token/01kam1v3mz4w0q3d5g7h9j2k4m", "scopes": ["read", "run"]}


def routes(_: Service) -> Router:
    """``/v1/caller``."""

    @get(
        "/caller",
        opt=READ,
        summary="Who asks?",
        responses=answers(success={200: content(Caller, "Who it is, and what they may do.", _CALLER)}),
    )
    async def read_caller() -> Caller:
        """The token that the request brought, by its id, and its scopes."""
        who = acting()
        return Caller(id=who.id, scopes=tuple(sorted(who.scopes.texts)))

    return Router("", route_handlers=[read_caller], tags=["access"])
