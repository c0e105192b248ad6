"""Routes of the page of a new evaluation, and of the forms that lock and queue it."""

from dataclasses import dataclass, fields
from typing import Final

from litestar import Controller, Response, get, post
from litestar.openapi.spec import OpenAPIType, Operation, Parameter, Schema

from benchlock.api.http.page_responses import JSON_RESPONSES, AnyRequest, redirect, respond_with_json, respond_with_page
from benchlock.api.http.page_sessions import PAGE, check_form
from benchlock.api.http.request_authorization import READ, RUN
from benchlock.api.http.request_limits import ASK
from benchlock.api.http.request_parsing import Injected
from benchlock.api.http.responses import BytesResponse
from benchlock.api.http.routes.job_routes import QueueService
from benchlock.api.http.routes.page_routes import LONGEST_FORM, READ_PAGE, Form, read_fields, read_query
from benchlock.api.http.routes.queue_page_routes import queue_form
from benchlock.api.web.links import lock_path, with_query
from benchlock.api.web.pages.new_pages import make_new, write_request
from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.requests.evaluation_request import parse_request
from benchlock.registry.requests.request_form import LONGEST_FIELD, RequestFields
from benchlock.registry.resolution.conflicts import ConflictError


def _lock(queues: QueueService, data: dict[str, str]) -> str:
    """Lock the request of a form, and queue it if the form says so; return the path of the result.

    A request that cannot be locked leads back to its page, which says why.
    """
    given = read_fields({name: [text] for name, text in data.items()}, RequestFields)
    try:
        document = write_request(queues.registry, given)
        if data.get("queue") == "1":
            return queue_form(queues, data, document)
        path = lock_path(queues.service.embedded.lock(parse_request(document, "request"), {}).lock.id)
        return with_query(path, isolation=given.isolation)
    except (InvalidInputError, ConflictError):
        return with_query("/new", **given.as_parameters())


class NewPageController(Controller):
    """The page of a new evaluation."""

    include_in_schema = False
    request_max_body_size = LONGEST_FORM

    @get("/new", opt=READ_PAGE | ASK)
    async def show_new(self, queues: Injected[QueueService], request: AnyRequest) -> BytesResponse:
        """Answer with the form and with the versions that would be locked; nothing is stored."""
        given = read_query(request, RequestFields)
        page = await queues.service.ask.do(make_new, queues.registry, queues.queue, given)
        return respond_with_page(page, request, queues.service)

    @post("/locks", opt=RUN | PAGE | ASK, status_code=303)
    async def create_lock(self, queues: Injected[QueueService], request: AnyRequest, data: Form) -> Response[bytes]:
        """Store the lock of the form, and queue it if the form asks for that."""
        check_form(request, data)
        return redirect(await queues.service.ask.do(_lock, queues, data))


@dataclass
class PreviewOperation(Operation):
    """The operation with the fields of the form as parameters, which the page reads from the address itself."""

    def __post_init__(self) -> None:
        """Describe the fields."""
        text = Schema(type=OpenAPIType.STRING, max_length=LONGEST_FIELD)
        self.parameters = [
            Parameter(field.name, "query", text, description=f"The field {field.name} of the form of a new evaluation.")
            for field in fields(RequestFields)
        ]


class PreviewController(Controller):
    """The page of a new evaluation as JSON."""

    tags = ("pages",)

    @get(
        "/requests/preview",
        opt=READ | ASK,
        operation_class=PreviewOperation,
        summary="Preview a request",
        responses=JSON_RESPONSES,
    )
    async def preview_request(self, queues: Injected[QueueService], request: AnyRequest) -> BytesResponse:
        """Resolve the request of a form and judge its choices; nothing is stored, and problems are in `facts`."""
        given = read_query(request, RequestFields)
        return respond_with_json(await queues.service.ask.do(make_new, queues.registry, queues.queue, given))


NEW_PAGES: Final = (NewPageController,)
