"""Routes for workers: machines, leases, heartbeats and the runs of jobs."""

from functools import partial
from typing import Annotated, Any

from litestar import Controller, get, patch, post, put
from litestar.params import Body, Parameter, QueryParameter

from benchlock.api.http.openapi import describe_body, describe_responses, encode_example
from benchlock.api.http.request_authorization import ADMIN, READ, RUN
from benchlock.api.http.request_limits import END, IDLE, LIST, WAIT, WHILE_FULL
from benchlock.api.http.request_parsing import (
    MAX_RECORD,
    MAX_RUN_VALUES,
    Cursor,
    Injected,
    Limit,
    bound_page_size,
    fit_page,
)
from benchlock.api.http.routes.job_routes import JOB, QueueService
from benchlock.api.http.routes.run_routes import RUN_START_EXAMPLE, check_run_end, check_run_start
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.schemas import job_schemas as wire
from benchlock.api.schemas.pagination_cursors import decode_cursor, encode_cursor
from benchlock.artifacts.digest import Descriptor
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.queue.job_matching import MachineFacts
from benchlock.evaluator.queue.queue_types import Fence, Job, MachineId
from benchlock.evaluator.records.run_types import RunStart

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
WaitIn = Annotated[
    float,
    QueryParameter(
        description="Seconds to wait for a job.",
        ge=0,
        le=wire.LONGEST_WAIT,
        required=False,
        examples=[encode_example(4)],
    ),
]
FenceIn = Annotated[
    str,
    Parameter(description="The lease's fence.", pattern=r"^[0-9]{1,18}$", examples=[encode_example("7")]),
]
EnrolIn = Annotated[wire.Enrolment, Body(examples=[encode_example({"boot": _BOOT, "facts": _FACTS})])]
DrainIn = Annotated[wire.DrainRequest, Body(examples=[encode_example({"draining": "its owner wants it"})])]
_OWNER = "token/01kam1v3mz4w0q3d5g7h9j2k4m"
_SHARE: Any = {
    "owner": _OWNER,
    "weight": 2.0,
    "max_running": 8,
    "running": 3,
    "is_waiting": True,
    "seconds": 5400.0,
    "used": 2790.0,
}
ShareIn = Annotated[wire.ShareUpdate, Body(examples=[encode_example({"owner": _OWNER, "weight": 2, "max_running": 8})])]
LeaseIn = Annotated[wire.LeaseRequest, Body(examples=[encode_example({"machine": _MACHINE, "boot": _BOOT, "wait": 0})])]
BeatIn = Annotated[wire.HeartbeatRequest, Body(examples=[encode_example({"phase": "measuring"})])]
_LINE = {"number": 3, "task": "accuracy", "done": 64, "total": 359}
ProgressIn = Annotated[wire.ProgressReport, Body(examples=[encode_example({"lines": [_LINE]})])]
BeginIn = Annotated[RunStart, Body(examples=[encode_example(RUN_START_EXAMPLE)])]
CommitIn = Annotated[wire.EndRequest, Body(examples=[encode_example({"run": JOB["run"], "end": _END})])]
ReleaseIn = Annotated[
    wire.ReleaseRequest, Body(examples=[encode_example({"ended": "returned", "reason": "worker stopped"})])
]


class WorkerController(Controller):
    """Routes ``/v1/queue``, ``/v1/machines`` and ``/v1/leases``."""

    tags = ("workers",)

    @get(
        "/queue",
        opt=READ,
        summary="Read the queue's name",
        responses=describe_responses(
            success={200: describe_body(wire.QueueName, "The name of the queue.", {"name": _LEASE["queue"]})}
        ),
    )
    async def read_queue(self, queues: Injected[QueueService]) -> wire.QueueName:
        """Read the queue's name, with which its workers label their containers."""
        return wire.QueueName(name=await queues.service.work.do(queues.queue.name))

    @get(
        "/queue/shares",
        opt=ADMIN | LIST,
        summary="List shares of machine time",
        responses=describe_responses(success={200: describe_body(wire.ShareList, "The shares.", {"shares": [_SHARE]})}),
    )
    async def list_shares(self, queues: Injected[QueueService]) -> wire.ShareList:
        """List the owners of jobs with their weights, quotas and machine time; the first is served first."""
        return wire.ShareList(shares=tuple(await queues.service.lists.do(queues.queue.shares)))

    @patch(
        "/queue/shares",
        opt=ADMIN | WHILE_FULL,
        status_code=204,
        summary="Set a share of machine time",
        responses=describe_responses("unknown-name", "invalid-input", body=True),
    )
    async def set_share(self, queues: Injected[QueueService], data: ShareIn) -> None:
        """Set the weight of an owner of jobs, or the maximum number of its running jobs, or both."""
        await queues.service.work.do(queues.queue.set_share, data.owner, data.weight, data.max_running)

    @get(
        "/machines",
        opt=READ | LIST,
        summary="List machines",
        responses=describe_responses(
            "invalid-input",
            success={200: describe_body(wire.MachinePage, "A page of machines.", {"machines": [_MACHINE_EXAMPLE]})},
        ),
    )
    async def list_machines(
        self, queues: Injected[QueueService], cursor: Cursor = None, limit: Limit = None
    ) -> wire.MachinePage:
        """List all machines that were ever registered, by name."""
        page_size = bound_page_size(limit, queues.service.settings)
        after = None if cursor is None else MachineId(decode_cursor(cursor, 1)[0])
        machines = await queues.service.lists.do(queues.queue.machines, after=after, limit=page_size + 1)
        page, more = fit_page(machines, page_size, lambda machine: encode_cursor((machine.id,)))
        return wire.MachinePage(machines=page, next=more)

    @put(
        "/machines/{name:str}",
        opt=RUN,
        status_code=204,
        summary="Register a machine",
        responses=describe_responses("invalid-input", "refused", body=True),
    )
    async def enroll_machine(self, queues: Injected[QueueService], name: NameIn, data: EnrolIn) -> None:
        """Register a machine, or update its facts. The machine belongs to this token from then on."""
        await queues.service.work.do(
            queues.queue.enrol, MachineId(name), data.boot, MachineFacts.read(data.facts), data.clock
        )

    @post(
        "/machines/{name:str}/departure",
        opt=RUN | WHILE_FULL,
        status_code=204,
        summary="Mark a machine as gone",
        responses=describe_responses("invalid-input"),
    )
    async def sign_off_machine(self, queues: Injected[QueueService], name: NameIn) -> None:
        """Mark a machine as gone until its next request; an unknown or leased machine stays as it is."""
        await queues.service.work.do(queues.queue.depart, MachineId(name))

    @get(
        "/machines/{name:str}/work",
        opt=RUN | IDLE,
        summary="Wait for a job",
        responses=describe_responses(
            "invalid-input",
            success={
                200: describe_body(wire.WorkStatus, "Whether the queue has a job for the machine.", {"has_job": True})
            },
        ),
    )
    async def wait_for_work(self, queues: Injected[QueueService], name: NameIn, wait: WaitIn = 0.0) -> wire.WorkStatus:
        """Check whether a machine may take a job, and wait for one up to `wait` seconds. No job is leased."""
        may_take = partial(queues.queue.may_take, MachineId(name))
        return wire.WorkStatus(has_job=await queues.wake_ups.wait_for(may_take, wait))

    @patch(
        "/machines/{name:str}",
        opt=ADMIN | WHILE_FULL,
        status_code=204,
        summary="Drain or resume a machine",
        responses=describe_responses("unknown-name", "invalid-input", body=True),
    )
    async def drain_machine(self, queues: Injected[QueueService], name: NameIn, data: DrainIn) -> None:
        """Stop giving jobs to a machine, or resume."""
        await queues.service.work.do(queues.queue.drain, MachineId(name), data.draining)

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
    async def request_lease(self, queues: Injected[QueueService], data: LeaseIn) -> wire.LeaseResponse:
        """Request a lease of a job that the machine may take, and wait for a job up to `wait` seconds.

        The answer is null before that if another machine takes the job.
        """
        request = partial(queues.queue.lease, data.machine, data.boot, data.nonce)
        lease = await queues.service.work.do(request)
        if lease is None and data.wait:
            may_take = partial(queues.queue.may_take, data.machine)
            if await queues.wake_ups.wait_for(may_take, data.wait):
                lease = await queues.service.work.do(request)
        return wire.LeaseResponse(lease=lease)

    @get(
        "/leases/{fence:str}",
        opt=READ,
        summary="Check a lease",
        responses=describe_responses(
            "invalid-input",
            success={200: describe_body(wire.LeaseStatus, "Whether the lease is held.", {"holds": True})},
        ),
    )
    async def read_lease(self, queues: Injected[QueueService], fence: FenceIn) -> wire.LeaseStatus:
        """Check whether a lease is held, for example that of a container with its fence as a label."""
        return wire.LeaseStatus(holds=await queues.service.prompt.do(queues.queue.holds, _fence(fence)))

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
    async def renew_lease(self, queues: Injected[QueueService], fence: FenceIn, data: BeatIn) -> wire.HeartbeatResponse:
        """Renew a lease for its duration; the answers `cancel` and `lost` mean that the job must stop."""
        return wire.HeartbeatResponse(
            answer=await queues.service.prompt.do(queues.queue.beat, _fence(fence), data.phase)
        )

    @post(
        "/leases/{fence:str}/progress",
        opt=RUN,
        status_code=204,
        summary="Report the progress of a job",
        responses=describe_responses("invalid-input", body=True),
    )
    async def report_progress(self, queues: Injected[QueueService], fence: FenceIn, data: ProgressIn) -> None:
        """Add lines to the progress that the page of the job shows; repeated lines have no effect."""
        await queues.service.work.do(queues.queue.report, _fence(fence), data.lines)

    @post(
        "/leases/{fence:str}/release",
        opt=RUN | WHILE_FULL,
        status_code=204,
        summary="Return a lease",
        responses=describe_responses("invalid-input", body=True),
    )
    async def release_lease(self, queues: Injected[QueueService], fence: FenceIn, data: ReleaseIn) -> None:
        """Give a lease back without a result; a lease that is no longer held stays as it is."""
        await queues.service.prompt.do(queues.queue.release, _fence(fence), data.ended, data.reason)

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
    async def begin_lease_run(
        self, queues: Injected[QueueService], fence: FenceIn, data: BeginIn
    ) -> wire.StartResponse:
        """Record the start of the run; its `attempt` is counted here. Repeating the request has no effect."""
        start = await queues.service.prompt.do(_start_run, queues, _fence(fence), data)
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
    async def commit_lease_run(self, queues: Injected[QueueService], fence: FenceIn, data: CommitIn) -> Job:
        """Record the end of the run and the job's next state together; 409 if it already ended differently.

        Blobs are uploaded before (`/v1/blobs`). A repeated request has the same response.
        """
        return await queues.service.ends.do(_commit_run, queues, _fence(fence), data)


def _fence(text: str) -> Fence:
    return Fence(int(text))


def _start_run(queues: QueueService, fence: Fence, start: RunStart) -> RunStart | None:
    check_run_start(queues.registry, start)
    return queues.queue.begin(fence, start)


def _commit_run(queues: QueueService, fence: Fence, data: wire.EndRequest) -> Job:
    with queues.registry.store.writing():
        _check_blobs(queues.registry, tuple(data.end.blobs.values()))
        return queues.queue.commit_checked(fence, data.run, data.end, partial(check_run_end, queues.registry))


def _check_blobs(registry: LocalRegistry, blobs: tuple[Descriptor, ...]) -> None:
    for blob in blobs:
        if not registry.store.exists(blob.digest) or registry.store.stat(blob.digest).size != blob.size:
            raise InvalidInputError(
                f"the registry has no blob {blob.digest} of {blob.size} bytes",
                where=blob.digest,
                next_step="upload it first",
            )
