"""Routes of the pages that only read, and of signing in and out."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Final, TypeVar, cast, get_args

import msgspec
from litestar import Controller, Response, get, post
from litestar.enums import RequestEncodingType
from litestar.params import Body, Parameter

from benchlock.api.http.openapi import build_document, encode_example
from benchlock.api.http.page_responses import (
    HTML,
    JSON_RESPONSES,
    AnyRequest,
    redirect,
    respond_compressed,
    respond_with_json,
    respond_with_page,
)
from benchlock.api.http.page_sessions import PAGE, check_form, local_path, make_cookie
from benchlock.api.http.request_authorization import READ
from benchlock.api.http.request_limits import COMPARE, LIST
from benchlock.api.http.request_parsing import Injected
from benchlock.api.http.responses import CACHE_FOREVER, BytesResponse
from benchlock.api.http.routes.artifact_routes import parse_content_filter, parse_version_filter
from benchlock.api.http.routes.job_routes import QueueService
from benchlock.api.http.routes.run_routes import RunIn as RunIdIn
from benchlock.api.http.routes.run_routes import parse_run_filter
from benchlock.api.http.service_state import Service
from benchlock.api.web.page import Page
from benchlock.api.web.pages.api_pages import make_api
from benchlock.api.web.pages.artifact_pages import make_artifact
from benchlock.api.web.pages.catalogue_pages import CatalogueQuery, make_catalogue, make_home
from benchlock.api.web.pages.provenance_pages import make_provenance
from benchlock.api.web.pages.run_pages import FLAGS, RunQuery, make_run, make_runs, make_samples
from benchlock.api.web.pages.trace_pages import export_trace, make_trace
from benchlock.api.web.pages.verdict_pages import make_verdict
from benchlock.api.web.pages.yank_pages import make_used_by
from benchlock.api.web.rendering import load_assets
from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.artifacts.size_limits import TARGET
from benchlock.evaluator.analysis.exports.formats import EXPORTS
from benchlock.evaluator.records.run_types import Outcome, RunFilter, parse_run_id
from benchlock.registry.artifact_names import KINDS, Kind, parse_reference
from benchlock.registry.catalogue.version_lists import VersionFilter
from benchlock.registry.manifests.manifest_types import Task
from benchlock.registry.requests.request_form import LONGEST_FIELD
from benchlock.registry.versions.semantic_version import LONGEST
from benchlock.registry.versions.version_ranges import LONGEST as LONGEST_RANGE

Query = TypeVar("Query")
Form = Annotated[dict[str, str], Body(media_type=RequestEncodingType.URL_ENCODED)]
PUBLIC_PAGE = {"needs": "public"} | PAGE
RunIn = Annotated[str, Parameter(max_length=30)]
PageNumber = Annotated[int, Parameter(ge=1, le=1000)]
TargetIn = Annotated[
    str,
    Parameter(
        description="KIND/NAME@VERSION.", examples=[encode_example("model/acme/resnet8@1.0.0")], max_length=TARGET
    ),
]
PlaceIn = Annotated[
    str, Parameter(description="`next_versions` or `next_locks` of the previous page.", max_length=1024)
]
READ_PAGE = READ | PAGE
LONGEST_FORM: Final = 1 << 16


def read_query(request: AnyRequest, type_: type[Query]) -> Query:
    """Return the state of a page from the parameters of its address; parameters that it does not have are ignored.

    The values of a parameter that is repeated, as check boxes repeat it, get commas between them.

    Raises:
        InvalidInputError: A parameter is too long.
    """
    return read_fields({name: request.query_params.getall(name) for name in request.query_params}, type_)


def read_fields(texts: Mapping[str, Sequence[str]], type_: type[Query]) -> Query:
    """Return the fields of a form from their texts; see ``read_query``."""
    names = [field.name for field in fields(type_)]  # type: ignore[arg-type] # a dataclass
    given = {name: ", ".join(filter(None, map(str.strip, texts.get(name, ())))) for name in names}
    for name, text in given.items():
        if len(text) > LONGEST_FIELD:
            raise InvalidInputError(f"{name} has more than {LONGEST_FIELD} characters", where=name)
    return type_(**given)


def choose(name: str, text: str, values: Sequence[str]) -> str | None:
    """Return one of ``values``, None for an empty text.

    Raises:
        InvalidInputError: It is none of them.
    """
    if text and text not in values:
        raise InvalidInputError(f"unknown {name} {text[:64]!r}", where=name, next_step=f"use {', '.join(values)}")
    return text or None


def _parse_listing(query: CatalogueQuery) -> VersionFilter:
    kind, task = choose("kind", query.kind, KINDS), choose("task", query.task, get_args(Task))
    content = parse_content_filter(
        task=cast("Task | None", task),
        framework=query.framework or None,
        search=query.search or None,
        tag=query.tag or None,
        license=query.license or None,
        platform=query.platform or None,
    )
    return parse_version_filter(content, cast("Kind | None", kind))


def _parse_chosen(query: RunQuery) -> RunFilter:
    outcome = choose("outcome", query.outcome, get_args(Outcome))
    flagged = choose("flagged", query.flagged, tuple(FLAGS))
    return parse_run_filter(
        lock=query.lock or None,
        outcome=cast("Outcome | None", outcome),
        model=query.model or None,
        operator=query.operator or None,
        recipe=query.recipe or None,
        dataset=query.dataset or None,
        since=query.since or None,
        flagged=None if flagged is None else flagged == "true",
    )


class AssetController(Controller):
    """The style sheet and the script, whose names change with their content."""

    include_in_schema = False

    @get("/assets/{name:str}", opt=PUBLIC_PAGE)
    async def read_asset(self, request: AnyRequest, name: Annotated[str, Parameter(max_length=64)]) -> BytesResponse:
        """Answer with an asset."""
        found = load_assets().get(name)
        if found is None:
            raise UnknownNameError("unknown asset")
        headers = {"cache-control": CACHE_FOREVER.replace("private", "public")}
        return respond_compressed(request, *found, headers)


class ApiPageController(Controller):
    """The page of the API."""

    include_in_schema = False
    _page: Page | None = None

    @get("/v1/docs", opt=PUBLIC_PAGE)
    async def show_api(self, service: Injected[Service], request: AnyRequest) -> BytesResponse:
        """Answer with the OpenAPI document for readers."""
        if self._page is None:
            self._page = make_api(msgspec.json.decode(msgspec.json.encode(build_document(request.app))))
        return respond_with_page(self._page, request, service)


class PageController(Controller):
    """Pages that read."""

    include_in_schema = False

    @get("/", opt=READ_PAGE)
    async def show_home(self, service: Injected[Service], request: AnyRequest) -> BytesResponse:
        """Answer with the front page."""
        return respond_with_page(await service.lists.do(make_home, service.registry), request, service)

    @get("/artifacts", opt=READ_PAGE | LIST)
    async def list_artifacts(self, queues: Injected[QueueService], request: AnyRequest) -> BytesResponse:
        """Answer with a page of the catalogue, or redirect to the run, job or lock that is the only match."""
        service, query = queues.service, read_query(request, CatalogueQuery)
        listing = _parse_listing(query)
        page = await service.lists.do(make_catalogue, service.registry, query, listing, queues.queue)
        if page.context["jump"] is not None and "csv" not in request.query_params:
            headers = {"location": page.context["jump"], "cache-control": "no-store"}
            return BytesResponse(b"", HTML, headers, 303)
        return respond_with_page(page, request, service)

    @get([f"/{kind}/{{name:path}}" for kind in KINDS], opt=READ_PAGE | COMPARE)
    async def show_artifact(
        self,
        service: Injected[Service],
        request: AnyRequest,
        name: Annotated[str, Parameter(max_length=TARGET)],
        below: Annotated[str, Parameter(max_length=LONGEST)] = "",
        versions: Annotated[str, Parameter(max_length=LONGEST_RANGE)] = "",
    ) -> BytesResponse:
        """Answer with the page of an artifact."""
        kind = request.scope["path"].split("/")[1]
        page = await service.compare.do(make_artifact, service.registry, f"{kind}{name}", below, versions)
        return respond_with_page(page, request, service)

    @get("/used-by", opt=READ_PAGE | LIST)
    async def show_uses(
        self,
        service: Injected[Service],
        request: AnyRequest,
        target: TargetIn,
        versions: PlaceIn = "",
        locks: PlaceIn = "",
    ) -> BytesResponse:
        """Answer with the versions that need a version, and the locks that have it."""
        reference = parse_reference(target)
        page = await service.lists.do(make_used_by, service.registry, reference, versions, locks)
        return respond_with_page(page, request, service)

    @get("/runs", opt=READ_PAGE | LIST)
    async def list_runs(self, service: Injected[Service], request: AnyRequest) -> BytesResponse:
        """Answer with a page of the list of runs."""
        query = read_query(request, RunQuery)
        page = await service.lists.do(make_runs, service.registry, query, _parse_chosen(query))
        return respond_with_page(page, request, service)

    @get("/runs/{run_id:str}", opt=READ_PAGE | COMPARE)
    async def show_run(self, queues: Injected[QueueService], request: AnyRequest, run_id: RunIn) -> BytesResponse:
        """Answer with the page of a run."""
        service, run = queues.service, parse_run_id(f"run/{run_id}")
        page = await service.compare.do(make_run, service.registry, queues.queue, run)
        return respond_with_page(page, request, service)


class TraceController(Controller):
    """The wrong samples, the provenance, the verdict and the trace of a run."""

    include_in_schema = False

    @get("/runs/{run_id:str}/samples", opt=READ_PAGE | COMPARE)
    async def show_samples(
        self, service: Injected[Service], request: AnyRequest, run_id: RunIn, page: PageNumber = 1
    ) -> BytesResponse:
        """Answer with the samples that a run predicted wrongly."""
        run = parse_run_id(f"run/{run_id}")
        return respond_with_page(await service.compare.do(make_samples, service.registry, run, page), request, service)

    @get("/runs/{run_id:str}/provenance", opt=READ_PAGE | COMPARE)
    async def show_provenance(self, service: Injected[Service], request: AnyRequest, run_id: RunIn) -> BytesResponse:
        """Answer with the page of a run's provenance."""
        page = await service.compare.do(make_provenance, service.registry, parse_run_id(f"run/{run_id}"))
        return respond_with_page(page, request, service)

    @get("/runs/{run_id:str}/verdict", opt=READ_PAGE | COMPARE)
    async def show_verdict(
        self, queues: Injected[QueueService], request: AnyRequest, run_id: RunIn, against: RunIn = ""
    ) -> BytesResponse:
        """Answer with the verdict on a run, compared with an earlier run of its lock."""
        run, earlier = parse_run_id(f"run/{run_id}"), parse_run_id(against) if against else None
        service = queues.service
        page = await service.compare.do(make_verdict, service.registry, run, earlier, queues.queue)
        return respond_with_page(page, request, service)

    @get("/runs/{run_id:str}/trace", opt=READ_PAGE | COMPARE)
    async def show_trace(
        self,
        service: Injected[Service],
        request: AnyRequest,
        run_id: RunIn,
        focus: Annotated[str, Parameter(max_length=128)] = "",
    ) -> BytesResponse:
        """Answer with the page of a trace, zoomed into the part in the address."""
        page = await service.compare.do(make_trace, service.registry, parse_run_id(f"run/{run_id}"), focus)
        return respond_with_page(page, request, service)

    @get("/runs/{run_id:str}/trace/{format_:str}", opt=READ_PAGE | COMPARE)
    async def download_trace(self, service: Injected[Service], run_id: RunIn, format_: RunIn) -> BytesResponse:
        """Answer with a trace as the file of a viewer."""
        if choose("format", format_, tuple(EXPORTS)) is None:
            raise InvalidInputError("no format", next_step=", ".join(EXPORTS))
        run = parse_run_id(f"run/{run_id}")
        content = await service.compare.do(export_trace, service.registry, run, format_)
        headers = {"content-disposition": f'attachment; filename="trace-{format_}"', "cache-control": "no-store"}
        return BytesResponse(content, "application/octet-stream", headers)


class SampleController(Controller):
    """The wrong samples of a run as JSON."""

    tags = ("pages",)

    @get(
        "/runs/{run_id:str}/samples",
        opt=READ | COMPARE,
        summary="Read the wrong samples of a run",
        responses=JSON_RESPONSES,
    )
    async def read_samples(self, service: Injected[Service], run_id: RunIdIn) -> BytesResponse:
        """List the samples that a run predicted wrongly, the worst first, or say why they cannot be listed."""
        return respond_with_json(
            await service.compare.do(make_samples, service.registry, parse_run_id(f"run/{run_id}"))
        )


class UseController(Controller):
    """What uses a version, as JSON."""

    tags = ("pages",)

    @get("/used-by", opt=READ | LIST, summary="List what uses a version", responses=JSON_RESPONSES)
    async def read_uses(
        self, service: Injected[Service], target: TargetIn, versions: PlaceIn = "", locks: PlaceIn = ""
    ) -> BytesResponse:
        """List the versions that need a version, and the locks that have it, each from its own cursor on."""
        page = await service.lists.do(make_used_by, service.registry, parse_reference(target), versions, locks)
        return respond_with_json(page)


class SessionController(Controller):
    """Signing in and out."""

    include_in_schema = False
    request_max_body_size = LONGEST_FORM

    @post("/sign-in", opt=PUBLIC_PAGE, status_code=303)
    async def sign_in(self, request: AnyRequest, data: Form) -> Response[bytes]:
        """Keep a token in a cookie; the page that comes next says whether it is valid."""
        check_form(request, data)
        cookie = make_cookie(request, data.get("token", "").strip())
        return redirect(local_path(data.get("next", "/")), (cookie,))

    @post("/sign-out", opt=PUBLIC_PAGE, status_code=303)
    async def sign_out(self, request: AnyRequest, data: Form) -> Response[bytes]:
        """Forget the token."""
        check_form(request, data)
        return redirect("/", (make_cookie(request, ""),))


PAGE_CONTROLLERS = (AssetController, ApiPageController, PageController, TraceController, SessionController)
