"""The job queue of a registry on a server: one request per operation."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from msgspec import UNSET, UnsetType

from benchlock.api.client.api_client import ApiClient
from benchlock.api.schemas import job_schemas as wire
from benchlock.api.schemas.lock_schemas import LockResponse
from benchlock.api.schemas.pagination_cursors import encode_cursor
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.net.network_policy import SILENCE_SECONDS
from benchlock.evaluator.queue.job_matching import MachineFacts
from benchlock.evaluator.queue.lease_times import Times
from benchlock.evaluator.queue.queue_types import (
    Beat,
    Explanation,
    Fence,
    Job,
    JobId,
    JobRequest,
    JobState,
    Lease,
    LeaseEnd,
    Machine,
    MachineId,
    Phase,
    ProgressLine,
    Share,
    new_job_id,
)
from benchlock.evaluator.records.run_types import Isolation, RunEnd, RunId, RunStart, fit_end

_T = TypeVar("_T")
_PAGE: Final = 1000


class RemoteQueue:
    """A ``Queue`` behind a server. Requests are not repeated; callers that need an answer repeat them.

    The timeout of a heartbeat follows from the times of the last lease.
    """

    def __init__(self, client: ApiClient) -> None:
        """Send requests with ``client``."""
        self._client = client
        self._name: str | None = None
        self._times = Times()

    def submit(self, request: JobRequest) -> Job:
        """Queue a job for a lock that the registry has."""
        body = wire.JobSubmission(
            lock=request.lock,
            isolation=request.wants.isolation,
            allow_code=request.allow_code,
            job=request.id,
            machine=None if request.wants.machine is None else MachineId(request.wants.machine),
            priority=request.priority,
        )
        return self._request("POST", "jobs", Job, body)

    def submit_job(
        self,
        isolation: Isolation | None,
        *,
        allow_code: bool,
        lock: Digest | UnsetType = UNSET,
        request: dict[str, Any] | UnsetType = UNSET,
        priority: int = 0,
    ) -> Job:
        """Queue a lock that the registry has, or a request to resolve; repeat the request until it is answered."""
        job = new_job_id(self._client.clock())
        body = wire.JobSubmission(
            lock=lock, request=request, isolation=isolation, allow_code=allow_code, job=job, priority=priority
        )
        return self._client.send("POST", "jobs", body, Job)

    def job(self, job: JobId) -> Job:
        """Fetch a job."""
        return self._request("GET", f"jobs/{_tail(job)}", Job)

    def jobs(
        self, *, state: JobState | None = None, prefix: str = "", before: JobId | None = None, limit: int = 100
    ) -> Sequence[Job]:
        """Fetch jobs of as many pages as ``limit`` needs."""
        jobs: list[Job] = []
        cursor = "" if before is None else encode_cursor((before,))
        while len(jobs) < limit:
            path = _page("jobs", limit - len(jobs), cursor, state=state or "", prefix=prefix)
            page = self._request("GET", path, wire.JobPage)
            jobs += page.jobs
            if isinstance(page.next, UnsetType):
                break
            cursor = page.next
        return jobs

    def cancel(self, job: JobId) -> Job:
        """Cancel a job."""
        return self._request("DELETE", f"jobs/{_tail(job)}", Job)

    def explain(self, job: JobId) -> Explanation:
        """Fetch the explanation of a job's state."""
        return self._request("GET", f"jobs/{_tail(job)}/explanation", Explanation)

    def enrol(self, machine: MachineId, boot: str, facts: MachineFacts, clock: datetime | None = None) -> None:
        """Register a machine."""
        self._send("PUT", f"machines/{machine}", wire.Enrolment(boot=boot, facts=facts.document(), clock=clock))

    def depart(self, machine: MachineId) -> None:
        """Report that a machine has left."""
        self._client.send_once("POST", f"machines/{machine}/departure", {}, self._times.answer)

    def machines(self, *, after: MachineId | None = None, limit: int | None = None) -> Sequence[Machine]:
        """Fetch machines of as many pages as ``limit`` needs."""
        machines: list[Machine] = []
        cursor = "" if after is None else encode_cursor((after,))
        while limit is None or len(machines) < limit:
            page_size = _PAGE if limit is None else limit - len(machines)
            page = self._request("GET", _page("machines", page_size, cursor), wire.MachinePage)
            machines += page.machines
            if isinstance(page.next, UnsetType):
                break
            cursor = page.next
        return machines

    def drain(self, machine: MachineId, why: str | None) -> None:
        """Drain a machine for the reason ``why``; None ends the draining."""
        self._send("PATCH", f"machines/{machine}", wire.DrainRequest(draining=why))

    def shares(self) -> Sequence[Share]:
        """Fetch the shares of all owners of jobs."""
        return self._request("GET", "queue/shares", wire.ShareList).shares

    def set_share(
        self, owner: str, weight: float | UnsetType = UNSET, max_running: int | UnsetType | None = UNSET
    ) -> None:
        """Set the weight or the quota of an owner of jobs, or both."""
        self._send("PATCH", "queue/shares", wire.ShareUpdate(owner=owner, weight=weight, max_running=max_running))

    def lease(self, machine: MachineId, boot: str, nonce: str | None = None) -> Lease | None:
        """Request a lease, and take over its times."""
        body = wire.LeaseRequest(machine=machine, boot=boot, nonce=nonce)
        lease = self._request("POST", "leases", wire.LeaseResponse, body).lease
        self._times = self._times if lease is None else lease.times
        return lease

    def wait_for_job(self, machine: MachineId, seconds: float) -> bool:
        """Wait in one request, which the server answers when the machine may take a job."""
        path, wait = f"machines/{machine}/work", min(seconds, wire.LONGEST_WAIT)
        patience = SILENCE_SECONDS + wait
        return self._request("GET", f"{path}?wait={wait:g}", wire.WorkStatus, patience=patience).has_job

    def begin(self, fence: Fence, start: RunStart) -> RunStart | None:
        """Record the start of the run of a lease."""
        return self._request("POST", f"leases/{fence}/run", wire.StartResponse, start).start

    def beat(self, fence: Fence, phase: Phase) -> Beat:
        """Send a heartbeat."""
        patience = self._times.answer
        return self._request(
            "PATCH", f"leases/{fence}", wire.HeartbeatResponse, wire.HeartbeatRequest(phase=phase), patience
        ).answer

    def report(self, fence: Fence, lines: Sequence[ProgressLine]) -> None:
        """Send lines of the progress of a lease."""
        body = wire.ProgressReport(lines=tuple(lines))
        self._client.send_once("POST", f"leases/{fence}/progress", body, self._times.answer)

    def commit(self, fence: Fence, run: RunId, end: RunEnd) -> Job:
        """Record the end of the run of a lease."""
        body = wire.EndRequest(run=run, end=fit_end(end))
        return self._request("PUT", f"leases/{fence}/run", Job, body)

    def release(self, fence: Fence, ended: LeaseEnd, reason: str) -> None:
        """Give a lease back."""
        self._send("POST", f"leases/{fence}/release", {"ended": ended, "reason": reason})

    def holds(self, fence: Fence) -> bool:
        """Ask whether a lease is still held."""
        return self._request("GET", f"leases/{fence}", wire.LeaseStatus).holds

    def name(self) -> str:
        """Return the queue's name, which is fetched once."""
        if self._name is None:
            self._name = self._request("GET", "queue", wire.QueueName).name
        return self._name

    def lock_text(self, lock: Digest) -> str:
        """Fetch the text of a lock."""
        return self._request("GET", f"locks/{lock}", LockResponse).text

    def _send(self, method: str, path: str, body: object) -> None:
        self._client.send_once(method, path, body)

    def _request(
        self, method: str, path: str, kind: type[_T], body: object = None, patience: float = SILENCE_SECONDS
    ) -> _T:
        return self._client.send(method, path, body, kind, again=False, patience=patience)


def _tail(job: JobId) -> str:
    return job.partition("/")[2]


def _page(path: str, limit: int, cursor: str, **more: str) -> str:
    """Return the path of a page."""
    parameters = {"limit": str(min(limit, _PAGE)), "cursor": cursor, **more}
    return f"{path}?{urlencode({name: value for name, value in parameters.items() if value})}"
