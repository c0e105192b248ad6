"""The Litestar application: all controllers under ``/v1``, the request check, error handlers and background tasks."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from copy import copy
from typing import Any, Final

from litestar import HttpMethod, Litestar, Router
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, License, SecurityScheme
from litestar.routes import HTTPRoute
from litestar.types import ControllerRouterHandler

from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.http.middleware import RequestMiddleware
from benchlock.api.http.openapi import operation_id
from benchlock.api.http.page_responses import ON_PAGE_ERRORS
from benchlock.api.http.request_authorization import (
    Authority,
    OpenAuthority,
    check_guarded,
    make_request_check,
)
from benchlock.api.http.request_limits import SchemaWatch
from benchlock.api.http.request_parsing import MAX_BODY, JsonRequest
from benchlock.api.http.routes.access_routes import AccessController
from benchlock.api.http.routes.artifact_routes import ArtifactController, PublicationController
from benchlock.api.http.routes.blob_routes import BlobController
from benchlock.api.http.routes.client_run_routes import ClientRunController, RunRecorder, reap_abandoned_runs
from benchlock.api.http.routes.comparison_page_routes import (
    COMPARISON_PAGE_CONTROLLERS,
    ComparisonTwinController,
)
from benchlock.api.http.routes.health_routes import HealthController, Readiness
from benchlock.api.http.routes.job_routes import (
    JobController,
    MatrixController,
    QueuedComparisonController,
    QueueService,
)
from benchlock.api.http.routes.lock_routes import LockController
from benchlock.api.http.routes.maintenance_routes import MaintenanceController
from benchlock.api.http.routes.new_page_routes import NEW_PAGES, PreviewController
from benchlock.api.http.routes.page_routes import PAGE_CONTROLLERS, SampleController, UseController
from benchlock.api.http.routes.queue_page_routes import QUEUE_PAGE_CONTROLLERS
from benchlock.api.http.routes.run_routes import RunController
from benchlock.api.http.routes.worker_routes import WorkerController
from benchlock.api.http.service_settings import VERSION, Settings
from benchlock.api.http.service_state import CommitCache, GracefulShutdown, Service
from benchlock.api.http.slow_client_flow_control import SendMemory
from benchlock.api.http.thread_pools import FairThreadPool
from benchlock.api.local.local_registry import LocalRegistry, now, open_reserve, open_uploads
from benchlock.api.service_log import log
from benchlock.artifacts.errors import BenchlockError
from benchlock.registry.auth.audit_log import DenialLog
from benchlock.registry.auth.permissions import SERVER, act_as
from benchlock.registry.database.engine import find_commit_counter


def complete_methods(router: Router) -> Router:
    """Let each path of ``router`` answer HEAD like GET, and OPTIONS with all methods of the path.

    Litestar adds OPTIONS with the first handler of a path, and so lists no method that is registered later. An added
    HEAD is not in the OpenAPI document: it is GET without the body, which the server drops.
    """
    router.routes = [_complete_route(route) if isinstance(route, HTTPRoute) else route for route in router.routes]
    return router


def _complete_route(route: HTTPRoute) -> HTTPRoute:
    own = [handler for handler in route.route_handlers if handler.http_methods != {HttpMethod.OPTIONS}]
    return HTTPRoute(path=route.path, route_handlers=[*own, *_head_handlers(own)])


def _head_handlers(handlers: list[HTTPRouteHandler]) -> Iterator[HTTPRouteHandler]:
    if any(HttpMethod.HEAD in handler.http_methods for handler in handlers):
        return
    for handler in handlers:
        if HttpMethod.GET in handler.http_methods:
            head = copy(handler)
            head.http_methods = {HttpMethod.HEAD.value}
            head.include_in_schema = False
            yield head


_SECONDS: Final = 15.0
"""The interval between two checks for counts that are due."""


def log_refusal_counts(service: Service, refusals: DenialLog) -> Any:  # noqa: ANN401 - Litestar's own type of a lifespan
    """Make a lifespan that writes the counts of repeated denials to the service's log and to the audit log."""

    async def write(*, at_once: bool = False) -> None:
        try:
            repeated = await service.work.do(refusals.summarise, at_once=at_once)
        except BenchlockError as error:  # the first denial of each kind is in the service's log already
            log.error("cannot write refusals to the audit log: %s", error.what)
            return
        for refusal in repeated:
            fields = {"caller": refusal.actor.id, "count": refusal.count, "reason": refusal.reason}
            log.info("refused again", extra={"fields": fields})

    async def write_regularly() -> None:
        act_as(SERVER)
        while True:
            await asyncio.sleep(_SECONDS)
            await write()

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        task = asyncio.create_task(write_regularly())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await write(at_once=True)

    return lifespan


CONTROLLERS: Final[tuple[ControllerRouterHandler, ...]] = (
    ArtifactController,
    PublicationController,
    LockController,
    BlobController,
    MaintenanceController,
    AccessController,
    HealthController,
    RunController,
    ClientRunController,
    JobController,
    QueuedComparisonController,
    MatrixController,
    WorkerController,
    ComparisonTwinController,
    SampleController,
    UseController,
    PreviewController,
)
"""All controllers. A new resource is an entry here; each of its routes declares its scope in ``opt``."""


ALL_PAGES: Final = (*PAGE_CONTROLLERS, *COMPARISON_PAGE_CONTROLLERS, *NEW_PAGES, *QUEUE_PAGE_CONTROLLERS)
"""All controllers of pages."""
PREFIX: Final = "/v1"


class _NoPagesRouter(Router):
    """A router without routes, in place of Litestar's pages about the OpenAPI document, which is an own route."""

    def register(self, value: object) -> list[object]:  # type: ignore[override] # nothing is registered
        del value
        return []


def _provide(value: object) -> Provide:
    """Provide one value to all handlers that name it."""
    return Provide(lambda: value, sync_to_thread=False, use_cache=True)


def create_app(
    registry: LocalRegistry, settings: Settings | None = None, authority: Authority | OpenAuthority | None = None
) -> Litestar:
    """Create the application that serves ``registry``; without an ``authority``, it accepts every client."""
    settings, authority = settings or Settings(), authority or OpenAuthority()
    at_once = registry.database.dialect.name == "sqlite"

    def threads(
        count: int, seconds: float | None = None, patience: float | None = settings.lock_seconds
    ) -> FairThreadPool:
        return FairThreadPool(count, settings.waiting, at_once=at_once, seconds=seconds, patience=patience)

    def child_threads(count: int, waiting: int) -> FairThreadPool:
        return FairThreadPool(
            count, waiting, at_once=at_once, patience=settings.lock_seconds, slot_seconds=settings.ask_seconds
        )

    service = Service(
        registry,
        EmbeddedRegistry(registry, public_images=True),
        authority,
        settings,
        work=threads(settings.threads),
        prompt=threads(settings.prompt_threads),
        ends=FairThreadPool(
            settings.end_threads, settings.waiting, at_once=at_once, patience=settings.lock_seconds, urgent=True
        ),
        ask=threads(settings.ask_threads, settings.ask_seconds),
        decode=threads(1),
        inspect=child_threads(settings.inspect_threads, settings.inspect_waiting),
        long=threads(settings.long_threads, patience=None),
        lists=threads(settings.list_threads),
        compare=child_threads(settings.compare_threads, settings.waiting),
        send=threads(settings.send_threads),
        windows=SendMemory(settings.window_bytes),
        whole_answers=SendMemory(settings.answer_bytes),
        reads=CommitCache(find_commit_counter(registry.database), settings.cache_bytes),
        grace=GracefulShutdown(settings.last_seconds),
        reserve=open_reserve(registry),
        uploads=open_uploads(registry),
    )

    async def end() -> None:
        await asyncio.gather(*(pool.end(service.grace.left) for pool in service.pools))

    readiness = Readiness(service)
    refusals = DenialLog(registry.database, now)
    schema = SchemaWatch(registry.database, service.prompt, settings.schema_seconds)
    check_request = make_request_check(authority, settings, service.prompt, schema, service.reserve)

    app = Litestar(
        route_handlers=[
            complete_methods(Router(PREFIX, route_handlers=CONTROLLERS)),
            complete_methods(Router("/", route_handlers=ALL_PAGES)),
        ],
        dependencies={
            "service": _provide(service),
            "readiness": _provide(readiness),
            "queues": _provide(QueueService(service)),
            "recorder": _provide(RunRecorder(service)),
        },
        before_request=check_request,
        request_class=JsonRequest,
        exception_handlers=ON_PAGE_ERRORS,  # type: ignore[arg-type] # each takes the errors of its key
        request_max_body_size=MAX_BODY,
        openapi_config=_openapi_config(),
        lifespan=[reap_abandoned_runs(service), log_refusal_counts(service, refusals)],
        on_shutdown=[end],
        logging_config=None,
        debug=False,
    )
    check_guarded(app.routes, check_request)
    app.asgi_handler = RequestMiddleware(app.asgi_handler, service, refusals)
    app.state.service = service
    return app


def _openapi_config() -> OpenAPIConfig:
    bearer = SecurityScheme(type="http", scheme="bearer", description="A token of this registry.")
    return OpenAPIConfig(
        title="benchlock",
        version=VERSION,
        description="A reproducible artifact registry and evaluation store for deep learning.",
        license=License(name="Apache-2.0", identifier="Apache-2.0"),
        components=Components(security_schemes={"token": bearer}),
        security=[{"token": []}],
        use_handler_docstrings=True,
        operation_id_creator=operation_id,
        openapi_router=_NoPagesRouter(f"{PREFIX}/described", route_handlers=[]),
    )
