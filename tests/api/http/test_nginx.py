"""What nginx, with the configuration that is shipped, answers by itself: problems in JSON, with an id that it made."""

import json
import socket
import ssl
from collections.abc import Iterator

import pytest

from tests.support.servers.nginx import HOST, Nginx, proxying
from tests.support.servers.registry_server import free_port
from tests.support.servers.web import CERTIFICATE


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    """The proxy, with no service behind it."""
    with proxying(tmp_path_factory.mktemp("proxy") / "nginx", free_port(), free_port()) as found:
        yield found


def answer_to(nginx: Nginx, sent: bytes, *, plain: bool = False) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers and the body of the answer."""
    with socket.create_connection((HOST, nginx.front), 30) as connection:
        trusted = ssl.create_default_context(cafile=str(CERTIFICATE))
        channel = connection if plain else trusted.wrap_socket(connection, server_hostname=HOST)
        with channel:
            channel.sendall(sent)
            came = b"".join(iter(lambda: channel.recv(65536), b""))
    first, _, body = came.partition(b"\r\n\r\n")
    status, *lines = first.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(status.split()[1]), headers, body


def head(path: str, *lines: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", "Connection: close", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (head("/v1/health"), 502, "unavailable"),
        (head("/elsewhere"), 404, "unknown-name"),
        (head("/v1/health", f"X-Long: {'x' * 20_000}"), 431, "head-too-large"),
        (head(f"/v1/{'x' * 20_000}"), 431, "head-too-large"),
        (head("/v1/health", "Host: y"), 400, "malformed"),
        (head("/v1/health", "Content-Length: x"), 400, "malformed"),
    ],
)
def test_what_the_proxy_answers_itself_is_a_problem(nginx: Nginx, sent: bytes, status: int, code: str) -> None:
    found, headers, body = answer_to(nginx, sent)
    problem = json.loads(body)
    assert (found, problem["status"], problem["code"]) == (status, status, code)
    assert headers["content-type"] == "application/problem+json"
    assert headers["x-request-id"] == problem["request_id"]


def test_plain_http_is_refused_with_a_problem(nginx: Nginx) -> None:
    status, _, body = answer_to(nginx, head("/v1/health"), plain=True)
    assert (status, json.loads(body)["code"]) == (400, "malformed")


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("a-plain_word.1", True),
        ("x" * 64, True),
        ("x" * 65, False),
        ("two words", False),
        ('quoted"', False),
        ("benchlock_" + "a" * 40, False),
        ("é", False),
    ],
)
def test_a_malformed_request_id_is_replaced(nginx: Nginx, given: str, taken: bool) -> None:
    _, headers, body = answer_to(nginx, head("/elsewhere", f"X-Request-Id: {given}"))
    assert (headers["x-request-id"] == given) is taken
    assert json.loads(body)["request_id"] == headers["x-request-id"]
    assert given in nginx.lines.read_text() or not taken
    assert taken or f'"request_id":"{given}"' not in nginx.lines.read_text()
