"""The OpenAPI 3.1 document, and helpers that describe the responses of routes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import msgspec
from litestar import HttpMethod, Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example
from litestar.routes import HTTPRoute
from litestar.types.internal_types import PathParameterDefinition

from benchlock.api.error_codes import FAULTS, INTERNAL
from benchlock.api.schemas.problem_details import MEDIA_TYPE, TYPE, Problem

Responses = Mapping[int, ResponseSpec]


@dataclass
class DocumentedResponse(ResponseSpec):
    """A response in the OpenAPI document with the names and descriptions of its headers."""

    headers: Mapping[str, str] = field(default_factory=dict)


class SharedResponses(dict[int, ResponseSpec]):
    """Responses by status that all copies of a handler share: Litestar copies each handler deeply, twice."""

    def __deepcopy__(self, memo: object) -> Self:
        """Return this object."""
        return self


def encode_example(value: Any) -> Example:  # noqa: ANN401 - a JSON value
    """Return ``value`` as an example, encoded: Litestar would drop its nulls."""
    return Example(value=msgspec.Raw(msgspec.json.encode(value)))


_COMMON_REASONS: Final = ("malformed", "too-many-requests", "unavailable")
_TOKEN_REASONS: Final = ("unauthorized", "forbidden")
_BODY_REASONS: Final = ("too-slow", "too-large", "unsupported-media", "invalid-input")


def describe_responses(
    *reasons: str, public: bool = False, body: bool = False, success: Mapping[int, ResponseSpec] | None = None
) -> SharedResponses:
    """Describe the responses of a route: ``success``, and problem details for each reason.

    Args:
        *reasons: Reasons of errors beyond those of every route.
        public: Whether the route needs no token.
        body: Whether the request has a body.
        success: Successful responses by status.
    """
    all_reasons = (*reasons, *_COMMON_REASONS, *(() if public else _TOKEN_REASONS), *(_BODY_REASONS if body else ()))
    by_status: dict[int, list[str]] = {}
    for reason in dict.fromkeys(all_reasons):
        by_status.setdefault(FAULTS[reason].status, []).append(reason)
    problems = {status: _problem_spec(status, status_reasons) for status, status_reasons in sorted(by_status.items())}
    return SharedResponses({**(success or {}), **problems})


def describe_body(
    kind: Any,  # noqa: ANN401 - any type that Litestar can describe
    description: str,
    value: Any = None,  # noqa: ANN401 - a JSON value
    media_type: str = "application/json",
) -> ResponseSpec:
    """Describe a body of the type ``kind``, with ``value`` as its example.

    Args:
        kind: The type of the body.
        description: The description of the response.
        value: An example as a JSON value.
        media_type: The media type.
    """
    examples = None if value is None else [encode_example(value)]
    return ResponseSpec(
        data_container=kind,
        description=description,
        examples=examples,
        media_type=media_type,
        generate_examples=False,
    )


def describe_empty_body(description: str, headers: Mapping[str, str] | None = None) -> ResponseSpec:
    """Describe a response without a body; ``headers`` maps names to descriptions."""
    return DocumentedResponse(
        data_container=None, description=description, generate_examples=False, headers=headers or {}
    )


def _problem_spec(status: int, reasons: list[str]) -> ResponseSpec:
    first = FAULTS.get(reasons[0], INTERNAL)
    value = {
        "type": f"{TYPE}{first.reason}",
        "title": first.title,
        "status": status,
        "detail": "what is wrong",
        "code": first.reason,
        "where": "where it is wrong",
        "next": "the next step",
        "request_id": "0f6e0c5cf41a4b86b5d1a4f2",
    }
    description = "; ".join(FAULTS[reason].title for reason in reasons)
    return describe_body(Problem, description, value, MEDIA_TYPE)


_REFERENCE: Final = "#/components/schemas/"
_BINARY_TYPE: Final = "application/octet-stream"
_BINARY: Final = {"type": "string", "format": "binary"}
_NULL: Final = {"type": "null"}


def operation_id(
    handler: HTTPRouteHandler, method: object, path_components: list[str | PathParameterDefinition]
) -> str:
    """Return the operation id of a handler: the name of its function, with ``_headers`` for an explicit HEAD."""
    del path_components
    return f"{handler.handler_name}_headers" if method == HttpMethod.HEAD else handler.handler_name


def build_document(app: Litestar) -> dict[str, Any]:
    """Build the OpenAPI document of all routes of ``app``.

    Litestar describes the paths. Its schemas of bodies are not used: they lack the limits of optional fields, keys and
    items, and repeat those of an array for its items, so that no value is valid. msgspec describes all bodies.
    """
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(app.openapi_schema.to_schema()))
    bodies: dict[str, type[msgspec.Struct]] = {}
    for path, handler in _handlers(app):
        bodies |= {body.__name__: body for body in _bodies(handler)}
        for method in handler.http_methods:
            operation = document["paths"].get(path, {}).get(method.lower())
            if operation is not None:
                _complete_operation(operation, handler)
    _, schemas = msgspec.json.schema_components(bodies.values(), ref_template=_REFERENCE + "{name}")
    components = document["components"] | {"schemas": _with_plain_tuples(schemas)}
    return document | {"components": components}


def _handlers(app: Litestar) -> Iterator[tuple[str, HTTPRouteHandler]]:
    """Yield each handler with its path in the document's format."""
    for route in app.routes:
        if isinstance(route, HTTPRoute):
            yield from ((route.path_format, handler) for handler in route.route_handlers)


def _bodies(handler: HTTPRouteHandler) -> Iterator[type[msgspec.Struct]]:
    """Yield the types of a handler's request and response bodies."""
    data = handler.parsed_fn_signature.parameters.get("data")
    types = [
        None if data is None else data.annotation,
        *(entry.data_container for entry in _responses(handler).values()),
    ]
    yield from (entry for entry in types if isinstance(entry, type) and issubclass(entry, msgspec.Struct))


def _responses(handler: HTTPRouteHandler) -> Mapping[int, Any]:
    return handler.responses or {}


def _complete_operation(operation: dict[str, Any], handler: HTTPRouteHandler) -> None:
    """Add binary bodies and response headers to an operation, which Litestar does not describe."""
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = _without_null(parameter["schema"])
    _mark_binary(operation.get("requestBody", {}))
    for status, response in operation["responses"].items():
        _mark_binary(response)
        spec = _responses(handler).get(int(status))
        if isinstance(spec, DocumentedResponse) and spec.headers:
            response["headers"] = {
                name: {"description": description, "schema": {"type": "string"}}
                for name, description in spec.headers.items()
            }


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null from the schema of a parameter: a parameter without a value is omitted."""
    alternatives = [option for option in schema.get("oneOf", ()) if option != _NULL]
    if len(alternatives) == 1:
        return {**alternatives[0], **{key: value for key, value in schema.items() if key != "oneOf"}}
    if isinstance(schema.get("type"), list):
        types = [option for option in schema["type"] if option != "null"]
        enum = {"enum": [option for option in schema["enum"] if option is not None]} if "enum" in schema else {}
        return schema | {"type": types[0] if len(types) == 1 else types} | enum
    return schema


def _with_plain_tuples(node: Any) -> Any:  # noqa: ANN401 - a JSON value
    """Remove ``items: false`` from tuples: ``maxItems`` means the same, and code generators read that."""
    if isinstance(node, dict):
        is_tuple = "prefixItems" in node and node.get("maxItems") == len(node["prefixItems"])
        return {key: _with_plain_tuples(value) for key, value in node.items() if not (is_tuple and key == "items")}
    return [_with_plain_tuples(item) for item in node] if isinstance(node, list) else node


def _mark_binary(holder: dict[str, Any]) -> None:
    body = holder.get("content", {}).get(_BINARY_TYPE)
    if body is not None:
        examples = body["schema"].get("examples")
        body["schema"] = _BINARY | ({} if examples is None else {"examples": examples})
