"""What workers ask of a server, where that is more than a queue in a database is asked."""

from dataclasses import replace

import msgspec
import pytest
from litestar.testing import TestClient

from api.dispatching import open_queue
from api.http.app import create_app
from api.http.service import Service
from api.wire.runs import begun_on_wire, over_on_wire
from api.wiring import Registry, now
from evaluator.dispatch.matching import Wants
from evaluator.dispatch.queue import JobWish, Lease, new_job_id
from registry.access.gate import Gate
from registry.access.scopes import Scopes
from registry.access.tokens import Tokens
from registry.lockfile import Lock
from tests.api.http.conftest import Client
from tests.evaluator.dispatch.test_held import END, start_of
from tests.support.queues import BOOT, CPU, facts, machine
from tests.support.recorded import NOON, metric
from tests.support.variants import variant


@pytest.fixture
def lock(registry: Registry) -> Lock:
    made = variant({}).lock
    registry.catalogue.put_lock(made)
    return made


@pytest.fixture
def lease(registry: Registry, lock: Lock) -> Lease:
    queue = open_queue(registry)
    queue.enrol(machine(1), BOOT, facts())
    queue.submit(JobWish(new_job_id(NOON), lock.id, Wants((CPU,), {}, cpus=1)))
    found = queue.lease(machine(1), BOOT)
    assert found is not None
    return found


@pytest.mark.usefixtures("lease")
def test_no_token_speaks_for_the_machine_of_another(registry: Registry) -> None:
    tokens = Tokens(registry.database, now)
    made = [tokens.create("a-worker", Scopes.parse(["run"])) for _ in range(2)]
    mine, other = ({"authorization": f"Bearer {secret.text}"} for _, secret in made)
    app = create_app(registry, authority=Gate(tokens, now))
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
    registry: Registry, lease: Lease, lock: Lock
) -> None:
    app = create_app(registry)
    service: Service = app.state.service
    service.work._free = 0
    path, start = f"/v1/leases/{lease.fence}", start_of(lock)
    end = msgspec.to_builtins(over_on_wire(replace(END, blobs={}, outcome="cancelled", metrics=())))
    with TestClient(app, raise_server_exceptions=False) as client:
        assert client.get("/v1/jobs").json()["code"] == "busy"
        assert client.patch(path, json={"phase": "measuring"}).json() == {"answer": "keep"}
        assert client.get(path).json() == {"holds": True}
        assert client.post(f"{path}/run", json=msgspec.to_builtins(begun_on_wire(start))).status_code == 200
        done = client.put(f"{path}/run", json={"run": start.id, "end": end})
        assert (done.status_code, done.json()["state"]) == (200, "queued"), done.text
        own = start_of(lock)
        assert client.post("/v1/runs", json=msgspec.to_builtins(begun_on_wire(own))).status_code == 201
        assert client.put(f"/v1/runs/{own.id.removeprefix('run/')}/end", json=end).status_code == 200


def test_an_end_that_does_not_fit_the_lock_is_refused(client: Client, lease: Lease, lock: Lock) -> None:
    path, start = f"/v1/leases/{lease.fence}/run", start_of(lock)
    assert client.post(path, json=msgspec.to_builtins(begun_on_wire(start))).status_code == 200
    odd = replace(END, blobs={}, outcome="cancelled", metrics=(replace(metric("top1", 1.0), version=7),))
    refused = client.put(path, json={"run": start.id, "end": msgspec.to_builtins(over_on_wire(odd))})
    assert refused.json()["code"] == "integrity", refused.text
    assert "by definition 7" in refused.json()["detail"]
    fitting = msgspec.to_builtins(over_on_wire(replace(odd, metrics=())))
    done = client.put(path, json={"run": start.id, "end": fitting})
    assert (done.status_code, done.json()["state"]) == (200, "queued"), done.text
