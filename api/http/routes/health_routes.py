"""Routes for health, readiness, Prometheus metrics and the OpenAPI document."""

import asyncio
import time
from typing import Any, Final

import msgspec
from litestar import Controller, Response, get
from msgspec import Struct
from sqlalchemy import text

from benchlock.api.build_info import this_build
from benchlock.api.http.openapi import build_document, describe_body, describe_empty_body, describe_responses
from benchlock.api.http.request_authorization import PUBLIC, READ
from benchlock.api.http.request_limits import ANY_SCHEMA
from benchlock.api.http.request_parsing import Injected, JsonRequest
from benchlock.api.http.responses import BytesResponse, respond_with_etag
from benchlock.api.http.service_state import Service
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.service_log import log
from benchlock.artifacts.digest import digest_bytes, from_hex
from benchlock.artifacts.errors import BenchlockError, BusyError, UnavailableError
from benchlock.registry.database.engine import read_transaction

_METRICS = "text/plain; version=0.0.4"
_MISSING_BLOB: Final = from_hex("0" * 64)
"""The digest of no blob, so that a lookup reaches the last of the stacked stores."""


_OK: Final = "ok"
_LOW_SPACE: Final = "low-space"


class Health(Struct, frozen=True):
    """The status of the service and its build of benchlock: version, commit and required schema revision.

    ``status`` is `ok`, or `low-space` if the service only answers reads because its disk is nearly full.
    """

    status: str
    version: str
    commit: str
    schema: str


class Readiness:
    """The readiness of the service, cached for a few seconds because requests for it need no token."""

    def __init__(self, service: Service) -> None:
        """Check ``service`` at the first request."""
        self._service = service
        self._turn = asyncio.Lock()
        self._until = 0.0
        self._fault: BenchlockError | None = None
        self._is_low = False

    async def check(self) -> bool:
        """Require that the database and the store work; return whether the disk has free space beyond its reserve.

        Raises:
            UnavailableError: One of them does not work. Only the log has the reason, which may name hosts and users.
        """
        async with self._turn:
            if time.monotonic() >= self._until:
                self._fault = await self._check_parts()
                self._until = time.monotonic() + self._service.settings.ready_seconds
        if self._fault is not None:
            raise self._fault.with_traceback(None)
        return not self._is_low

    async def _check_parts(self) -> BenchlockError | None:
        for part, look in (("database", _ask_database), ("store", _ask_store)):
            try:
                await self._service.work.do(look, self._service.registry)
            except BusyError as error:
                return error
            except BenchlockError as error:
                log.error(error.what, extra={"fields": {"code": error.code, "where": error.where}})
                return UnavailableError(f"the {part} is unavailable", next_step="see the log of the service")
        await self._check_space()
        return None

    async def _check_space(self) -> None:
        try:
            space = await self._service.work.do(self._service.reserve.measure)
        except BenchlockError as error:
            log.error(error.what, extra={"fields": {"code": error.code, "where": error.where}})
            return
        if space.is_low and not self._is_low:
            fields = {"free": space.free, "reserve": space.reserve}
            log.error("the disk is nearly full: uploads and imports are refused", extra={"fields": fields})
        self._is_low = space.is_low


_EXAMPLE = {"status": _OK, "version": this_build().version, "commit": "8ae00ce…", "schema": this_build().schema}


class HealthController(Controller):
    """Routes ``/v1/health``, ``/v1/ready``, ``/v1/metrics`` and ``/v1/openapi.json``."""

    tags = ("health",)
    _document: bytes | None = None

    @get(
        "/health",
        opt={**PUBLIC, ANY_SCHEMA: True},
        security=[],
        summary="Liveness",
        responses=describe_responses(
            public=True, success={200: describe_body(Health, "The process is alive.", _EXAMPLE)}
        ),
    )
    async def read_health(self) -> Health:
        """Respond while the process is alive, without any check."""
        return _make_health(_OK)

    @get(
        "/ready",
        opt=PUBLIC,
        security=[],
        summary="Readiness",
        responses=describe_responses(
            public=True, success={200: describe_body(Health, "Database and store respond.", _EXAMPLE)}
        ),
    )
    async def read_readiness(self, readiness: Injected[Readiness]) -> Health:
        """Check the database and the store, with a cache of a few seconds; 503 names the one that does not work.

        It is also 503 while the database's schema has another revision than this build needs. `status` is `low-space`
        while the disk has no free space beyond its reserve: uploads and publications are refused (507), reads continue.
        """
        return _make_health(_OK if await readiness.check() else _LOW_SPACE)

    @get(
        "/metrics",
        opt=READ,
        summary="Prometheus metrics",
        media_type=_METRICS,
        responses=describe_responses(
            success={
                200: describe_body(
                    str, "Metrics in the text format of Prometheus.", "benchlock_requests_under_way 1.0\n", _METRICS
                )
            }
        ),
    )
    async def read_metrics(self, service: Injected[Service]) -> Response[bytes]:
        """Read metrics of the process and of requests by route and status, with their duration."""
        return Response(service.metrics.text(), media_type=_METRICS)

    @get(
        "/openapi.json",
        opt=PUBLIC,
        security=[],
        summary="Read the OpenAPI document",
        responses=describe_responses(
            public=True,
            success={
                200: describe_body(dict[str, Any], "The OpenAPI 3.1 document.", {"openapi": "3.1.0"}),
                304: describe_empty_body("Unchanged since the ETag in If-None-Match."),
            },
        ),
    )
    async def read_openapi_document(self, request: JsonRequest) -> BytesResponse:
        """Read the OpenAPI document: every route with its parameters, bodies, responses and examples."""
        if self._document is None:
            self._document = msgspec.json.encode(build_document(request.app))
        return respond_with_etag(self._document, digest_bytes(self._document), request.headers.get("if-none-match"))


def _make_health(status: str) -> Health:
    build = this_build()
    return Health(status, build.version, build.commit, build.schema)


def _ask_database(registry: LocalRegistry) -> None:
    """Query one row of the database; raise ``BenchlockError`` if it does not answer."""
    with read_transaction(registry.database) as connection:
        connection.execute(text("SELECT 1 FROM versions LIMIT 1"))


def _ask_store(registry: LocalRegistry) -> None:
    """Look up a blob that does not exist; raise ``BenchlockError`` if the store does not answer."""
    registry.store.exists(_MISSING_BLOB)
