"""A service that is killed among many who publish: what it had answered is there, of the rest all or nothing.

The process is killed and not the machine: what the kernel holds is not lost by that.
"""

import random
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import httpx
import pytest

from benchlock.artifacts.digest import digest_bytes
from benchlock.registry.manifests import plain
from tests.support.api.serving import Served, service
from tests.support.api.warm import Warm
from tests.support.registry.frameworks import framework
from tests.support.servers.postgresql import EMPTY, PostgresServer

PUBLISHERS, ROUNDS = 6, 1
MIN, MAX = 1, 40  # answers after which a service is killed


@pytest.fixture(params=["sqlite", "postgresql"])
def variables(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """What names the database."""
    if request.param == "sqlite":
        yield {}
        return
    server: PostgresServer = request.getfixturevalue("postgresql")
    with server.database(EMPTY) as address:
        yield {"BENCHLOCK_DATABASE": address}


def published_until_killed(served: Served, name: str, enough: int) -> tuple[dict[str, str], set[str]]:
    """Digests that were answered, by reference, and references that were asked for and not answered.

    It is killed when ``enough`` were answered, in the middle of the others.
    """
    answered: dict[str, str] = {}
    asked: set[str] = set()
    reached, killed = threading.Event(), threading.Event()

    def publish(publisher: int) -> None:
        with httpx.Client(base_url=served.url, timeout=60) as client:
            for number in count():
                version = f"{publisher}.{number}.0"
                asked.add(f"{name}@{version}")
                try:
                    answer = client.post("/v1/artifacts", json={"manifest": plain(framework(name, version))})
                except httpx.TransportError:
                    assert killed.wait(0)  # before that, nothing may break off
                    return
                assert answer.status_code == 201, answer.text
                answered[f"{name}@{version}"] = answer.json()["digest"]
                if len(answered) >= enough:
                    reached.set()

    with ThreadPoolExecutor(PUBLISHERS) as pool:
        publishers = [pool.submit(publish, number) for number in range(PUBLISHERS)]
        try:
            assert reached.wait(60)
        finally:
            killed.set()
            served.kill()
        for one in publishers:
            one.result()
    return answered, asked - set(answered)


def content_of(client: httpx.Client, reference: str, *, promised: bool) -> str | None:
    """The digest of the version's manifest, whose bytes have it; none where the version is not there, nor promised."""
    found = client.get(f"/v1/artifacts/framework/{reference}")
    if not promised and found.status_code == 404:
        return None
    digest = str(found.raise_for_status().json()["digest"])
    assert digest_bytes(client.get(f"/v1/blobs/{digest}").raise_for_status().content) == digest
    return digest


def test_what_was_answered_is_kept_and_the_rest_is_whole_or_not_there(
    variables: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = tmp_path / "registry"
    answered: dict[str, str] = {}
    unanswered: set[str] = set()
    for round_ in range(ROUNDS):
        with service(registry, variables=variables) as served:
            name, enough = f"acme/round-{round_}", random.randint(MIN, MAX)
            some, others = published_until_killed(served, name, enough)
            assert len(some) >= enough
            answered |= some
            unanswered |= others
    with service(registry, variables=variables) as served, httpx.Client(base_url=served.url, timeout=60) as client:
        assert {one: content_of(client, one, promised=True) for one in answered} == answered
        there = [one for one in unanswered if content_of(client, one, promised=False)]
    assert Warm(registry, variables=variables).done("verify")["damaged"] == []
    with capsys.disabled():
        sys.stdout.write(
            f"\n{ROUNDS} services killed: {len(answered)} answered, {len(there)} of {len(unanswered)} more are there\n"
        )
