"""Routes of pages as JSON, by the functions that make the pages."""

from dataclasses import fields, make_dataclass
from typing import Annotated, Any

import msgspec
from litestar import Controller, get
from litestar.di import Provide
from litestar.params import Parameter

from benchlock.api.http.openapi import describe_body, describe_responses, encode_example
from benchlock.api.http.page_responses import AnyRequest
from benchlock.api.http.request_authorization import READ
from benchlock.api.http.request_limits import ASK, COMPARE
from benchlock.api.http.request_parsing import Injected
from benchlock.api.http.responses import JSON, BytesResponse
from benchlock.api.http.routes.comparison_page_routes import parse_runs
from benchlock.api.http.routes.page_routes import LONGEST_PARAMETER, read_query
from benchlock.api.http.service_state import Service
from benchlock.api.schemas.page_schemas import PageDocument
from benchlock.api.web.page import Page
from benchlock.api.web.pages.compare_pages import RUNS, make_compare
from benchlock.api.web.pages.leaderboard_pages import LeaderboardQuery, make_leaderboard, make_leaderboards
from benchlock.api.web.pages.lock_pages import make_lock_diff
from benchlock.api.web.pages.new_pages import make_new
from benchlock.registry.requests.request_form import RequestFields

_LONGEST = LONGEST_PARAMETER
_LONGEST_ID = 71
_ID = "sha256:1c2ab5b6"
_EXAMPLE: Any = {
    "title": "Leaderboards",
    "facts": {"limit": ""},
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
_RESPONSES = describe_responses(
    "unknown-name",
    "integrity",
    "invalid-input",
    success={200: describe_body(PageDocument, "The page.", _EXAMPLE)},
)

LockIn = Annotated[
    str,
    Parameter(
        description="The id of a lock, or at least its first 4 hex digits.",
        max_length=_LONGEST_ID,
        examples=[encode_example(_ID)],
    ),
]
RunsIn = Annotated[
    list[Annotated[str, Parameter(max_length=30)]] | None,
    Parameter(
        description="The ids of the runs, with or without `run/`; the first is the reference.",
        required=False,
        max_items=RUNS,
        examples=[encode_example(["run/01kam1v3mz4w0q3d5g7h9j2k4m"])],
    ),
]
Anyway = Annotated[
    str, Parameter(description="`1` gives the figures of runs that are not comparable as well.", max_length=1)
]
DatasetIn = Annotated[
    str,
    Parameter(
        description="NAME@VERSION; without it, the list of leaderboards.",
        max_length=_LONGEST,
        examples=[encode_example("cifar10@1.0.0")],
    ),
]
SplitIn = Annotated[str, Parameter(description="A split of the dataset; without it, all.", max_length=_LONGEST)]
_FORM = make_dataclass(
    "FormParameters",
    [
        (
            field.name,
            Annotated[
                str,
                Parameter(
                    description=f"The field {field.name} of the form of a new evaluation.",
                    max_length=_LONGEST,
                ),
            ],
            "",
        )
        for field in fields(RequestFields)
    ],
)
"""The fields of the form as parameters of an address, for the OpenAPI document."""


class TwinController(Controller):
    """Pages as JSON that no other route has."""

    tags = ("pages",)

    @get("/locks/diff", opt=READ | ASK, summary="Read the differences between two locks", responses=_RESPONSES)
    async def read_lock_diff(self, service: Injected[Service], before: LockIn, after: LockIn) -> BytesResponse:
        """List the changes by artifact, and why runs of the locks are not comparable."""
        return _respond(await service.ask.do(make_lock_diff, service.registry, before, after))

    @get("/comparisons", opt=READ | COMPARE, summary="Read a comparison of runs", responses=_RESPONSES)
    async def read_comparison(
        self, service: Injected[Service], request: AnyRequest, run: RunsIn = None, anyway: Anyway = ""
    ) -> BytesResponse:
        """Compare runs with the first; without `anyway`, runs that are not comparable have reasons and no figures."""
        del run  # as the page reads them
        runs = parse_runs(request)
        page = await service.compare.do(make_compare, service.registry, runs, anyway=anyway == "1")
        return _respond(page)

    @get("/leaderboards", opt=READ | COMPARE, summary="Read leaderboards", responses=_RESPONSES)
    async def read_leaderboard(
        self, service: Injected[Service], dataset: DatasetIn = "", split: SplitIn = ""
    ) -> BytesResponse:
        """List the datasets with done runs, or rank the comparable runs on a dataset."""
        query = LeaderboardQuery(dataset.strip(), split.strip())
        if query.dataset:
            return _respond(await service.compare.do(make_leaderboard, service.registry, query))
        return _respond(await service.compare.do(make_leaderboards, service.registry))

    @get(
        "/requests/preview",
        opt=READ | ASK,
        dependencies={"form": Provide(_FORM, sync_to_thread=False)},
        summary="Preview a request",
        responses=_RESPONSES,
    )
    async def preview_request(
        self, service: Injected[Service], request: AnyRequest, form: Injected[Any]
    ) -> BytesResponse:
        """Resolve the request of a form and judge its choices; nothing is stored, and problems are in `facts`."""
        del form  # as the page reads them
        return _respond(await service.ask.do(make_new, service.registry, read_query(request, RequestFields)))


def _respond(page: Page) -> BytesResponse:
    document = PageDocument(title=page.title, facts=dict(page.facts), tables=dict(page.tables))
    return BytesResponse(msgspec.json.encode(document), JSON, {})
