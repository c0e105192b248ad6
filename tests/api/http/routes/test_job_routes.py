"""Jobs over HTTP: who watches one hears of what changes."""

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from benchlock.api.http.routes import job_routes
from benchlock.api.http.routes.app import create_app
from benchlock.api.http.service_state import Service
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.artifacts.digest import digest_bytes
from benchlock.evaluator.queue.queue_types import Job, Queue, parse_job_id
from benchlock.registry.lock.lockfile import load
from benchlock.registry.requests.evaluation_request import read_request
from tests.api.http.conftest import Client
from tests.support.resolution.locks import REQUEST
from tests.support.resolution.variants import variant

ID = parse_job_id("job/01kam1v3mz4w0q3d5g7h9j2k4m")
DELAYED = Job(
    id=ID,
    lock=digest_bytes(b"lock"),
    state="delayed",
    phase=None,
    machine=None,
    run=None,
    lost=0,
    engine=0,
    crash=0,
    cancel_asked=False,
    failure=None,
    reason="the engine does not answer",
    due=10.0,
    submitted_at=datetime(2026, 11, 21, 12, tzinfo=UTC),
)
SEEN = [
    DELAYED,
    *(replace(DELAYED, due=due) for due in (9.5, 9.0, 0.0)),
    replace(DELAYED, state="queued", due=None),
    replace(DELAYED, state="cancelled", due=None),
]


class Looks:
    """Has one job, which is another at each look."""

    def __init__(self) -> None:
        self._left = list(SEEN)

    def job(self, _: object) -> Job:
        return self._left.pop(0)


def test_who_watches_a_job_that_waits_hears_nothing_until_something_changes(
    registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_routes, "POLL_SECONDS", 0.0)
    service: Service = create_app(registry).state.service

    async def watched() -> list[dict[str, object]]:
        events = job_routes.stream_events(service, cast("Queue", Looks()), ID)
        found = [msgspec.json.decode(str(event.data)) async for event in events]
        await service.work.end(60)
        return found

    told = asyncio.run(watched())
    seen = [(one["state"], one["again_in"]) for one in told]
    assert seen == [("delayed", 10.0), ("queued", None), ("cancelled", None)]


def test_a_sign_of_life_is_a_comment_and_no_event(registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_routes, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(job_routes, "KEEPALIVE_SECONDS", 0.0)
    service: Service = create_app(registry).state.service

    async def first() -> list[bytes]:
        events = job_routes.stream_events(service, cast("Queue", Looks()), ID)
        found = [(await anext(events)).encode() for _ in range(2)]
        await events.aclose()
        await service.work.end(60)
        return found

    event, sign = asyncio.run(first())
    assert b"data: " in event
    assert sign.splitlines() == [b": still watching", b""]


REQUESTED = read_request(REQUEST, "request.yaml").document


def publish(registry: LocalRegistry, version: str) -> None:
    """What the request asks for."""
    variant({"model": {"version": version}}).publish(registry.catalogue, registry.store)


def test_who_was_cut_off_hears_of_what_is_new(client: Client, registry: LocalRegistry) -> None:
    publish(registry, "1.0.0")
    path = f"/v1/jobs/{client.post('/v1/jobs', json={'request': REQUESTED}).json()['job'].removeprefix('job/')}"
    asked = client.head(f"{path}/events")  # it ends, though the job still waits
    assert (asked.status_code, asked.content) == (200, b"")
    assert client.delete(path).json()["state"] == "cancelled"
    whole = client.get(f"{path}/events")
    assert whole.headers["content-type"].startswith("text/event-stream")
    (id_,) = (line.removeprefix("id: ") for line in whole.text.splitlines() if line.startswith("id: "))
    assert client.get(f"{path}/events", headers={"last-event-id": id_}).text == ""
    assert client.get(f"{path}/events", headers={"last-event-id": "another"}).text == whole.text


def test_the_lock_of_a_request_is_made_kept_and_queued(client: Client, registry: LocalRegistry) -> None:
    publish(registry, "1.0.0")
    answer = client.post("/v1/jobs", json={"request": REQUESTED})
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert client.get(f"/v1/jobs/{job['job'].removeprefix('job/')}").json() == job
    lock = load(client.get(f"/v1/locks/{job['lock']}").json()["text"], "kept")
    assert (lock.id, lock.request) == (job["lock"], REQUESTED)
    assert client.post("/v1/jobs", json={"lock": lock.id}).json()["lock"] == lock.id


def test_a_request_under_the_same_id_is_the_same_job_whatever_was_published_meanwhile(
    client: Client, registry: LocalRegistry
) -> None:
    publish(registry, "1.0.0")
    asked = {"request": REQUESTED, "job": ID}
    first = client.post("/v1/jobs", json=asked).json()
    publish(registry, "1.1.0")
    assert client.post("/v1/jobs", json=asked).json() == first
    assert client.post("/v1/jobs", json={"request": REQUESTED}).json()["lock"] != first["lock"]
    other = client.post("/v1/jobs", json=asked | {"request": REQUESTED | {"seed": 8}})
    assert (other.status_code, other.json()["detail"]) == (422, f"another job has the id {ID}")


def test_a_request_that_nothing_answers_is_no_job_and_the_conflict_is_that_of_resolving(
    client: Client, registry: LocalRegistry
) -> None:
    publish(registry, "1.0.0")
    asked = {"request": REQUESTED | {"model": {"name": "digits", "version": "^9.0"}}}
    answers = [client.post(path, json=asked) for path in ("/v1/jobs", "/v1/resolve")]
    problems = [answer.json() | {"request_id": ""} for answer in answers]
    assert problems[0] == problems[1]
    assert (answers[0].status_code, problems[0]["code"]) == (409, "conflict")
    assert client.get("/v1/jobs").json() == {"jobs": []}


@pytest.mark.parametrize("both", [{}, {"lock": DELAYED.lock, "request": REQUESTED}])
def test_a_job_is_of_a_lock_or_of_a_request(client: Client, both: dict[str, Any]) -> None:
    answer = client.post("/v1/jobs", json=both)
    assert (answer.status_code, answer.json()["detail"]) == (422, "exactly one of lock and request is required")
