"""Routes for workers: machines, leases, heartbeats and the runs of jobs."""

import asyncio
from functools import partial
from typing import Annotated, Any, Final

from litestar import Router, get, patch, post, put
from litestar.params import Body, Parameter

from benchlock.api.client.worker_setup import open_queue
from benchlock.api.http.admission_control import END, LIST, WAIT, WHILE_FULL
from benchlock.api.http.openapi import describe_body, describe_responses, encode_example
from benchlock.api.http.request_authorization import ADMIN, READ, RUN
from benchlock.api.http.request_parsing import MAX_RECORD, MAX_RUN_VALUES, Cursor, Limit, bound_page_size, fit_page
from benchlock.api.http.routes.job_routes import JOB
from benchlock.api.http.routes.run_routes import RUN_START_EXAMPLE, check_run_end, check_run_start
from benchlock.api.http.service import Service
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.schemas import job_schemas as wire
from benchlock.api.schemas.shared_fields import decode_cursor, encode_cursor
from benchlock.artifacts.digest import Descriptor
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.queue.matching import MachineFacts
from benchlock.evaluator.queue.queue_types import Fence, Job, Lease, MachineId, Queue
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_types import RunEnd, RunId, RunStart

_POLL_SECONDS: Final = 1.0
"""Seconds between two attempts to find a job for a machine that waits."""

_BOOT = "0f6e0c5c-f41a-4b86-b5d1-a4f2c0ffee00"
_MACHINE = "m-5f0c3a9d1b22"
_FACTS: Any = {
    "host": {
        "os": "linux",
        "arch": "amd64",
        "cpus": 2,
        "memory": 8 << 30,
        "accelerators": [],
        "without": "nvidia-smi is not there",
    },
    "engine": "Engine 27.5",
    "cpu_model": "A CPU",
    "kernel": "Linux 6.1",
    "governor": None,
    "processes": False,
    "code": False,
}
_MACHINE_EXAMPLE = {
    "machine": _MACHINE,
    "boot": _BOOT,
    "facts": _FACTS,
    "draining": None,
    "unseen": 2.5,
    "gone": False,
    "gone_because": None,
    "held": None,
    "held_for": 0.0,
    "skew": 0.012,
    "job": JOB["job"],
}
_LEASE = {
    "fence": 7,
    "job": JOB["job"],
    "lock": JOB["lock"],
    "isolation": None,
    "allow_code": False,
    "queue": "5d41402abc4b2a76b9719d911017c592",
    "seconds": 60.0,
}
_END = {"outcome": "cancelled", "ended_at": "2026-11-21T12:01:00Z"}

NameIn = Annotated[
    str,
    Parameter(
        description="The machine's name.",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        examples=[encode_example(_MACHINE)],
    ),
]
FenceIn = Annotated[
    str,
    Parameter(description="The lease's fence.", pattern=r"^[0-9]{1,18}$", examples=[encode_example("7")]),
]
EnrolIn = Annotated[wire.Enrolment, Body(examples=[encode_example({"boot": _BOOT, "facts": _FACTS})])]
DrainIn = Annotated[wire.DrainRequest, Body(examples=[encode_example({"draining": "its owner wants it"})])]
LeaseIn = Annotated[wire.LeaseRequest, Body(examples=[encode_example({"machine": _MACHINE, "boot": _BOOT, "wait": 0})])]
BeatIn = Annotated[wire.HeartbeatRequest, Body(examples=[encode_example({"phase": "measuring"})])]
BeginIn = Annotated[RunStart, Body(examples=[encode_example(RUN_START_EXAMPLE)])]
CommitIn = Annotated[wire.EndRequest, Body(examples=[encode_example({"run": JOB["run"], "end": _END})])]
ReleaseIn = Annotated[
    wire.ReleaseRequest, Body(examples=[encode_example({"ended": "returned", "reason": "worker stopped"})])
]


def routes(service: Service) -> Router:
    """Build the routes ``/v1/machines``, ``/v1/leases`` and ``/v1/queue``."""
    queue = open_queue(service.registry)
    handlers = [*_machines(service, queue), *_leases(service, queue), *_runs(service, queue)]
    return Router("", route_handlers=handlers, tags=["workers"])


def _machines(service: Service, queue: Queue) -> list[Any]:
    work = service.work

    @get(
        "/queue",
        opt=READ,
        summary="Read the queue's name",
        responses=describe_responses(
            success={200: describe_body(wire.QueueName, "The name of the queue.", {"name": _LEASE["queue"]})}
        ),
    )
    async def read_queue() -> wire.QueueName:
        """Read the queue's name, with which its workers label their containers."""
        return wire.QueueName(name=await work.do(queue.name))

    @get(
        "/machines",
        opt=READ | LIST,
        summary="List machines",
        responses=describe_responses(
            "invalid-input",
            success={200: describe_body(wire.MachinePage, "A page of machines.", {"machines": [_MACHINE_EXAMPLE]})},
        ),
    )
    async def list_machines(cursor: Cursor = None, limit: Limit = None) -> wire.MachinePage:
        """List all machines that were ever registered, by name."""
        page_size = bound_page_size(limit, service.settings)
        after = None if cursor is None else MachineId(decode_cursor(cursor, 1)[0])
        machines = await service.lists.do(queue.machines, after=after, limit=page_size + 1)
        page, more = fit_page(machines, page_size, lambda machine: encode_cursor((machine.id,)))
        return wire.MachinePage(machines=page, next=more)

    @put(
        "/machines/{name:str}",
        opt=RUN,
        status_code=204,
        summary="Register a machine",
        responses=describe_responses("invalid-input", "refused", body=True),
    )
    async def enroll_machine(name: NameIn, data: EnrolIn) -> None:
        """Register a machine, or update its facts. The machine belongs to this token from then on."""
        await work.do(queue.enrol, MachineId(name), data.boot, MachineFacts.read(data.facts), data.clock)

    @post(
        "/machines/{name:str}/departure",
        opt=RUN | WHILE_FULL,
        status_code=204,
        summary="Mark a machine as gone",
        responses=describe_responses("invalid-input"),
    )
    async def sign_off_machine(name: NameIn) -> None:
        """Mark a machine as gone until its next request; an unknown or leased machine stays as it is."""
        await work.do(queue.depart, MachineId(name))

    @patch(
        "/machines/{name:str}",
        opt=ADMIN | WHILE_FULL,
        status_code=204,
        summary="Drain or resume a machine",
        responses=describe_responses("unknown-name", "invalid-input", body=True),
    )
    async def drain_machine(name: NameIn, data: DrainIn) -> None:
        """Stop giving jobs to a machine, or resume."""
        await work.do(queue.drain, MachineId(name), data.draining)

    return [read_queue, list_machines, enroll_machine, sign_off_machine, drain_machine]


def _leases(service: Service, queue: Queue) -> list[Any]:
    work = service.work

    async def wait(request: wire.LeaseRequest) -> Lease | None:
        left = request.wait
        while True:
            lease = await work.do(queue.lease, MachineId(request.machine), request.boot, request.nonce)
            if lease is not None or left <= 0 or service.ending.is_set():
                return lease
            await asyncio.sleep(min(left, _POLL_SECONDS))
            left -= _POLL_SECONDS

    @post(
        "/leases",
        opt=RUN | WAIT,
        status_code=200,
        summary="Request a lease",
        responses=describe_responses(
            "unknown-name",
            body=True,
            success={200: describe_body(wire.LeaseResponse, "A lease, or null.", {"lease": _LEASE})},
        ),
    )
    async def request_lease(data: LeaseIn) -> wire.LeaseResponse:
        """Request a lease of a job that the machine may take, and wait for one up to `wait` seconds."""
        return wire.LeaseResponse(lease=await wait(data))

    @get(
        "/leases/{fence:str}",
        opt=READ,
        summary="Check a lease",
        responses=describe_responses(
            "invalid-input",
            success={200: describe_body(wire.LeaseStatus, "Whether the lease is held.", {"holds": True})},
        ),
    )
    async def read_lease(fence: FenceIn) -> wire.LeaseStatus:
        """Check whether a lease is held, for example that of a container with its fence as a label."""
        return wire.LeaseStatus(holds=await service.prompt.do(queue.holds, _fence(fence)))

    @patch(
        "/leases/{fence:str}",
        opt=RUN | WHILE_FULL,
        summary="Renew a lease",
        responses=describe_responses(
            "invalid-input",
            body=True,
            success={200: describe_body(wire.HeartbeatResponse, "Whether the worker continues.", {"answer": "keep"})},
        ),
    )
    async def renew_lease(fence: FenceIn, data: BeatIn) -> wire.HeartbeatResponse:
        """Renew a lease for its duration; the answers `cancel` and `lost` mean that the job must stop."""
        return wire.HeartbeatResponse(answer=await service.prompt.do(queue.beat, _fence(fence), data.phase))

    @post(
        "/leases/{fence:str}/release",
        opt=RUN | WHILE_FULL,
        status_code=204,
        summary="Return a lease",
        responses=describe_responses("invalid-input", body=True),
    )
    async def release_lease(fence: FenceIn, data: ReleaseIn) -> None:
        """Give a lease back without a result; a lease that is no longer held stays as it is."""
        await service.prompt.do(queue.release, _fence(fence), data.ended, data.reason)

    return [request_lease, read_lease, renew_lease, release_lease]


def _runs(service: Service, queue: SqlQueue) -> list[Any]:
    @post(
        "/leases/{fence:str}/run",
        opt=RUN,
        request_max_body_size=MAX_RECORD,
        status_code=200,
        summary="Start the run of a lease",
        responses=describe_responses(
            "unknown-name",
            "invalid-input",
            "integrity",
            body=True,
            success={
                200: describe_body(
                    wire.StartResponse,
                    "The start as recorded, or null if the lease has ended.",
                    {"start": RUN_START_EXAMPLE},
                )
            },
        ),
    )
    async def begin_lease_run(fence: FenceIn, data: BeginIn) -> wire.StartResponse:
        """Record the start of the run; its `attempt` is counted here. Repeating the request has no effect."""
        start = await service.prompt.do(_start_run, service.registry, queue, _fence(fence), data)
        return wire.StartResponse(start=start)

    @put(
        "/leases/{fence:str}/run",
        opt=RUN | END | WHILE_FULL | {"most_values": MAX_RUN_VALUES},
        request_max_body_size=MAX_RECORD,
        summary="Commit the run of a lease",
        responses=describe_responses(
            "refused",
            "invalid-input",
            "integrity",
            body=True,
            success={200: describe_body(Job, "The job after the run.", JOB)},
        ),
    )
    async def commit_lease_run(fence: FenceIn, data: CommitIn) -> Job:
        """Record the end of the run and the job's next state together; 409 if it already ended differently.

        Blobs are uploaded before (`/v1/blobs`). A repeated request has the same response.
        """
        arguments = (service.registry, queue, _fence(fence), data.run, data.end)
        return await service.ends.do(_commit_run, *arguments)

    return [begin_lease_run, commit_lease_run]


def _fence(text: str) -> Fence:
    return Fence(int(text))


def _start_run(registry: LocalRegistry, queue: SqlQueue, fence: Fence, start: RunStart) -> RunStart | None:
    check_run_start(registry, start)
    return queue.begin(fence, start)


def _commit_run(registry: LocalRegistry, queue: SqlQueue, fence: Fence, run: RunId, end: RunEnd) -> Job:
    with registry.store.writing():
        _check_blobs(registry, tuple(end.blobs.values()))
        return queue.commit_checked(fence, run, end, partial(check_run_end, registry))


def _check_blobs(registry: LocalRegistry, blobs: tuple[Descriptor, ...]) -> None:
    for blob in blobs:
        if not registry.store.exists(blob.digest) or registry.store.stat(blob.digest).size != blob.size:
            raise InvalidInputError(
                f"the registry has no blob {blob.digest} of {blob.size} bytes",
                where=blob.digest,
                next_step="upload it first",
            )
