"""Whether the service lives, whether it can work, and its figures."""

from litestar import Response, Router, get
from msgspec import Struct
from sqlalchemy import text

from api.http.documented import answers, content
from api.http.guards import PUBLIC, READ
from api.http.service import Service
from api.http.settings import VERSION
from api.wiring import Registry
from registry.catalogue.database import reading

_METRICS = "text/plain; version=0.0.4"


class Health(Struct, frozen=True):
    """The service lives; ``version`` is that of benchlock."""

    status: str
    version: str


def routes(service: Service) -> Router:
    """``/v1/health``, ``/v1/ready`` and ``/v1/metrics``."""
    health = Health("ok", VERSION)
    example = {"status": "ok", "version": VERSION}

    @get(
        "/health",
        opt=PUBLIC,
        security=[],
        summary="Is it alive?",
        responses=answers(public=True, success={200: content(Health, "It lives.", example)}),
    )
    async def alive() -> Health:
        """Answers as long as the process does; nothing else is looked at."""
        return health

    @get(
        "/ready",
        opt=PUBLIC,
        security=[],
        summary="Can it work?",
        responses=answers(public=True, success={200: content(Health, "Database and store answer.", example)}),
    )
    async def ready() -> Health:
        """Answers where the database and the store do; 503 says which does not."""
        await service.work.do(_look, service.registry)
        return health

    @get(
        "/metrics",
        opt=READ,
        summary="Figures for Prometheus",
        media_type=_METRICS,
        responses=answers(
            success={200: content(str, "Prometheus' text format.", "benchlock_requests_under_way 1.0\n", _METRICS)}
        ),
    )
    async def metrics() -> Response[bytes]:
        """Requests by route and status, their duration, and the process."""
        return Response(service.tally.text(), media_type=_METRICS)

    return Router("", route_handlers=[alive, ready, metrics], tags=["health"])


def _look(registry: Registry) -> None:
    """Ask the database, and the store for one blob.

    Raises:
        UnavailableError: one of them does not answer.
    """
    with reading(registry.database) as connection:
        connection.execute(text("SELECT 1 FROM versions LIMIT 1"))
    next(registry.store.list(), None)
