"""A service that is killed among many who publish: what it had answered is there, of the rest all or nothing."""

import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from artifacts.digest import digest_bytes
from registry.manifests import plain
from tests.support.commands import Commands
from tests.support.frameworks import framework
from tests.support.postgresql import EMPTY, PostgresServer
from tests.support.serving import Served, service

PUBLISHERS, ROUNDS = 8, 4
LATEST = 0.5  # seconds after the first answer by which it is killed


@pytest.fixture(params=["sqlite", "postgresql"])
def variables(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """What names the database."""
    if request.param == "sqlite":
        yield {}
        return
    server: PostgresServer = request.getfixturevalue("postgresql")
    with server.database(EMPTY) as address:
        yield {"BENCHLOCK_DATABASE": address}


def published_until_killed(served: Served, name: str) -> tuple[dict[str, str], set[str]]:
    """Digests that were answered, by reference, and references that were asked for and not answered."""
    answered: dict[str, str] = {}
    asked: set[str] = set()
    first = threading.Event()

    def publish(publisher: int) -> None:
        with httpx.Client(base_url=served.url, timeout=60) as client:
            for number in range(100_000):
                version = f"{publisher}.{number}.0"
                asked.add(f"{name}@{version}")
                try:
                    answer = client.post("/v1/artifacts", json={"manifest": plain(framework(name, version))})
                except httpx.TransportError:
                    return
                assert answer.status_code == 201, answer.text
                answered[f"{name}@{version}"] = answer.json()["digest"]
                first.set()

    with ThreadPoolExecutor(PUBLISHERS) as pool:
        publishers = [pool.submit(publish, number) for number in range(PUBLISHERS)]
        assert first.wait(60)
        time.sleep(random.uniform(0, LATEST))
        served.kill()
        for one in publishers:
            one.result()
    return answered, asked - set(answered)


def content_of(served: Served, reference: str, digest: str | None = None) -> str | None:
    """The digest of the version's manifest, whose bytes have it; none where the version is not there."""
    found = httpx.get(f"{served.url}/v1/artifacts/framework/{reference}")
    if digest is None and found.status_code == 404:
        return None
    named = str(found.raise_for_status().json()["digest"])
    bytes_of_it = httpx.get(f"{served.url}/v1/blobs/{named}").raise_for_status().content
    assert digest_bytes(bytes_of_it) == named
    return named


def test_what_was_answered_is_kept_and_the_rest_is_whole_or_not_there(
    variables: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = tmp_path / "registry"
    answered: dict[str, str] = {}
    unanswered: set[str] = set()
    for round_ in range(ROUNDS):
        with service(registry, variables=variables) as served:
            some, others = published_until_killed(served, f"acme/round-{round_}")
            answered |= some
            unanswered |= others
    with service(registry, variables=variables) as served:
        assert {reference: content_of(served, reference, digest) for reference, digest in answered.items()} == answered
        there = [reference for reference in unanswered if content_of(served, reference)]
    assert Commands(registry, variables=variables).done("verify")["damaged"] == []
    with capsys.disabled():
        sys.stdout.write(
            f"\n{ROUNDS} services killed: {len(answered)} answered, {len(there)} of {len(unanswered)} more are there\n"
        )
