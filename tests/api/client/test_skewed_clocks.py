"""Clients whose clocks are wrong, on a real service: their runs are recorded, with the service's time."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.client.remote_queue import RemoteQueue
from benchlock.api.client.remote_records import RemoteRuns
from benchlock.api.client.remote_registry import connect_server
from benchlock.api.local.local_registry import open_registry
from benchlock.evaluator.queue.job_matching import JobRequirements
from benchlock.evaluator.queue.queue_types import JobRequest, new_job_id
from benchlock.evaluator.records.run_types import RunEnd
from tests.evaluator.queue.test_client_runs import start_of
from tests.support.api.serving import service
from tests.support.evaluator.queues import BOOT, CPU, facts, machine
from tests.support.resolution.variants import variant


@pytest.mark.parametrize("hours", [-26, 26])
def test_runs_of_a_skewed_machine_are_recorded_with_the_service_s_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    registry, skew = open_registry(str(tmp_path / "registry"), print), timedelta(hours=hours)
    made = variant({})
    made.publish(registry.catalogue, registry.store)
    lock = made.lock
    registry.catalogue.put_lock(lock)
    jobs = [
        open_queue(registry).submit(
            JobRequest(new_job_id(datetime.now(UTC)), lock.id, JobRequirements((CPU,), {}, cpus=1))
        )
    ]
    with service(tmp_path / "registry") as served:
        client = connect_server(served.url).client
        client.clock._own = lambda: datetime.now(UTC) + skew
        queue, runs = RemoteQueue(client), RemoteRuns(client, lambda _: False)
        queue.enrol(machine(1), BOOT, facts(), datetime.now(UTC) + skew)
        lease = queue.lease(machine(1), BOOT)
        assert lease is not None
        leased = start_of(lock, client.clock())
        assert queue.begin(lease.fence, leased) is not None
        cut = RunEnd(outcome="failed", failure_class="timeout", failure_message="too slow", ended_at=client.clock())
        assert queue.commit(lease.fence, leased.id, cut).state == "failed"
        held = start_of(lock, client.clock())
        runs.start(held)
        runs.finish(held.id, RunEnd(outcome="cancelled", ended_at=datetime.now(UTC) + skew))
        assert queue.job(jobs[0].id).tally.total == 0
        (shown,) = queue.machines()
    assert shown.skew == pytest.approx(hours * 3600, abs=60)
    for id_ in (leased.id, held.id):
        run = registry.records.get(id_)
        assert run.end is not None
        assert abs(run.start.started_at - datetime.now(UTC)) < timedelta(minutes=5)
        assert run.start.started_at <= run.end.ended_at <= datetime.now(UTC)
    registry.database.dispose()
