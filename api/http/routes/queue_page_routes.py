"""Routes of the pages of the queue, of tokens, of the audit log and of yanks, with their forms."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, cast, get_args

from litestar import Controller, HttpMethod, Response, get, post
from litestar.params import Parameter
from litestar.response import Stream
from msgspec import UNSET

from benchlock.api.http.page_responses import AnyRequest, redirect, respond_with_page
from benchlock.api.http.page_sessions import PAGE, check_form
from benchlock.api.http.request_authorization import ADMIN, PUBLISH, RUN, OpenAuthority
from benchlock.api.http.request_limits import ASK, COMPARE, LIST, WATCH_PAGE, WHILE_FULL
from benchlock.api.http.request_parsing import Injected
from benchlock.api.http.responses import BytesResponse
from benchlock.api.http.routes.access_routes import revoke
from benchlock.api.http.routes.artifact_routes import yank
from benchlock.api.http.routes.job_routes import MatrixIdIn, QueueService, queue_job
from benchlock.api.http.routes.page_routes import LONGEST_FORM, READ_PAGE, Form, RunIn, choose, read_query
from benchlock.api.http.service_state import Service
from benchlock.api.local.local_registry import now, open_log, open_tokens
from benchlock.api.schemas.artifact_schemas import YankRequest
from benchlock.api.schemas.job_schemas import JobSubmission
from benchlock.api.web.links import artifact_path, job_path, matrix_path, with_query
from benchlock.api.web.page import Page
from benchlock.api.web.pages.access_pages import (
    LogQuery,
    TokenQuery,
    make_log,
    make_new_token,
    make_open_tokens,
    make_tokens,
)
from benchlock.api.web.pages.matrix_pages import MatrixQuery, make_matrix
from benchlock.api.web.pages.queue_pages import MATRICES, QueueQuery, make_job, make_queue
from benchlock.api.web.pages.yank_pages import make_yank
from benchlock.artifacts.size_limits import TARGET
from benchlock.evaluator.queue.queue_types import JobId, JobState, parse_job_id
from benchlock.evaluator.records.run_types import RunId, parse_isolation, parse_run_id
from benchlock.registry.artifact_names import parse_reference
from benchlock.registry.auth.permissions import Scopes
from benchlock.registry.auth.tokens import parse_lifetime, parse_token_id

JobIn = Annotated[str, Parameter(max_length=30)]
Count = Annotated[int, Parameter(ge=0)]
_DIGITS: Final = 10
"""The maximum number of digits in the number of a line."""


class QueuePageController(Controller):
    """The pages of the queue, and the forms that submit and cancel jobs."""

    include_in_schema = False
    request_max_body_size = LONGEST_FORM

    @get("/matrices", opt=READ_PAGE)
    async def find_matrices(self) -> Response[bytes]:
        """Answer with the matrices in the queue, where a reader shortens the path of one."""
        return redirect("/jobs#matrices")

    @get("/jobs", opt=READ_PAGE | LIST)
    async def show_queue(self, queues: Injected[QueueService], request: AnyRequest) -> BytesResponse:
        """Answer with the jobs and the machines."""
        query = read_query(request, QueueQuery)
        state = cast("JobState | None", choose("state", query.state, get_args(JobState)))
        page = await queues.service.lists.do(_make_queue, queues, query, state)
        return respond_with_page(page, request, queues.service)

    @get("/jobs/{job_id:str}", opt=READ_PAGE)
    async def show_job(
        self, queues: Injected[QueueService], request: AnyRequest, job_id: JobIn, against: RunIn = ""
    ) -> BytesResponse:
        """Answer with the page of a job, and when it is done with the verdict against a run."""
        job, original = parse_job_id(f"job/{job_id}"), parse_run_id(against) if against else None
        page = await queues.service.work.do(_make_job, queues, job, original)
        return respond_with_page(page, request, queues.service)

    @get("/jobs/{job_id:str}/events", opt=READ_PAGE | WATCH_PAGE, media_type="text/event-stream")
    async def watch_job(
        self, queues: Injected[QueueService], request: AnyRequest, job_id: JobIn, fence: Count = 0, after: Count = 0
    ) -> Stream:
        """Answer with the events of a job while it runs: its state, and its lines by their numbers."""
        job = await queues.service.work.do(queues.queue.job, parse_job_id(f"job/{job_id}"))
        last = request.headers.get("last-event-id", "")
        after = int(last) if last.isdecimal() and len(last) <= _DIGITS else after
        events = iter(()) if request.method == HttpMethod.HEAD else queues.live.stream(job.id, fence, after)
        return Stream(events, headers={"cache-control": "no-store", "x-accel-buffering": "no"})

    @post("/jobs", opt=RUN | ASK | PAGE, status_code=303)
    async def submit_job(self, queues: Injected[QueueService], request: AnyRequest, data: Form) -> Response[bytes]:
        """Queue a run of a lock; a form that is sent twice makes one job."""
        check_form(request, data)
        against = parse_run_id(data["against"]) if data.get("against") else None
        return redirect(with_query(await queues.service.ask.do(queue_form, queues, data), against=against))

    @post("/jobs/{job_id:str}/cancel", opt=RUN | WHILE_FULL | PAGE, status_code=303)
    async def cancel_job(
        self, queues: Injected[QueueService], request: AnyRequest, job_id: JobIn, data: Form
    ) -> Response[bytes]:
        """Cancel a job."""
        check_form(request, data)
        job = await queues.service.work.do(queues.queue.cancel, parse_job_id(f"job/{job_id}"))
        return redirect(job_path(job.id))


def _make_queue(queues: QueueService, query: QueueQuery, state: JobState | None) -> Page:
    return make_queue(queues.registry, queues.queue, query, state, queues.matrices.list_newest(MATRICES))


def _make_job(queues: QueueService, job: JobId, original: RunId | None) -> Page:
    return make_job(queues.registry, queues.queue, job, original, queues.matrices.find_cell(job))


class MatrixPageController(Controller):
    """The page of a matrix, and the form that cancels it."""

    include_in_schema = False
    request_max_body_size = LONGEST_FORM

    @get("/matrices/{matrix_id:str}", opt=READ_PAGE | COMPARE)
    async def show_matrix(
        self, queues: Injected[QueueService], request: AnyRequest, matrix_id: MatrixIdIn
    ) -> BytesResponse:
        """Answer with the results of a matrix, one metric of each cell."""
        query = read_query(request, MatrixQuery)
        page = await queues.service.compare.do(make_matrix, queues.matrices, matrix_id, query)
        return respond_with_page(page, request, queues.service)

    @post("/matrices/{matrix_id:str}/cancel", opt=RUN | WHILE_FULL | PAGE, status_code=303)
    async def cancel_matrix(
        self, queues: Injected[QueueService], request: AnyRequest, matrix_id: MatrixIdIn, data: Form
    ) -> Response[bytes]:
        """Cancel the jobs of a matrix."""
        check_form(request, data)
        await queues.service.work.do(queues.matrices.cancel, matrix_id)
        return redirect(matrix_path(matrix_id))


class AccessPageController(Controller):
    """The pages of administrators."""

    include_in_schema = False
    request_max_body_size = LONGEST_FORM

    @get("/tokens", opt=ADMIN | PAGE | LIST)
    async def list_tokens(self, service: Injected[Service], request: AnyRequest) -> BytesResponse:
        """Answer with the list of tokens."""
        if isinstance(service.authority, OpenAuthority):
            return respond_with_page(make_open_tokens(), request, service)
        registry, query = service.registry, read_query(request, TokenQuery)
        page = await service.lists.do(make_tokens, open_tokens(registry), open_log(registry), query, now())
        return respond_with_page(page, request, service)

    @post("/tokens", opt=ADMIN | PAGE, status_code=201)
    async def create_token(self, service: Injected[Service], request: AnyRequest, data: Form) -> BytesResponse:
        """Create a token. Only this answer has its secret, and no cache may store it."""
        check_form(request, data)
        scopes = Scopes.parse(data.get("scopes", "").split())
        lifetime, name = parse_lifetime(data.get("expires", "").strip()), data.get("name", "").strip()
        created = await service.work.do(open_tokens(service.registry).create, name, scopes, lifetime)
        return respond_with_page(make_new_token(*created), request, service, 201)

    @post("/tokens/revoke", opt=ADMIN | WHILE_FULL | PAGE, status_code=303)
    async def revoke_token(self, service: Injected[Service], request: AnyRequest, data: Form) -> Response[bytes]:
        """Revoke a token and cancel its work."""
        check_form(request, data)
        await revoke(service, parse_token_id(data.get("token", "")))
        return redirect("/tokens")

    @get("/audit", opt=ADMIN | PAGE | LIST)
    async def read_log(self, service: Injected[Service], request: AnyRequest) -> BytesResponse:
        """Answer with a page of the audit log."""
        query = read_query(request, LogQuery)
        page = await service.lists.do(make_log, open_log(service.registry), query)
        return respond_with_page(page, request, service)


class YankPageController(Controller):
    """The page that yanks a version, or undoes that."""

    include_in_schema = False
    request_max_body_size = LONGEST_FORM

    @get("/yank", opt=PUBLISH | PAGE | LIST)
    async def show_yank(
        self, service: Injected[Service], request: AnyRequest, target: Annotated[str, Parameter(max_length=TARGET)]
    ) -> BytesResponse:
        """Answer with who uses a version, and the form to yank it."""
        page = await service.lists.do(make_yank, service.registry, parse_reference(target), now())
        return respond_with_page(page, request, service)

    @post("/yank", opt=PUBLISH | WHILE_FULL | PAGE, status_code=303)
    async def yank_version(self, service: Injected[Service], request: AnyRequest, data: Form) -> Response[bytes]:
        """Yank a version, or undo that."""
        check_form(request, data)
        reference = parse_reference(data.get("target", "")[:TARGET])
        change = YankRequest(target=str(reference), reason=data.get("reason", ""), undo="undo" in data)
        await service.work.do(yank, service.registry.catalogue, change)
        return redirect(artifact_path(reference.kind, reference.name, str(reference.version)))


def queue_form(queues: QueueService, data: Mapping[str, str], request: dict[str, Any] | None = None) -> str:
    """Queue what a form asks for, once however often it is sent; return the path of the job.

    Args:
        queues: The queue.
        data: The form: an isolation, the id of the job, and the id of a lock or the beginning of it.
        request: The request to lock and queue in place of a lock.
    """
    job = data.get("job", "").strip()
    submission = JobSubmission(
        lock=queues.registry.catalogue.find_lock(data.get("lock", "").strip()) if request is None else UNSET,
        request=UNSET if request is None else request,
        isolation=parse_isolation(data.get("isolation", "")),
        job=parse_job_id(job) if job else UNSET,
    )
    return job_path(queue_job(queues.service.embedded, queues.queue, submission).id)


QUEUE_PAGE_CONTROLLERS: Final = (QueuePageController, MatrixPageController, AccessPageController, YankPageController)
