"""The application: all routes under ``/v1``, one guard, one form of errors, and the document that describes them."""

import asyncio
from typing import Final

from litestar import Litestar, Router
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, License, SecurityScheme

from benchlock.api.http.answers import ON_ERRORS
from benchlock.api.http.asked import Asked
from benchlock.api.http.grace import Grace
from benchlock.api.http.guards import Authority, Open, check_guarded, guard_with, one_after_another
from benchlock.api.http.identifiers import accept_full_identifiers
from benchlock.api.http.kept import Kept
from benchlock.api.http.limits import Strangers, limit_with
from benchlock.api.http.methods import complete_methods
from benchlock.api.http.observed import Observed
from benchlock.api.http.openapi import operation_id
from benchlock.api.http.places import Places, place_with
from benchlock.api.http.refusal_log import log_refusal_counts
from benchlock.api.http.routes import ROUTERS
from benchlock.api.http.routes.held import reaping
from benchlock.api.http.schema_watch import SchemaWatch, schema_guard
from benchlock.api.http.send_window import SendMemory
from benchlock.api.http.service import Service
from benchlock.api.http.settings import VERSION, Settings
from benchlock.api.http.space import refuse_while_full
from benchlock.api.http.work import Work
from benchlock.api.wiring import Registry, now, open_reserve, open_uploads
from benchlock.registry.access.refusals import Refusals

PREFIX: Final = "/v1"


class _Unlisted(Router):
    """Where Litestar's own pages about the document would be: there are none, the document is a route like others."""

    def register(self, value: object) -> list[object]:  # type: ignore[override] # nothing is registered
        del value
        return []


def create_app(registry: Registry, settings: Settings | None = None, authority: Authority | None = None) -> Litestar:
    """The application over ``registry``; without an ``authority``, for anyone who reaches it."""
    settings, authority = settings or Settings(), authority or Open()
    at_once = registry.database.dialect.name == "sqlite"

    def threads(count: int, seconds: float | None = None, patience: float | None = settings.lock_seconds) -> Work:
        return Work(count, settings.waiting, at_once=at_once, seconds=seconds, patience=patience)

    def child_threads(count: int, waiting: int) -> Work:
        return Work(count, waiting, at_once=at_once, patience=settings.lock_seconds, slot_seconds=settings.ask_seconds)

    service = Service(
        registry,
        authority,
        settings,
        work=threads(settings.threads),
        prompt=threads(settings.prompt_threads),
        ends=Work(settings.end_threads, settings.waiting, at_once=at_once, patience=settings.lock_seconds, urgent=True),
        ask=threads(settings.ask_threads, settings.ask_seconds),
        decode=threads(1),
        inspect=child_threads(settings.inspect_threads, settings.inspect_waiting),
        long=threads(settings.long_threads, patience=None),
        lists=threads(settings.list_threads),
        compare=child_threads(settings.compare_threads, settings.waiting),
        send=threads(settings.send_threads),
        windows=SendMemory(settings.window_bytes),
        whole_answers=SendMemory(settings.answer_bytes),
        kept=Kept(settings.kept_bytes),
        grace=Grace(settings.last_seconds),
        reserve=open_reserve(registry),
        uploads=open_uploads(registry),
    )

    async def end() -> None:
        await asyncio.gather(*(one.end(service.grace.left) for one in service.works))

    refusals = Refusals(registry.database, now)
    guard = one_after_another(
        schema_guard(SchemaWatch(registry.database, service.prompt, settings.schema_seconds)),
        guard_with(authority, service.prompt, Strangers(settings.strangers)),
        limit_with(settings.rate),
        place_with(Places(settings.at_once)),
        refuse_while_full(service.reserve),
    )

    app = Litestar(
        route_handlers=[complete_methods(Router(PREFIX, route_handlers=[make(service) for make in ROUTERS]))],
        before_request=guard,
        request_class=Asked,
        exception_handlers=ON_ERRORS,  # type: ignore[arg-type] # each takes the errors of its key
        request_max_body_size=settings.usual_body,
        openapi_config=_described(),
        lifespan=[reaping(service), log_refusal_counts(service, refusals)],
        on_shutdown=[end],
        logging_config=None,
        debug=False,
    )
    check_guarded(app.routes, guard)
    app.asgi_handler = Observed(accept_full_identifiers(app.asgi_handler), service, refusals)
    app.state.service = service
    return app


def _described() -> OpenAPIConfig:
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
        openapi_router=_Unlisted(f"{PREFIX}/described", route_handlers=[]),
    )
