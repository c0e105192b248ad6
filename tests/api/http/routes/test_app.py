"""What holds for every route: needs, problems, request ids, figures, logs, and the document that describes them."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from litestar import Router, get
from litestar.routes import HTTPRoute
from litestar.testing import TestClient

from benchlock.api.http.request_authorization import READ
from benchlock.api.http.routes import app as application
from benchlock.api.http.routes.app import CONTROLLERS, create_app
from benchlock.api.http.service_settings import Settings
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.schemas.problem_details import Problem
from benchlock.api.service_log import JsonLines
from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.auth.permissions import NEEDS, Actor, Scopes, UnauthorizedError, get_actor
from tests.api.http.conftest import Client

JSON = {"content-type": "application/json"}
SECRET = "blk_0123456789abcdef"


class NoDatabase:
    """Nobody can be looked up."""

    def known(self, authorization: str | None, request: str | None) -> None:
        del authorization, request

    def admit(self, authorization: str | None, request: str | None) -> NoReturn:
        del authorization, request
        raise UnavailableError("no way to a.secret.host", where="postgresql://who@a.secret.host/what")

    def forget(self) -> None: ...


class OneToken:
    def known(self, authorization: str | None, request: str | None) -> None:
        del authorization, request

    def admit(self, authorization: str | None, request: str | None) -> Actor:
        if authorization is None or authorization.lower() != f"bearer {SECRET}":
            raise UnauthorizedError("no such token")
        return Actor("reader", Scopes.parse(["read"]), request)

    def forget(self) -> None: ...


def odd_routes() -> Router:
    @get("/broken", opt=READ)
    async def broken() -> None:
        raise KeyError("a secret of the house")

    @get("/away", opt=READ)
    async def away() -> None:
        raise UnavailableError("the disk is full")

    @get("/special", opt=READ)
    async def special() -> None:
        get_actor().require_publishing("acme/resnet8")

    return Router("", route_handlers=[broken, away, special])


def test_a_stranger_who_cannot_be_looked_up_does_not_hear_where_the_database_is(
    registry: LocalRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    with TestClient(create_app(registry, authority=NoDatabase()), raise_server_exceptions=False) as client:
        answer = client.get("/v1/artifacts", headers={"authorization": f"Bearer {SECRET}"})
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "secret" not in answer.text
    assert "a.secret.host" in caplog.text


@get("/forgotten")
async def forgotten() -> None: ...


@pytest.fixture
def odd(registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(application, "CONTROLLERS", (*CONTROLLERS, odd_routes()))
    return TestClient(create_app(registry, authority=OneToken()), raise_server_exceptions=False)


def test_every_route_says_what_it_needs(client: Client) -> None:
    routes = [one for route in client.app.routes for one in getattr(route, "route_handlers", ())]
    assert routes
    assert all(one.opt["needs"] in NEEDS for one in routes if one.http_methods != {"OPTIONS"})


def test_what_only_public_routes_may_be_asked_without_a_token(odd: Client) -> None:
    public = {"/v1/health", "/v1/ready", "/v1/openapi.json"}
    with odd:
        for path, methods in odd.get("/v1/openapi.json").json()["paths"].items():
            for method in methods:
                answer = odd.request(method, re.sub(r"{.*?}", "x", path))
                assert (answer.status_code == 401) == (path not in public), (method, path)


def test_an_application_with_an_undeclared_route_does_not_start(
    registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "CONTROLLERS", (*CONTROLLERS, forgotten))
    with pytest.raises(ValueError, match="/v1/forgotten needs None"):
        create_app(registry)


@pytest.mark.parametrize(
    ("path", "header", "status", "code"),
    [
        ("/v1/artifacts", None, 401, "unauthorized"),
        ("/v1/artifacts", "Bearer wrong", 401, "unauthorized"),
        ("/v1/artifacts", f"Basic {SECRET}", 401, "unauthorized"),
        ("/v1/artifacts", f"bearer {SECRET}", 200, None),
        ("/v1/special", f"Bearer {SECRET}", 403, "forbidden"),
        ("/v1/away", f"Bearer {SECRET}", 503, "unavailable"),
        ("/v1/broken", f"Bearer {SECRET}", 500, "internal"),
        ("/v1/health", None, 200, None),
    ],
)
def test_who_asks_gets_what_the_authority_allows(
    odd: Client, path: str, header: str | None, status: int, code: str | None
) -> None:
    with odd:
        answer = odd.get(path, headers={} if header is None else {"authorization": header})
    assert (answer.status_code, answer.json().get("code")) == (status, code)
    assert "secret" not in answer.text
    if status == 401:
        assert answer.headers["www-authenticate"].startswith("Bearer")
    if code:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["request_id"] == answer.headers["x-request-id"]
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "unknown-name"),
        ("GET", "/v1", 404, "unknown-name"),
        ("GET", "/v1/nothing", 404, "unknown-name"),
        ("GET", "/v1/described/openapi.json", 404, "unknown-name"),
        ("GET", "/schema", 404, "unknown-name"),
        ("DELETE", "/v1/health", 405, "method-not-allowed"),
        ("TRACE", "/v1/health", 405, "method-not-allowed"),
    ],
)
def test_what_is_not_there_is_a_problem(client: Client, method: str, path: str, status: int, code: str) -> None:
    answer = client.request(method, path)
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code)
    assert set(problem) <= set(Problem.__struct_fields__)
    assert problem["next"]


@pytest.mark.parametrize(
    ("given", "kept"), [("my-request.1", True), ("", False), ("a b", False), ("x" * 65, False), ('"}{', False)]
)
def test_a_request_keeps_its_id_where_that_is_a_word(client: Client, given: str, kept: bool) -> None:
    found = client.get("/v1/health", headers={"x-request-id": given}).headers["x-request-id"]
    assert (found == given) == kept
    assert found


def test_two_requests_have_two_ids(client: Client) -> None:
    assert client.get("/v1/health").headers["x-request-id"] != client.get("/v1/health").headers["x-request-id"]


def test_a_line_of_the_log_says_who_asked_for_what_and_no_secret(odd: Client, caplog: pytest.LogCaptureFixture) -> None:
    with odd, caplog.at_level(logging.INFO, "benchlock"):
        odd.get("/v1/artifacts?name=x", headers={"authorization": f"Bearer {SECRET}", "x-request-id": "one"})
        odd.get("/v1/broken", headers={"authorization": f"Bearer {SECRET}"})
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records]
    assert lines[0]["message"] == "answered"
    assert {name: lines[0][name] for name in ("method", "path", "route", "status", "caller")} == {
        "method": "GET",
        "path": "/v1/artifacts",
        "route": "/v1/artifacts",
        "status": 200,
        "caller": "reader",
    }
    assert ["KeyError" in line["error"] for line in lines if "error" in line] == [True]
    assert SECRET not in json.dumps(lines)


def test_figures_are_by_route_and_not_by_path(client: Client) -> None:
    for version in ("1.0.0", "2.0.0"):
        client.get(f"/v1/artifacts/model/x@{version}")
    client.get("/v1/strange")
    text = client.get("/v1/metrics").text
    assert 'benchlock_requests_total{method="GET",route="/v1/artifacts/{kind}/{name}",status="404"} 2.0' in text
    assert 'benchlock_requests_total{method="GET",route="none",status="404"} 1.0' in text
    assert "strange" not in text
    assert "benchlock_requests_under_way 1.0" in text


@pytest.fixture
def looking(registry: LocalRegistry) -> Iterator[Client]:
    """It looks whether it can work each time that it is asked."""
    with TestClient(create_app(registry, Settings(ready_seconds=0)), raise_server_exceptions=False) as client:
        yield client


def test_ready_says_what_does_not_answer_and_the_log_alone_why(
    looking: Client, registry: LocalRegistry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert looking.get("/v1/ready").json()["status"] == "ok"
    registry.database.dispose()
    for path in tmp_path.glob("registry.db*"):
        path.unlink()
    (tmp_path / "registry.db").mkdir()
    answer = looking.get("/v1/ready")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert answer.json()["detail"] == "the database is unavailable"
    assert "where" not in answer.json() or answer.json()["where"] is None
    assert any("registry.db" in str(getattr(one, "fields", {}).get("where")) for one in caplog.records)
    assert "retry-after" in answer.headers
    assert looking.get("/v1/health").status_code == 200


def test_a_store_that_does_not_answer_is_said_and_is_never_listed(
    looking: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> NoReturn:
        raise UnavailableError("nobody answers at a.secret.host")

    monkeypatch.setattr(LocalStore, "list", away)
    assert looking.get("/v1/ready").status_code == 200
    monkeypatch.setattr(LocalStore, "exists", away)
    assert looking.get("/v1/ready").json()["detail"] == "the store is unavailable"


@pytest.mark.parametrize("status", [200, 503])
def test_anybody_may_ask_whether_it_is_ready_and_it_looks_once(
    registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    looks: list[object] = []

    def looked(_: LocalStore, digest: object) -> bool:
        looks.append(digest)
        if status == 503:
            raise UnavailableError("the store does not answer")
        return False

    monkeypatch.setattr(LocalStore, "exists", looked)
    app = create_app(registry, Settings(ready_seconds=3600))
    with TestClient(app, raise_server_exceptions=False) as client:
        assert {client.get("/v1/ready").status_code for _ in range(20)} == {status}
    assert len(looks) == 1


def test_a_body_that_is_not_utf_8_is_the_senders_fault_on_every_route(client: Client) -> None:
    sent = [
        (path, client.request(method, re.sub(r"{.*?}", "x", path), content=b'{"target": "\xff"}', headers=JSON))
        for path, method, operation in operations(client.get("/v1/openapi.json").json())
        if "application/json" in operation.get("requestBody", {}).get("content", {})
    ]
    assert len(sent) > 5
    assert {(path, answer.status_code, answer.json()["type"]) for path, answer in sent} == {
        (path, 400, "urn:benchlock:problem:malformed") for path, _ in sent
    }


@pytest.mark.parametrize(
    ("body", "form", "status", "said"),
    [
        (b"", "application/json", 400, "needs a body"),
        (b"{}", "text/plain", 415, "JSON"),
        (b"a=b", "application/x-www-form-urlencoded", 415, "JSON"),
        (b" " * ((16 << 20) + 1), "application/json; charset=utf-8", 413, "16777216 bytes"),
    ],
)
def test_a_body_that_is_not_taken_is_told_why(client: Client, body: bytes, form: str, status: int, said: str) -> None:
    answer = client.post("/v1/resolve", content=body, headers={"content-type": form})
    assert answer.status_code == status
    assert said in answer.json()["detail"]


@pytest.mark.parametrize(
    "asked",
    ["/v1/artifacts?name=%ff", "/v1/artifacts?%ff=%zz&cursor=%00", "/v1/artifacts/model/%ff", "/v1/jobs/%00/events"],
)
def test_what_is_badly_encoded_in_a_url_or_a_header_is_no_fault_of_the_server(client: Client, asked: str) -> None:
    odd = [(name, b"\xff=%ff") for name in (b"if-none-match", b"last-event-id", b"cookie")]
    odd.append((b"authorization", b"Bearer \xff"))
    assert client.get(asked, headers=odd).status_code in (200, 404, 422)


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    paths = document["paths"].items()
    return [(path, method, operation) for path, methods in paths for method, operation in methods.items()]


def test_the_document_describes_every_operation_with_examples(client: Client) -> None:
    answer = client.get("/v1/openapi.json")
    document = answer.json()
    assert document["openapi"].startswith("3.1")
    assert client.get("/v1/openapi.json", headers={"if-none-match": answer.headers["etag"]}).status_code == 304
    for path, method, operation in operations(document):
        named = (method, path)
        assert operation["summary"], named
        assert operation["description"], named
        for status, told in operation["responses"].items():
            bodies = told.get("content", {})
            assert all(body.get("examples") for body in bodies.values()), (named, status)
            if int(status) >= 400:
                assert list(bodies) == ["application/problem+json"], (named, status)
        for body in operation.get("requestBody", {}).get("content", {}).values():
            assert body["schema"].get("examples"), named


def test_every_path_answers_head_where_it_answers_get_and_options_lists_all_methods(client: Client) -> None:
    routes = [one for one in client.app.routes if isinstance(one, HTTPRoute)]
    for route in routes:
        path = re.sub(r"\{[^}]*\}", "x", route.path)
        methods = {str(getattr(one, "value", one)) for handler in route.route_handlers for one in handler.http_methods}
        assert set(client.options(path).headers["allow"].split(", ")) == methods, path
        assert ("GET" in methods) == ("HEAD" in methods), path
        if "GET" in methods:
            got, asked = client.get(path), client.head(path)
            assert (asked.status_code, asked.content) == (got.status_code, b""), path
            assert set(asked.headers) | {"content-length", "content-type"} == set(got.headers) | {
                "content-length",
                "content-type",
            }, path
