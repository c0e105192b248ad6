"""Routes of the page of a new evaluation, and of the forms that lock and queue it."""

from dataclasses import fields, make_dataclass
from typing import Annotated, Any, Final

from litestar import Controller, Response, get, post
from litestar.di import Provide
from litestar.params import Parameter

from benchlock.api.http.page_responses import (
    TWIN_RESPONSES,
    AnyRequest,
    redirect,
    respond_with_page,
    respond_with_twin,
)
from benchlock.api.http.page_sessions import PAGE, check_form
from benchlock.api.http.request_authorization import READ, RUN
from benchlock.api.http.request_limits import ASK
from benchlock.api.http.request_parsing import Injected
from benchlock.api.http.responses import BytesResponse
from benchlock.api.http.routes.job_routes import QueueService, queue_job
from benchlock.api.http.routes.page_routes import LONGEST_FORM, LONGEST_PARAMETER, READ_PAGE, Form, read_query
from benchlock.api.http.service_state import Service
from benchlock.api.local.local_registry import now
from benchlock.api.schemas.job_schemas import JobSubmission
from benchlock.api.web.links import lock_path, with_query
from benchlock.api.web.pages.new_pages import make_new, write_request
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.queue.queue_types import new_job_id, parse_job_id
from benchlock.registry.requests.evaluation_request import parse_request
from benchlock.registry.requests.request_form import RequestFields
from benchlock.registry.resolution.conflicts import ConflictError

_FORM = make_dataclass(
    "FormParameters",
    [
        (
            field.name,
            Annotated[
                str,
                Parameter(
                    description=f"The field {field.name} of the form of a new evaluation.",
                    max_length=LONGEST_PARAMETER,
                ),
            ],
            "",
        )
        for field in fields(RequestFields)
    ],
)
"""The fields of the form as parameters of an address, for the OpenAPI document."""


def _read_fields(data: dict[str, str]) -> RequestFields:
    """Return the fields of a form; those that the page does not have are ignored.

    Raises:
        InvalidInputError: A field is too long.
    """
    given = {field.name: data.get(field.name, "").strip() for field in fields(RequestFields)}
    for name, text in given.items():
        if len(text) > LONGEST_PARAMETER:
            raise InvalidInputError(f"the field {name} has more than {LONGEST_PARAMETER} characters", where=name)
    return RequestFields(**given)


def _lock(queues: QueueService, given: RequestFields, job: str | None) -> str:
    """Lock the request of a form, and queue it as ``job`` if that is set; return the path of the result.

    A request that cannot be locked leads back to its page, which says why.
    """
    embedded = queues.service.embedded
    try:
        document = write_request(queues.registry, given)
        if job is None:
            return lock_path(embedded.lock(parse_request(document, "request"), {}).lock.id)
        submission = JobSubmission(request=document, job=parse_job_id(job) if job else new_job_id(now()))
        return f"/jobs/{queue_job(embedded, queues.queue, submission).id.removeprefix('job/')}"
    except (InvalidInputError, ConflictError):
        return with_query("/new", **given.as_parameters())


class NewPageController(Controller):
    """The page of a new evaluation."""

    include_in_schema = False
    request_max_body_size = LONGEST_FORM

    @get("/new", opt=READ_PAGE | ASK)
    async def show_new(self, service: Injected[Service], request: AnyRequest) -> BytesResponse:
        """Answer with the form and with the versions that would be locked; nothing is stored."""
        page = await service.ask.do(make_new, service.registry, read_query(request, RequestFields))
        return respond_with_page(page, request, service)

    @post("/locks", opt=RUN | PAGE | ASK, status_code=303)
    async def create_lock(self, queues: Injected[QueueService], request: AnyRequest, data: Form) -> Response[bytes]:
        """Store the lock of the form, and queue it if the form asks for that."""
        check_form(request, data)
        job = data.get("job", "") if data.get("queue") == "1" else None
        return redirect(await queues.service.ask.do(_lock, queues, _read_fields(data), job))


class PreviewController(Controller):
    """The page of a new evaluation as JSON."""

    tags = ("pages",)

    @get(
        "/requests/preview",
        opt=READ | ASK,
        dependencies={"form": Provide(_FORM, sync_to_thread=False)},
        summary="Preview a request",
        responses=TWIN_RESPONSES,
    )
    async def preview_request(
        self, service: Injected[Service], request: AnyRequest, form: Injected[Any]
    ) -> BytesResponse:
        """Resolve the request of a form and judge its choices; nothing is stored, and problems are in `facts`."""
        del form  # as the page reads them
        return respond_with_twin(await service.ask.do(make_new, service.registry, read_query(request, RequestFields)))


NEW_PAGES: Final = (NewPageController,)
