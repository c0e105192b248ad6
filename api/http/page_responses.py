"""Answers that are pages: HTML, CSV of their tables, and errors for readers."""

import gzip
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from litestar import MediaType, Request, Response
from litestar.datastructures import Cookie

from benchlock.api.http.openapi import describe_body, describe_responses
from benchlock.api.http.page_sessions import find_return_path, find_token, make_cookie, make_csrf_token
from benchlock.api.http.request_authorization import OpenAuthority
from benchlock.api.http.responses import JSON, ON_ERRORS, BytesResponse
from benchlock.api.http.service_state import Service
from benchlock.api.schemas.page_schemas import PageDocument
from benchlock.api.schemas.problem_details import NOTHING_SERVED, Problem
from benchlock.api.web.page import Page, Viewer
from benchlock.api.web.rendering import PAGE_HEADERS, render_page
from benchlock.artifacts.errors import UnknownNameError
from benchlock.evaluator.analysis.table_formats import format_csv
from benchlock.evaluator.charts.plots import add_caption
from benchlock.registry.auth.permissions import ANONYMOUS, NEEDS, get_actor
from benchlock.registry.auth.tokens import UNAUTHENTICATED

HTML: Final = "text/html; charset=utf-8"
_LEVEL: Final = 6
_UNAUTHORIZED: Final = 401
_TITLES: Final = {
    401: "Sign in",
    403: "Not allowed",
    404: "Not found",
    429: "Too many requests",
    503: "Service unavailable",
}

_EXAMPLE: Any = {
    "title": "Leaderboards",
    "facts": {},
    "tables": {
        "leaderboards": {
            "id": "leaderboards",
            "title": "Datasets with done runs",
            "columns": [{"name": "runs", "unit": None, "meaning": "Done runs."}],
            "rows": [[3]],
            "facts": {},
            "notes": [],
        }
    },
}
JSON_RESPONSES = describe_responses(
    "unknown-name",
    "integrity",
    "invalid-input",
    success={200: describe_body(PageDocument, "The page.", _EXAMPLE)},
)
"""The responses of a page as JSON."""

AnyRequest = Request[Any, Any, Any]
Handler = Callable[[AnyRequest, Any], Response[bytes]]


def view(request: AnyRequest, service: Service) -> Viewer:
    """Return who sent a request, as pages show it."""
    actor, is_open = get_actor(), isinstance(service.authority, OpenAuthority)
    query = request.scope["query_string"].decode("ascii", "replace")
    return Viewer(
        name=None if actor.id.startswith(ANONYMOUS.id) else actor.id,
        may=frozenset(need for need in NEEDS if actor.scopes.allow(need)),
        csrf_token="" if is_open else make_csrf_token(request),
        is_open=is_open,
        path=request.scope["path"] + (f"?{query}" if query else ""),
        address=str(request.base_url).rstrip("/"),
    )


def respond_with_page(page: Page, request: AnyRequest, service: Service, status: int = 200) -> BytesResponse:
    """Answer with a page, or with the table or the chart of it that the parameter ``csv`` or ``svg`` names.

    Raises:
        UnknownNameError: The page has no table or chart of that name.
    """
    if (chart := request.query_params.get("svg")) is not None:
        return _respond_with_chart(page, chart)
    name = request.query_params.get("csv")
    if name is not None:
        if name not in page.tables:
            raise UnknownNameError(f"no table {name[:64]!r} on this page", next_step=", ".join(page.tables))
        headers = {"content-disposition": f'attachment; filename="{name}.csv"', "cache-control": "no-store"}
        return BytesResponse(format_csv(page.tables[name]).encode(), "text/csv; charset=utf-8", headers)
    headers = dict(PAGE_HEADERS)
    if page.has_secret:
        headers["cache-control"] = "no-store"
    content = render_page(page, view(request, service))
    if page.has_secret:
        return BytesResponse(content, HTML, headers, status)
    return respond_compressed(request, content, HTML, headers, status)


def respond_compressed(
    request: AnyRequest, content: bytes, media_type: str, headers: Mapping[str, str], status: int = 200
) -> BytesResponse:
    """Answer with a text, compressed if the client accepts that."""
    sent = {**headers, "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        content = gzip.compress(content, _LEVEL, mtime=0)
        sent["content-encoding"] = "gzip"
    return BytesResponse(content, media_type, sent, status)


def _respond_with_chart(page: Page, name: str) -> BytesResponse:
    chart = next((chart for chart in page.charts if chart.name == name), None)
    if chart is None:
        charts = ", ".join(chart.name for chart in page.charts)
        raise UnknownNameError(f"no chart {name[:64]!r} on this page", next_step=charts or "open the page without it")
    headers = {
        **PAGE_HEADERS,
        "content-disposition": f'attachment; filename="{chart.name}.svg"',
        "cache-control": "no-store",
    }
    return BytesResponse(add_caption(chart, page.caption).svg().encode(), "image/svg+xml", headers)


def respond_with_json(page: Page) -> BytesResponse:
    """Answer with a page as JSON."""
    document = PageDocument(title=page.title, facts=dict(page.facts), tables=dict(page.tables))
    return BytesResponse(msgspec.json.encode(document), JSON, {})


def make_problem_page(problem: Problem, return_path: str) -> Page:
    """Make the page of an error; where nobody is signed in, with the form to do so, which leads to ``return_path``."""
    title = _TITLES.get(problem.status, problem.title)
    if problem.detail == NOTHING_SERVED:
        problem = msgspec.structs.replace(problem, next="go to the front page, or search for an artifact")
    context = {
        "problem": problem,
        "wants_token": problem.status == _UNAUTHORIZED,
        "was_refused": problem.detail != UNAUTHENTICATED,
        "return_path": return_path,
    }
    return Page("problem", title, context)


def _as_page(handler: Handler) -> Handler:
    """Answer as the API does to programs, and with a page of the same words to readers of pages."""

    def answer(request: AnyRequest, error: Any) -> Response[bytes]:  # noqa: ANN401 - Litestar's own signature
        response = handler(request, error)
        if request.scope["path"].startswith("/v1") or "text/html" not in request.headers.get("accept", ""):
            return response

        problem = msgspec.json.decode(response.content, type=Problem)
        service = request.app.state.service
        content = render_page(make_problem_page(problem, find_return_path(request)), view(request, service))
        response.headers.pop("www-authenticate", None)  # a browser would ask for a password of its own
        is_stale = problem.status == _UNAUTHORIZED and find_token(request) is not None
        return Response(
            content,
            status_code=response.status_code,
            media_type=MediaType.HTML,
            headers={**PAGE_HEADERS, **response.headers, "cache-control": "no-store"},
            cookies=[make_cookie(request, "")] if is_stale else [],
        )

    return answer


ON_PAGE_ERRORS: Final = {kind: _as_page(handler) for kind, handler in ON_ERRORS.items()}  # type: ignore[arg-type] # each takes the errors of its key


def redirect(path: str, cookies: tuple[Cookie, ...] = ()) -> Response[bytes]:
    """Answer a form with the page that shows its result."""
    return Response(
        b"",
        status_code=303,
        media_type=MediaType.HTML,
        headers={"location": path, "cache-control": "no-store"},
        cookies=list(cookies),
    )
