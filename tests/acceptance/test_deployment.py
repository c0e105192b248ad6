"""The team's deployment, of real parts: nginx with TLS, the service, PostgreSQL and an OCI registry behind it."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchlock.artifacts.digest import digest_bytes
from tests.support.api.commands import Commands
from tests.support.api.serving import Served, service
from tests.support.api.warm import Warm
from tests.support.evaluator.queues import BOOT, facts
from tests.support.registry import tiny
from tests.support.registry.digits import locked, request
from tests.support.servers.nginx import HOST, Nginx, proxying
from tests.support.servers.postgresql import EMPTY, PostgresServer
from tests.support.servers.registry_server import RegistryServer, free_port
from tests.support.servers.web import CERTIFICATE
from tests.support.system.deployed import TEAM, environment_of

MIB = 1 << 20
OCTETS = {"content-type": "application/octet-stream"}


@dataclass(frozen=True)
class Team:
    """What is deployed: the proxy, the command line on the server, one elsewhere, and plain HTTP with its token."""

    nginx: Nginx
    server: Commands
    member: Commands
    served: Served
    client: httpx.Client
    headers: dict[str, str]


@pytest.fixture(scope="module")
def team(
    tmp_path_factory: pytest.TempPathFactory, postgresql: PostgresServer, registry_server: RegistryServer
) -> Iterator[Team]:
    """As compose.team.yaml says, with addresses of this machine."""
    folder = tmp_path_factory.mktemp("team")
    with ExitStack() as stack:
        port = free_port()
        nginx = stack.enter_context(proxying(folder / "nginx", port, registry_server.port))
        database = stack.enter_context(postgresql.database(EMPTY))
        shipped = environment_of(TEAM, "benchlock") | {"SSL_CERT_FILE": str(CERTIFICATE)}
        shipped["BENCHLOCK_DATABASE"] = shipped["BENCHLOCK_DATABASE"].replace(
            "postgresql://benchlock@database/benchlock", database
        )
        name = f"${{BENCHLOCK_NAME}}:5443/{'benchlock'}"
        assert name in shipped["BENCHLOCK_STORE"]
        shipped["BENCHLOCK_STORE"] = shipped["BENCHLOCK_STORE"].replace(name, f"{HOST}:{nginx.back}/team")
        variables = {key: shipped[key] for key in ("BENCHLOCK_DATABASE", "BENCHLOCK_STORE", "SSL_CERT_FILE")}
        server = Warm(folder / "registry", variables=variables)
        token = server.done("token", "create", "team", "--scope", "admin")["secret"]
        url = f"https://{HOST}:{nginx.front}"
        elsewhere = {"BENCHLOCK_REGISTRY": url, "BENCHLOCK_TOKEN": token, "XDG_CACHE_HOME": str(folder / "cache")}
        member = Warm(folder, variables=elsewhere | {"SSL_CERT_FILE": str(CERTIFICATE)})
        asked = ("--host", "127.0.0.1", "--proxy", "127.0.0.1")
        served = stack.enter_context(service(server.registry, *asked, port=port, variables=variables))
        headers = {"authorization": f"Bearer {token}"}
        trusted = ssl.create_default_context(cafile=str(CERTIFICATE))
        client = stack.enter_context(httpx.Client(base_url=f"{url}/v1", headers=headers, verify=trusted, timeout=60))
        yield Team(nginx, server, member, served, client, headers)


@pytest.fixture(scope="module")
def lock(team: Team, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a lock that the team's registry has."""
    folder = tmp_path_factory.mktemp("locked")
    team.member.done("publish", *tiny.author(folder / "manifests"))
    path = locked(team.member, folder, request("digits-onnx"))
    found: str = team.member.done("run", "--submit", path)["job"]["lock"]
    return found


def test_what_is_published_through_the_proxy_is_in_the_store(team: Team, lock: str) -> None:
    assert team.member.done("doctor")["server"].startswith("benchlock ")
    assert team.server.done("verify", "--remote")["damaged"] == []
    assert team.client.get(f"/locks/{lock}").json()["lock"] == lock
    assert team.client.get("/v2/").status_code == 404
    assert httpx.get(f"http://{HOST}:{team.nginx.front}/v1/health").status_code == 400


def test_a_large_blob_goes_through_and_comes_back(team: Team) -> None:
    content = bytes(range(256)) * (48 * MIB // 256)
    digest = digest_bytes(content)
    sent = team.client.post("/blobs/uploads", params={"digest": digest}, content=content, headers=OCTETS)
    assert sent.status_code == 201, sent.text
    assert digest_bytes(team.client.get(f"/blobs/{digest}").content) == digest
    part = team.client.get(f"/blobs/{digest}", headers={"range": "bytes=300-309"})
    assert (part.status_code, part.content) == (206, content[300:310])


def test_an_upload_that_is_cut_goes_on_where_it_broke_off(team: Team) -> None:
    content = bytes(range(255)) * 65536
    upload = team.client.post("/blobs/uploads").headers["location"].removeprefix("/v1")

    def came() -> int:
        """How many bytes the service has: some that were sent may still be with the proxy."""
        return int(team.client.get(upload).headers.get("range", "0--1").partition("-")[2]) + 1

    def cut() -> Iterator[bytes]:
        yield content[: 4 * MIB]
        while not came():
            time.sleep(0.05)
        raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        team.client.patch(upload, content=cut(), headers=OCTETS | {"content-length": str(len(content))})
    start, statuses = 0, list[int]()
    # The service may have yet to hear that the first request is no more; 502 is how nginx tells of an early answer.
    while not statuses or statuses[-1] in (409, 416, 502):
        start = came()
        rest = team.client.put(
            upload,
            params={"digest": digest_bytes(content)},
            content=content[start:],
            headers=OCTETS | {"content-range": f"{start}-{len(content) - 1}"},
        )
        statuses.append(rest.status_code)
    assert statuses[-1] == 201
    assert 0 < start <= 4 * MIB


def events(lines: Iterator[str]) -> Iterator[str]:
    """The state in each event."""
    for line in lines:
        if line.startswith("data:"):
            yield json.loads(line.removeprefix("data:"))["state"]


def test_events_come_while_the_job_still_waits(team: Team, lock: str) -> None:
    job = team.client.post("/jobs", json={"lock": lock}).json()["job"].removeprefix("job/")
    with team.client.stream("GET", f"/jobs/{job}/events") as answer:
        states = events(answer.iter_lines())
        assert next(states) == "queued"
        assert team.client.delete(f"/jobs/{job}").status_code == 200
        assert list(states) == ["cancelled"]


def test_a_worker_that_waits_for_work_is_told_of_it(team: Team, lock: str) -> None:
    for waiting in team.client.get("/jobs", params={"state": "queued"}).json()["jobs"]:
        team.client.delete(f"/{waiting['job'].replace('job/', 'jobs/')}")
    enrolled = team.client.put("/machines/m1", json={"boot": BOOT, "facts": facts().document()})
    assert enrolled.status_code == 204, enrolled.text
    answers: list[dict[str, Any]] = []

    def ask() -> None:
        asked = {"machine": "m1", "boot": BOOT, "wait": 25}
        answers.append(team.client.post("/leases", json=asked).json())

    asking = threading.Thread(target=ask)
    asking.start()
    job = team.client.post("/jobs", json={"lock": lock}).json()["job"]
    asking.join()
    assert answers[0]["lease"]["job"] == job
    released = {"ended": "cancelled", "reason": "a test"}
    assert team.client.post(f"/leases/{answers[0]['lease']['fence']}/release", json=released).is_success


def test_a_line_has_the_id_of_the_answer_and_no_secret(team: Team) -> None:
    answer = team.client.get("/artifacts", params={"kind": "model"}, headers={"x-request-id": "seen-in-both"})
    assert answer.headers["x-request-id"] == "seen-in-both"
    text = _lines(team.nginx.lines, "seen-in-both")
    line = next(json.loads(one) for one in text.splitlines() if "seen-in-both" in one)
    assert (line["client"], line["method"], line["path"], line["status"]) == ("127.0.0.1", "GET", "/v1/artifacts", 200)
    assert team.headers["authorization"].removeprefix("Bearer ") not in text


def test_the_service_knows_who_asks_the_proxy_and_believes_nobody_else(team: Team) -> None:
    trusted = ssl.create_default_context(cafile=str(CERTIFICATE))
    transport = httpx.HTTPTransport(verify=trusted, local_address="127.0.0.2")
    said = {"x-request-id": "from-elsewhere", "x-forwarded-for": "192.0.2.1"}
    with httpx.Client(transport=transport, base_url=team.client.base_url, headers=team.headers) as elsewhere:
        assert elsewhere.get("/artifacts", headers=said).is_success
    lines = [
        json.loads(one) for one in _lines(team.served.log, "from-elsewhere").splitlines() if "from-elsewhere" in one
    ]
    assert [one["client"] for one in lines] == ["127.0.0.2"]


def _lines(log: Path, wanted: str) -> str:
    """A log with ``wanted`` in a whole line: the proxy and the service write a line after the answer is gone."""
    end, text = time.monotonic() + 60, ""
    while time.monotonic() < end:
        text = log.read_text()
        if any(wanted in line for line in text.splitlines(keepends=True) if line.endswith("\n")):
            return text
        time.sleep(0.05)
    raise AssertionError(f"no line with {wanted} in {text!r}")
