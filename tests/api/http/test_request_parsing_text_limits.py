"""What a client sends has a limit, which the document states; what is too long is refused, and lists stay small."""

import io
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, select, text

from benchlock.api.http.routes.lock_routes import REQUEST
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.schemas.run_schemas import RunPage
from benchlock.artifacts import size_limits
from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.evaluator.records.run_types import Run, RunId, new_run_id
from benchlock.evaluator.records.runs_schema import open_runs, run_ends
from benchlock.migrations.schema_check import list_text_limits
from benchlock.registry.database.engine import read_transaction, write_transaction
from benchlock.registry.database.record_chain import insert_record
from benchlock.registry.database.registry_schema import versions, yanks
from benchlock.registry.database.triggers import limit_cleanup_statements
from benchlock.registry.lock.lockfile import Lock
from tests.api.http.conftest import Client
from tests.evaluator.queue.test_client_runs import END, start_of
from tests.support.evaluator.queues import BOOT, facts
from tests.support.evaluator.recorded import NOON, recorded
from tests.support.resolution.variants import variant

MIB = 1 << 20


@pytest.fixture
def lock(registry: LocalRegistry) -> Lock:
    made = variant({}).lock
    registry.catalogue.put_lock(made)
    return made


def sent(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    return msgspec.to_builtins(value)


def strings_of(schema: dict[str, Any], components: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every string of a schema, with where it is."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from strings_of(components[name], components, f"{path}")
        return
    for word in ("oneOf", "anyOf", "allOf", "prefixItems"):
        for one in schema.get(word, ()):
            yield from strings_of(one, components, path)
    for word in ("items", "propertyNames", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from strings_of(schema[word], components, f"{path}.{word}")
    for name, one in schema.get("properties", {}).items():
        yield from strings_of(one, components, f"{path}.{name}")
    if schema.get("type") == "string":
        yield path, schema


def test_every_text_of_a_request_has_a_stated_limit(client: Client) -> None:
    document = client.get("/v1/openapi.json").json()
    components, unbounded = document["components"]["schemas"], []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            found = list(strings_of(body.get("schema", {}), components, ""))
            found += [
                (one["name"], one["schema"])
                for one in operation.get("parameters", ())
                if one["in"] != "header" and one["schema"].get("type") == "string"
            ]
            for place, schema in found:
                if not {"maxLength", "pattern", "enum", "const", "format"} & schema.keys():
                    unbounded.append(f"{method} {path}: {place}")
    assert not unbounded, "\n".join(unbounded)


def test_every_object_of_a_request_has_a_stated_limit(client: Client) -> None:
    components = client.get("/v1/openapi.json").json()["components"]["schemas"]
    for name, part in (
        ("RunEnd", "details"),
        ("RunStart", "host"),
        ("Publication", "manifest"),
        ("JobSubmission", "request"),
        ("Enrolment", "facts"),
        ("ResolveRequest", "request"),
    ):
        (described,) = [one for key, one in components.items() if key.endswith(name)]
        assert "bytes as JSON" in str(described["properties"][part]), (name, part)


LONG_ENDS: dict[str, dict[str, Any]] = {
    "message": {
        "outcome": "failed",
        "failure_class": "crash",
        "failure_message": "é" * (size_limits.FAILURE_MESSAGE // 2 + 1),
    },
    "class": {"outcome": "failed", "failure_class": "é" * 128, "failure_message": "m"},
    "details": {"details": {"a": "x" * size_limits.DETAILS}},
    "package": {"packages": {"numpy": "é" * 128}},
    "packages": {"packages": {str(number): "1" for number in range(size_limits.PACKAGES + 1)}},
    "timings": {"timings": {"é" * 128: 1.0}},
    "phases": {"timings": {str(number): 1.0 for number in range(size_limits.PHASES + 1)}},
}


@pytest.mark.parametrize("what", LONG_ENDS)
def test_an_end_with_a_long_text_is_refused(client: Client, registry: LocalRegistry, lock: Lock, what: str) -> None:
    start = start_of(lock)
    registry.store.put(io.BytesIO(b"predictions"))
    assert client.post("/v1/runs", json=sent(start)).status_code == 201
    predictions = Descriptor(digest_bytes(b"predictions"), len(b"predictions"))
    end = sent(replace(END, blobs={"predictions": predictions})) | LONG_ENDS[what]
    answer = client.put(f"/v1/runs/{start.id.removeprefix('run/')}/end", json=end)
    assert answer.status_code in (400, 422), answer.text
    assert registry.records.get(start.id).end is None


@pytest.mark.parametrize("what", ["host", "process", "platform"])
def test_a_start_with_a_long_document_is_refused(client: Client, lock: Lock, what: str) -> None:
    start = sent(start_of(lock))
    start[what] |= {"more": "x" * size_limits.HOST}
    answer = client.post("/v1/runs", json=start)
    assert (answer.status_code, answer.json()["code"]) in ((422, "too-long"), (400, "malformed")), answer.text


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/yanks", {"target": "model/a/b@1.0.0", "reason": "é" * 2001}),
        ("PATCH", "/v1/machines/m1", {"draining": "é" * 2001}),
        ("POST", "/v1/leases/1/release", {"ended": "returned", "reason": "é" * 2001}),
        ("PUT", "/v1/machines/m1", {"boot": "é" * 33, "facts": facts().document()}),
        (
            "PUT",
            "/v1/machines/m1",
            {"boot": BOOT, "facts": facts().document() | {"kernel": "x" * size_limits.MACHINE_FACTS}},
        ),
        (
            "POST",
            "/v1/resolve",
            {"request": REQUEST | {"hardware": {"accelerator": {"name": "x" * size_limits.REQUEST}}}},
        ),
        ("POST", "/v1/jobs", {"request": REQUEST | {"hardware": {"accelerator": {"name": "x" * size_limits.REQUEST}}}}),
        ("POST", "/v1/tokens", {"name": "a" * 65, "scopes": ["read"]}),
        ("POST", "/v1/locks/why", {"lock": "x", "target": "x" * 401}),
    ],
)
def test_a_long_text_is_refused(client: Client, method: str, path: str, body: dict[str, Any]) -> None:
    answer = client.request(method, path, json=body)
    assert 400 <= answer.status_code < 500, answer.text
    assert "bytes" in answer.text or "length" in answer.text, answer.text


def grow_old(database: Engine) -> None:
    """Make of the database one that is older than the limits."""
    with write_transaction(database) as connection:
        for one in list_text_limits():
            for statement in limit_cleanup_statements(one, connection.dialect.name):
                connection.execute(text(statement))


@pytest.fixture
def old(registry: LocalRegistry, lock: Lock) -> list[RunId]:
    """Twelve failed runs with messages of 15 MB; newest first."""
    grow_old(registry.database)
    ids = list[RunId]()
    for number in range(12):
        at = NOON + timedelta(seconds=number)
        start = replace(recorded(lock=lock.id).start, id=new_run_id(at), started_at=at)
        registry.records.start(start)
        end = {"run": start.id, "outcome": "failed", "failure_class": "crash", "failure_message": "x" * 15_000_000}
        with write_transaction(registry.database) as connection:
            insert_record(connection, run_ends, end | {"timings": {}, "details": {"a": "y" * MIB}, "ended_at": at})
            connection.execute(open_runs.delete())
        ids.append(start.id)
    return ids[::-1]


def test_a_list_of_runs_is_small_whatever_was_recorded(
    client: Client, registry: LocalRegistry, old: list[RunId]
) -> None:
    answer = client.get("/v1/runs")
    assert len(answer.content) < 100_000
    page = msgspec.json.decode(answer.content, type=RunPage)
    assert [run.start.id for run in page.runs] == old
    ends = [run.end for run in page.runs]
    assert all(end is not None and len(end.failure_message or "") == size_limits.SUMMARY for end in ends)
    assert [run.id for run in registry.records.list()] == old
    one = client.get(f"/v1/runs/{old[0].removeprefix('run/')}")
    assert len(one.content) < 2 * MIB
    whole = msgspec.json.decode(one.content, type=Run).end
    assert whole is not None
    assert str(whole.failure_message).endswith("… [truncated: 15000000 bytes]")
    with read_transaction(registry.database) as connection:
        assert len(connection.execute(select(run_ends.c.failure_message)).scalars().first() or "") == 15_000_000


def test_a_page_is_bounded_in_bytes_and_goes_on(client: Client, registry: LocalRegistry) -> None:
    """Versions whose yanks have reasons from before the limits: each page has fewer, and all come."""
    grow_old(registry.database)
    with write_transaction(registry.database) as connection:
        for number in range(12):
            key = {"kind": "model", "name": "acme/m", "precedence": f"{number:04}"}
            row = {"version": f"{number}.0.0", "digest": f"sha256:{number:064x}", "published_at": NOON}
            insert_record(connection, versions, key | row | {"framework": None, "framework_version": None})
            yank = {"position": 1, "yanked": True, "reason": "r" * MIB, "at": NOON}
            insert_record(connection, yanks, key | yank)
    found, sizes, query = list[str](), list[int](), "limit=100"
    while query:
        answer = client.get(f"/v1/artifacts?{query}")
        sizes.append(len(answer.content))
        found += [one["version"] for one in answer.json()["artifacts"]]
        query = f"limit=100&cursor={answer.json()['next']}" if "next" in answer.json() else ""
    assert found == [f"{number}.0.0" for number in range(12)]
    assert max(sizes) <= size_limits.PAGE + 1024
    assert len(sizes) >= 3
