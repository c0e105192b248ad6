"""Error responses as problem details (RFC 9457), and conditional responses with an ETag (RFC 9110)."""

import traceback
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import Receive, Scope, Send

from benchlock.api.error_codes import FAULTS, INTERNAL, Fault, fault_of_status
from benchlock.api.http.request_parsing import JsonRequest
from benchlock.api.http.slow_client_flow_control import IncompleteBodyError, TooSlowError
from benchlock.api.schemas.problem_details import MEDIA_TYPE, NOTHING_SERVED, Problem, encode_problem
from benchlock.api.service_log import FAILURE_REASON, REQUEST_ID, log
from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.registry.auth.token_format import mask_tokens

JSON: Final = "application/json"
_NOT_MODIFIED: Final = 304
CACHE_AND_REVALIDATE: Final = "private, no-cache"
"""May be cached, and used after revalidation."""
CACHE_FOREVER: Final = "private, max-age=31536000, immutable"


class BytesResponse:
    """A response of ready-made bytes, as an ASGI application."""

    __slots__ = ("_content", "_headers", "_status")

    def __init__(self, content: bytes, media_type: str, headers: Mapping[str, str], status: int = 200) -> None:
        """Prepare a response; ``headers`` have names in lower case, and none about content for status 304."""
        self._content, self._status = content, status
        content_headers = (
            {} if status == _NOT_MODIFIED else {"content-type": media_type, "content-length": str(len(content))}
        )
        self._headers = [(name.encode(), value.encode()) for name, value in {**headers, **content_headers}.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        """Send the response over ASGI."""
        await send({"type": "http.response.start", "status": self._status, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._content, "more_body": False})


def respond_with_etag(
    content: bytes,
    tag: str,
    if_none_match: str | None,
    caching: str = CACHE_AND_REVALIDATE,
    media_type: str = JSON,
    vary: str | None = None,
) -> BytesResponse:
    """Return ``content`` with a strong ETag, or 304 without content if the client has it.

    Args:
        content: The body.
        tag: The ETag, without quotes.
        if_none_match: The header If-None-Match.
        caching: The value of Cache-Control.
        media_type: The media type.
        vary: The value of Vary.
    """
    headers = {"etag": f'"{tag}"', "cache-control": caching} | ({} if vary is None else {"vary": vary})
    if matches_etag(tag, if_none_match):
        return BytesResponse(b"", media_type, headers, _NOT_MODIFIED)
    return BytesResponse(content, media_type, headers)


def matches_etag(tag: str, if_none_match: str | None) -> bool:
    """Check whether the header If-None-Match names the tag, strong or weak."""
    if if_none_match is None:
        return False
    tags = {text.strip().removeprefix("W/").strip('"') for text in if_none_match.split(",")}
    return tag in tags or if_none_match.strip() == "*"


_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    401: {"www-authenticate": 'Bearer realm="benchlock"'},
    429: {"retry-after": "1"},
    503: {"retry-after": "5"},
}


def on_error(request: Request[Any, Any, Any], error: BenchlockError) -> Response[bytes]:
    """Respond to a benchlock error with its problem details."""
    _release_traceback(error)
    problem = encode_problem(error, REQUEST_ID.get())
    if problem.status >= INTERNAL.status:
        log.error(error.what, extra={"fields": {"code": error.code, "where": error.where}})
    if isinstance(error, (TooSlowError, IncompleteBodyError)):
        request.app.state.service.metrics.count_broken(error.reason)
    return _response(request, problem)


def on_http_error(request: JsonRequest, error: HTTPException) -> Response[bytes]:
    """Respond to an error of Litestar: an unknown path or method, or an invalid body or parameter."""
    fault = fault_of_status(error.status_code)
    if fault is INTERNAL:
        return on_fault(request, error)
    _release_traceback(error)
    request.drop_document()
    refusal = InvalidInputError(
        _http_error_text(request, error), where=request.scope["path"], next_step=_next_step(request, error)
    )
    refusal.problems = tuple(
        _problem(item) for item in error.extra or () if isinstance(item, dict) and "message" in item
    )
    if refusal.problems:
        refusal.what = "; ".join(
            item.what if item.where is None else f"{item.where}: {item.what}" for item in refusal.problems
        )
    return _response(
        request, encode_problem(refusal, REQUEST_ID.get(), fault), error.headers, status=error.status_code, fault=fault
    )


def on_fault(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Respond to an internal error: its log has the details, the client gets the request id."""
    log.error("internal server error", exc_info=error)
    _release_traceback(error)
    refusal = BenchlockError(
        "internal server error", next_step="report the id of this request; the log of the server has the details"
    )
    return _response(request, encode_problem(refusal, REQUEST_ID.get(), INTERNAL), fault=INTERNAL)


def on_nesting(request: Request[Any, Any, Any], error: RecursionError) -> Response[bytes]:
    """Respond to a request that is nested too deeply to be parsed."""
    _release_traceback(error)
    refusal = InvalidInputError("the request is nested too deep", next_step="nest it less")
    return _response(request, encode_problem(refusal, REQUEST_ID.get(), FAULTS["malformed"]), fault=FAULTS["malformed"])


def _release_traceback(error: BaseException) -> None:
    """Clear the frames and causes of an error, which keep the request and its body in reference cycles.

    Cycles live until the garbage collector visits the oldest generation, which is rare: rejected bodies of 16 MiB would
    add up to gigabytes.
    """
    links: list[BaseException | None] = [error]
    visited = set[BaseException]()
    while links:
        link = links.pop()
        if link is None or link in visited:
            continue
        visited.add(link)
        links += (link.__cause__, link.__context__, *(link.problems if isinstance(link, BenchlockError) else ()))
        traceback.clear_frames(link.__traceback__)  # other objects may refer to the frames too
        link.__traceback__ = link.__cause__ = link.__context__ = None


async def send_error(send: Send, error: BenchlockError) -> None:
    """Send the problem details of ``error`` for a request that no route handles."""
    problem = encode_problem(error, REQUEST_ID.get())
    body = msgspec.json.encode(problem)
    FAILURE_REASON.set(f"{problem.code}: {problem.detail}")
    headers = {
        "content-type": MEDIA_TYPE,
        "content-length": str(len(body)),
        "cache-control": "no-store",
        **_HEADERS.get(problem.status, {}),
    }
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body, "more_body": False})


ON_ERRORS: Final = {
    BenchlockError: on_error,
    HTTPException: on_http_error,
    RecursionError: on_nesting,
    Exception: on_fault,
}


def _response(
    request: Request[Any, Any, Any],
    problem: Problem,
    headers: Mapping[str, str] | None = None,
    *,
    status: int = 0,
    fault: Fault | None = None,
) -> Response[bytes]:
    if fault is not None:
        problem = msgspec.structs.replace(problem, code=fault.reason, status=status or fault.status)
    FAILURE_REASON.set(f"{problem.code}: {problem.detail}" + (f" ({problem.where})" if problem.where else ""))
    extra_headers = {name.lower(): value for name, value in (headers or {}).items()}
    return Response(
        mask_tokens(_hide_home(request, msgspec.json.encode(problem)).decode()).encode(),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers={"cache-control": "no-store", **_HEADERS.get(problem.status, {}), **extra_headers},
    )


def _hide_home(request: Request[Any, Any, Any], body: bytes) -> bytes:
    """Remove the path of the registry's home from a response, so that clients see paths relative to it."""
    home = msgspec.json.encode(str(request.app.state.service.registry.home)).strip(b'"')
    return body.replace(home + b"/", b"").replace(home, b"the registry")


def _http_error_text(request: Request[Any, Any, Any], error: HTTPException) -> str:
    if error.status_code == HTTPStatus.NOT_FOUND:
        return NOTHING_SERVED
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return f"method {request.method} not allowed"
    return error.detail or HTTPStatus(error.status_code).description


def _next_step(request: Request[Any, Any, Any], error: HTTPException) -> str | None:
    if error.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        return "GET /v1/openapi.json lists all operations"
    body = body_type(request.route_handler) if error.status_code == HTTPStatus.BAD_REQUEST else None
    if body is None:
        return None
    fields = msgspec.structs.fields(body)
    needed = ", ".join(f'"{field.encode_name}": …' for field in fields if field.required)
    optional = ", ".join(field.encode_name for field in fields if not field.required)
    if not needed:
        return f"send a JSON object with keys among {optional}"
    return f"send a JSON object {{{needed}}}" + (f"; more keys: {optional}" if optional else "")


def body_type(handler: Any) -> type[msgspec.Struct] | None:  # noqa: ANN401 - any handler or None
    """Return the type of the JSON object that a handler reads as the body; None if it reads none."""
    signature = getattr(handler, "parsed_fn_signature", None)
    data = None if signature is None else signature.parameters.get("data")
    annotation = None if data is None else data.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct) else None


def _problem(item: dict[str, Any]) -> InvalidInputError:
    source = str(getattr(item.get("source"), "value", item.get("source") or ""))
    place = " ".join(part for part in (source, str(item.get("key") or "")) if part)
    message = str(item["message"])
    if (message, item.get("key")) == ("'data'", "data"):  # Litestar's message for a missing body
        return InvalidInputError("the request needs a body")
    return InvalidInputError(message, where=place or None)
