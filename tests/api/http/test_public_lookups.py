"""What a service asks elsewhere for strangers leads to public addresses alone."""

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from benchlock.api.local.container_registry_access import connect_in_public, look_up_image
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.registry.manifests import plain
from tests.api.http.conftest import Client
from tests.support.artifacts.memory_store import MemoryStore
from tests.support.registry.frameworks import framework

PRIVATE = "127.0.0.1"


def resolve(_host: str, port: int, *_: object, **__: object) -> list[Any]:
    """A resolver to which every name is a server of the service's own network."""
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (PRIVATE, port))]


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


def test_an_image_is_looked_up_in_no_registry_of_ones_own_network(
    monkeypatch: pytest.MonkeyPatch, inside: tuple[int, list[str]]
) -> None:
    port, asked = inside
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    reference = f"registry.example.org:{port}/some/image@sha256:{'0' * 64}"
    with pytest.raises(InvalidInputError, match="not public"):
        look_up_image(MemoryStore(), reference, "linux", "amd64", connect_in_public)
    assert asked == []


def test_a_name_that_only_a_proxy_knows_is_not_looked_up(
    monkeypatch: pytest.MonkeyPatch, inside: tuple[int, list[str]]
) -> None:
    def resolve_proxy_alone(host: str, port: int, *_: object, **__: object) -> list[Any]:
        if host == PRIVATE:
            return resolve(host, port)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    port, asked = inside
    monkeypatch.setenv("HTTPS_PROXY", f"http://{PRIVATE}:{port}")
    monkeypatch.setattr(socket, "getaddrinfo", resolve_proxy_alone)
    monkeypatch.setattr("benchlock.artifacts.net.http_session.PAUSES", (0.0,) * 4)
    with pytest.raises(UnavailableError, match=r"registry\.internal/.* cannot be reached: .*not known"):
        look_up_image(
            MemoryStore(), f"registry.internal/some/image@sha256:{'0' * 64}", "linux", "amd64", connect_in_public
        )
    assert asked == []


def test_no_credentials_of_the_service_are_sent_for_strangers(
    monkeypatch: pytest.MonkeyPatch, inside: tuple[int, list[str]]
) -> None:
    port, _ = inside

    def unwanted(*_: object) -> None:
        pytest.fail("the credentials of whoever runs the service were asked for")

    monkeypatch.setattr("benchlock.api.local.container_registry_access.credentials_for", unwanted)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(InvalidInputError, match="not public"):
        look_up_image(
            MemoryStore(),
            f"registry.example.org:{port}/some/image@sha256:{'0' * 64}",
            "linux",
            "amd64",
            connect_in_public,
        )


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
