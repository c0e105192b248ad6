"""Ends of runs with one forged field, sent by a client and by a worker: the service stores none that blobs refute."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.evaluator.queue.job_matching import JobRequirements
from benchlock.evaluator.queue.queue_types import JobRequest, new_job_id
from benchlock.evaluator.records.evidence_status import REPORTED_FIELDS
from benchlock.evaluator.records.run_document import encode_run
from benchlock.evaluator.records.run_types import Run, new_run_id
from benchlock.registry.lock.lockfile import Lock
from tests.api.http.conftest import Client
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.forged_records import Document, forge, is_reported, leaves, name_of, run_from
from tests.support.evaluator.queues import BOOT, CPU, facts, machine
from tests.support.evaluator.recorded import NOON
from tests.support.evaluator.releases import release
from tests.support.resolution.variants import variant

Send = Callable[[Document], httpx.Response]
STARTS = ("id", "lock", "isolation", "platform", "image_id")


@pytest.fixture
def lock(registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch) -> Lock:
    made = variant({"lock": CURRENT, "files": IDX})
    release(monkeypatch, made.lock.harness)
    made.publish(registry.catalogue, registry.store)
    registry.catalogue.put_lock(made.lock)
    return made.lock


@pytest.fixture
def run(registry: LocalRegistry, lock: Lock) -> Run:
    return make_run(lock, registry.store)


@pytest.fixture
def document(run: Run) -> Document:
    found: Document = json.loads(encode_run(run))
    return found


def by_client(client: Client, run: Run) -> Send:
    begun = client.post("/v1/runs", json=msgspec.to_builtins(run.start))
    assert begun.status_code == 201, begun.text
    path = f"/v1/runs/{run.id.removeprefix('run/')}/end"
    return lambda end: client.put(path, json=end)


def by_worker(client: Client, run: Run, registry: LocalRegistry) -> Send:
    queue = open_queue(registry)
    queue.enrol(machine(1), BOOT, facts())
    queue.submit(JobRequest(new_job_id(NOON), run.start.lock, JobRequirements((CPU,), {}, cpus=1)))
    lease = queue.lease(machine(1), BOOT)
    assert lease is not None
    path = f"/v1/leases/{lease.fence}/run"
    begun = client.post(path, json=msgspec.to_builtins(run.start))
    assert begun.status_code == 200, begun.text
    return lambda end: client.put(path, json={"run": run.id, "end": end})


@pytest.mark.parametrize("sender", ["client", "worker"])
def test_every_forged_field_of_an_end_is_refused(
    client: Client, registry: LocalRegistry, run: Run, document: Document, sender: str
) -> None:
    send = by_client(client, run) if sender == "client" else by_worker(client, run, registry)
    for path in leaves(document["end"], ("end",)):
        name = name_of(path, document)
        if is_reported(name, REPORTED_FIELDS):
            continue
        answer = send(end_of(forge(document, path)))
        assert 400 <= answer.status_code < 500, (name, answer.text)
        assert registry.records.get(run.id).end is None, name
    answer = send(end_of(document))
    assert answer.status_code == 200, answer.text
    assert registry.records.get(run.id).end == run.end


@pytest.mark.parametrize("sender", ["client", "worker"])
def test_a_run_that_is_posted_again_under_another_id_is_refused(
    client: Client, registry: LocalRegistry, run: Run, document: Document, sender: str
) -> None:
    first = by_client(client, run)(end_of(document))
    assert first.status_code == 200, first.text
    again = replace(run, start=replace(run.start, id=new_run_id(NOON)))
    send = by_client(client, again) if sender == "client" else by_worker(client, again, registry)
    refused = send(end_of(document))
    assert refused.status_code == 422, refused.text
    assert f"{again.id} has the samples of {run.id}" in refused.json()["detail"]
    assert registry.records.get(again.id).end is None


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("value", -5.0, "at least 0"),
        ("unit", "<script>", "defined as"),
        ("direction", "higher", "defined as"),
        ("version", 3, "by definition 3"),
        ("name", "speed", "the metric speed"),
        ("n", 999, "metrics.latency_p50.n is recorded as 999 and recomputed as 1000"),
        ("ci", [0.5, 0.6], "not around"),
        ("batch", 8, "metrics.latency_p50@8"),
    ],
)
def test_a_metric_against_its_definition_is_refused_with_the_field(
    client: Client, run: Run, document: Document, field: str, value: object, word: str
) -> None:
    send = by_client(client, run)
    metric = next(one for one in document["end"]["metrics"] if one["name"] == "latency_p50")
    metric[field] = value
    refused = send(end_of(document))
    assert refused.status_code == 422, refused.text
    assert word in refused.json()["detail"]
    assert refused.json()["where"] == run.id


def test_two_metrics_of_one_name_are_refused(client: Client, run: Run, document: Document) -> None:
    send = by_client(client, run)
    document["end"]["metrics"].append(document["end"]["metrics"][0])
    refused = send(end_of(document))
    assert (refused.status_code, refused.json()["code"]) == (422, "incomplete-record"), refused.text
    assert "given 2 times" in refused.json()["detail"]


def test_a_start_that_does_not_fit_is_refused_at_the_latest_with_its_end(
    client: Client, registry: LocalRegistry, run: Run, document: Document
) -> None:
    paths = [path for name in STARTS[1:] for path in leaves(document[name], (name,))]
    for number, path in enumerate(paths):
        at = NOON + timedelta(seconds=number)
        forged = run_from(forge(document, path))
        start = replace(forged.start, id=new_run_id(at), started_at=at)
        begun = client.post("/v1/runs", json=msgspec.to_builtins(start))
        if begun.status_code == 201:
            end = replace(run.end, ended_at=at + timedelta(minutes=1)) if run.end is not None else None
            assert end is not None
            ended = client.put(f"/v1/runs/{start.id.removeprefix('run/')}/end", json=msgspec.to_builtins(end))
            assert ended.status_code == 422, (path, ended.text)
            assert registry.records.get(start.id).end is None
        else:
            assert 400 <= begun.status_code < 500, begun.text


def test_a_verified_run_says_so_and_what_is_reported(client: Client, run: Run, document: Document) -> None:
    told = by_client(client, run)(end_of(document)).json()["evidence"]
    assert (told["state"], told["reasons"]) == ("verified", [])
    assert {"start.host", "end.timings", "end.packages", "end.ended_at"} <= set(told["reported"])


def end_of(document: Document) -> dict[str, Any]:
    """Return the end as it is sent."""
    end: dict[str, Any] = document["end"]
    return end


@pytest.mark.parametrize(
    "role", ["../../out-of-run", "{tmp}/out-of-run", "a/b", "a\0b", "predictions/x", "a\n", "", "Ä"]
)
@pytest.mark.parametrize("sender", ["client", "worker"])
def test_a_role_of_a_blob_is_no_path(
    client: Client, registry: LocalRegistry, run: Run, document: Document, sender: str, role: str, tmp_path: Path
) -> None:
    send = by_client(client, run) if sender == "client" else by_worker(client, run, registry)
    end = end_of(document)
    end["blobs"][role.format(tmp=tmp_path)] = end["blobs"]["result"]
    answer = send(end)
    assert answer.status_code in (400, 422), answer.text
    assert not list(registry.home.parent.glob("out-of-run"))  # beside it are the folders of other tests
    assert not list(tmp_path.rglob("out-of-run"))
