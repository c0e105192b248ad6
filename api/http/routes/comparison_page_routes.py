"""Routes of the pages of locks, comparisons and leaderboards, with their forms and their JSON."""

from typing import Annotated, Final

from litestar import Controller, Response, get, post
from litestar.params import Parameter
from msgspec import Meta, ValidationError, convert

from benchlock.api.http.openapi import encode_example
from benchlock.api.http.page_responses import (
    HTML,
    JSON_RESPONSES,
    AnyRequest,
    redirect,
    respond_with_json,
    respond_with_page,
)
from benchlock.api.http.page_sessions import PAGE, check_form
from benchlock.api.http.request_authorization import READ, RUN
from benchlock.api.http.request_limits import ASK, COMPARE, WHILE_FULL
from benchlock.api.http.request_parsing import Injected
from benchlock.api.http.responses import BytesResponse
from benchlock.api.http.routes.job_routes import ComparisonIdIn, QueueService, queue_comparison_jobs
from benchlock.api.http.routes.lock_routes import TOML
from benchlock.api.http.routes.page_routes import LONGEST_FORM, READ_PAGE, Form, RunIn, read_query
from benchlock.api.http.service_state import Service
from benchlock.api.schemas import job_schemas as wire
from benchlock.api.web.links import comparison_path, lock_diff_path, with_query
from benchlock.api.web.pages.compare_pages import MOST_RUNS, make_compare
from benchlock.api.web.pages.leaderboard_pages import LeaderboardQuery, make_leaderboard, make_leaderboards
from benchlock.api.web.pages.lock_pages import make_lock, make_lock_diff, write_lock
from benchlock.api.web.pages.queue_pages import make_comparison
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.records.run_types import parse_run_id
from benchlock.registry.requests.request_form import LONGEST_FIELD

_FILE: Final = ".toml"
_BETWEEN: Final = "..."
_LONGEST_ID: Final = 71
_PERCENT: Final = 100
_SEE_OTHER: Final = 303

LockIn = Annotated[
    str,
    Parameter(
        description="The id of a lock, or at least its first 4 hex digits.",
        max_length=_LONGEST_ID,
        examples=[encode_example("sha256:1c2ab5b6")],
    ),
]
RunsIn = Annotated[
    list[Annotated[str, Parameter(max_length=30)]] | None,
    Parameter(
        description="The ids of runs or their first characters, with or without `run/`; the first is the reference.",
        required=False,
        max_items=MOST_RUNS,
        examples=[encode_example(["run/01kam1v3mz4w0q3d5g7h9j2k4m"])],
    ),
]
Anyway = Annotated[
    str, Parameter(description="`1` gives the results of runs that are not comparable as well.", max_length=1)
]
DatasetIn = Annotated[
    str,
    Parameter(
        description="NAME@VERSION; without it, the list of leaderboards.",
        max_length=LONGEST_FIELD,
        examples=[encode_example("cifar10@1.0.0")],
    ),
]
SplitIn = Annotated[str, Parameter(description="A split of the dataset; without it, all.", max_length=LONGEST_FIELD)]

CursorIn = Annotated[str, Parameter(description="Where the page of the list begins.", max_length=LONGEST_FIELD)]


def read_runs(request: AnyRequest) -> tuple[str, ...]:
    """Return the runs in the address as written: ids or the beginnings of them, with or without ``run/``."""
    texts = [text.strip() for text in request.query_params.getall("run", [])]
    return tuple(text[:_LONGEST_ID] for text in texts if text)


class LockPageController(Controller):
    """Pages of locks."""

    include_in_schema = False

    @get("/locks/{name:str}", opt=READ_PAGE | ASK)
    async def show_lock(
        self,
        queues: Injected[QueueService],
        request: AnyRequest,
        name: Annotated[str, Parameter(max_length=2 * _LONGEST_ID + len(_BETWEEN))],
        against: Annotated[str, Parameter(max_length=_LONGEST_ID)] = "",
        isolation: Annotated[str, Parameter(max_length=_LONGEST_ID)] = "",
    ) -> BytesResponse:
        """Answer with a lock, with its file for ``ID.toml``, or with the differences of two for ``ID...ID``."""
        service, registry, (before, between, after) = queues.service, queues.registry, name.partition(_BETWEEN)
        if between:
            page = await service.ask.do(make_lock_diff, registry, before, after, queues.queue)
            return respond_with_page(page, request, service)
        if name.endswith(_FILE):
            file, content = await service.ask.do(write_lock, registry, name.removesuffix(_FILE))
            headers = {"content-disposition": f'attachment; filename="{file}"', "cache-control": "private, no-cache"}
            return BytesResponse(content, TOML, headers)
        if against.strip():
            headers = {"location": lock_diff_path(name, against.strip()), "cache-control": "no-store"}
            return BytesResponse(b"", HTML, headers, _SEE_OTHER)
        page = await service.ask.do(make_lock, registry, queues.queue, name, isolation)
        return respond_with_page(page, request, service)


class ComparisonPageController(Controller):
    """Pages that compare runs."""

    include_in_schema = False

    @get("/compare", opt=READ_PAGE | COMPARE)
    async def show_comparison(self, queues: Injected[QueueService], request: AnyRequest) -> BytesResponse:
        """Answer with the comparison of the runs in the address."""
        runs, anyway = read_runs(request), request.query_params.get("anyway") == "1"
        service = queues.service
        page = await service.compare.do(make_compare, queues.registry, runs, anyway=anyway, queue=queues.queue)
        return respond_with_page(page, request, service)

    @get("/leaderboards", opt=READ_PAGE | COMPARE)
    async def show_leaderboards(self, service: Injected[Service], request: AnyRequest) -> BytesResponse:
        """Answer with the list of leaderboards, or with the boards of the dataset in the address."""
        query = read_query(request, LeaderboardQuery)
        if query.dataset:
            page = await service.compare.do(make_leaderboard, service.registry, query)
        else:
            page = await service.compare.do(make_leaderboards, service.registry, query)
        return respond_with_page(page, request, service)


class ComparisonTwinController(Controller):
    """The pages of comparisons as JSON."""

    tags = ("pages",)

    @get("/locks/diff", opt=READ | ASK, summary="Read the differences between two locks", responses=JSON_RESPONSES)
    async def read_lock_diff(self, service: Injected[Service], before: LockIn, after: LockIn) -> BytesResponse:
        """List the changes by artifact, and why runs of the locks are not comparable."""
        return respond_with_json(await service.ask.do(make_lock_diff, service.registry, before, after))

    @get("/comparisons", opt=READ | COMPARE, summary="Read a comparison of runs", responses=JSON_RESPONSES)
    async def read_comparison(
        self, service: Injected[Service], request: AnyRequest, run: RunsIn = None, anyway: Anyway = ""
    ) -> BytesResponse:
        """Compare runs with the first; without `anyway`, runs that are not comparable have reasons and no results."""
        del run  # as the page reads them
        runs = read_runs(request)
        page = await service.compare.do(make_compare, service.registry, runs, anyway=anyway == "1")
        return respond_with_json(page)

    @get("/leaderboards", opt=READ | COMPARE, summary="Read leaderboards", responses=JSON_RESPONSES)
    async def read_leaderboard(
        self, service: Injected[Service], dataset: DatasetIn = "", split: SplitIn = "", cursor: CursorIn = ""
    ) -> BytesResponse:
        """List the datasets with done runs, or rank the comparable runs on a dataset."""
        query = LeaderboardQuery(dataset.strip(), split.strip(), cursor)
        if query.dataset:
            return respond_with_json(await service.compare.do(make_leaderboard, service.registry, query))
        return respond_with_json(await service.compare.do(make_leaderboards, service.registry, query))


class QueuedComparisonPageController(Controller):
    """The page of an interleaved comparison, and the forms that queue and cancel one."""

    include_in_schema = False
    request_max_body_size = LONGEST_FORM

    @post("/comparisons", opt=RUN | ASK | PAGE, status_code=303)
    async def queue_comparison(
        self, queues: Injected[QueueService], request: AnyRequest, data: Form
    ) -> Response[bytes]:
        """Queue a comparison; a form that is sent twice makes one."""
        check_form(request, data)
        against = parse_run_id(data["against"]) if data.get("against") else None
        queued = await queues.service.ask.do(queue_comparison_jobs, queues, _read_form(data))
        return redirect(with_query(comparison_path(queued.comparison), against=against))

    @get("/comparisons/{comparison:str}", opt=READ_PAGE | COMPARE)
    async def show_comparison(
        self, queues: Injected[QueueService], request: AnyRequest, comparison: ComparisonIdIn, against: RunIn = ""
    ) -> BytesResponse:
        """Answer with the progress of a comparison, and with its result once all its runs are done."""
        anyway = request.query_params.get("anyway") == "1"
        original = parse_run_id(against) if against else None
        service, registry = queues.service, queues.registry
        page = await service.compare.do(
            make_comparison, registry, queues.queue, comparison, anyway=anyway, against=original
        )
        return respond_with_page(page, request, service)

    @post("/comparisons/{comparison:str}/cancel", opt=RUN | WHILE_FULL | PAGE, status_code=303)
    async def cancel_comparison(
        self, queues: Injected[QueueService], request: AnyRequest, comparison: ComparisonIdIn, data: Form
    ) -> Response[bytes]:
        """Cancel a comparison."""
        check_form(request, data)
        await queues.service.work.do(queues.queue.cancel_comparison, comparison)
        return redirect(comparison_path(comparison))


def _read_form(data: dict[str, str]) -> wire.ComparisonSubmission:
    """Return the comparison that a form asks for; the ids of its locks are separated by spaces.

    A margin is in percent, of the metric in the form.

    Raises:
        InvalidInputError: A field is malformed or out of bounds.
    """
    given: dict[str, object] = {name: data[name] for name in ("machine", "rounds", "comparison") if data.get(name)}
    try:
        if data.get("metric"):
            percent = convert(data.get("margin", ""), Annotated[float, Meta(gt=0, lt=_PERCENT)], strict=False)
            given["margins"] = {data["metric"]: percent / _PERCENT}
        return convert({**given, "locks": data.get("locks", "").split()}, wire.ComparisonSubmission, strict=False)
    except ValidationError as error:
        raise InvalidInputError(f"invalid comparison: {error}") from error


COMPARISON_PAGE_CONTROLLERS = (LockPageController, ComparisonPageController, QueuedComparisonPageController)
