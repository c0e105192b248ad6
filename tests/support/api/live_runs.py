"""A run in progress of a queued job, whose worker speaks the real protocol but measures nothing."""

from dataclasses import dataclass
from pathlib import Path

from benchlock.api.client.api_client import ApiClient
from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.client.remote_queue import RemoteQueue
from benchlock.api.http.service_settings import VERSION
from benchlock.api.local.local_registry import now, open_registry
from benchlock.artifacts.stores.http_store import open_session, parse_server
from benchlock.evaluator.queue.client_runs import ClientRuns
from benchlock.evaluator.queue.queue_types import JobRequest, Lease, new_job_id
from benchlock.evaluator.records.run_types import RunId
from benchlock.registry.resolution.resolver_types import ORDER
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.queues import ANY, BOOT, facts, machine
from tests.support.resolution.variants import variant


@dataclass(frozen=True, slots=True)
class Running:
    """The run of a job, and another one that was not queued, in the registry of a folder."""

    folder: Path
    lease: Lease
    run: RunId
    other: RunId


def begin_runs(folder: Path) -> Running:
    """Create a registry in ``folder`` with both runs in progress."""
    registry = open_registry(str(folder), lambda _: None, create=True)
    made = variant({"files": IDX, "lock": CURRENT})
    made.publish(registry.catalogue, registry.store, ORDER)
    registry.catalogue.put_lock(made.lock)
    queue = open_queue(registry)
    queue.submit(JobRequest(new_job_id(now()), made.lock.id, ANY))
    queue.enrol(machine(1), BOOT, facts())
    lease = queue.lease(machine(1), BOOT)
    assert lease is not None
    start, other = (make_run(made.lock, registry.store, at=now()).start for _ in range(2))
    assert queue.begin(lease.fence, start) is not None
    ClientRuns(registry.database, now).start(other)
    registry.database.dispose()
    return Running(folder, lease, start.id, other.id)


def connect_worker(url: str) -> RemoteQueue:
    """Connect to the queue of a service that is open to everybody."""
    return RemoteQueue(ApiClient(open_session(parse_server(url)), VERSION, has_token=False))
