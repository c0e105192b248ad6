"""Routes of interleaved comparisons in the queue: of the API, and their page with its forms."""

from typing import Annotated, Final

from litestar import Controller, Response, delete, get, post
from litestar.params import Body, Parameter
from msgspec import UNSET, ValidationError, convert

from benchlock.api.http.openapi import describe_body, describe_responses, encode_example
from benchlock.api.http.page_responses import AnyRequest, redirect, respond_with_page
from benchlock.api.http.page_sessions import PAGE, check_form
from benchlock.api.http.request_authorization import READ, RUN
from benchlock.api.http.request_limits import ASK, COMPARE, WHILE_FULL
from benchlock.api.http.request_parsing import Injected
from benchlock.api.http.responses import BytesResponse
from benchlock.api.http.routes.job_routes import JOB, QueueService
from benchlock.api.http.routes.page_routes import READ_PAGE, Form
from benchlock.api.local.local_registry import now
from benchlock.api.schemas import job_schemas as wire
from benchlock.api.web.links import comparison_path
from benchlock.api.web.pages.interleaved_pages import make_comparison
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.queue.queued_comparisons import ComparisonRequest, queue_comparison
from benchlock.evaluator.records.comparison_types import new_comparison_id

_ID: Final = "5f0c3a9d1b22e47a"
_TURN = {"kind": "comparison", "id": _ID, "round": 1, "rounds": 6, "arm": 0, "control": False, "margins": {}}
_COMPARISON: Final = {"comparison": _ID, "jobs": [JOB | {"part_of": _TURN}]}
_LONGEST_FORM: Final = 1 << 16

IdIn = Annotated[
    str,
    Parameter(description="The id of the comparison.", pattern=r"^[0-9a-f]{16}$", examples=[encode_example(_ID)]),
]
ComparisonIn = Annotated[
    wire.ComparisonSubmission, Body(examples=[encode_example({"locks": [JOB["lock"], "sha256:" + "1" * 64]})])
]


class QueuedComparisonController(Controller):
    """Routes ``/v1/comparisons/interleaved``."""

    tags = ("jobs",)

    @post(
        "/comparisons/interleaved",
        opt=RUN | ASK,
        status_code=201,
        summary="Queue an interleaved comparison",
        responses=describe_responses(
            "missing-blobs",
            "unknown-name",
            "invalid-input",
            "integrity",
            "refused",
            body=True,
            success={201: describe_body(wire.QueuedComparison, "The comparison.", _COMPARISON)},
        ),
    )
    async def queue_comparison(self, queues: Injected[QueueService], data: ComparisonIn) -> wire.QueuedComparison:
        """Queue runs of stored `locks` in turn on one machine, so that their times can be compared."""
        return await queues.service.ask.do(_submit, queues, data)

    @get(
        "/comparisons/interleaved/{comparison:str}",
        opt=READ,
        summary="Read an interleaved comparison",
        responses=describe_responses(
            "unknown-name",
            "invalid-input",
            success={200: describe_body(wire.QueuedComparison, "The comparison.", _COMPARISON)},
        ),
    )
    async def read_comparison(self, queues: Injected[QueueService], comparison: IdIn) -> wire.QueuedComparison:
        """Read its jobs, whose runs `POST /v1/comparisons` compares once all are done."""
        jobs = await queues.service.work.do(queues.queue.comparison, comparison)
        return wire.QueuedComparison(comparison=comparison, jobs=tuple(jobs))

    @delete(
        "/comparisons/interleaved/{comparison:str}",
        opt=RUN,
        status_code=200,
        summary="Cancel an interleaved comparison",
        responses=describe_responses(
            "unknown-name",
            "invalid-input",
            success={200: describe_body(wire.QueuedComparison, "The comparison.", _COMPARISON)},
        ),
    )
    async def cancel_comparison(self, queues: Injected[QueueService], comparison: IdIn) -> wire.QueuedComparison:
        """Cancel its jobs that have not ended, each as `DELETE /v1/jobs/{job_id}` does."""
        jobs = await queues.service.work.do(queues.queue.cancel_comparison, comparison)
        return wire.QueuedComparison(comparison=comparison, jobs=tuple(jobs))


class QueuedComparisonPageController(Controller):
    """The page of an interleaved comparison, and the forms that queue and cancel one."""

    include_in_schema = False
    request_max_body_size = _LONGEST_FORM

    @post("/comparisons", opt=RUN | ASK | PAGE, status_code=303)
    async def queue_comparison(
        self, queues: Injected[QueueService], request: AnyRequest, data: Form
    ) -> Response[bytes]:
        """Queue a comparison; a form that is sent twice makes one."""
        check_form(request, data)
        queued = await queues.service.ask.do(_submit, queues, _read_form(data))
        return redirect(comparison_path(queued.comparison))

    @get("/comparisons/{comparison:str}", opt=READ_PAGE | COMPARE)
    async def show_comparison(
        self, queues: Injected[QueueService], request: AnyRequest, comparison: IdIn
    ) -> BytesResponse:
        """Answer with the progress of a comparison, and with its result once all its runs are done."""
        anyway = request.query_params.get("anyway") == "1"
        service = queues.service
        page = await service.compare.do(make_comparison, queues.registry, queues.queue, comparison, anyway=anyway)
        return respond_with_page(page, request, service)

    @post("/comparisons/{comparison:str}/cancel", opt=RUN | WHILE_FULL | PAGE, status_code=303)
    async def cancel_comparison(
        self, queues: Injected[QueueService], request: AnyRequest, comparison: IdIn, data: Form
    ) -> Response[bytes]:
        """Cancel a comparison."""
        check_form(request, data)
        await queues.service.work.do(queues.queue.cancel_comparison, comparison)
        return redirect(comparison_path(comparison))


def _read_form(data: dict[str, str]) -> wire.ComparisonSubmission:
    """Return the comparison that a form asks for; the ids of its locks are separated by spaces.

    Raises:
        InvalidInputError: A field is malformed or out of bounds.
    """
    rounds = data.get("rounds", "")
    if rounds and not (rounds.isascii() and rounds.isdecimal() and len(rounds) <= len("24")):
        raise InvalidInputError(f"invalid number of rounds {rounds[:64]!r}", where="rounds")
    given = {name: data[name] for name in ("machine", "isolation", "comparison") if data.get(name)}
    document = {**given, "locks": data.get("locks", "").split(), **({"rounds": int(rounds)} if rounds else {})}
    try:
        return convert(document, wire.ComparisonSubmission)
    except ValidationError as error:
        raise InvalidInputError(f"invalid comparison: {error}") from error


def _submit(queues: QueueService, data: wire.ComparisonSubmission) -> wire.QueuedComparison:
    request = ComparisonRequest(
        new_comparison_id() if data.comparison is UNSET else data.comparison,
        [queues.registry.read_lock(lock) for lock in data.locks],
        data.machine,
        data.rounds,
        data.isolation,
    )
    jobs = queue_comparison(queues.queue, queues.registry.store, request, now)
    return wire.QueuedComparison(comparison=request.id, jobs=tuple(jobs))
