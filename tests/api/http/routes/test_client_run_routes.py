"""Runs of a client's own machine over HTTP: begun, renewed, ended with blobs that were sent before."""

import json
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from litestar.testing import TestClient
from msgspec.structs import replace

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.http.routes.app import create_app
from benchlock.api.http.service_settings import Settings
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.service_log import JsonLines
from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.queue.client_runs import ClientRuns
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_types import Run, RunEnd, RunId
from benchlock.registry.lock.lockfile import Lock
from tests.api.http.conftest import Client
from tests.evaluator.queue.test_client_runs import END, start_of
from tests.support.evaluator.queues import BOOT, facts, keep_lock, machine, wish
from tests.support.evaluator.queues import start as begin
from tests.support.resolution.variants import variant

BLOB = b"predictions"


@pytest.fixture
def lock(registry: LocalRegistry) -> Lock:
    made = variant({})
    made.publish(registry.catalogue, registry.store)
    registry.catalogue.put_lock(made.lock)
    return made.lock


def sent(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    return msgspec.to_builtins(value)


def test_a_run_is_recorded_from_its_start_to_its_end(client: Client, registry: LocalRegistry, lock: Lock) -> None:
    start = start_of(lock)
    # Of a failed run nothing follows from its blobs: tests of forged records have runs with figures.
    failure: dict[str, Any] = {"outcome": "failed", "failure_class": "timeout", "failure_message": "it took too long"}
    nothing: dict[str, Any] = {"metrics": (), "packages": {}, "timings": {}}
    blobs = {"predictions": Descriptor(digest_bytes(BLOB), len(BLOB))}
    end = replace(END, **failure, **nothing, blobs=blobs)
    path = f"/v1/runs/{start.id.removeprefix('run/')}"
    held = {"run": start.id, "seconds": 60.0}
    for _ in range(2):
        begun = client.post("/v1/runs", json=sent(start))
        assert (begun.status_code, begun.json()) == (201, held)
    assert client.put(f"{path}/hold").json() == held
    assert (client.get(path).json()["end"], client.get(path).json()["position"]) == (None, None)
    refused = client.put(f"{path}/end", json=sent(end))
    assert (refused.status_code, refused.json()["blobs"]) == (409, [digest_bytes(BLOB)])
    (registry.home / "file").write_bytes(BLOB)
    registry.store.put_file(registry.home / "file")
    for _ in range(2):
        done = client.put(f"{path}/end", json=sent(end))
        assert done.status_code == 200, done.text
        told, kept = (
            msgspec.json.decode(done.content, type=Run),
            registry.records.get(start.id),
        )
        assert (told, told.order) == (kept, kept.order)
        assert kept.position is not None
    late = client.put(f"{path}/hold")
    assert (late.status_code, late.json()["code"]) == (409, "run-ended")


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"id": "run/1"}, 400),
        ({"lock": "sha256:1"}, 400),
        ({"lock": "sha256:" + "0" * 64}, 404),
        ({"host": {}}, 422),
        ({"attempt": 0}, 400),
        ({"id": f"run/7{'z' * 25}"}, 422),
        ({"started_at": "2026-11-21T12:00:00"}, 400),
        ({"started_at": "yesterday"}, 400),
        ({"isolation": "none"}, 400),
        ({"unheard": 1}, 400),
    ],
)
def test_a_start_with_a_gap_is_a_problem(client: Client, lock: Lock, changed: dict[str, Any], status: int) -> None:
    answer = client.post("/v1/runs", json=sent(start_of(lock)) | changed)
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"image_id": "sha256:" + "0" * 64, "isolation": "container"}, "it has the image sha256:0000"),
        ({"platform": {"os": "linux", "arch": "arm64", "device": "cpu", "python": "3.11"}}, "linux/arm64/cpu"),
    ],
)
def test_a_start_that_does_not_fit_its_lock_is_refused(
    client: Client, registry: LocalRegistry, lock: Lock, changed: dict[str, Any], reason: str
) -> None:
    start = sent(start_of(lock)) | changed
    queue = open_queue(registry)
    queue.enrol(machine(1), BOOT, facts())
    queue.submit(wish(lock=lock.id))
    lease = queue.lease(machine(1), BOOT)
    assert lease is not None
    for path in ("/v1/runs", f"/v1/leases/{lease.fence}/run"):
        answer = client.post(path, json=start)
        assert (answer.status_code, answer.json()["code"]) == (422, "integrity"), answer.text
        assert reason in answer.json()["detail"]
    assert registry.records.count(lock.id) == 0


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"metrics": [{"name": "top1"}]}, 400),
        ({"outcome": "odd"}, 400),
        ({"outcome": "failed"}, 422),
        ({"packages": {}}, 422),
        ({"ended_at": "2000-01-01T00:00:00"}, 400),
    ],
)
def test_an_end_with_a_gap_is_a_problem(client: Client, lock: Lock, changed: dict[str, Any], status: int) -> None:
    start = start_of(lock)
    client.post("/v1/runs", json=sent(start))
    document = sent(replace(END, blobs={}, outcome="done")) | {"blobs": {}} | changed
    answer = client.put(f"/v1/runs/{start.id.removeprefix('run/')}/end", json=document)
    assert answer.status_code == status, answer.text


@pytest.fixture
def impatient(registry: LocalRegistry) -> Iterator[Client]:
    with TestClient(create_app(registry, Settings(lease_seconds=0.2)), raise_server_exceptions=False) as client:
        yield client


def await_end(client: Client, registry: LocalRegistry, run: RunId) -> RunEnd:
    """How it ended, once somebody saw that it has."""
    deadline = time.monotonic() + 120
    while (end := registry.records.get(run).end) is None:
        assert time.monotonic() < deadline, "nobody looks any more"
        client.get("/v1/health")
    return end


def test_a_leased_run_of_which_nothing_is_heard_is_abandoned_though_nobody_asks_for_its_job(
    registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCHLOCK_LEASE", "0.2")
    keep_lock(registry.database)
    queue = open_queue(registry)
    queue.enrol(machine(1), BOOT, facts())
    queue.submit(wish())
    lease = queue.lease(machine(1), BOOT)
    assert lease is not None
    begun = queue.begin(lease.fence, begin())
    assert begun is not None
    with TestClient(create_app(registry), raise_server_exceptions=False) as client:
        assert await_end(client, registry, begun.id).outcome == "abandoned"


def test_a_run_of_which_nothing_is_heard_is_abandoned(impatient: Client, registry: LocalRegistry, lock: Lock) -> None:
    start = start_of(lock)
    assert impatient.post("/v1/runs", json=sent(start)).json()["seconds"] == 0.2
    assert await_end(impatient, registry, start.id).outcome == "abandoned"
    assert impatient.put(f"/v1/runs/{start.id.removeprefix('run/')}/hold").status_code == 409


def test_runs_are_looked_at_again_after_a_fault_that_nobody_foresaw(
    impatient: Client,
    registry: LocalRegistry,
    lock: Lock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = [KeyError("a row that nobody foresaw"), UnavailableError("the disk is full")]
    look = ClientRuns.is_any

    def looked(held: ClientRuns) -> bool:
        if faults:
            raise faults.pop(0)
        return look(held)

    monkeypatch.setattr(ClientRuns, "is_any", looked)
    start = start_of(lock)
    impatient.post("/v1/runs", json=sent(start))
    await_end(impatient, registry, start.id)
    assert not faults
    told = [json.loads(JsonLines().format(one)) for one in caplog.records if one.levelname == "ERROR"]
    assert ["KeyError" in one.get("error", "") for one in told] == [True, False]


def test_held_runs_are_looked_at_though_the_queue_cannot_be(
    impatient: Client, registry: LocalRegistry, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settle(_: SqlQueue) -> bool:
        raise KeyError("a lease that nobody foresaw")

    monkeypatch.setattr(SqlQueue, "settle", settle)
    start = start_of(lock)
    impatient.post("/v1/runs", json=sent(start))
    assert await_end(impatient, registry, start.id).outcome == "abandoned"
