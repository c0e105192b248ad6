"""What workers ask of a server, where that is more than a queue in a database is asked."""

import json
from typing import Any

import msgspec
import pytest
from litestar.testing import TestClient
from msgspec.structs import replace

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.http.routes.app import create_app
from benchlock.api.http.service_state import Service
from benchlock.api.local.local_registry import LocalRegistry, now
from benchlock.evaluator.queue.job_matching import JobRequirements
from benchlock.evaluator.queue.queue_types import JobRequest, Lease, new_job_id
from benchlock.evaluator.records.run_types import RunEnd
from benchlock.registry.auth.audit_log import AuditLog
from benchlock.registry.auth.permissions import Scopes
from benchlock.registry.auth.tokens import Authenticator, Tokens
from benchlock.registry.lock.lockfile import Lock
from tests.api.http.conftest import Client
from tests.evaluator.queue.test_client_runs import END, start_of
from tests.support.evaluator.queues import BOOT, CPU, facts, machine
from tests.support.evaluator.recorded import NOON, metric
from tests.support.resolution.variants import variant

CANCELLED = RunEnd(outcome="cancelled", ended_at=END.ended_at)


@pytest.fixture
def lock(registry: LocalRegistry) -> Lock:
    made = variant({}).lock
    registry.catalogue.put_lock(made)
    return made


@pytest.fixture
def lease(registry: LocalRegistry, lock: Lock) -> Lease:
    queue = open_queue(registry)
    queue.enrol(machine(1), BOOT, facts())
    queue.submit(JobRequest(new_job_id(NOON), lock.id, JobRequirements((CPU,), {}, cpus=1)))
    found = queue.lease(machine(1), BOOT)
    assert found is not None
    return found


@pytest.mark.usefixtures("lease")
def test_no_token_speaks_for_the_machine_of_another(registry: LocalRegistry) -> None:
    tokens = Tokens(registry.database, now)
    made = [tokens.create("a-worker", Scopes.parse(["run"])) for _ in range(2)]
    mine, other = ({"authorization": f"Bearer {secret.text}"} for _, secret in made)
    app = create_app(registry, authority=Authenticator(tokens, now))
    what_it_is = {"boot": BOOT, "facts": facts().document()}
    asked = {"machine": "m2", "boot": BOOT}
    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.put("/v1/machines/m2", json=what_it_is, headers=mine).status_code == 204
        for refused in (
            client.put("/v1/machines/m2", json=what_it_is, headers=other),
            client.post("/v1/leases", json=asked, headers=other),
        ):
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), refused.text
        assert client.post("/v1/leases", json=asked, headers=mine).json() == {"lease": None}
        pages = [client.get("/v1/machines?limit=1", headers=other).json()]
        pages.append(client.get(f"/v1/machines?limit=1&cursor={pages[0]['next']}", headers=other).json())
    assert [one["machine"] for page in pages for one in page["machines"]] == ["m1", "m2"]
    assert "next" not in pages[1]


def test_whatever_the_service_is_doing_runs_are_held_begun_and_ended(
    registry: LocalRegistry, lease: Lease, lock: Lock
) -> None:
    app = create_app(registry)
    service: Service = app.state.service
    service.work._free = 0
    path, start = f"/v1/leases/{lease.fence}", start_of(lock)
    end = msgspec.to_builtins(CANCELLED)
    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.get(f"/v1/locks/{lock.id}").json()["code"] == "busy"
        assert client.patch(path, json={"phase": "measuring"}).json() == {"answer": "keep"}
        assert client.get(path).json() == {"holds": True}
        assert client.post(f"{path}/run", json=msgspec.to_builtins(start)).status_code == 200
        done = client.put(f"{path}/run", json={"run": start.id, "end": end})
        assert (done.status_code, done.json()["state"]) == (200, "queued"), done.text
        own = start_of(lock)
        assert client.post("/v1/runs", json=msgspec.to_builtins(own)).status_code == 201
        assert client.put(f"/v1/runs/{own.id.removeprefix('run/')}/end", json=end).status_code == 200


def test_an_end_that_does_not_fit_the_lock_is_refused(client: Client, lease: Lease, lock: Lock) -> None:
    path, start = f"/v1/leases/{lease.fence}/run", start_of(lock)
    assert client.post(path, json=msgspec.to_builtins(start)).status_code == 200
    odd = replace(CANCELLED, metrics=(replace(metric("top1", 1.0), version=7),))
    refused = client.put(path, json={"run": start.id, "end": msgspec.to_builtins(odd)})
    assert refused.json()["code"] == "integrity", refused.text
    assert "by definition 7" in refused.json()["detail"]
    fitting = msgspec.to_builtins(CANCELLED)
    done = client.put(path, json={"run": start.id, "end": fitting})
    assert (done.status_code, done.json()["state"]) == (200, "queued"), done.text


FACTS = facts().document()
NUMBER = 10**400
HOSTILE = [
    ("PUT", "/v1/machines/m9", {"boot": BOOT, "facts": FACTS | {"cpu_model": "x" * (900 << 10)}}),
    ("PUT", "/v1/machines/m9", {"boot": BOOT, "facts": FACTS | {"kernel": "a\nm2  free"}}),
    ("PUT", "/v1/machines/m9", {"boot": BOOT, "facts": FACTS | {"host": FACTS["host"] | {"cpus": 10**19}}}),
    ("PUT", "/v1/machines/m9", {"boot": BOOT, "facts": FACTS | {"engine": "\ud800"}}),
    ("PUT", "/v1/machines/m9", {"boot": BOOT, "facts": []}),
    ("PUT", "/v1/machines/m9", {"boot": "x" * 65, "facts": FACTS}),
    ("PUT", "/v1/machines/m9", {"boot": BOOT, "facts": FACTS, "clock": "2026-11-21T12:00:00"}),
    ("POST", "/v1/leases", {"machine": "m1", "boot": BOOT, "nonce": "a b"}),
    ("POST", "/v1/leases", {"machine": "m1", "boot": BOOT, "wait": 1e9}),
    ("POST", "/v1/leases/1/release", {"ended": "lost", "reason": "x"}),
    ("POST", "/v1/leases/1/release", {"ended": "returned", "reason": "x" * 4001}),
    ("PATCH", "/v1/leases/1", {"phase": "done"}),
    ("PATCH", f"/v1/leases/{NUMBER}", {"phase": "measuring"}),
]


@pytest.mark.usefixtures("lease")
@pytest.mark.parametrize(("method", "path", "body"), HOSTILE)
def test_what_no_worker_says_is_a_problem_and_changes_nothing(
    client: Client, registry: LocalRegistry, method: str, path: str, body: dict[str, Any]
) -> None:
    before = open_queue(registry).jobs(), [one.id for one in open_queue(registry).machines()]
    answer = client.request(method, path, content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code in (400, 404, 413, 422), answer.text[:500]
    assert (open_queue(registry).jobs(), [one.id for one in open_queue(registry).machines()]) == before


@pytest.mark.parametrize("clock", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_the_clock_of_a_machine_may_say_anything(client: Client, registry: LocalRegistry, clock: str) -> None:
    answer = client.put("/v1/machines/m9", json={"boot": BOOT, "facts": FACTS, "clock": clock})
    assert answer.status_code == 204, answer.text
    (found,) = open_queue(registry).machines()
    assert found.skew is not None
    assert abs(found.skew) > 1e10


def test_a_lease_that_is_over_or_another_s_takes_nothing_whoever_says_it(
    client: Client, registry: LocalRegistry, lease: Lease, lock: Lock
) -> None:
    """Ends that are replayed, fences that are guessed, runs of another lease."""
    sent, end = start_of(lock), END
    for fence in (lease.fence + 1, 10**17):
        assert client.post(f"/v1/leases/{fence}/run", content=msgspec.json.encode(sent)).json() == {"start": None}
        body = msgspec.json.encode({"run": sent.id, "end": end})
        assert client.put(f"/v1/leases/{fence}/run", content=body).status_code in (400, 409, 422)
        assert client.patch(f"/v1/leases/{fence}", json={"phase": "measuring"}).json() == {"answer": "lost"}
        assert client.post(f"/v1/leases/{fence}/release", json={"ended": "engine", "reason": "x"}).status_code == 204
    assert open_queue(registry).job(lease.job).state == "leased"
    assert open_queue(registry).holds(lease.fence)


def test_only_an_administrator_reads_and_sets_shares(registry: LocalRegistry, lock: Lock) -> None:
    tokens = Tokens(registry.database, now)
    made = [tokens.create("somebody", Scopes.parse([scope])) for scope in ("run", "admin")]
    runner, admin = ({"authorization": f"Bearer {secret.text}"} for _, secret in made)
    owner = made[0][0].id
    body = {"owner": owner, "weight": 2, "max_running": 8}
    app = create_app(registry, authority=Authenticator(tokens, now))
    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.get("/v1/queue/shares", headers=runner).status_code == 403
        assert client.patch("/v1/queue/shares", json=body, headers=runner).status_code == 403
        assert client.patch("/v1/queue/shares", json=body, headers=admin).status_code == 204
        for wrong in ({"weight": 0}, {"max_running": -1}, {"owner": "x" * 129}, {"weight": 1e300}):
            assert client.patch("/v1/queue/shares", json=body | wrong, headers=admin).status_code == 400
        unknown = client.patch("/v1/queue/shares", json=body | {"owner": "token/nobody"}, headers=admin)
        assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown-name")
        shares = client.get("/v1/queue/shares", headers=admin).json()["shares"]
        job = client.post("/v1/jobs", json={"lock": lock.id, "priority": 9}, headers=runner)
    assert [(share["owner"], share["weight"], share["max_running"]) for share in shares] == [(owner, 2, 8)]
    assert job.status_code == 400
    actions = [(one.action, one.target) for one in AuditLog(registry.database).list() if one.action == "share.set"]
    assert actions == [("share.set", f"{owner}: weight 2, at most 8 running jobs")]
