"""The OpenAPI document of all routes."""

from typing import Any

import msgspec
from litestar import Request, Router, get

from benchlock.api.http.conditional import Encoded, tagged
from benchlock.api.http.documented import answers, content, nothing
from benchlock.api.http.guards import PUBLIC
from benchlock.api.http.openapi import build_document
from benchlock.api.http.service import Service
from benchlock.artifacts.digest import digest_bytes


def routes(service: Service) -> Router:
    """``/v1/openapi.json``."""

    @get(
        "/openapi.json",
        opt=PUBLIC,
        security=[],
        summary="This document",
        responses=answers(
            public=True,
            success={
                200: content(dict[str, Any], "OpenAPI 3.1.", {"openapi": "3.1.0"}),
                304: nothing("It is what If-None-Match names."),
            },
        ),
    )
    async def read_openapi_document(request: Request[Any, Any, Any]) -> Encoded:
        """Every route with its parameters, bodies, answers and examples."""
        text = service.kept.get("openapi.json")
        if text is None:
            text = msgspec.json.encode(build_document(request.app))
            service.kept.put("openapi.json", text, len(text))
        return tagged(text, digest_bytes(text), request.headers.get("if-none-match"))

    return Router("", route_handlers=[read_openapi_document], tags=["health"])
