"""Three services on one PostgreSQL database and one folder: published to, collected and killed at the same time.

Every upload is split between the services, and each step may meet one that was killed a moment ago. What was
acknowledged verifies in the end. ``--services-seconds`` says for how long.
"""

import io
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchlock.artifacts.digest import Digest, digest_bytes, to_hex
from benchlock.artifacts.stores.local_store import LocalStore
from tests.support.api.serving import Served, service
from tests.support.api.warm import Warm
from tests.support.registry import tiny
from tests.support.registry.digits import GRAPH, model
from tests.support.servers.postgresql import EMPTY, PostgresServer
from tests.support.servers.registry_server import free_port

SERVICES, PUBLISHERS = 3, 4
MIN, MAX = 1_000, 300_000  # bytes of a file
AGAIN = {404, 408, 409, 416, 429, 503}
"""What a client is told who should begin the step again, or the upload."""
OCTETS = {"content-type": "application/octet-stream"}


@dataclass
class Site:
    """The services, by their ports; one that was killed is started again at its own."""

    registry: Path
    variables: dict[str, str]
    ports: list[int] = field(default_factory=lambda: [free_port() for _ in range(SERVICES)])
    running: dict[int, tuple[ExitStack, Served]] = field(default_factory=dict)
    ends: threading.Event = field(default_factory=threading.Event)
    counts: Counter[str] = field(default_factory=Counter)
    acknowledged: dict[str, Digest] = field(default_factory=dict)
    faults: list[BaseException] = field(default_factory=list)

    def start(self, port: int) -> None:
        stack = ExitStack()
        served = stack.enter_context(service(self.registry, port=port, variables=self.variables))
        self.running[port] = (stack, served)

    def kill(self, port: int) -> None:
        stack, served = self.running[port]
        served.kill()
        stack.close()

    def end(self) -> None:
        for stack, _ in self.running.values():
            stack.close()

    def ask(self, client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response | None:  # noqa: ANN401
        """Ask any of the services; none where it was killed, or says that this should be done again."""
        try:
            answer = client.request(method, f"http://127.0.0.1:{random.choice(self.ports)}/v1{path}", **more)
        except httpx.TransportError:
            self.counts["cut"] += 1
            return None
        if answer.status_code in AGAIN:
            self.counts[f"{method} {answer.status_code}"] += 1
            return None
        assert answer.status_code < 400, (method, path, answer.status_code, answer.text)
        return answer

    def until_done(self, act: Any, *arguments: Any) -> None:  # noqa: ANN401
        """Do it again and again to the end; a fault ends all."""
        try:
            while not self.ends.is_set():
                act(*arguments)
        except BaseException as fault:  # noqa: BLE001 - it is raised where all threads have ended
            self.faults.append(fault)
            self.ends.set()


def send(site: Site, client: httpx.Client, content: bytes) -> bool:
    """Send a blob in pieces, each to any of the services; false where it is to be begun again."""
    begun = site.ask(client, "POST", "/blobs/uploads", content=b"", headers=OCTETS)
    if begun is None:
        return False
    place = begun.headers["location"].removeprefix("/v1")
    digest, at = digest_bytes(content), 0
    for _ in range(60):
        if site.ends.is_set():
            return False
        if at == len(content):
            done = site.ask(client, "PUT", place, params={"digest": digest}, content=b"", headers=OCTETS)
        else:
            piece = content[at : at + random.randint(1, len(content))]
            headers = {**OCTETS, "content-range": f"{at}-{at + len(piece) - 1}"}
            done = site.ask(client, "PATCH", place, content=piece, headers=headers)
        if done is not None and done.status_code == 201:
            site.counts["blobs"] += 1
            return True
        seen = site.ask(client, "GET", place)
        if seen is None:
            time.sleep(0.05)
            continue
        reached = int(seen.headers.get("range", "0--1").partition("-")[2]) + 1
        at = 0 if reached == 1 and at == 0 else reached
    return False


def publish(site: Site, client: httpx.Client, publisher: int) -> None:
    """Publish a version with a file of its own until it is acknowledged."""
    number = site.counts[f"publisher {publisher}"]
    site.counts[f"publisher {publisher}"] += 1
    content = f"{publisher} {number}\n".encode() + random.randbytes(random.randint(MIN, MAX)).hex().encode()
    graph, card = GRAPH.read_bytes(), digest_bytes(content)
    files = [
        {"path": "digits.onnx", "role": "graph", "sha256": to_hex(digest_bytes(graph)), "size": len(graph)},
        {"path": "README.md", "role": "card", "sha256": to_hex(card), "size": len(content)},
    ]
    manifest = model(f"busy-{publisher}") | {"version": f"1.0.{number}", "files": files}
    while not site.ends.is_set():
        answer = site.ask(client, "POST", "/artifacts", json={"manifest": manifest})
        if answer is not None:
            site.acknowledged[f"busy-{publisher}@1.0.{number}"] = card
            return
        if send(site, client, content):
            send(site, client, graph)


def collect(site: Site, client: httpx.Client) -> None:
    """Leave garbage, and collect it by any of the services."""
    store = LocalStore(site.registry / "blobs")
    garbage = store.put(io.BytesIO(os.urandom(1000))).digest
    answer = site.ask(client, "POST", "/collections", json={"dry_run": False}, timeout=120)
    if answer is not None:
        site.counts["collections"] += 1
        site.counts["freed"] += answer.json()["blobs"]
        assert not store.exists(garbage)
    site.ends.wait(random.uniform(0.1, 1.0))


def strike(site: Site) -> None:
    """Kill one of the services, and start it again."""
    site.ends.wait(random.uniform(1.0, 4.0))
    port = random.choice(site.ports)
    site.kill(port)
    site.counts["kills"] += 1
    site.start(port)


@pytest.fixture
def site(postgresql: PostgresServer, tmp_path: Path) -> Iterator[Site]:
    with postgresql.database(EMPTY) as address:
        site = Site(tmp_path / "registry", {"BENCHLOCK_DATABASE": address})
        Warm(site.registry, variables=site.variables).done("publish", *tiny.author(tmp_path / "manifests"))
        try:
            for port in site.ports:
                site.start(port)
            yield site
        finally:
            site.end()


def test_what_was_acknowledged_verifies_whatever_is_killed_and_collected(
    site: Site, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = request.config.getoption("--services-seconds")
    with ExitStack() as stack:
        clients = [stack.enter_context(httpx.Client(timeout=60)) for _ in range(PUBLISHERS + 1)]
        threads = [
            *(
                threading.Thread(target=site.until_done, args=(publish, site, client, number))
                for number, client in enumerate(clients[:-1])
            ),
            threading.Thread(target=site.until_done, args=(collect, site, clients[-1])),
            threading.Thread(target=site.until_done, args=(strike, site)),
        ]
        for thread in threads:
            thread.start()
        site.ends.wait(seconds)
        while not (site.acknowledged and site.counts["collections"] and site.counts["kills"]):  # on a slow machine
            if site.ends.wait(0.1):
                break
        site.ends.set()
        for thread in threads:
            thread.join()
    if site.faults:
        raise site.faults[0]
    commands = Warm(site.registry, variables=site.variables)
    verified = commands.done("verify")
    assert verified["damaged"] == []
    listed = {f"{one['name']}@{one['version']}" for one in commands.done("list", "model")["artifacts"]}
    assert site.acknowledged.keys() <= listed
    with httpx.Client(timeout=60) as client:
        for reference, card in site.acknowledged.items():
            url = f"http://127.0.0.1:{random.choice(site.ports)}/v1"
            assert client.get(f"{url}/artifacts/model/{reference}").status_code == 200
            assert digest_bytes(client.get(f"{url}/blobs/{card}").raise_for_status().content) == card
    assert commands.done("db", "check")["differences"] == []
    assert site.acknowledged
    assert site.counts["collections"]
    assert site.counts["kills"]
    with capsys.disabled():
        sys.stdout.write(f"\n{len(site.acknowledged)} versions, {verified['blobs']} blobs; {dict(site.counts)}\n")
