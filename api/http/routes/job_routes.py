"""Routes for jobs: submit, list, watch, explain and cancel; for interleaved comparisons and matrices, several jobs."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Final

import msgspec
from litestar import Controller, HttpMethod, Request, delete, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Body, HeaderParameter, Parameter, QueryParameter
from litestar.response import ServerSentEvent, ServerSentEventMessage
from msgspec import UNSET

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.client.matrix_clients import EmbeddedMatrices
from benchlock.api.http.live_jobs import JobWakeUps, LiveJobs
from benchlock.api.http.openapi import describe_body, describe_responses, encode_example
from benchlock.api.http.request_authorization import READ, RUN
from benchlock.api.http.request_limits import ASK, LIST, WATCH, WHILE_FULL
from benchlock.api.http.request_parsing import (
    Cursor,
    Injected,
    Limit,
    Prefix,
    bound_page_size,
    complete_prefix,
    fit_page,
)
from benchlock.api.http.routes.lock_routes import REQUEST
from benchlock.api.http.service_state import Service
from benchlock.api.local.local_registry import now
from benchlock.api.schemas import job_schemas as wire
from benchlock.api.schemas.pagination_cursors import decode_cursor, encode_cursor
from benchlock.artifacts.digest import digest_bytes, parse_digest
from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.evaluator.matrices.matrix_tables import MatrixTable
from benchlock.evaluator.matrices.matrix_types import MatrixStatus
from benchlock.evaluator.queue.queue_types import (
    TERMINAL,
    Explanation,
    Job,
    JobId,
    JobState,
    Queue,
    parse_job_id,
    summarize_job,
)
from benchlock.evaluator.queue.queued_comparisons import ComparisonRequest, queue_comparison
from benchlock.evaluator.queue.submission_checks import make_job_request
from benchlock.evaluator.records.comparison_types import new_comparison_id
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.requests.evaluation_request import parse_request
from benchlock.registry.requests.matrix_request import parse_matrix

POLL_SECONDS: Final = 0.5
"""Seconds between two reads of a job that is watched."""
KEEPALIVE_SECONDS: Final = 15.0
"""Seconds after which a comment is sent without any change, to notice a disconnect."""

_ID = "job/01kam1v3mz4w0q3d5g7h9j2k4m"
_LOCK = "sha256:" + "0" * 64
JOB: Any = {
    "job": _ID,
    "lock": _LOCK,
    "state": "leased",
    "phase": "measuring",
    "machine": "m-5f0c3a9d1b22",
    "run": "run/01kam1v3mz4w0q3d5g7h9j2k4m",
    "lost": 0,
    "engine": 0,
    "crash": 0,
    "cancel_asked": False,
    "failure": None,
    "reason": None,
    "again_in": None,
    "submitted_at": "2026-11-21T12:00:00Z",
    "priority": 0,
}
_LACK = "requires 8 CPUs (limits.cpus); this host has 2"
_WHY = {
    "job": JOB | {"state": "queued", "phase": None, "machine": None, "run": None},
    "blocked": True,
    "why": f"no machine can take it: 0 of 1 fit; closest match m-5f0c3a9d1b22: {_LACK}",
    "machines": [{"machine": "m-5f0c3a9d1b22", "lacks": [_LACK], "obstacle": None}],
    "ahead": 0,
    "needs_machine": True,
    "requirements": {
        "platforms": [{"os": "linux", "arch": "amd64", "device": "cpu", "layered": True, "finished": False}],
        "hardware": {},
        "cpus": 8,
        "isolation": None,
        "confined": False,
        "code": False,
        "machine": None,
    },
}

_ID_DIGITS: Final = 16
_EVENT_ID = "4f53cda18c2baa0c"
_EVENTS = f"id: {_EVENT_ID}\nevent: job\ndata: {msgspec.json.encode(JOB).decode()}\n\n"

JobIn = Annotated[
    str,
    Parameter(
        description="The id of the job, with or without `job/`.",
        max_length=30,
        examples=[encode_example(_ID), encode_example(_ID.removeprefix("job/"))],
        schema_extra={"pattern": "^(job/)?[0-9a-hjkmnp-tv-z]{26}$"},
    ),
]
AskedIn = Annotated[
    wire.JobSubmission, Body(examples=[encode_example({"lock": _LOCK}), encode_example({"request": REQUEST})])
]
LastIn = Annotated[
    str | None,
    HeaderParameter(
        name="Last-Event-ID",
        max_length=64,
        description="The id of the last event that the client received.",
        required=False,
        examples=[encode_example(_EVENT_ID)],
    ),
]
StateIs = Annotated[JobState | None, QueryParameter(name="state", description="Only in this state.", required=False)]


def _job(status: int) -> dict[int, ResponseSpec]:
    return {status: describe_body(Job, "The job.", JOB)}


class QueueService:
    """The queue of a service's registry."""

    def __init__(self, service: Service) -> None:
        """Open the queue."""
        self.service, self.registry = service, service.registry
        self.queue = open_queue(service.registry)
        self.live = LiveJobs(service, self.queue)
        self.wake_ups = JobWakeUps(service, self.queue.open_signal())
        self.matrices = EmbeddedMatrices(service.embedded, self.queue)


class JobController(Controller):
    """Routes ``/v1/jobs``."""

    tags = ("jobs",)

    @post(
        "/jobs",
        opt=RUN | ASK,
        status_code=201,
        summary="Queue a run",
        responses=describe_responses(
            "conflict",
            "missing-blobs",
            "unknown-name",
            "invalid-input",
            "integrity",
            "unavailable",
            body=True,
            success=_job(201),
        ),
    )
    async def submit_job(self, queues: Injected[QueueService], data: AskedIn) -> Job:
        """Queue one run of a stored `lock`, or of a `request`, which is locked first as by `POST /v1/locks`.

        409 with `conflict` explains why no versions satisfy the request; `explanation` lists machines for the job.
        """
        return await queues.service.ask.do(queue_job, queues.service.embedded, queues.queue, data)

    @delete(
        "/jobs/{job_id:str}",
        opt=RUN,
        status_code=200,
        summary="Cancel a job",
        responses=describe_responses("unknown-name", "invalid-input", success=_job(200)),
    )
    async def cancel_job(self, queues: Injected[QueueService], job_id: JobIn) -> Job:
        """Cancel a queued job immediately, a leased one at its worker's next heartbeat; an ended one stays as it is."""
        return await queues.service.work.do(queues.queue.cancel, _id(job_id))

    @get(
        "/jobs",
        opt=READ | LIST,
        summary="List jobs",
        responses=describe_responses(
            "invalid-input", success={200: describe_body(wire.JobPage, "A page of jobs.", {"jobs": [JOB]})}
        ),
    )
    async def list_jobs(
        self,
        queues: Injected[QueueService],
        in_state: StateIs = None,
        prefix: Prefix = None,
        cursor: Cursor = None,
        limit: Limit = None,
    ) -> wire.JobPage:
        """List jobs, newest first, each with a short reason. `GET /v1/jobs/{job_id}` has the full reason."""
        page_size = bound_page_size(limit, queues.service.settings)
        before = None if cursor is None else parse_job_id(decode_cursor(cursor, 1)[0])
        id_prefix = "" if prefix is None else complete_prefix("job/", prefix)
        entries = await queues.service.lists.do(
            queues.queue.jobs, state=in_state, prefix=id_prefix, before=before, limit=page_size + 1
        )
        jobs, more = fit_page(list(map(summarize_job, entries)), page_size, lambda job: encode_cursor((job.id,)))
        return wire.JobPage(jobs=jobs, next=more)

    @get(
        "/jobs/{job_id:str}",
        opt=READ,
        summary="Read a job",
        responses=describe_responses("unknown-name", "invalid-input", success=_job(200)),
    )
    async def read_job(self, queues: Injected[QueueService], job_id: JobIn) -> Job:
        """Read the state or the result of a job."""
        return await queues.service.work.do(queues.queue.job, _id(job_id))

    @get(
        "/jobs/{job_id:str}/explanation",
        opt=READ,
        summary="Explain the state of a job",
        responses=describe_responses(
            "unknown-name", "invalid-input", success={200: describe_body(Explanation, "The explanation.", _WHY)}
        ),
    )
    async def explain_job(self, queues: Injected[QueueService], job_id: JobIn) -> Explanation:
        """List what each machine lacks for the job, the closest match first."""
        return await queues.service.work.do(queues.queue.explain, _id(job_id))

    @get(
        "/jobs/{job_id:str}/events",
        opt=READ | WATCH,
        summary="Watch a job",
        media_type="text/event-stream",
        responses=describe_responses(
            "unknown-name",
            "invalid-input",
            success={
                200: describe_body(
                    Any, "An event `job` for each change, with the job as JSON.", _EVENTS, "text/event-stream"
                )
            },
        ),
    )
    async def watch_job(
        self, queues: Injected[QueueService], job_id: JobIn, request: Request[Any, Any, Any], last: LastIn = None
    ) -> ServerSentEvent:
        """Stream the job as server-sent events: its current state, then each change, until it ends.

        Each event has an `id`: a client that reconnects with the last one as `Last-Event-ID` gets later changes only.
        """
        id_ = _id(job_id)
        await queues.service.work.do(queues.queue.job, id_)
        if request.method == HttpMethod.HEAD:
            return ServerSentEvent(iter(()))
        return ServerSentEvent(stream_events(queues.service, queues.queue, id_, last))


async def stream_events(
    service: Service, queue: Queue, job: JobId, last: str | None = None
) -> AsyncGenerator[ServerSentEventMessage]:
    """Yield the job whenever its state differs from the ``last`` event."""
    silent = 0.0
    while not service.ending.is_set():
        current = await service.work.do(queue.job, job)
        comparable = msgspec.structs.replace(current, due=None)  # the remaining wait is not a change
        digest = digest_bytes(msgspec.json.encode(comparable)).removeprefix("sha256:")[:_ID_DIGITS]
        if digest != last:
            last, silent = digest, 0.0
            yield ServerSentEventMessage(event="job", id=digest, data=msgspec.json.encode(current).decode())
        if current.state in TERMINAL:
            return
        if silent >= KEEPALIVE_SECONDS:
            silent = 0.0
            yield ServerSentEventMessage(data=None, comment="still watching")
        await asyncio.sleep(POLL_SECONDS)
        silent += POLL_SECONDS


def queue_job(registry: EmbeddedRegistry, queue: Queue, data: wire.JobSubmission) -> Job:
    """Queue the lock or the request of a submission."""
    job = None if data.job is UNSET else parse_job_id(data.job)
    lock = _load_lock(registry, queue, data, job)
    job_request = make_job_request(
        lock,
        registry.store,
        data.isolation,
        now,
        allow_code=data.allow_code,
        job=job,
        machine=data.machine,
    )
    return queue.submit(replace(job_request, priority=data.priority))


def _load_lock(registry: EmbeddedRegistry, queue: Queue, data: wire.JobSubmission, job: JobId | None) -> Lock:
    """Return the lock to run; for a request that was submitted before with the same job id, the lock made then."""
    if (data.lock is UNSET) == (data.request is UNSET):
        raise InvalidInputError("exactly one of lock and request is required", next_step="send one of the two")
    if data.lock is not UNSET:
        return registry.opened.read_lock(parse_digest(data.lock))
    assert data.request is not UNSET
    request = parse_request(data.request, "request")
    if job is not None:
        with suppress(UnknownNameError):
            before = registry.opened.read_lock(queue.job(job).lock)
            if before.request == request.document:
                return before
    return registry.lock(request, {}).lock


def _id(text: str) -> JobId:
    return parse_job_id(f"job/{text}")


_COMPARISON_ID: Final = "5f0c3a9d1b22e47a"
_TURN = {"kind": "comparison", "id": _COMPARISON_ID, "round": 1, "rounds": 6, "arm": 0, "control": False, "margins": {}}
_COMPARISON: Any = {"comparison": _COMPARISON_ID, "jobs": [JOB | {"part_of": _TURN}]}
ComparisonIdIn = Annotated[
    str,
    Parameter(
        description="The id of the comparison.",
        pattern=r"^[0-9a-f]{16}$",
        examples=[encode_example(_COMPARISON_ID)],
    ),
]
ComparisonIn = Annotated[
    wire.ComparisonSubmission, Body(examples=[encode_example({"locks": [_LOCK, "sha256:" + "1" * 64]})])
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
        return await queues.service.ask.do(queue_comparison_jobs, queues, data)

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
    async def read_queued_comparison(
        self, queues: Injected[QueueService], comparison: ComparisonIdIn
    ) -> wire.QueuedComparison:
        """Read its jobs, whose runs `POST /v1/comparisons` compares once all are done."""
        jobs = await queues.service.work.do(queues.queue.comparison, comparison)
        return wire.QueuedComparison(comparison=comparison, jobs=tuple(jobs))


def queue_comparison_jobs(queues: QueueService, data: wire.ComparisonSubmission) -> wire.QueuedComparison:
    """Queue the interleaved comparison of a submission."""
    request = ComparisonRequest(
        new_comparison_id() if data.comparison is UNSET else data.comparison,
        [queues.registry.read_lock(lock) for lock in data.locks],
        data.machine,
        data.rounds,
        data.margins,
    )
    jobs = queue_comparison(queues.queue, queues.registry.store, request, now)
    return wire.QueuedComparison(comparison=request.id, jobs=tuple(jobs))


_MATRIX: Final[dict[str, Any]] = {
    "schema": 1,
    "kind": "matrix",
    "name": REQUEST["name"],
    "request": {key: value for key, value in REQUEST.items() if key not in ("schema", "kind", "name", "model")},
    "axes": {"model": {"first": REQUEST["model"], "second": REQUEST["model"]}},
    "seed": 7,
}
_MATRIX_STATUS: Final = {
    "matrix": _LOCK,
    "name": REQUEST["name"],
    "as_of": JOB["submitted_at"],
    "submitted_at": JOB["submitted_at"],
    "states": {"queued": 2},
}
_EMPTY_CELL: Any = {
    "cell": "model=first",
    "lock": _LOCK,
    "runs": [],
    "group": None,
    "metrics": [],
    "missing": "queued, 0 runs of this matrix before it",
    "remarks": [],
}
_MATRIX_TABLE: Final = {"matrix": _LOCK, "name": REQUEST["name"], "cells": [_EMPTY_CELL], "groups": []}
MatrixIn = Annotated[wire.MatrixSubmission, Body(examples=[encode_example({"matrix": _MATRIX})])]
MatrixIdIn = Annotated[
    str,
    Parameter(
        description="The id of the matrix, or `sha256:` and its first 4 or more digits.",
        pattern=r"^sha256:[0-9a-f]{4,64}$",
        examples=[encode_example(_LOCK)],
    ),
]


def _status(code: int) -> dict[int, ResponseSpec]:
    return {code: describe_body(MatrixStatus, "The matrix.", _MATRIX_STATUS)}


class MatrixController(Controller):
    """Routes ``/v1/matrices``."""

    tags = ("jobs",)

    @post(
        "/matrices",
        opt=RUN | ASK,
        status_code=201,
        summary="Submit a matrix",
        responses=describe_responses("invalid-input", "refused", body=True, success=_status(201)),
    )
    async def submit_matrix(self, queues: Injected[QueueService], data: MatrixIn) -> MatrixStatus:
        """Lock every cell of a matrix on one snapshot of the catalogue, and queue its runs; add only what is missing.

        A cell that does not resolve has the state `conflict`; the table has its explanation.
        """
        return await queues.service.ask.do(lambda: queues.matrices.submit(parse_matrix(data.matrix, "matrix")))

    @get(
        "/matrices/{matrix_id:str}",
        opt=READ | ASK,
        summary="Read a matrix",
        responses=describe_responses("unknown-name", "invalid-input", success=_status(200)),
    )
    async def read_matrix(self, queues: Injected[QueueService], matrix_id: MatrixIdIn) -> MatrixStatus:
        """Count the runs of a matrix by state: those of jobs, `blocked` and `conflict`."""
        return await queues.service.ask.do(queues.matrices.status, matrix_id)

    @get(
        "/matrices/{matrix_id:str}/table",
        opt=READ | ASK,
        summary="Read the table of a matrix",
        responses=describe_responses(
            "unknown-name",
            "invalid-input",
            success={200: describe_body(MatrixTable, "The table.", _MATRIX_TABLE)},
        ),
    )
    async def read_matrix_table(self, queues: Injected[QueueService], matrix_id: MatrixIdIn) -> MatrixTable:
        """Read the metrics of each cell with their ranks among comparable cells, or why the cell is empty."""
        return await queues.service.ask.do(queues.matrices.table, matrix_id)

    @post(
        "/matrices/{matrix_id:str}/cancel",
        opt=RUN | WHILE_FULL,
        status_code=200,
        summary="Cancel a matrix",
        responses=describe_responses("unknown-name", "invalid-input", success=_status(200)),
    )
    async def cancel_matrix(self, queues: Injected[QueueService], matrix_id: MatrixIdIn) -> MatrixStatus:
        """Cancel the jobs of a matrix that have not ended, as `DELETE /v1/jobs/{job_id}` does."""
        return await queues.service.work.do(queues.matrices.cancel, matrix_id)
