"""Resolving and locking over HTTP: the same answers as the rooms below give, and locks that are what they say."""

import threading
from typing import Any

import msgspec
import pytest

from benchlock.api.http.routes import lock_routes
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.schemas.lock_schemas import LockResponse, ResolveResponse, decode_resolution
from benchlock.registry.artifact_names import parse_reference
from benchlock.registry.lock.lock_creation import resolve_request
from benchlock.registry.lock.lockfile import Lock, dump, from_content, load
from benchlock.registry.requests.evaluation_request import read_request
from tests.api.http.conftest import Client
from tests.support.resolution.locks import REQUEST
from tests.support.resolution.variants import Variant, variant

REQUESTED = read_request(REQUEST, "request.yaml")
DOCUMENT = REQUESTED.document
UNKNOWN = "sha256:" + "0" * 64


@pytest.fixture
def whole(registry: LocalRegistry) -> Variant:
    """What the request asks for is published."""
    made = variant({})
    made.publish(registry.catalogue, registry.store)
    return made


@pytest.fixture
def made(client: Client, whole: Variant) -> LockResponse:
    answer = client.post("/v1/locks", json={"request": DOCUMENT})
    assert (answer.status_code, bool(whole)) == (201, True), answer.text
    return msgspec.json.decode(answer.content, type=LockResponse)


@pytest.mark.usefixtures("whole")
def test_a_request_is_resolved_as_it_is_here(client: Client, registry: LocalRegistry) -> None:
    answer = client.post("/v1/resolve", json={"request": DOCUMENT})
    found = decode_resolution(msgspec.json.decode(answer.content, type=ResolveResponse))
    here = resolve_request(REQUESTED, registry.catalogue, {})
    for kind, candidate in here.chosen().items():
        chosen = found.chosen()[kind]
        assert (chosen.name, chosen.version, chosen.digest) == (candidate.name, candidate.version, candidate.digest)
    assert found.platforms == here.platforms


@pytest.mark.usefixtures("whole")
def test_a_conflict_is_explained(client: Client) -> None:
    document = DOCUMENT | {"model": {"name": "digits", "version": "^9.0"}}
    for path in ("/v1/resolve", "/v1/locks"):
        answer = client.post(path, json={"request": document})
        problem = answer.json()
        assert (answer.status_code, problem["code"]) == (409, "conflict")
        assert problem["conflict"]["rejected"]
        assert problem["next"]


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"model": {"name": "nobody", "version": "*"}}, 404),
        ({"model": {"name": "digits", "version": "soon"}}, 422),
        ({"seed": "seven"}, 422),
        ({"unheard": 1}, 422),
        ({"as_of": "yesterday"}, 422),
        ({"equivalence": {"latency_p50": 10}}, 422),
    ],
)
def test_what_is_no_request_is_a_problem(client: Client, changed: dict[str, Any], status: int) -> None:
    answer = client.post("/v1/resolve", json={"request": DOCUMENT | changed})
    assert answer.status_code == status, answer.text


def test_a_lock_is_made_kept_and_read_again(client: Client, registry: LocalRegistry, made: LockResponse) -> None:
    lock = load(made.text, "answer")
    assert (lock.id, dump(lock)) == (made.lock, made.text)
    assert registry.catalogue.get_lock(lock.id) == made.text
    for text, is_for_ever in ((made.lock, True), (made.lock[:15], False)):
        answer = client.get(f"/v1/locks/{text}")
        assert msgspec.json.decode(answer.content, type=LockResponse) == made
        assert ("immutable" in answer.headers["cache-control"]) == is_for_ever
        known = {"if-none-match": answer.headers["etag"]}
        assert client.get(f"/v1/locks/{text}", headers=known).status_code == 304
    answer = client.get(f"/v1/locks/{made.lock}")
    toml = client.get(f"/v1/locks/{made.lock}", headers={"accept": "application/toml"})
    assert (toml.text, toml.headers["content-type"]) == (made.text, "application/toml")
    assert {one.headers["vary"] for one in (toml, answer)} == {"Accept"}
    assert toml.headers["etag"] != answer.headers["etag"]
    again = client.post("/v1/locks", json={"request": DOCUMENT})
    assert again.json()["lock"] == made.lock


@pytest.mark.parametrize("accept", ["application/json", "application/toml"])
def test_a_lock_is_read_once_and_beside_the_loop(
    client: Client, made: LockResponse, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    threads: list[str] = []

    def read(text: str, where: str) -> Lock:
        threads.append(threading.current_thread().name)
        return load(text, where)

    monkeypatch.setattr(lock_routes, "load", read)
    answers = {client.get(f"/v1/locks/{made.lock}", headers={"accept": accept}).content for _ in range(3)}
    assert len(answers) == 1
    assert [name.partition("_")[0] for name in threads] == ["work"]


def test_preferences_are_kept_and_a_yanked_version_is_said(
    client: Client, registry: LocalRegistry, made: LockResponse
) -> None:
    registry.catalogue.yank(parse_reference("model/digits@1.0.0"), "worse")
    assert client.post("/v1/locks", json={"request": DOCUMENT}).status_code == 409
    kept = [{"kind": "model", "name": "digits", "version": "1.0.0"}]
    answer = client.post("/v1/locks", json={"request": DOCUMENT, "preferences": kept})
    assert (answer.status_code, answer.json()["lock"]) == (201, made.lock)
    assert answer.json()["warnings"] == ["model/digits 1.0.0 is yanked: worse"]


def test_a_lock_of_before_may_have_a_margin_that_a_request_may_not(client: Client, made: LockResponse) -> None:
    lock = load(made.text, "lock")
    stated = lock.request | {"equivalence": {"latency_p50": 10}}
    text = dump(from_content(msgspec.structs.replace(lock, request=stated)))
    kept = client.post("/v1/locks", json={"text": text}).json()
    why = client.post("/v1/locks/why", json={"lock": kept["lock"], "target": "model/digits"})
    assert why.status_code == 200, why.text


def test_a_lock_of_somebody_else_is_kept_where_its_blobs_are_here(
    client: Client, registry: LocalRegistry, made: LockResponse
) -> None:
    seeded = client.post("/v1/locks", json={"request": DOCUMENT | {"seed": 8}}).json()
    assert client.post("/v1/locks", json={"text": seeded["text"]}).json()["lock"] == seeded["lock"] != made.lock
    registry.store.delete(load(made.text, "lock").harness.digest)
    lost = client.post("/v1/locks", json={"text": made.text})
    assert (lost.status_code, lost.json()["blobs"]) == (409, [load(made.text, "lock").harness.digest])


@pytest.mark.parametrize(
    ("given", "status", "code"),
    [
        ({}, 422, "invalid-input"),
        ({"text": "id = 7"}, 422, "invalid-input"),
        ({"text": "}"}, 422, "invalid-input"),
        ({"text": "", "request": {}}, 422, "invalid-input"),
    ],
)
def test_what_is_no_lock_is_a_problem(client: Client, given: dict[str, Any], status: int, code: str) -> None:
    answer = client.post("/v1/locks", json=given)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_lock_that_was_changed_is_an_integrity_violation(client: Client, made: LockResponse) -> None:
    text = made.text.replace("seed = 7", "seed = 8")
    assert text != made.text
    for path, given in (
        ("/v1/locks", {"text": text}),
        ("/v1/locks/check", {"lock": text, "request": DOCUMENT}),
        ("/v1/locks/diff", {"before": made.lock, "after": text}),
    ):
        answer = client.post(path, json=given)
        assert (answer.status_code, answer.json()["code"]) == (422, "integrity"), path


def test_what_is_asked_of_a_lock_is_answered(client: Client, made: LockResponse) -> None:
    for lock in (made.text, made.lock):
        assert client.post("/v1/locks/check", json={"lock": lock, "request": DOCUMENT}).json()["fresh"] is True
    stale = client.post("/v1/locks/check", json={"lock": made.lock, "request": DOCUMENT | {"seed": 8}}).json()
    assert (stale["fresh"], stale["reasons"]) == (False, ["seed was 7, is 8"])
    why = client.post("/v1/locks/why", json={"lock": made.lock, "target": "framework/onnxruntime"}).json()
    assert why["why"]["version"] in why["prose"]
    other = client.post("/v1/locks", json={"request": DOCUMENT | {"seed": 8}}).json()["lock"]
    changes = client.post("/v1/locks/diff", json={"before": made.lock, "after": other}).json()["changes"]
    assert [(one["before"], one["after"]) for one in changes] == [("7", "8")]
    assert client.post("/v1/locks/diff", json={"before": made.lock, "after": made.text}).json() == {"changes": []}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", f"/v1/locks/{UNKNOWN}", None, 404),
        ("GET", "/v1/locks/sha256:1", None, 422),
        ("GET", "/v1/locks/x", None, 422),
        ("POST", "/v1/locks/check", {"lock": UNKNOWN, "request": DOCUMENT}, 404),
        ("POST", "/v1/locks/why", {"lock": UNKNOWN, "target": "model/digits"}, 404),
        ("POST", "/v1/locks/why", {"lock": UNKNOWN, "target": "model/digits@1.0.0"}, 422),
        ("POST", "/v1/locks/why", {"lock": "", "target": "model/digits"}, 422),
    ],
)
def test_a_lock_that_is_not_there_is_a_problem(
    client: Client, method: str, path: str, body: dict[str, Any] | None, status: int
) -> None:
    assert client.request(method, path, json=body).status_code == status
