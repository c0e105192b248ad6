"""What a service asks elsewhere for strangers leads to public addresses alone, whatever a name means meanwhile."""

import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from benchlock.api.local.image_lookup import make_public_lookup
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.net import http_session
from benchlock.artifacts.stores.temporary_stores import MemoryStore
from benchlock.registry.manifests import plain
from tests.api.http.conftest import Client
from tests.support.registry.frameworks import framework

PUBLIC, PRIVATE = "93.184.215.14", "127.0.0.1"


def meaning(*addresses: str) -> Callable[..., list[Any]]:
    """A resolver that gives one address after the other, and keeps to the last."""
    left = list(addresses)

    def resolve(_host: str, port: int, **_: object) -> list[Any]:
        address = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    return resolve


@pytest.fixture
def inside() -> Iterator[tuple[int, list[str]]]:
    """A server of the service's own network, its port, and the hosts that it was asked as."""
    asked: list[str] = []

    class Inside(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Host"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer((PRIVATE, 0), Inside) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port, asked
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("host", [PRIVATE, "localhost", "169.254.169.254", "[::1]", "10.0.0.1", "[fd00::1]"])
def test_a_connection_for_strangers_is_made_to_no_address_of_ones_own_network(
    host: str, inside: tuple[int, list[str]]
) -> None:
    port, asked = inside
    with http_session.open_connections(frozenset()) as client, pytest.raises(InvalidInputError, match="not public"):
        client.get(f"http://{host}:{port}/")
    assert asked == []


def test_a_host_that_was_admitted_is_asked_by_its_name(inside: tuple[int, list[str]]) -> None:
    port, asked = inside
    with http_session.open_connections(frozenset({"localhost"})) as client:
        assert client.get(f"http://localhost:{port}/").status_code == 204
    assert asked == [f"localhost:{port}"]


def test_the_address_that_was_looked_at_is_the_one_that_is_asked(
    inside: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, asked = inside
    monkeypatch.setattr(http_session, "addresses", lambda *_: [PRIVATE])
    monkeypatch.setattr(http_session, "refuse_private", lambda *_: None)
    with http_session.open_connections(frozenset()) as client:
        assert client.get(f"http://registry.example.org:{port}/").status_code == 204
    assert asked == [f"registry.example.org:{port}"]


@pytest.mark.parametrize("addresses", [(PRIVATE,), (PUBLIC, PRIVATE)])
def test_an_image_is_looked_up_in_no_registry_of_ones_own_network(
    monkeypatch: pytest.MonkeyPatch, inside: tuple[int, list[str]], addresses: tuple[str, ...]
) -> None:
    port, asked = inside
    monkeypatch.setattr(socket, "getaddrinfo", meaning(*addresses))
    reference = f"registry.example.org:{port}/some/image@sha256:{'0' * 64}"
    with pytest.raises(InvalidInputError, match="not public"):
        make_public_lookup(MemoryStore())(reference, "linux", "amd64")
    assert asked == []


def test_no_credentials_of_the_service_are_sent_for_strangers(
    monkeypatch: pytest.MonkeyPatch, inside: tuple[int, list[str]]
) -> None:
    port, _ = inside

    def unwanted(*_: object) -> None:
        pytest.fail("the credentials of whoever runs the service were asked for")

    monkeypatch.setattr("benchlock.api.local.image_lookup.credentials_for", unwanted)
    monkeypatch.setattr(socket, "getaddrinfo", meaning(PUBLIC, PRIVATE))
    with pytest.raises(InvalidInputError, match="not public"):
        make_public_lookup(MemoryStore())(f"registry.example.org:{port}/some/image@sha256:{'0' * 64}", "linux", "amd64")


def test_a_source_that_a_publisher_names_is_written_down_and_asked_by_nobody(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwanted(*_: object, **__: object) -> None:
        pytest.fail("the service looked a host up")

    monkeypatch.setattr(socket, "getaddrinfo", unwanted)
    monkeypatch.setattr(socket, "create_connection", unwanted)
    sources = {"one": "https://169.254.169.254/latest/meta-data", "two": "hf://org/net@main/x", "three": "/etc/passwd"}
    manifest = plain(framework("acme/ort", "1.0.0"))
    for dry_run in (True, False):
        answer = client.post("/v1/artifacts", json={"manifest": manifest, "sources": sources, "dry_run": dry_run})
        assert answer.status_code in (200, 201), answer.text
    assert client.get("/v1/artifacts/framework/acme/ort@1.0.0").json()["sources"] == sources
