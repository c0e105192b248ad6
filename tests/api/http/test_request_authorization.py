"""Every route, asked by everybody who may not: nobody gets in, nothing changes, and it is written down."""

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from litestar import Litestar, Request, WebSocket, asgi, get, websocket
from litestar.testing import TestClient
from litestar.types import Receive, Scope, Send
from sqlalchemy import select

from benchlock.api.http.page_sessions import COOKIE
from benchlock.api.http.request_authorization import READ, OpenAuthority, check_guarded
from benchlock.api.http.routes.app import create_app
from benchlock.api.http.service_settings import Settings
from benchlock.api.local.local_registry import LocalRegistry, now, open_log
from benchlock.api.service_log import JsonLines
from benchlock.registry.auth.audit_log import DenialLog
from benchlock.registry.auth.permissions import NEEDS, Scopes
from benchlock.registry.auth.token_format import Secret, Token, new_secret
from benchlock.registry.auth.tokens import Authenticator, Tokens
from benchlock.registry.database.engine import read_transaction
from benchlock.registry.database.registry_schema import actions, metadata, record_chain
from tests.api.http.conftest import Client
from tests.support.evaluator.queues import facts
from tests.support.system.clocks import Standing

PUBLIC_PAGES = {"/assets/x", "/sign-in", "/sign-out"}
PUBLIC = {"/v1/health", "/v1/ready", "/v1/openapi.json", "/v1/docs", *PUBLIC_PAGES}
"""What anybody may ask: nothing of the registry is in the answers."""
ENOUGH = {
    "read": {"read", "publish:acme", "publish:*", "run", "admin"},
    "upload": {"publish:acme", "publish:*", "run", "admin"},
    "publish": {"publish:acme", "publish:*", "admin"},
    "run": {"run", "admin"},
    "admin": {"admin"},
}
SCOPES = sorted(ENOUGH["read"])
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND")


@pytest.fixture
def standing() -> Standing:
    return Standing()


@pytest.fixture
def tokens(registry: LocalRegistry, standing: Standing) -> Tokens:
    return Tokens(registry.database, standing)


@pytest.fixture
def closed(registry: LocalRegistry, tokens: Tokens, standing: Standing) -> Iterator[Client]:
    """The service as it is unless it was told to be open."""
    app = create_app(registry, Settings(strangers=1e6), Authenticator(tokens, standing))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def bearer(secret: Secret) -> dict[str, str]:
    return {"authorization": f"Bearer {secret.text}"}


def operations(app: Litestar) -> list[tuple[str, str, str]]:
    """Each method of each route, a path of it, and what it needs."""
    found = []
    for route in app.routes:
        path = "".join(f"/{part if isinstance(part, str) else 'x'}" for part in route.path_components)
        for one in getattr(route, "route_handlers", ()):
            found += [(method, path, one.opt.get("needs", "options")) for method in one.http_methods]
    return sorted(found)


def content(registry: LocalRegistry) -> dict[str, list[Any]]:
    """All rows but what was refused."""
    with read_transaction(registry.database) as connection:
        tables = [table for table in metadata.sorted_tables if table not in (actions, record_chain)]
        done = select(actions).where(actions.c.outcome == "done")
        rows = {table.name: [tuple(row) for row in connection.execute(select(table))] for table in tables}
        return rows | {"actions": [tuple(row) for row in connection.execute(done)]}


def test_every_route_declares_what_it_needs_and_only_these_need_nothing(closed: Client) -> None:
    found = operations(closed.app)
    assert {path for _, path, need in found if need == "public"} == PUBLIC
    assert {need for method, _, need in found if method != "OPTIONS"} <= set(NEEDS)
    assert {need for method, _, need in found if method in ("PUT", "PATCH", "DELETE")} <= {
        "upload",
        "publish",
        "run",
        "admin",
    }


def test_a_route_that_no_guard_is_asked_for_is_not_served() -> None:
    @websocket("/socket")
    async def listening(socket: WebSocket[Any, Any, Any]) -> None: ...

    @asgi("/mounted", is_mount=True, copy_scope=True)
    async def mounted(scope: Scope, receive: Receive, send: Send) -> None: ...

    for one in (listening, mounted):
        with pytest.raises(ValueError, match="has no guard"):
            check_guarded(Litestar([one], openapi_config=None).routes, None)


def test_a_route_that_passes_by_the_guard_is_not_served() -> None:
    async def guard(_: Request[Any, Any, Any]) -> None: ...

    async def other(_: Request[Any, Any, Any]) -> None: ...

    @get("/ours", opt=READ)
    async def ours() -> None: ...

    @get("/own", opt=READ, before_request=other)
    async def own() -> None: ...

    @get("/cached", opt=READ, cache=True)
    async def cached() -> None: ...

    def served(one: Any) -> None:  # noqa: ANN401 - a route
        check_guarded(Litestar([one], before_request=guard, openapi_config=None).routes, guard)

    served(ours)
    for one in (own, cached):
        with pytest.raises(ValueError, match="has no guard"):
            served(one)


def strangers(tokens: Tokens, standing: Standing) -> dict[str, dict[str, str]]:
    """The headers of everybody who is nobody."""
    revoked, of_revoked = tokens.create("revoked", Scopes.parse(["admin"]))
    tokens.revoke(revoked.id)
    _, expired = tokens.create("expired", Scopes.parse(["admin"]), timedelta(minutes=1))
    _, valid = tokens.create("valid", Scopes.parse(["admin"]))
    standing.go_on(minutes=1)
    return {
        "nobody": {},
        "empty": {"authorization": ""},
        "bare": {"authorization": "Bearer"},
        "malformed": {"authorization": "Bearer benchlock_"},
        "long": {"authorization": "Bearer " + "a" * 5000},
        "cut": {"authorization": f"Bearer {valid.text[:-1]}"},
        "basic": {"authorization": f"Basic {valid.text}"},
        "elsewhere": {"x-api-key": valid.text, "cookie": f"token={valid.text}"},
        "session": {"cookie": f"{COOKIE}={new_secret().text}"},
        "session of nothing": {"cookie": f"{COOKIE}="},
        "revoked session": {"cookie": f"{COOKIE}={of_revoked.text}"},
        "unknown": bearer(new_secret()),
        "revoked": bearer(of_revoked),
        "expired": bearer(expired),
    }


def test_nobody_without_a_valid_token_gets_anything_or_changes_anything(
    closed: Client, registry: LocalRegistry, tokens: Tokens, standing: Standing
) -> None:
    asking = strangers(tokens, standing)
    before = content(registry)
    for method, path, need in operations(closed.app):
        for who, headers in asking.items():
            answer = closed.request(method, path, headers=headers)
            named = (method, path, who, answer.text)
            if path in PUBLIC_PAGES and method != "OPTIONS":
                assert answer.status_code in (400, 403, 404), named  # no such asset, and forms of nobody
                continue
            if need in ("public", "options"):
                assert answer.status_code < 300, named
                continue
            assert answer.status_code == 401, named
            assert answer.headers["www-authenticate"].startswith("Bearer"), named
            if method != "HEAD":
                assert answer.json()["code"] == "unauthorized", named
    assert content(registry) == before


def test_no_token_gets_what_its_scopes_do_not_allow_or_changes_anything(
    closed: Client, registry: LocalRegistry, tokens: Tokens
) -> None:
    made = {scope: bearer(tokens.create("some", Scopes.parse([scope]))[1]) for scope in SCOPES}
    before, seen = content(registry), 0
    for method, path, need in operations(closed.app):
        for scope in set(SCOPES) - ENOUGH.get(need, set(SCOPES)):
            answer = closed.request(method, path, headers=made[scope])
            assert answer.status_code == 403, (method, path, scope)
            assert method == "HEAD" or answer.json()["code"] == "forbidden", (method, path, scope)
            seen += 1
    assert seen
    assert content(registry) == before


def test_a_token_with_the_scope_is_let_in(closed: Client, tokens: Tokens) -> None:
    made = {scope: bearer(tokens.create("some", Scopes.parse([scope]))[1]) for scope in SCOPES}
    for method, path, need in operations(closed.app):
        if method != "GET" or need == "options":
            continue
        for scope in ENOUGH.get(need, set(SCOPES)):
            assert closed.request(method, path, headers=made[scope]).status_code not in (401, 403), (path, scope)


@pytest.mark.parametrize("method", METHODS)
def test_other_methods_get_nowhere_without_a_token(closed: Client, registry: LocalRegistry, method: str) -> None:
    before = content(registry)
    own = {(one, path) for one, path, _ in operations(closed.app)}
    paths = {path for _, path in own} | {
        "/v1",
        "/v1/nothing",
        "/schema",
        "/v1/tokens/",
        "//v1/tokens",
        "/V1/tokens",
    }
    for path in sorted(paths):
        if (method, path) not in own and not (method == "OPTIONS" and path in ("/v1/tokens/", "//v1/tokens")):
            answer = closed.request(method, f"http://testserver.local{path}")  # a path with // is not a host
            assert answer.status_code in (400, 401, 404, 405, 501), (method, path)
            assert answer.status_code == 401 or "benchlock_" not in answer.text
    assert content(registry) == before


def test_a_token_is_made_listed_and_revoked_by_an_administrator(closed: Client, tokens: Tokens) -> None:
    own, secret = tokens.create("root", Scopes.parse(["admin"]))
    closed.headers.update(bearer(secret))
    answer = closed.post("/v1/tokens", json={"name": "ci", "scopes": ["read", "publish:acme"], "expires": "12h"})
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    made = answer.json()["token"]
    assert (made["created_by"], made["scopes"], made["state"]) == (own.id, ["publish:acme", "read"], "valid")
    others = {"authorization": f"Bearer {answer.json()['secret']}"}
    assert closed.get("/v1/artifacts", headers=others).status_code == 200
    assert closed.get("/v1/tokens", headers=others).status_code == 403
    first = closed.get("/v1/tokens?limit=1").json()
    second = closed.get("/v1/tokens", params={"limit": 1, "cursor": first["next"]}).json()
    assert [one["id"] for page in (first, second) for one in page["tokens"]] == [own.id, made["id"]]
    assert "next" not in second
    for changed in (True, False):
        assert closed.delete(f"/v1/{made['id']}".replace("token/", "tokens/")).json() == {
            "token": made["id"],
            "revoked": True,
            "changed": changed,
        }
        assert closed.get("/v1/artifacts", headers=others).status_code == 401
    entries = closed.get("/v1/log").json()["log"]
    said = [(one["actor"], one["action"], one["outcome"]) for one in entries]
    assert said == [  # the second refusal is only counted
        (made["id"], "GET /v1/artifacts", "refused"),
        (own.id, "token.revoke", "done"),
        (made["id"], "GET /v1/tokens", "refused"),
        (own.id, "token.create", "done"),
        ("embedded", "token.create", "done"),
    ]
    assert made["id"] in entries[0]["reason"]
    page = closed.get("/v1/log?limit=2").json()
    rest = closed.get("/v1/log", params={"limit": 1000, "cursor": page["next"]}).json()
    assert [*page["log"], *rest["log"]] == entries
    assert {one["actor"] for one in closed.get("/v1/log?actor=embedded").json()["log"]} == {"embedded"}


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"name": "ci", "scopes": []},
        {"name": "ci", "scopes": ["write"]},
        {"name": "CI", "scopes": ["read"]},
        {"name": "ci", "scopes": ["read"], "expires": "366d"},
        {"name": "ci", "scopes": ["read"], "admin": True},
        {"name": "ci", "scopes": "read"},
    ],
)
def test_what_is_no_token_to_make_is_refused(
    closed: Client, registry: LocalRegistry, tokens: Tokens, asked: dict[str, Any]
) -> None:
    closed.headers.update(bearer(tokens.create("root", Scopes.parse(["admin"]))[1]))
    before = content(registry)
    assert closed.post("/v1/tokens", json=asked).status_code in (400, 422)
    assert content(registry) == before
    assert open_log(registry).list()[0].outcome == "failed"


def test_a_revocation_elsewhere_is_known_after_two_seconds(closed: Client, tokens: Tokens, standing: Standing) -> None:
    made, secret = tokens.create("some", Scopes.parse(["read"]))
    assert closed.get("/v1/artifacts", headers=bearer(secret)).status_code == 200
    tokens.revoke(made.id)
    standing.go_on(seconds=2.1)
    assert closed.get("/v1/artifacts", headers=bearer(secret)).status_code == 401


def test_who_has_no_valid_token_is_looked_up_so_often_and_who_has_one_is_not_in_the_way(
    registry: LocalRegistry, tokens: Tokens, standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[Secret] = []
    find = tokens.find

    def found(secret: Secret) -> Token | None:
        looked_up.append(secret)
        return find(secret)

    monkeypatch.setattr(tokens, "find", found)
    _, known = tokens.create("known", Scopes.parse(["read"]))
    _, unused = tokens.create("unused", Scopes.parse(["read"]))
    app = create_app(registry, Settings(strangers=0.001), Authenticator(tokens, standing))
    with TestClient(app, raise_server_exceptions=False) as client:

        def asked(headers: dict[str, str]) -> tuple[int, str]:
            answer = client.get("/v1/artifacts", headers=headers)
            return answer.status_code, answer.json().get("code", "")

        assert asked(bearer(known))[0] == 200
        assert asked(bearer(new_secret())) == (401, "unauthorized")
        looked_up.clear()
        for headers in ({}, bearer(new_secret()), bearer(unused), {"authorization": "Basic x"}):
            assert asked(headers) == (429, "too-many-requests")
        assert not looked_up
        standing.go_on(minutes=1)
        assert asked(bearer(known))[0] == 200
        assert looked_up == [known]


def test_nobody_fills_the_disk_with_refusals(closed: Client, registry: LocalRegistry, tokens: Tokens) -> None:
    """Refusals for many reasons are bounded in number; those for the same reason are one line, and counted."""
    closed.headers.update(bearer(tokens.create("some", Scopes.parse(["publish:acme"]))[1]))
    for number in range(DenialLog.MAX_ENTRIES + 20):
        assert closed.post(f"/v1/artifacts/model/other{number}/versions/1.0.0/yank", json={}).status_code >= 400
        assert closed.get(f"/v1/log?limit={number + 1}").status_code == 403
    entries = open_log(registry).list(limit=1000)
    assert len(entries) <= 2 * DenialLog.MAX_ENTRIES + 2  # a minute may have ended meanwhile
    assert [one.action for one in entries].count("GET /v1/log") == 1


def test_a_refused_token_is_logged_once_and_then_counted(
    registry: LocalRegistry, tokens: Tokens, standing: Standing, caplog: pytest.LogCaptureFixture
) -> None:
    """150 requests of a revoked worker are one line of each log, and a line that counts them."""
    caplog.set_level(logging.INFO, logger="benchlock")
    made, secret = tokens.create("a-worker", Scopes.parse(["run"]))
    tokens.revoke(made.id)
    app = create_app(registry, Settings(strangers=1e6), Authenticator(tokens, standing))
    with TestClient(app, raise_server_exceptions=False) as client:
        for _ in range(150):
            asked = {"machine": "m1", "boot": "a boot"}
            assert client.post("/v1/leases", json=asked, headers=bearer(secret)).status_code == 401
        lines = [one for one in caplog.records if one.name == "benchlock"]
        assert [one.getMessage() for one in lines] == ["answered"]
        assert lines[0].fields["caller"] == made.id  # type: ignore[attr-defined]
        refused = [one for one in open_log(registry).list(limit=1000) if one.outcome == "refused"]
        assert [(one.actor, one.action) for one in refused] == [(made.id, "POST /v1/leases")]
    lines = [one for one in caplog.records if one.getMessage() == "refused again"]
    assert [one.fields["count"] for one in lines] == [149]  # type: ignore[attr-defined]
    last = open_log(registry).list(limit=1)[0]
    assert (last.actor, last.outcome) == (made.id, "refused")
    assert "the token is revoked" in last.reason
    assert "(149 more since " in last.reason
    assert len([one for one in open_log(registry).list(limit=1000) if one.outcome == "refused"]) == 2


def test_a_rotated_token_keeps_its_identity_and_its_machines(registry: LocalRegistry) -> None:
    tokens = Tokens(registry.database, now)
    app = create_app(registry, Settings(strangers=1e6), Authenticator(tokens, now))
    with TestClient(app, raise_server_exceptions=False) as closed:
        rotate_and_check(closed, tokens)


def rotate_and_check(closed: Client, tokens: Tokens) -> None:
    worker, old = tokens.create("a-worker", Scopes.parse(["run"]))
    root = bearer(tokens.create("root", Scopes.parse(["admin"]))[1])
    path = f"/v1/{worker.id}/rotation".replace("token/", "tokens/")
    what = {"boot": "a boot", "facts": facts().document()}
    assert closed.put("/v1/machines/m1", json=what, headers=bearer(old)).status_code == 204
    assert closed.post(path, json={}, headers=bearer(old)).status_code == 403
    answer = closed.post(path, json={"expires": "30d", "grace": "0"}, headers=root)
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    assert answer.json()["token"]["id"] == worker.id
    new = {"authorization": f"Bearer {answer.json()['secret']}"}
    refused = closed.put("/v1/machines/m1", json=what, headers=bearer(old))
    assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
    assert "last rotation" in refused.json()["next"]
    assert closed.put("/v1/machines/m1", json=what, headers=new).status_code == 204
    (machine,) = closed.get("/v1/machines", headers=new).json()["machines"]
    assert (machine["machine"], machine["gone"]) == ("m1", False)
    assert closed.post(path, json={"grace": "8d"}, headers=root).status_code == 422
    closed.delete(path.removesuffix("/rotation"), headers=root)
    assert closed.post(path, json={}, headers=root).status_code == 409


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8080"}, 200),
        ({"host": "[::1]:8080", "origin": "http://localhost:3000"}, 200),
        ({"host": "registry.example.org"}, 403),
        ({"host": "127.0.0.1.example.org"}, 403),
        ({"origin": "https://example.org"}, 403),
        ({"origin": "null"}, 403),
        ({"host": ""}, 403),
        ({"host": "["}, 403),
        ({"host": "[::1"}, 403),
        ({"origin": "http://[127.0.0.1"}, 403),
    ],
)
def test_an_open_service_answers_no_page_of_another_host(
    registry: LocalRegistry, headers: dict[str, str], status: int
) -> None:
    app = create_app(registry, authority=OpenAuthority(local=True))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.get("/v1/artifacts", headers=headers).status_code == status
        assert client.get("/v1/health", headers=headers).status_code == 200


def test_no_token_is_in_a_log_an_answer_the_figures_or_the_database(
    closed: Client, registry: LocalRegistry, tokens: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    _, known = tokens.create("root", Scopes.parse(["admin"]))
    canaries = [known, new_secret()]
    answers = []
    with caplog.at_level(logging.DEBUG):
        for secret in canaries:
            text = secret.text
            for headers in (
                bearer(secret),
                {"authorization": f"Token {text}"},
                {"cookie": text},
                {"x-request-id": text},
            ):
                paths = (
                    "/v1/artifacts",
                    f"/v1/artifacts?name={text}",
                    f"/v1/artifacts?cursor={text}&kind={text}&limit={text}",
                    f"/v1/artifacts/model/{text}@1.0.0",
                    f"/v1/artifacts/{text}/x@1.0.0",
                    f"/v1/{text}",
                    f"/{text}",
                    f"/v1/log?actor={text}",
                )
                answers += [closed.get(path, headers=headers) for path in paths]
                answers.append(closed.post("/v1/tokens", headers=headers, json={"name": text, "scopes": [text]}))
                answers.append(closed.post("/v1/tokens", headers=headers, json={text: text, "expires": text}))
                answers.append(closed.post("/v1/tokens", headers=headers, content=text))
                answers.append(closed.delete(f"/v1/tokens/{text}", headers=headers))
    own = bearer(known)
    shown = [answer.text for answer in answers]
    shown += ["".join(answer.headers.values()) for answer in answers]
    shown += [closed.get(path, headers=own).text for path in ("/v1/metrics", "/v1/log?limit=1000", "/v1/tokens")]
    shown += [JsonLines().format(record) for record in caplog.records if record.name.startswith("benchlock")]
    shown += [str(content(registry)), str(open_log(registry).list(limit=1000))]
    assert len(shown) > 200
    for secret in canaries:
        assert not [one for one in shown if secret.text[10:-6] in one]


def test_what_is_done_for_a_request_is_done_as_its_token(
    closed: Client, registry: LocalRegistry, tokens: Tokens
) -> None:
    own, secret = tokens.create("root", Scopes.parse(["admin"]))
    answer = closed.post(
        "/v1/tokens", headers=bearer(secret) | {"x-request-id": "request-1"}, json={"name": "ci", "scopes": ["read"]}
    )
    assert answer.status_code == 201
    (entry,) = open_log(registry).list(limit=1)
    assert (entry.actor, entry.request, entry.action) == (own.id, "request-1", "token.create")
