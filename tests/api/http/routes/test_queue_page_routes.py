"""Forms of the queue, of tokens and of yanks, sent by browsers with a session, and the pages that they lead to."""

import csv
import logging
import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import count

import pytest
from litestar.testing import TestClient
from msgspec.structs import replace
from sqlalchemy import select

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.http.page_sessions import COOKIE
from benchlock.api.http.request_authorization import OpenAuthority
from benchlock.api.http.routes.app import create_app
from benchlock.api.http.service_settings import Settings
from benchlock.api.local.local_registry import LocalRegistry, now, open_log
from benchlock.api.service_log import JsonLines
from benchlock.api.web.links import with_query
from benchlock.api.web.pages import access_pages
from benchlock.evaluator.matrices.matrix_schema import matrix_cells
from benchlock.evaluator.records.run_types import new_run_id
from benchlock.registry.artifact_names import parse_reference
from benchlock.registry.auth.permissions import Scopes
from benchlock.registry.auth.tokens import Authenticator, Tokens
from benchlock.registry.database.engine import read_transaction
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.requests.evaluation_request import read_request
from benchlock.registry.requests.matrix_request import read_matrix
from tests.api.http.conftest import Client
from tests.support.evaluator.queues import BOOT, facts, machine
from tests.support.evaluator.recorded import recorded
from tests.support.registry.matrices import MATRIX
from tests.support.resolution.locks import REQUEST
from tests.support.resolution.variants import variant

OURS = {"sec-fetch-site": "same-origin"}
OTHERS = {"sec-fetch-site": "cross-site", "origin": "https://evil.example"}
HOSTILE = '"><script>alert(1)</script>'
_numbers = count()


@pytest.fixture
def tokens(registry: LocalRegistry) -> Tokens:
    return Tokens(registry.database, now)


@pytest.fixture
def closed(registry: LocalRegistry, tokens: Tokens) -> Iterator[Client]:
    app = create_app(registry, Settings(strangers=1e6), Authenticator(tokens, now))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        client.follow_redirects = False
        client.headers["accept"] = "text/html"
        yield client


@pytest.fixture
def opened(registry: LocalRegistry) -> Iterator[Client]:
    app = create_app(registry, authority=OpenAuthority(local=True))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        client.follow_redirects = False
        client.headers["accept"] = "text/html"
        yield client


@pytest.fixture
def lock(registry: LocalRegistry) -> Lock:
    variant({}).publish(registry.catalogue, registry.store)
    return EmbeddedRegistry(registry).lock(read_request(REQUEST, "request.yaml"), {}).lock


def sign_in(client: Client, tokens: Tokens, *scopes: str) -> str:
    """Sign in with a new token, and return what its forms send back."""
    _, secret = tokens.create(f"token-{next(_numbers)}", Scopes.parse(scopes))
    client.cookies.set(COOKIE, secret.text, domain="127.0.0.1")
    text = client.get("/").text
    return text.partition('name="csrf_token" value="')[2].partition('"')[0]


def field(text: str, name: str) -> str:
    return text.partition(f'name="{name}" value="')[2].partition('"')[0]


def main_of(text: str) -> str:
    return text.partition("<main")[2].partition("</main")[0]


def test_a_form_that_is_sent_twice_makes_one_job(closed: Client, tokens: Tokens, lock: Lock) -> None:
    csrf_token = sign_in(closed, tokens, "run")
    data = {"csrf_token": csrf_token, "job": field(closed.get("/jobs").text, "job"), "lock": lock.id[:20]}
    answers = [closed.post("/jobs", data=data, headers=OURS) for _ in range(2)]
    assert {(answer.status_code, answer.headers["location"]) for answer in answers} == {
        (303, f"/{data['job'].replace('job/', 'jobs/')}")
    }
    (job,) = closed.get("/v1/jobs").json()["jobs"]
    assert (job["job"], job["lock"]) == (data["job"], lock.id)
    page = closed.get(answers[0].headers["location"])
    assert f" run {lock.id}<" in page.text
    twin = page.text.partition('type="application/json" href="')[2].partition('"')[0]
    assert closed.get(twin).json()["why"] in page.text


def test_a_job_is_cancelled_by_its_form(closed: Client, tokens: Tokens, lock: Lock) -> None:
    csrf_token = sign_in(closed, tokens, "run")
    path = closed.post("/jobs", data={"csrf_token": csrf_token, "lock": lock.id}, headers=OURS).headers["location"]
    answer = closed.post(f"{path}/cancel", data={"csrf_token": csrf_token}, headers=OURS)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert closed.get(f"/v1{path}").json()["state"] == "cancelled"


def test_a_matrix_has_a_page_that_leads_to_its_jobs_and_cancels_them(
    closed: Client, registry: LocalRegistry, tokens: Tokens
) -> None:
    variant({}).publish(registry.catalogue, registry.store)
    csrf_token = sign_in(closed, tokens, "run")
    bearer = {"authorization": f"Bearer {closed.cookies[COOKIE]}"}
    matrix = read_matrix(MATRIX, "matrix.yaml")
    sent = closed.post("/v1/matrices", json={"matrix": matrix.document}, headers=bearer)
    assert sent.status_code == 201, sent.text
    path = f"/matrices/{matrix.id}"
    assert f'href="{path}"' in closed.get("/jobs").text
    text = closed.get(path).text
    assert "no machine can take it" in text
    assert "conflict" in text
    (job, *_) = closed.get("/v1/jobs").json()["jobs"]
    assert f'href="{path}"' in closed.get(f"/{job['job'].replace('job/', 'jobs/')}").text
    answer = closed.post(f"{path}/cancel", data={"csrf_token": csrf_token}, headers=OURS)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert "cancelled" in closed.get(path).text
    assert f'href="/v1{path}/table"' in closed.get(path[:24]).text
    assert closed.get(f"/v1{path[:24]}").json() == closed.get(f"/v1{path}").json()
    assert closed.get(f"/matrices/sha256:{'0' * 64}").status_code == 404
    assert closed.get("/matrices").headers["location"] == "/jobs#matrices"
    assert 'id="matrices"' in closed.get("/jobs").text


def test_runs_and_jobs_of_a_matrix_are_listed_with_their_cells(
    closed: Client, registry: LocalRegistry, tokens: Tokens, lock: Lock
) -> None:
    csrf_token = sign_in(closed, tokens, "run")
    bearer = {"authorization": f"Bearer {closed.cookies[COOKIE]}"}
    matrix = read_matrix(MATRIX, "matrix.yaml")
    assert closed.post("/v1/matrices", json={"matrix": matrix.document}, headers=bearer).status_code == 201
    closed.post("/jobs", data={"csrf_token": csrf_token, "lock": lock.id}, headers=OURS)
    with read_transaction(registry.database) as connection:
        cells = dict(connection.execute(select(matrix_cells.c.job, matrix_cells.c.cell)).all())
    queue = open_queue(registry)
    queue.enrol(machine(1), BOOT, facts())
    lease = queue.lease(machine(1), BOOT)
    assert lease is not None
    at = now()
    begun = replace(recorded(None, lock=lease.lock).start, id=new_run_id(at), started_at=at)
    queue.begin(lease.fence, begun)

    def requests(page: str, table: str) -> dict[str, str]:
        rows = csv.DictReader(closed.get(f"{page}?csv={table}").text.splitlines())
        return {row[table.removesuffix("s")]: row["request"] for row in rows}

    listed = requests("/jobs", "jobs")
    named = {job: f"{matrix.content.name}: {cell}" for job, cell in cells.items() if job is not None}
    assert {job: text for job, text in listed.items() if job in named} == named
    assert (len(named) > 1, len(listed)) == (True, len(named) + 1)
    assert requests("/runs", "runs") == {begun.id: named[lease.job]}


def test_cancel_is_offered_to_the_submitter_and_to_administrators_alone(
    closed: Client, registry: LocalRegistry, tokens: Tokens, lock: Lock
) -> None:
    csrf_token = sign_in(closed, tokens, "run")
    bearer = {"authorization": f"Bearer {closed.cookies[COOKIE]}"}
    matrix = read_matrix(MATRIX, "matrix.yaml")
    assert closed.post("/v1/matrices", json={"matrix": matrix.document}, headers=bearer).status_code == 201
    job = closed.post("/jobs", data={"csrf_token": csrf_token, "lock": lock.id}, headers=OURS).headers["location"]
    queue = open_queue(registry)
    queue.enrol(machine(1), BOOT, facts())
    comparison = {"comparison": "5f0c3a9d1b22e47a", "locks": [lock.id], "rounds": 3, "margins": {"latency_p50": 0.05}}
    sent = closed.post("/v1/comparisons/interleaved", json=comparison, headers=bearer)
    assert sent.status_code == 201, sent.text
    lease = queue.lease(machine(1), BOOT)
    assert lease is not None
    at = now()
    begun = replace(recorded(None, lock=lease.lock).start, id=new_run_id(at), started_at=at)
    queue.begin(lease.fence, begun)
    pages = (
        f"/matrices/{matrix.id}",
        job,
        f"/comparisons/{comparison['comparison']}",
        f"/{begun.id.replace('run/', 'runs/')}",
    )

    def offers() -> list[bool]:
        texts = [closed.get(path).text for path in pages]
        assert all("<main" in text for text in texts)
        return ['/cancel"' in text for text in texts]

    assert offers() == [True] * len(pages)
    sign_in(closed, tokens, "run")
    assert offers() == [False] * len(pages)
    assert (
        closed.post(f"{job}/cancel", data={"csrf_token": sign_in(closed, tokens, "run")}, headers=OURS).status_code
        == 403
    )
    sign_in(closed, tokens, "admin")
    assert offers() == [True] * len(pages)


def test_a_rerun_has_the_lock_and_the_isolation_of_the_run(
    closed: Client, registry: LocalRegistry, tokens: Tokens, lock: Lock
) -> None:
    open_queue(registry).enrol(machine(1), BOOT, facts())
    start = recorded(lock=lock.id).start
    registry.records.start(start)
    path = f"/runs/{start.id.removeprefix('run/')}"
    csrf_token = sign_in(closed, tokens, "run")
    text = closed.get(path).text
    assert field(text, "lock") == lock.id
    assert f'<option value="{start.isolation}" selected>{start.isolation}</option>' in text
    data = {"csrf_token": csrf_token, "lock": lock.id, "job": field(text, "job"), "isolation": start.isolation}
    answer = closed.post("/jobs", data=data | {"against": start.id}, headers=OURS)
    job = data["job"].replace("job/", "/jobs/")
    assert (answer.status_code, answer.headers["location"]) == (303, with_query(job, against=start.id))
    closed.post(f"{job}/cancel", data={"csrf_token": csrf_token}, headers=OURS)
    assert field(closed.get(answer.headers["location"]).text, "against") == start.id
    assert closed.post("/jobs", data=data | {"against": "<b>"}, headers=OURS).status_code == 422
    assert closed.get(f"{job}?against=<b>").status_code == 422
    assert field(closed.get(f"/locks/{lock.id}").text, "lock") == lock.id
    sign_in(closed, tokens, "read")
    for page in (path, f"/locks/{lock.id}"):
        assert 'action="/jobs" method="post"' not in closed.get(page).text


@pytest.mark.parametrize(
    "path",
    [
        "/jobs",
        "/jobs/01kam1v3mz4w0q3d5g7h9j2k4m/cancel",
        "/comparisons",
        "/comparisons/0123456789abcdef/cancel",
        f"/matrices/sha256:{'0' * 64}/cancel",
        "/tokens",
        "/tokens/revoke",
        "/yank",
    ],
)
def test_forms_of_others_and_of_those_who_may_not_change_nothing(
    closed: Client, registry: LocalRegistry, tokens: Tokens, lock: Lock, path: str
) -> None:
    csrf_token = sign_in(closed, tokens, "admin")
    victim, _ = tokens.create("victim", Scopes.parse(["read"]))
    data = {"csrf_token": csrf_token, "lock": lock.id, "name": "new", "scopes": "admin", "expires": "1d"}
    data |= {"token": victim.id, "target": f"model/{lock.subject.name}@{lock.subject.version}", "reason": "x"}
    before = tokens.list()
    for fields, headers in (
        (data, OTHERS),
        (data, {}),
        (data | {"csrf_token": "0" * 64}, OURS),
        ({name: value for name, value in data.items() if name != "csrf_token"}, OURS),
    ):
        assert closed.post(path, data=fields, headers=headers).status_code == 403
    assert tokens.list() == before
    reader = sign_in(closed, tokens, "read")
    assert closed.post(path, data=data | {"csrf_token": reader}, headers=OURS).status_code == 403
    closed.cookies.clear()
    assert closed.post(path, data=data, headers=OURS).status_code == 401
    done = {entry.action for entry in open_log(registry).list() if entry.outcome == "done"}
    assert done.isdisjoint({"token.revoke", "version.yank", "job.submit", "job.cancel"})
    assert "new" not in {token.name for token in tokens.list()}


@pytest.mark.parametrize("path", ["/locks", "/tokens/revoke", "/jobs/01kam1v3mz4w0q3d5g7h9j2k4m/cancel"])
@pytest.mark.parametrize(
    ("referer", "page"),
    [
        ("http://127.0.0.1/new?model=a&split=b", "/new?model=a&amp;split=b"),
        ("http://127.0.0.1//evil.example/a", "/"),
        ("https://evil.example/a", "/"),
        ("http://[", "/"),
        (None, "/"),
    ],
)
def test_signing_in_leads_to_the_page_of_a_form(closed: Client, path: str, referer: str | None, page: str) -> None:
    headers = OURS if referer is None else OURS | {"referer": referer}
    answer = closed.post(path, data={}, headers=headers)
    assert (answer.status_code, field(answer.text, "next")) == (401, page)


def test_signing_in_leads_to_any_page(closed: Client, tokens: Tokens) -> None:
    path = "/model/\N{CJK UNIFIED IDEOGRAPH-540D}"
    answer = closed.get(path)
    assert answer.status_code == 401
    _, secret = tokens.create("reader", Scopes.parse(["read"]))
    for next_ in (field(answer.text, "next"), path):
        closed.cookies.clear()
        signed_in = closed.post("/sign-in", data={"token": secret.text, "next": next_}, headers=OURS)
        assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/model/%E5%90%8D")


def test_a_path_like_a_host_is_no_error_of_the_service(closed: Client, tokens: Tokens) -> None:
    sign_in(closed, tokens, "read")
    for path in ("//x", "//[x"):
        assert closed.get(f"http://127.0.0.1{path}").status_code == 404


def test_what_a_form_cannot_mean_is_said(closed: Client, tokens: Tokens, lock: Lock) -> None:
    data = {"csrf_token": sign_in(closed, tokens, "admin"), "lock": lock.id}
    for path, more, status, words in (
        ("/jobs", {"lock": HOSTILE}, 422, "invalid lock id"),
        ("/jobs", {"lock": "sha256:" + "0" * 64}, 404, "unknown lock"),
        ("/jobs", {"isolation": HOSTILE}, 422, "unknown isolation"),
        ("/jobs", {"job": HOSTILE}, 422, "invalid job id"),
        ("/tokens", {"name": "x", "scopes": HOSTILE, "expires": "1d"}, 422, "unknown scope"),
        ("/tokens", {"name": "x", "scopes": "read", "expires": HOSTILE}, 422, "invalid lifetime"),
        ("/yank", {"target": f"model/{lock.subject.name}@{lock.subject.version}"}, 422, "a yank needs a reason"),
    ):
        answer = closed.post(path, data=data | more, headers=OURS)
        assert (answer.status_code, words in answer.text) == (status, True), (path, more, answer.text)
        assert "<script>" not in answer.text
    for path in ("/jobs?state=x", "/jobs?cursor=x", "/audit?cursor=x", "/yank?target=x"):
        assert closed.get(path).status_code == 422


def test_the_secret_of_a_token_is_shown_once_and_never_stored(
    closed: Client, registry: LocalRegistry, tokens: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    data = {
        "csrf_token": sign_in(closed, tokens, "admin"),
        "name": "ci",
        "scopes": "read  publish:acme",
        "expires": "2d",
    }
    with caplog.at_level(logging.DEBUG):
        answer = closed.post("/tokens", data=data, headers=OURS)
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    (secret,) = re.findall(r"benchlock_\w{49}", answer.text)
    made = next(token for token in tokens.list() if token.name == "ci")
    assert made.scopes.texts == {"read", "publish:acme"}
    assert timedelta(days=1) < made.expires_at - now() < timedelta(days=2)
    assert secret not in str(answer.url)
    written = "\n".join(JsonLines().format(record) for record in caplog.records)
    assert secret not in written
    for path in ("/tokens", "/audit", "/v1/tokens", "/v1/log"):
        page = closed.get(path).text
        assert made.id in page
        assert secret not in page
    assert secret not in str(open_log(registry).list())
    assert closed.get("/v1/caller", headers={"authorization": f"Bearer {secret}"}).json()["id"] == made.id


def test_a_token_is_listed_with_its_last_entry_in_the_log_and_revoked(
    closed: Client, registry: LocalRegistry, tokens: Tokens
) -> None:
    idle, secret = tokens.create("idle", Scopes.parse(["read"]))
    csrf_token = sign_in(closed, tokens, "admin")
    text = main_of(closed.get("/tokens").text)
    assert f'<option value="{idle.id}">' in text
    more = {"csrf_token": csrf_token, "name": "more", "scopes": "read", "expires": "1d"}
    assert closed.post("/tokens", data=more, headers=OURS).status_code == 201
    data = {"csrf_token": csrf_token, "token": idle.id}
    answer = closed.post("/tokens/revoke", data=data, headers=OURS)
    assert (answer.status_code, answer.headers["location"]) == (303, "/tokens")
    text = main_of(closed.get("/tokens").text)
    assert "revoked" in text
    assert f'<option value="{idle.id}">' not in text
    assert closed.get("/v1/caller", headers={"authorization": f"Bearer {secret.text}"}).status_code == 401
    log = open_log(registry)
    admin = next(token.id for token in tokens.list() if token.scopes.allow("admin"))
    assert len(log.list(actor=admin)) > 1
    assert log.find_last_times([admin, "token/none"]) == {admin: log.list(actor=admin, limit=1)[0].at}


def test_an_open_service_has_no_tokens_to_manage(opened: Client, tokens: Tokens) -> None:
    tokens.create("old", Scopes.parse(["read"]))
    text = main_of(opened.get("/tokens").text)
    assert "no tokens to manage" in text
    assert "<form" not in text
    assert "old" not in text


def test_pages_of_tokens_yanks_and_of_the_audit_log_are_for_those_who_may(
    closed: Client, registry: LocalRegistry, tokens: Tokens
) -> None:
    request = {"model": {"name": "acme/b", "version": "*"}}
    variant({"model": {"name": "acme/b"}, "request": request}).publish(registry.catalogue, registry.store)
    yank = "/yank?target=model/acme/b@1.0.0"
    for path, ours in (("/tokens", "admin"), ("/audit", "admin"), (yank, "publish:acme")):
        closed.cookies.clear()
        assert closed.get(path).status_code == 401
        for scope in ("read", "run", "publish:other"):
            sign_in(closed, tokens, scope)
            assert closed.get(path).status_code == 403
        sign_in(closed, tokens, ours)
        assert closed.get(path).status_code == 200


def test_pages_of_tokens_and_of_the_audit_log_are_complete(
    closed: Client, registry: LocalRegistry, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_in(closed, tokens, "admin")
    for number in range(4):
        tokens.create(f"some-{number}", Scopes.parse(["read"]))
    monkeypatch.setattr(access_pages, "ROWS", 2)
    for first, table, whole in (
        ("/tokens", "tokens", [token.id for token in tokens.list()]),
        ("/audit?actor=embedded", "log", [entry.target for entry in open_log(registry).list(actor="embedded")]),
    ):
        found: list[str] = []
        path = first
        while path:
            rows = closed.get(f"{path}{'&' if '?' in path else '?'}csv={table}").text.splitlines()[1:]
            assert len(rows) <= 2
            found += rows
            text = closed.get(path).text
            path = text.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
        assert len(found) == len(whole)
        assert all(expected in row for expected, row in zip(whole, found, strict=True))


def test_a_version_is_yanked_with_a_reason_after_who_uses_it_was_shown_and_unyanked(
    closed: Client, registry: LocalRegistry, tokens: Tokens, lock: Lock
) -> None:
    at = now()
    for age in (timedelta(hours=1), timedelta(days=40)):
        start = recorded(lock=lock.id).start
        fields = {"id": new_run_id(at - age), "started_at": at - age}
        registry.records.start(type(start)(**{name: getattr(start, name) for name in start.__struct_fields__} | fields))
    csrf_token = sign_in(closed, tokens, "publish:*")
    for kind, artifact in lock.artifacts().items():
        path = f"/yank?target={kind}/{artifact.name}@{artifact.version}"
        assert f"/locks/{lock.id}" in closed.get(path).text
        assert closed.get(f"{path}&csv=locks").text.splitlines()[1].endswith(",2")
    target = f"model/{lock.subject.name}@{lock.subject.version}"
    rows = closed.get(f"/yank?target={target}&csv=runs").text.splitlines()[1:]
    assert [row.partition(",")[0] for row in rows] == [registry.records.list()[0].id]
    data = {"csrf_token": csrf_token, "target": target}
    answer = closed.post("/yank", data=data | {"reason": HOSTILE}, headers=OURS)
    path = f"/model/{lock.subject.name}@{lock.subject.version}"
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert registry.catalogue.get(parse_reference(target)).yanked == HOSTILE
    for page in (path, f"/yank?target={target}"):
        text = closed.get(page).text
        assert "&lt;script&gt;alert(1)" in text
        assert "<script>" not in text
    assert "Unyank this version" in closed.get(path).text
    assert closed.post("/yank", data=data | {"undo": "yes"}, headers=OURS).status_code == 303
    assert registry.catalogue.get(parse_reference(target)).yanked is None
    assert "Yank this version" in closed.get(path).text


def test_a_publisher_of_another_namespace_is_not_offered_to_yank(closed: Client, tokens: Tokens, lock: Lock) -> None:
    path = f"/model/{lock.subject.name}@{lock.subject.version}"
    csrf_token = sign_in(closed, tokens, "publish:elsewhere")
    assert closed.get(path).status_code == 200
    assert "/yank?" not in closed.get(path).text
    target = f"model/{lock.subject.name}@{lock.subject.version}"
    assert closed.get(f"/yank?target={target}").status_code == 403
    data = {"csrf_token": csrf_token, "target": target, "reason": "x"}
    assert closed.post("/yank", data=data, headers=OURS).status_code == 403
    sign_in(closed, tokens, "publish:*")
    assert "/yank?" in closed.get(path).text
