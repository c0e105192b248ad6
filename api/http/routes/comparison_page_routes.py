"""Routes of the pages of locks, comparisons and leaderboards."""

from typing import Annotated, Final

from litestar import Controller, get
from litestar.params import Parameter

from benchlock.api.http.page_responses import HTML, AnyRequest, respond_with_page
from benchlock.api.http.request_limits import ASK, COMPARE
from benchlock.api.http.request_parsing import Injected
from benchlock.api.http.responses import BytesResponse
from benchlock.api.http.routes.job_routes import QueueService
from benchlock.api.http.routes.lock_routes import TOML
from benchlock.api.http.routes.page_routes import READ_PAGE, read_query
from benchlock.api.http.service_state import Service
from benchlock.api.web.links import lock_diff_path
from benchlock.api.web.pages.compare_pages import make_compare
from benchlock.api.web.pages.leaderboard_pages import LeaderboardQuery, make_leaderboard, make_leaderboards
from benchlock.api.web.pages.lock_pages import make_lock, make_lock_diff, write_lock
from benchlock.evaluator.records.run_types import RunId, parse_run_id

_RUN: Final = "run/"
_FILE: Final = ".toml"
_BETWEEN: Final = "..."
_LONGEST_ID: Final = 71
_SEE_OTHER: Final = 303


def _parse_runs(request: AnyRequest) -> tuple[RunId, ...]:
    """Return the runs in the address, with or without ``run/``.

    Raises:
        InvalidInputError: A text is not a run id.
    """
    texts = [text.strip() for text in request.query_params.getall("run", []) if text.strip()]
    return tuple(parse_run_id(text[:64] if text.startswith(_RUN) else f"{_RUN}{text[:64]}") for text in texts)


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
        return respond_with_page(await service.ask.do(make_lock, registry, name), request, service)


class ComparisonPageController(Controller):
    """Pages that compare runs."""

    include_in_schema = False

    @get("/compare", opt=READ_PAGE | COMPARE)
    async def show_comparison(self, queues: Injected[QueueService], request: AnyRequest) -> BytesResponse:
        """Answer with the comparison of the runs in the address."""
        runs, anyway = _parse_runs(request), request.query_params.get("anyway") == "1"
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
            page = await service.compare.do(make_leaderboards, service.registry)
        return respond_with_page(page, request, service)


COMPARISON_PAGE_CONTROLLERS = (LockPageController, ComparisonPageController)
