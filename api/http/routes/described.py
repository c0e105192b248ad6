"""The OpenAPI document of all routes."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

import msgspec
from litestar import Request, Router, get

from api.http.conditional import Encoded, tagged
from api.http.documented import answers, content, nothing
from api.http.guards import PUBLIC
from api.http.service import Service
from api.wire import access, artifacts, jobs, locks, runs, upkeep, verdicts
from artifacts.digest import digest_bytes

_MODULES: Final = (access, artifacts, jobs, locks, runs, upkeep, verdicts)
_REFERENCE: Final = "#/components/schemas/{name}"


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
    async def document(request: Request[Any, Any, Any]) -> Encoded:
        """Every route with its parameters, bodies, answers and examples."""
        text = service.kept.get("openapi.json")
        if text is None:
            text = msgspec.json.encode(with_limits(request.app.openapi_schema.to_schema()))
            service.kept.put("openapi.json", text, len(text))
        return tagged(text, digest_bytes(text), request.headers.get("if-none-match"))

    return Router("", route_handlers=[document], tags=["health"])


def with_limits(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with all limits of the bodies of requests.

    Litestar leaves out those of optional fields, of keys and of items; msgspec, which enforces them, knows them all.
    """
    schemas = document["components"]["schemas"]
    sent = {name.rpartition("/")[2] for name in _references(document["paths"])}
    structs = [one for module in _MODULES for one in _structs(module) if one.__name__ in sent]
    _, limited = msgspec.json.schema_components(structs, ref_template=_REFERENCE)
    return document | {"components": document["components"] | {"schemas": schemas | limited}}


def _references(paths: dict[str, Any]) -> Iterator[str]:
    """The schemas of the bodies that operations take."""
    for methods in paths.values():
        for operation in methods.values():
            for body in operation.get("requestBody", {}).get("content", {}).values():
                schema = body.get("schema", {})
                yield from (one["$ref"] for one in (schema, *schema.get("allOf", ())) if "$ref" in one)


def _structs(module: ModuleType) -> Iterator[type[msgspec.Struct]]:
    return (one for one in vars(module).values() if isinstance(one, type) and issubclass(one, msgspec.Struct))
